"""A request to the proxy is read in exactly one way, or refused (row 58)."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adk_skills_agent.sandbox.network.proxy_request import MAX_HEADERS, Refused, parse_request


def head(*lines: str) -> bytes:
    return "\r\n".join(lines).encode("latin-1")


def test_connect_names_a_host_and_a_port() -> None:
    request = parse_request(head("CONNECT API.Example.org.:443 HTTP/1.1", "Host: api.example.org:443"))
    assert (request.host, request.port, request.head, request.body_bytes) == ("api.example.org", 443, None, 0)


def test_connect_of_http_1_0_without_a_host_header_is_understood() -> None:
    assert parse_request(head("CONNECT example.org:443 HTTP/1.0")).port == 443


def test_a_plain_request_is_written_anew() -> None:
    request = parse_request(
        head(
            "POST http://Example.org:8080/a/b?c=http://x HTTP/1.1",
            "host: example.ORG:8080",
            "Proxy-Connection: keep-alive",
            "Proxy-Authorization: Basic abc",
            "Connection: keep-alive, X-Hop, host, content-length",
            "X-Hop: 1",
            "Upgrade: websocket",
            "TE: trailers",
            "content-length: 5",
            "Accept: */* ",
        )
    )
    assert (request.host, request.port, request.body_bytes) == ("example.org", 8080, 5)
    assert request.head == (
        b"POST /a/b?c=http://x HTTP/1.1\r\nHost: example.org:8080\r\naccept: */*\r\nContent-Length: 5\r\n"
        b"Connection: close\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("target", "path"), [("http://a.example", b"/"), ("http://a.example?q", b"/?q"), ("HTTP://a.example/%20", b"/%20")]
)
def test_a_plain_request_without_a_path_asks_for_the_root(target: str, path: bytes) -> None:
    request = parse_request(head(f"GET {target} HTTP/1.1"))
    assert request.port == 80
    assert request.head is not None
    assert request.head.startswith(b"GET %s HTTP/1.1\r\nHost: a.example\r\n" % path)


@pytest.mark.parametrize(
    "target",
    [
        "evil\0.example.org:443",
        "example.org",
        "example.org:",
        "example.org:0",
        "example.org:0443",
        "example.org:65536",
        "example.org:443:443",
        "example.org:+443",
        "example.org:443/",
        "http://example.org:443",
        "user@example.org:443",
        "example.org:443@evil.test:443",
        "example.org%00.evil.test:443",
        "example.org\t:443",
        "[example.org]:443",
        "",
        "/",
        "*",
        ":443",
        "b\xfccher.example:443",
    ],
)
def test_a_connect_target_that_is_not_host_and_port_is_refused(target: str) -> None:
    with pytest.raises(Refused):
        parse_request(head(f"CONNECT {target} HTTP/1.1"))


@pytest.mark.parametrize(
    "target",
    [
        "http://user@example.org/",
        "http://user:pw@example.org/",
        "http://example.org@evil.test/",
        "http://example.org\\@evil.test/",
        "http://example.org#@evil.test/",
        "http://example.org/#x",
        "http://example.org/a\\b",
        "http:///x",
        "http:/example.org/",
        "//example.org/",
        "/",
        "https://example.org/",
        "ftp://example.org/",
        "http://exam ple.org/",
        "http://example.org:99999/",
        "http://example.org\x01/",
        "http://example.org/\x7f",
        "http://127.0.0.1/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]:80/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://017700000001/",
    ],
)
def test_a_plain_target_with_two_readings_is_refused(target: str) -> None:
    with pytest.raises(Refused):
        parse_request(head(f"GET {target} HTTP/1.1"))


@pytest.mark.parametrize(
    "line",
    [
        "GET http://example.org/",
        "GET  http://example.org/ HTTP/1.1",
        " GET http://example.org/ HTTP/1.1",
        "GET http://example.org/ HTTP/1.1 ",
        "GET http://example.org/ HTTP/2.0",
        "GET http://example.org/ HTTP/1.10",
        "get http://example.org/ HTTP/1.1",
        "GET\thttp://example.org/\tHTTP/1.1",
        "G\0T http://example.org/ HTTP/1.1",
        "",
    ],
)
def test_a_malformed_request_line_is_refused(line: str) -> None:
    with pytest.raises(Refused, match="request line"):
        parse_request(head(line))


@pytest.mark.parametrize(
    "lines",
    [
        ("Host: example.org", "Host: example.org"),
        ("Host: evil.test",),
        ("Host: example.org:81",),
        ("Host: example.org, evil.test",),
        ("Host: evil.test@example.org",),
        ("Content-Length: 1", "Content-Length: 1"),
        ("Content-Length: 1, 1",),
        ("Content-Length: +1",),
        ("Content-Length: 0x1",),
        ("Content-Length: -1",),
        ("Content-Length: \u00b2",),
        ("Content-Length:",),
        ("Transfer-Encoding: chunked",),
        ("Transfer-Encoding: chunked", "Content-Length: 3"),
        ("transfer-encoding: \x0bchunked",),
        ("Transfer-Encoding : chunked",),
        ("X: a", " folded"),
        ("X: a", "\tfolded"),
        ("X : a",),
        ("X",),
        (": a",),
        ("X\0: a",),
        ("X: a\0b",),
        ("X: a\nContent-Length: 3",),
        ("X: a\rContent-Length: 3",),
        ("X: \x1b[31m",),
        ("",),
    ],
)
def test_headers_that_could_hide_another_request_are_refused(lines: tuple[str, ...]) -> None:
    with pytest.raises(Refused) as caught:
        parse_request(head("POST http://example.org/ HTTP/1.1", *lines))
    assert caught.value.host == "example.org"


def test_too_many_headers_are_refused() -> None:
    with pytest.raises(Refused, match="more than 100") as caught:
        parse_request(head("GET http://example.org/ HTTP/1.1", *["X: y"] * (MAX_HEADERS + 1)))
    assert caught.value.status == 431


@settings(suppress_health_check=list(HealthCheck))
@given(
    st.binary(max_size=200)
    | st.builds(lambda a, b: b"CONNECT " + a + b":443 HTTP/1.1\r\n" + b, st.binary(), st.binary())
)
def test_any_bytes_give_a_clean_request_or_a_refusal(data: bytes) -> None:
    try:
        request = parse_request(data)
    except Refused:
        return
    assert request.host == request.host.lower()
    assert all(c.isalnum() or c in "-._" for c in request.host)
    assert 0 < request.port < 65536
