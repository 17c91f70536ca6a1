"""What the proxy allows and refuses, against a real server reachable only by a constructor argument (row 58)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from proxied_world import Make, worlds

from adk_skills_agent.sandbox.contract import NetworkDecision


@pytest.fixture
async def make(nothing_left: None) -> AsyncIterator[Make]:
    async with worlds() as build:
        yield build


async def test_an_allowed_host_is_tunnelled_to(make: Make) -> None:
    world = make()
    answer = await world.connect(f"allowed.example:{world.server.port}")
    assert answer.startswith(b"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"hello")
    assert world.proxy.decisions == [
        NetworkDecision("allowed.example", world.server.port, True, "allowed", "127.0.0.1")
    ]


async def test_an_allowed_host_is_asked_over_plain_http_with_a_head_of_the_proxys_own(make: Make) -> None:
    world = make()
    answer = await world.ask(
        f"POST http://ALLOWED.example:{world.server.port}/x HTTP/1.1\r\nProxy-Connection: keep-alive\r\n"
        "Content-Length: 4\r\n\r\nbody".encode()
    )
    assert answer.endswith(b"hellobody")
    assert world.server.requests == [
        f"POST /x HTTP/1.1\r\nHost: allowed.example:{world.server.port}\r\nContent-Length: 4\r\n"
        "Connection: close\r\n\r\nbody".encode()
    ]


@pytest.mark.parametrize("name", ["Allowed.EXAMPLE", "allowed.example.", "a.b.wild.example", "XN--bcher-KVA.example"])
async def test_other_spellings_of_an_allowed_name_are_the_same_name(make: Make, name: str) -> None:
    world = make()
    assert b"hello" in await world.connect(f"{name}:{world.server.port}")
    assert world.names.asked == [name.lower().removesuffix(".")]


@pytest.mark.parametrize(
    "name",
    [
        "evil.test",
        "allowed.example.evil.test",
        "evilallowed.example",
        "sub.allowed.example",
        "wild.example",
        "evilwild.example",
        "xn--bcher-kvb.example",
        "localhost",
        "metadata.google.internal",
    ],
)
async def test_another_name_is_refused_and_never_resolved(make: Make, name: str) -> None:
    world = make()
    for answer in (await world.connect(f"{name}:{world.server.port}"), await world.get(name)):
        assert answer.startswith(b"HTTP/1.1 403 Forbidden\r\n")
        assert b"not in the allow-list" in answer
        assert (world.last.host, world.last.allowed) == (name, False)
    assert world.names.asked == []
    assert world.server.requests == []


@pytest.mark.parametrize(
    "name",
    [
        "evil\0.allowed.example",
        "evil.test\0.allowed.example",
        "allowed.example\0.evil.test",
        "evil.test%00.allowed.example",
        "evil.test\t.allowed.example",
        "evil.test .allowed.example",
        "evil.test@allowed.example",
        "user:pw@allowed.example",
        "allowed.example#.evil.test",
        "allowed.example/.evil.test",
        "allowed.example\\.evil.test",
        "allowed.example..",
        "b\xfccher.example",
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "169.254.169.254",
    ],
)
async def test_a_name_with_two_readings_or_an_address_is_refused_and_never_resolved(make: Make, name: str) -> None:
    world = make()
    answer = await world.connect(f"{name}:{world.server.port}")
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 403 "))
    assert not world.last.allowed
    assert world.last.host.isprintable()
    assert world.names.asked == []
    assert world.server.requests == []


async def test_an_empty_allow_list_allows_nothing(make: Make) -> None:
    world = make(hosts=())
    assert (await world.connect(f"allowed.example:{world.server.port}")).startswith(b"HTTP/1.1 403 ")
    assert world.server.requests == []


async def test_another_port_is_refused(make: Make) -> None:
    world = make()
    answer = await world.connect("allowed.example:22")
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert f"allowed.example:22: the port is not in the allow-list ({world.server.port})".encode() in answer
    assert (await world.ask(b"GET http://allowed.example/ HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 403 ")
    assert world.last.port == 80
    assert world.names.asked == []


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1", "loopback"),
        ("::1", "loopback"),
        ("10.0.0.7", "a private network"),
        ("169.254.169.254", "link-local"),
        ("fd00:ec2::254", "a cloud platform's own service"),
        ("::ffff:127.0.0.1", "loopback"),
        ("64:ff9b::7f00:1", "loopback"),
        ("0.0.0.0", "this machine"),
    ],
)
async def test_an_allowed_name_that_leads_inside_is_refused_without_telling_where(
    make: Make, address: str, reason: str
) -> None:
    world = make(allow=())
    world.names.addresses["1.2.3.4.nip.io"] = (address,)
    answer = await world.connect(f"1.2.3.4.nip.io:{world.server.port}")
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert reason.encode() in answer
    assert address.encode() not in answer
    assert (world.last.allowed, world.last.address) == (False, address)
    assert world.server.requests == []


async def test_a_name_is_resolved_once_so_a_rebinding_name_server_gains_nothing(make: Make) -> None:
    world = make()
    world.names.next_addresses["rebind.example"] = ("127.0.0.1",)
    world.names.addresses["rebind.example"] = ("10.0.0.1",)
    assert b"hello" in await world.connect(f"rebind.example:{world.server.port}")
    assert world.names.asked == ["rebind.example"]
    assert (await world.connect(f"rebind.example:{world.server.port}")).startswith(b"HTTP/1.1 403 ")
    assert len(world.server.requests) == 1


async def test_of_several_addresses_only_the_permitted_ones_are_connected_to(make: Make) -> None:
    world = make()
    world.names.addresses["allowed.example"] = ("127.0.0.2", "::1", "127.0.0.1")
    assert b"hello" in await world.connect(f"allowed.example:{world.server.port}")
    assert [decision.address for decision in world.proxy.decisions] == ["127.0.0.1"]


async def test_the_next_address_is_tried_when_one_does_not_answer(make: Make) -> None:
    world = make(allow=("127.0.0.0/8",))
    world.names.addresses["allowed.example"] = ("127.0.0.9", "127.0.0.1")
    assert b"hello" in await world.connect(f"allowed.example:{world.server.port}")
    assert [decision.address for decision in world.proxy.decisions] == ["127.0.0.9", "127.0.0.1"]


async def test_a_host_that_does_not_answer_or_does_not_resolve_is_a_bad_gateway(make: Make) -> None:
    world = make(allow=("127.0.0.0/8",))
    world.names.addresses["inside.example"] = ("127.0.0.9",)
    assert (await world.get("inside.example")).startswith(b"HTTP/1.1 502 ")
    del world.names.addresses["allowed.example"]
    assert (await world.get("allowed.example")).startswith(b"HTTP/1.1 502 ")
    world.names.addresses["allowed.example"] = ()
    assert (await world.get("allowed.example")).startswith(b"HTTP/1.1 502 ")


async def test_a_second_request_behind_the_first_is_never_passed_on(make: Make) -> None:
    world = make()
    smuggled = b"GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n"
    first = f"GET http://allowed.example:{world.server.port}/stuck HTTP/1.1\r\n\r\n".encode()
    assert await world.ask(first + smuggled) == b""
    body = f"POST http://allowed.example:{world.server.port}/stuck HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc".encode()
    assert await world.ask(body + smuggled) == b""
    assert len(world.server.requests) == 2
    assert all(b"evil" not in request for request in world.server.requests)


@pytest.mark.parametrize(
    "lines",
    [
        "Content-Length: 3\r\nContent-Length: 30",
        "Transfer-Encoding: chunked\r\nContent-Length: 3",
        "Transfer-Encoding: chunked",
        "Host: evil.test",
        "Host: allowed.example\r\nHost: evil.test",
        "X: a\r\n folded",
        "X: a\x01",
    ],
)
async def test_a_request_that_two_servers_could_read_differently_is_refused(make: Make, lines: str) -> None:
    world = make()
    answer = await world.ask(
        f"POST http://allowed.example:{world.server.port}/ HTTP/1.1\r\n{lines}\r\n\r\nabc".encode("latin-1")
    )
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 411 "))
    assert world.server.requests == []


@pytest.mark.parametrize(
    "data", [b"GET http://allowed.example/ HTTP/1.1\n\n", b"CONNECT a.example:443 HTTP/1.1\r\nX: y\n"]
)
async def test_bare_line_feeds_are_refused_at_once(make: Make, data: bytes) -> None:
    assert (await make().ask(data)).startswith(b"HTTP/1.1 400 ")


async def test_bytes_that_are_no_request_are_refused(make: Make) -> None:
    world = make()
    for data in (b"\x05\x01\x00\r\n\r\n", b"\x16\x03\x01" + b"a" * 100 + b"\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"):
        assert (await world.ask(data)).startswith(b"HTTP/1.1 400 ")
    await world.ask(b"CONNECT allowed", end=True)
    assert world.last.reason == "the request is incomplete"


async def test_a_private_server_is_reached_by_the_name_that_was_granted_with_its_network_alone(make: Make) -> None:
    world = make(hosts=["files.corp.example=10.20.0.0/16", "other.example"], connect_seconds=0.2)
    for name in ("files.corp.example", "other.example"):
        world.names.addresses[name] = ("10.20.3.4",)
    assert b"refused (a private network)" in await world.connect(f"other.example:{world.server.port}")
    assert not world.last.allowed
    await world.connect(f"files.corp.example:{world.server.port}")
    assert (world.last.allowed, world.last.address) == (True, "10.20.3.4")
