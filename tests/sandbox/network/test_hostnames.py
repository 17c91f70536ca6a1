"""Names of hosts and the patterns of an allow-list (row 58)."""

from __future__ import annotations

import pytest

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox.contract import Network
from adk_skills_agent.sandbox.network.hosts import AllowedHosts, HostNameError, normalise_host, parse_hosts
from adk_skills_agent.sandbox.policy import resolve_policy


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("Example.ORG", "example.org"),
        ("example.org.", "example.org"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("1.2.3.4.nip.io", "1.2.3.4.nip.io"),
        ("my_bucket.example.org", "my_bucket.example.org"),
        ("localhost", "localhost"),
    ],
)
def test_a_name_has_one_form(written: str, normal: str) -> None:
    assert normalise_host(written) == normal


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0X7F.1",
        "0177.0.0.1",
        "evil.0x7f",
        "1.2.3.4.",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0x",
    ],
)
def test_an_address_in_any_notation_is_no_name(text: str) -> None:
    with pytest.raises(HostNameError, match="IP address"):
        normalise_host(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "a..b",
        ".a",
        "a.b..",
        "-a.b",
        "a-.b",
        "evil\0.example.org",
        "a b.example",
        "a\tb.example",
        "a\n.example",
        "a%2e.example",
        "user@example.org",
        "a/b",
        "a" * 64 + ".example",
        ".".join(["abcdefg"] * 32),
        "bücher.example",
        "ⓔxample.org",
        "example。org",
        "::1",
        "fe80::1%eth0",
    ],
)
def test_what_is_no_plain_name_is_refused(text: str) -> None:
    with pytest.raises(HostNameError):
        normalise_host(text)


def test_a_wildcard_means_sub_domains_at_any_depth_and_not_the_domain() -> None:
    allowed = parse_hosts(["*.Example.org."])
    assert allowed.allows("a.example.org")
    assert allowed.allows("a.b.example.org")
    assert not allowed.allows("example.org")
    assert not allowed.allows("evilexample.org")
    assert not allowed.allows("example.org.evil.test")


def test_an_exact_name_means_only_itself() -> None:
    allowed = parse_hosts(["API.example.org"])
    assert allowed.allows("api.example.org")
    assert not allowed.allows("a.api.example.org")
    assert not allowed.allows("example.org")


def test_an_empty_list_allows_nothing() -> None:
    for nothing in (AllowedHosts(), parse_hosts([])):
        assert not nothing.allows("example.org")
        assert not nothing.allows("")


def test_a_host_may_have_a_port_of_its_own() -> None:
    allowed = parse_hosts(["api.example.org", "db.example.org:5432", "*.example.org:8443"])
    assert allowed.ports_of("api.example.org", (443,)) == {443, 8443}
    assert allowed.ports_of("db.example.org", (443,)) == {5432, 8443}
    assert allowed.ports_of("x.example.org", (443,)) == {8443}
    assert allowed.ports_of("example.org", (443,)) == frozenset()


def test_a_host_may_have_its_private_network() -> None:
    hosts = ["files.corp.example:8081=10.20.0.0/16", "*.lab.example=fd12::/16", "api.example.org"]
    allowed = parse_hosts(hosts, ["secret.lab.example"])
    assert allowed.ports_of("files.corp.example", (443,)) == {8081}
    assert list(map(str, allowed.networks_of("files.corp.example"))) == ["10.20.0.0/16"]
    assert list(map(str, allowed.networks_of("a.lab.example"))) == ["fd12::/16"]
    for name in ("api.example.org", "lab.example", "x.files.corp.example", "secret.lab.example"):
        assert allowed.networks_of(name) == ()


def test_what_is_refused_wins_over_every_wider_entry_and_over_the_same_one() -> None:
    hosts = ["*.example.org", "a.bad.example.org", "same.example.org"]
    allowed = parse_hosts(hosts, ["*.bad.example.org", "same.example.org", "x.example.org"])
    assert allowed.allows("good.example.org")
    assert allowed.allows("a.bad.example.org")
    assert not allowed.allows("b.bad.example.org")
    assert not allowed.allows("same.example.org")
    assert not allowed.allows("x.example.org")


def test_refusing_everything_leaves_what_is_spelled_out() -> None:
    assert not parse_hosts([], ["*"]).allows("example.org")
    assert parse_hosts(["*.example.org"], ["*"]).allows("a.example.org")


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("*", "has a \\* where none can be"),
        ("*.*.example.org", "has a \\* where none can be"),
        ("api-*.example.org", "has a \\* where none can be"),
        ("**.example.org", "has a \\* where none can be"),
        ("*.org", "top-level domain"),
        ("*.", "empty"),
        ("10.0.0.1", "IP address"),
        ("bücher.example", "xn--"),
        ("https://example.org", "not a host name"),
        ("example.org:0", "no possible port"),
        ("example.org:70000", "no possible port"),
        ("example.org:443000", "no possible port"),
        ("example.org:443:1", "not a host name"),
        ("example.org:", "not a host name"),
        ("example.org=", "no network"),
        ("example.org=corp", "no network"),
        ("example.org=10.20.3.4/16", "has host bits set"),
        ("example.org=0.0.0.0/0", "no private network; only parts of 10.0.0.0/8"),
        ("example.org=127.0.0.1/32", "no private network"),
        ("example.org=169.254.169.254", "no private network"),
        ("=10.0.0.0/8", "empty"),
        ("*=10.0.0.0/8", r"has a \* where none can be"),
    ],
)
def test_a_pattern_that_cannot_be_meant_is_refused_before_anything_runs(pattern: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_hosts([pattern])
    with pytest.raises(ConfigError, match=said):
        resolve_policy(call={"network": Network.allow(pattern)})
