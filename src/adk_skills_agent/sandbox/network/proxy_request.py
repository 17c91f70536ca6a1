"""One request to the proxy, parsed once and strictly (row 58).

Whatever two programs could read differently is refused: bare line feeds, folded or padded header lines, control bytes,
user information, two values for one length or host. What is passed on is written anew from the parsed values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from adk_skills_agent.sandbox.network.hosts import HostNameError, normalise_host

MAX_HEADERS = 100

_REQUEST_LINE = re.compile(rb"([A-Z]{1,20}) ([!-~]+) (HTTP/1\.[01])")
_HEADER = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\t\x20-\x7e\x80-\xff]*)")
_AUTHORITY = re.compile(r"([^:@/?#\\%\[\]]+|\[[^\]@]*\])(?::([1-9][0-9]{0,4}))?")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_HTTP_PORT = 80
# What concerns only the connection to the proxy, and what would turn the exchange into another protocol.
_HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"upgrade",
        b"http2-settings",
    )
)
# Written from the parsed values; a Connection header cannot make the proxy drop them.
_OWN = frozenset((b"host", b"content-length"))


class Refused(Exception):
    """A connection that is answered by the proxy itself; the message says why, ``address`` may be the reason.

    ``host`` is what was asked for as far as that is known: visible ASCII of any length. ``listed`` is False when only
    the allow-list was the reason.
    """

    def __init__(
        self,
        reason: str,
        *,
        status: int = 400,
        host: str = "",
        port: int | None = None,
        address: str | None = None,
        listed: bool = True,
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.host = host
        self.port = port
        self.address = address
        self.listed = listed


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    """What the client asks for: where to, what to send there first (None for a tunnel), bytes of body that follow."""

    host: str
    port: int
    head: bytes | None = None
    body_bytes: int = 0


def parse_request(head: bytes) -> ProxyRequest:
    """Read a request's head.

    Refused when it cannot be read in exactly one way, or asks for what the proxy does not do.
    """
    line, *rest = head.split(b"\r\n")
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        raise Refused("the request line is malformed")
    method, raw_target, version = match.groups()
    target = raw_target.decode("ascii")
    if method == b"CONNECT":
        host, port = _authority(target, None)
        _check_host_header(_headers(rest, host, port), host, port)
        return ProxyRequest(host, port)
    if target[:8].lower() == "https://":
        raise Refused("https through a proxy needs CONNECT")
    if target[:7].lower() != "http://":
        raise Refused("this is a proxy: the request needs a full http:// address, or CONNECT")
    split = re.search(r"[/?#]", target[7:])
    end = len(target) if split is None else 7 + split.start()
    host, port = _authority(target[7:end], _HTTP_PORT)
    path = target[end:]
    if "#" in path or "\\" in path:
        raise Refused("the address has a fragment or a backslash", host=host, port=port)
    headers = _headers(rest, host, port)
    _check_host_header(headers, host, port)
    length = _body_length(headers, host, port)
    if not path.startswith("/"):
        path = f"/{path}"
    return ProxyRequest(host, port, _forwarded(method, path, version, headers, host, port, length), length or 0)


def _authority(text: str, default_port: int | None) -> tuple[str, int]:
    """Host and port of ``host:port``; the port is optional where there is a default."""
    if "@" in text:
        raise Refused("the address has user information", host=text.rpartition("@")[2])
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        raise Refused("the address is malformed", host=text)
    raw_host, raw_port = match.groups()
    port = default_port if raw_port is None else int(raw_port)
    if port is None or port > 65535:
        raise Refused("the address has no valid port", host=raw_host)
    try:
        return normalise_host(raw_host), port
    except HostNameError as error:
        raise Refused(f"the host {error}", status=403, host=raw_host, port=port) from None


def _headers(lines: list[bytes], host: str, port: int) -> list[tuple[bytes, bytes]]:
    if len(lines) > MAX_HEADERS:
        raise Refused(f"there are more than {MAX_HEADERS} headers", status=431, host=host, port=port)
    found = []
    for line in lines:
        match = _HEADER.fullmatch(line)
        if match is None:
            raise Refused("a header line is malformed", host=host, port=port)
        found.append((match[1].lower(), match[2].rstrip(b" \t")))
    return found


def _check_host_header(headers: list[tuple[bytes, bytes]], host: str, port: int) -> None:
    values = [value for name, value in headers if name == b"host"]
    if len(values) > 1:
        raise Refused("there are two Host headers", host=host, port=port)
    if not values or not values[0]:
        return
    try:
        named, named_port = _authority(values[0].decode("latin-1"), port)
    except Refused:
        raise Refused("the Host header is malformed", host=host, port=port) from None
    if named != host or named_port != port:
        raise Refused("the Host header names another host", host=host, port=port)


def _body_length(headers: list[tuple[bytes, bytes]], host: str, port: int) -> int | None:
    if any(name == b"transfer-encoding" for name, _ in headers):
        raise Refused("a body needs Content-Length, not Transfer-Encoding", status=411, host=host, port=port)
    values = [value for name, value in headers if name == b"content-length"]
    if not values:
        return None
    if len(values) > 1 or not _LENGTH.fullmatch(values[0]):
        raise Refused("Content-Length is not one number", host=host, port=port)
    return int(values[0])


def _forwarded(
    method: bytes,
    path: str,
    version: bytes,
    headers: list[tuple[bytes, bytes]],
    host: str,
    port: int,
    length: int | None,
) -> bytes:
    named = {token.strip().lower() for name, value in headers if name == b"connection" for token in value.split(b",")}
    lines = [b"%s %s %s" % (method, path.encode("ascii"), version)]
    lines.append(b"Host: %s" % (host if port == _HTTP_PORT else f"{host}:{port}").encode("ascii"))
    lines += [
        b"%s: %s" % (name, value) for name, value in headers if name not in _HOP_BY_HOP | _OWN and name not in named
    ]
    if length is not None:
        lines.append(b"Content-Length: %d" % length)
    lines.append(b"Connection: close")
    return b"\r\n".join(lines) + b"\r\n\r\n"
