"""What a script can make the proxy do to the agent: bounded time, memory, connections and log (rows 58, 65, 73)."""

from __future__ import annotations

import asyncio
import base64
import fcntl
import logging
import os
import select
import socket
import struct
import sys
import termios
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from proxied_world import HOSTS, Make, Names, World, worlds

from adk_skills_agent.sandbox import threads
from adk_skills_agent.sandbox.network import proxy, resolver
from adk_skills_agent.sandbox.network.hosts import parse_hosts
from adk_skills_agent.sandbox.secrets import Secret, SecretForms
from adk_skills_agent.sandbox.threads import OnePerProcess


@pytest.fixture
async def make(nothing_left: None) -> AsyncIterator[Make]:
    async with worlds() as build:
        yield build


async def test_a_name_server_that_does_not_answer_is_given_up(make: Make) -> None:
    world = make(resolve_seconds=0.05)
    world.names.delay = 30
    assert (await world.get("allowed.example")).startswith(b"HTTP/1.1 504 ")
    assert "in time" in world.last.reason


async def test_row_150_names_that_hang_hold_up_no_other_run(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: one run with four names of its own, whose server does not answer, stopped the lookups of all for 30 s."""
    goes_on, hangs = threading.Event(), []

    def look_up(host: str, _port: int) -> list[str]:
        if host.endswith(".wild.example"):
            hangs.append(host)
            goes_on.wait(20)
        return ["127.0.0.1"]

    monkeypatch.setattr(resolver, "look_up", look_up)
    hostile, other = make(resolve_seconds=0.05), make()
    hostile.proxy._resolve = other.proxy._resolve = resolver.resolve
    try:
        answers = await asyncio.gather(*(hostile.get(f"{number}.wild.example") for number in range(12)))
        assert all(answer.startswith(b"HTTP/1.1 504 ") for answer in answers)
        assert len(hangs) == 2  # those that nobody waits for any more count
        assert (await other.get("allowed.example")).startswith(b"HTTP/1.1 200 ")
    finally:
        goes_on.set()


async def test_a_head_of_100_mb_is_refused_after_16_kib(make: Make) -> None:
    world = make()
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(b"GET http://allowed.example/ HTTP/1.1\r\nX: ")
    with suppress(ConnectionError):
        for _ in range(100):
            writer.write(b"a" * (1 << 20))
            await writer.drain()
    with suppress(ConnectionError):
        assert (await reader.read()).startswith(b"HTTP/1.1 431 ")
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
    assert "larger than 16384 bytes" in world.last.reason


async def test_a_client_that_drips_its_head_is_answered_in_time(make: Make) -> None:
    world = make(head_seconds=0.1)
    assert (await world.ask(b"CONNECT allowed.exa")).startswith(b"HTTP/1.1 408 ")


async def test_a_tunnel_on_which_nothing_moves_is_closed(make: Make) -> None:
    world = make(idle_seconds=0.1)
    assert await world.get("allowed.example", "/stuck") == b""
    tunnelled = await world.ask(f"CONNECT allowed.example:{world.server.port} HTTP/1.1\r\n\r\n".encode())
    assert tunnelled == b"HTTP/1.1 200 Connection established\r\n\r\n"


async def test_a_client_that_gives_up_early_takes_its_connection_along(make: Make) -> None:
    world = make()
    for path in ("/big", "/stuck", "/"):
        _, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(f"GET http://allowed.example:{world.server.port}{path} HTTP/1.1\r\n\r\n".encode())
        await writer.drain()
        writer.transport.abort()
    await world.proxy.stop()


async def test_a_host_that_keeps_connections_open_does_not_hold_a_place(make: Make) -> None:
    world = make(connections=1)
    for _ in range(3):
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(f"GET http://allowed.example:{world.server.port}/keep HTTP/1.1\r\n\r\n".encode())
        async with asyncio.timeout(20):
            assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 OK")
        writer.close()
        await writer.wait_closed()
    assert b"hello" in await world.get("allowed.example")


async def test_a_large_answer_passes_through_a_small_buffer(make: Make) -> None:
    world = make()
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(f"GET http://allowed.example:{world.server.port}/big HTTP/1.1\r\n\r\n".encode())
    taken = 0
    while not taken or world.server.sent != taken:  # nobody reads: meanwhile everything in between fills up
        taken = world.server.sent
        await asyncio.sleep(0.3)
    assert 0 < taken < 32 << 20
    count = 0
    while data := await reader.read(1 << 16):
        count += len(data)
    writer.close()
    assert count > 64 << 20


def queues_to(port: int) -> dict[str, list[int]]:
    """Bytes on their way to a port of this machine, by the state of the connections that lead there."""
    found: dict[str, list[int]] = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, _, remote, state, queues, *_ = line.split()
        if remote.endswith(f":{port:04X}"):
            found.setdefault(state, []).append(int(queues.partition(":")[0], 16))
    return found


ESTABLISHED, FIN_WAIT_1 = "01", "04"


@pytest.fixture
def deaf() -> Iterator[socket.socket]:
    """A host that reads nothing."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        yield listener


async def fill(world: World, port: int) -> socket.socket:
    """A tunnel into which a client has put all that there is room for."""
    loop = asyncio.get_running_loop()
    client = socket.socket()
    client.setblocking(False)
    await loop.sock_connect(client, ("127.0.0.1", world.port))
    await loop.sock_sendall(client, f"CONNECT allowed.example:{port} HTTP/1.1\r\n\r\n".encode())
    assert (await loop.sock_recv(client, 1 << 10)).startswith(b"HTTP/1.1 200 ")
    with suppress(TimeoutError):
        while True:
            async with asyncio.timeout(0.2):
                await loop.sock_sendall(client, bytes(1 << 16))
    return client


async def test_row_210_a_host_that_reads_nothing_holds_little_memory(make: Make, deaf: socket.socket) -> None:
    port = deaf.getsockname()[1]
    world = make(ports=(port,))
    with await fill(world, port), deaf.accept()[0]:
        (waiting,) = queues_to(port)[ESTABLISHED]
        assert 0 < waiting < 512 << 10


@pytest.mark.parametrize("end", ["the run", "the client", "nothing moves"])
async def test_row_210_no_connection_outlives_its_run(make: Make, deaf: socket.socket, end: str) -> None:
    port = deaf.getsockname()[1]
    world = make(ports=(port,), idle_seconds=0.3 if end == "nothing moves" else 60)
    client = await fill(world, port)
    with client, deaf.accept()[0] as host:
        if end == "the client":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            host.sendall(b"x" * (1 << 16))  # that the client has gone is seen when something is to be passed on
        if end == "the run":
            await world.proxy.stop()
        async with asyncio.timeout(20):
            while world.proxy._clients:
                await asyncio.sleep(0.01)
        assert FIN_WAIT_1 not in queues_to(port)


async def test_row_220_what_a_host_sends_and_nobody_reads_holds_little_memory(make: Make) -> None:
    """Seen: 3 MiB for each of 32 connections on their way to the script, and as much from the host, which may make that
    33 MiB; it is memory of the agent, and counts for no run.
    """
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        port = listener.getsockname()[1]
        world = make(ports=(port,))
        client.setblocking(False)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await loop.sock_connect(client, ("127.0.0.1", world.port))
        await loop.sock_sendall(client, f"CONNECT allowed.example:{port} HTTP/1.1\r\n\r\n".encode())
        await loop.sock_recv(client, 1 << 10)
        with listener.accept()[0] as host:
            host.setblocking(False)
            with suppress(TimeoutError):
                while True:
                    async with asyncio.timeout(0.2):
                        await loop.sock_sendall(host, bytes(1 << 16))
            ((to_client, from_host),) = world.proxy._clients.values()
            waiting = int.from_bytes(fcntl.ioctl(to_client.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
            assert 0 < waiting < 512 << 10
            assert from_host.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) < 7 << 20
            await world.proxy.stop()


async def test_row_388_only_some_connections_may_receive_much_at_a_time(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: 18 runs that read nothing, with 32 connections each, would be all memory that the machine has for TCP."""
    together = proxy.Shares()
    together.large = 4
    monkeypatch.setattr(proxy, "shares", lambda: together)
    monkeypatch.setattr(proxy, "_may_receive", lambda: 64 << 20)
    world = make(user="a")
    target = f"CONNECT allowed.example:{world.server.port} HTTP/1.1\r\n\r\n".encode()
    opened = []
    for _ in range(4):
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        opened.append(writer)
        writer.write(target)
        await reader.readuntil(b"\r\n\r\n")
    kept = [sockets[1].getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) for sockets in world.proxy._clients.values()]
    assert sum(size <= 256 << 10 for size in kept) == 2, kept
    for writer in opened:
        writer.close()
    async with asyncio.timeout(20):
        while world.proxy._clients:
            await asyncio.sleep(0.01)
    assert world.proxy._large == 0


async def test_row_294_a_client_that_watches_its_connections_does_not_keep_the_agent(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Seen: 890,000 watches of one connection kept the event loop for 200 ms with each packet sent to the script."""
    world = make()
    assert (await world.get("allowed.example")).startswith(b"HTTP/1.1 200 ")
    monkeypatch.setattr(threads, "CALL_SECONDS", 0.00001)
    monkeypatch.setattr(threads, "_MORE_SECONDS", 0.001)
    world.proxy._patience = threads.Patience()
    loop = asyncio.get_running_loop()
    with ExitStack() as opened:
        clients = [opened.enter_context(socket.socket()) for _ in range(8)]
        for client in clients:
            client.setblocking(False)
            await loop.sock_connect(client, ("127.0.0.1", world.port))
        copies = [opened.enter_context(client.dup()) for client in clients for _ in range(20)]
        for _ in range(100):
            watch = opened.enter_context(select.epoll())
            for copy in copies:
                watch.register(copy, select.EPOLLIN | select.EPOLLET)
        for client in clients:
            with suppress(OSError):
                await loop.sock_sendall(client, b"GET http://other.example/ HTTP/1.1\r\n\r\n")
                while await loop.sock_recv(client, 1 << 10):
                    pass
        assert world.proxy._patience.is_over
        assert world.proxy._listener is None
    assert "it is closed, because the script watches connections so often" in caplog.text


async def test_row_421_connections_that_drip_are_read_now_and_then_and_lose_nothing(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: 46 runs with 32 connections each that bring 50 bytes a second, and another user's turn takes 10 s."""
    monkeypatch.setattr(threads, "_EVENT_SECONDS", 0.001)
    monkeypatch.setattr(threads, "_turns", OnePerProcess(lambda: threads.Turns(0.5)))
    reads: list[int] = []
    receive = proxy.Client.receive

    async def counted(self: proxy.Client, most_bytes: int) -> bytes:
        data = await receive(self, most_bytes)
        reads.append(len(data))
        return data

    monkeypatch.setattr(proxy.Client, "receive", counted)
    world = make(user="hostile")
    head = f"GET http://allowed.example:{world.server.port}/ HTTP/1.1\r\nX: {'y' * 100}\r\n\r\n".encode()

    async def drip() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in head:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.005)
        answer = await reader.read()
        writer.close()
        return answer

    answers = await asyncio.gather(*(drip() for _ in range(8)))
    assert all(answer.startswith(b"HTTP/1.1 200 ") for answer in answers), answers
    assert len(reads) < 8 * len(head) / 4  # without rests there is one for nearly each byte


async def test_row_210_a_host_that_reads_late_gets_everything(make: Make, deaf: socket.socket) -> None:
    port = deaf.getsockname()[1]
    world = make(ports=(port,))
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", world.port))
        await loop.sock_sendall(client, f"CONNECT allowed.example:{port} HTTP/1.1\r\n\r\n".encode())
        await loop.sock_recv(client, 1 << 10)
        host = deaf.accept()[0]
        host.setblocking(False)
        await loop.sock_sendall(client, bytes(100_000))
        client.shutdown(socket.SHUT_WR)
        host.shutdown(socket.SHUT_WR)
        assert await loop.sock_recv(client, 1) == b""  # both have sent everything
    with host:
        received = 0
        async with asyncio.timeout(20):
            while data := await loop.sock_recv(host, 1 << 16):
                received += len(data)
        assert received == 100_000


async def test_only_so_many_connections_are_served_at_once_and_the_others_wait(make: Make) -> None:
    world = make(connections=3)
    held = [await asyncio.open_connection("127.0.0.1", world.port) for _ in range(8)]
    asking = asyncio.ensure_future(world.connect(f"allowed.example:{world.server.port}"))
    async with asyncio.timeout(20):
        while world.proxy.connections < 3:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)  # time for one too many
    assert world.proxy.connections == 3
    assert not asking.done()
    for _, writer in held:
        writer.close()
    assert b"hello" in await asking
    assert world.proxy.connections == 9


async def test_row_387_all_proxies_together_have_a_share_of_the_agents_files_and_each_user_a_share_of_that(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: 31 runs of one user with 32 connections each were all files of the agent; no other run could be set up."""
    together = proxy.Shares()
    together.connections = 6
    monkeypatch.setattr(proxy, "shares", lambda: together)
    greedy, other = make(user="a"), make(user="b")
    held = [await asyncio.open_connection("127.0.0.1", greedy.port) for _ in range(8)]
    async with asyncio.timeout(20):
        while greedy.proxy.connections < 3:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)  # time for one too many
        assert greedy.proxy.connections == 3
        assert b"hello" in await other.get("allowed.example")
        for _, writer in held:
            writer.close()
        while greedy.proxy.connections < 8:
            await asyncio.sleep(0.01)
        assert b"hello" in await greedy.get("allowed.example")


def test_rows_387_and_388_the_shares_are_parts_of_what_the_agent_and_the_machine_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (1024, 1024))
    monkeypatch.setattr(proxy, "kernel_setting", lambda name, _: {"tcp_mem": 1 << 18, "tcp_rmem": 6 << 20}[name[9:]])
    monkeypatch.setattr(proxy, "_may_receive", lambda: 64 << 20)
    assert (proxy.Shares().connections, proxy.Shares().large) == (256, (1 << 30) // 8 // (4 << 20))
    monkeypatch.setattr(proxy, "_may_receive", lambda: 212_992)
    assert proxy.Shares().large == (1 << 30) // 8 // (6 << 20)


def test_connections_of_a_loop_that_was_closed_hold_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: they were counted for ever, or given back by the garbage collector in the midst of counting."""
    together = proxy.Shares()
    together.connections = 6
    monkeypatch.setattr(proxy, "shares", lambda: together)
    loop = asyncio.new_event_loop()
    made = []
    for count in (2, 5):
        one = proxy.Proxy(parse_hosts(HOSTS), (443,), resolve=Names({}).resolve, user="a")
        one._loop = loop if count == 5 else asyncio.new_event_loop()
        one._clients = dict.fromkeys(range(count))  # type: ignore[assignment, arg-type]
        together.join(one)
        made.append(one)
    assert not together.has_connection("b")
    loop.close()
    assert together.has_connection("a")
    made[0]._clients = dict.fromkeys(range(3))  # type: ignore[assignment, arg-type]
    assert (together.has_connection("a"), together.has_connection("b")) == (False, True)
    made[0]._loop.close()  # type: ignore[union-attr]


async def test_a_script_that_connects_without_end_is_slowed_down(make: Make) -> None:
    world = make(connections_per_second=5)
    began = asyncio.get_running_loop().time()
    answers = await asyncio.gather(*(world.connect("evil.test:443") for _ in range(9)))
    # The first five fill the first second; a busy machine only makes it longer.
    assert asyncio.get_running_loop().time() - began > 0.9
    assert all(answer.startswith(b"HTTP/1.1 403 ") for answer in answers)


async def test_a_hundred_connections_at_once_are_all_answered(make: Make) -> None:
    world = make()
    target = f"allowed.example:{world.server.port}"
    answers = await asyncio.gather(*(world.connect(target if n % 2 else "evil.test:443") for n in range(100)))
    assert sum(b"hello" in answer for answer in answers) == 50
    assert sum(answer.startswith(b"HTTP/1.1 403 ") for answer in answers) == 50


async def test_every_decision_is_logged_and_kept_up_to_a_bound(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world = make(decisions=3)
    await world.connect(f"allowed.example:{world.server.port}")
    for _ in range(4):
        await world.connect("evil.test:443")
    assert [decision.allowed for decision in world.proxy.decisions] == [True, False, False]
    assert world.proxy.undisclosed == 2
    said = [record.getMessage() for record in caplog.records if record.name.endswith(".proxy")]
    assert said == [
        f"skill/run.py: proxy: allowed allowed.example:{world.server.port} (127.0.0.1): allowed",
        "skill/run.py: proxy: refused evil.test:443: the host is not in the allow-list",
        "skill/run.py: proxy: refused evil.test:443: the host is not in the allow-list",
        "skill/run.py: proxy: further decisions are only counted",
    ]


async def test_no_control_byte_of_a_script_reaches_the_log(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    world = make()
    for name in ("a\x1b[31m.example", "a\r.example", "a\n.example", "x@\x07b"):
        await world.connect(f"{name}:443")
    assert all(record.getMessage().isprintable() for record in caplog.records if record.name.endswith(".proxy"))


async def test_a_secret_put_into_a_name_reaches_neither_the_log_nor_the_decisions(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    world = make(redact=SecretForms([("KEY", Secret("hunter2"))]).host_name)
    world.names.addresses.clear()
    await world.connect("hunter2.evil.test:443")
    await world.connect(f"hunter2.wild.example:{world.server.port}")
    assert [decision.host for decision in world.proxy.decisions] == [
        "[secret KEY].evil.test",
        "[secret KEY].wild.example",
    ]
    assert "hunter2" not in caplog.text


async def test_row_129_a_long_name_is_cut_after_secrets_were_taken_out_of_it(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "".join(f"{number:03d}-" for number in range(60))
    world = make(redact=SecretForms([("KEY", Secret(secret))]).host_name)
    for name in (f"{secret}!!", f"{'x' * 90}!{secret}", f"{'x' * 240}!{secret}", f"u:p@{secret}$", "x" * 5000 + "!!"):
        await world.connect(f"{name}:443")
    assert all(decision.host.isprintable() and len(decision.host) < 300 for decision in world.proxy.decisions)
    for text in (caplog.text, repr(world.proxy.decisions)):
        assert "000-001" not in text
        assert "[secret KEY]" in text


@pytest.mark.parametrize("secret", ["Tr0ub4dor-Zebra9", "sk_LIVE_51Hx9aQ7bZ2mN8vK4cR6tY1uW3eP5o"])
async def test_an_encoded_secret_in_a_name_is_seen_too(
    make: Make, caplog: pytest.LogCaptureFixture, secret: str
) -> None:
    caplog.set_level(logging.DEBUG)
    forms = SecretForms([("KEY", Secret(secret))])
    world = make(redact=forms.host_name)
    world.names.addresses.clear()
    raw = secret.encode()
    written = {
        "mixed case": "".join(c.upper() if n % 2 else c.lower() for n, c in enumerate(secret)),
        "reversed": secret[::-1],
        "percent": "".join(f"%{byte:02x}" for byte in raw),
        "base64": base64.b64encode(raw).decode(),
        "base64 of more": base64.urlsafe_b64encode(b"x" + raw + b"yz").decode().rstrip("="),
        "base32": base64.b32encode(raw).decode().rstrip("="),
        "hex": raw.hex(),
        "labels of six": ".".join(raw.hex()[at : at + 6] for at in range(0, len(raw) * 2, 6)),
        "dots": ".".join(secret[at : at + 3] for at in range(0, len(secret), 3)),
    }
    for form in written.values():
        for target in (
            f"{form}.evil.test:443",
            f"x.{form}.wild.example:{world.server.port}",
            f"u:{form}@evil.test:443",
        ):
            await world.connect(target)
            await world.ask(f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    told = caplog.text.lower() + repr(world.proxy.decisions).lower()
    for name, form in written.items():
        assert form.lower().strip("=") not in told, name
        assert form.lower().replace(".", "") not in told.replace(".", ""), name
    assert "[secret key]" in told


async def test_stopping_ends_connections_in_every_state(make: Make) -> None:
    world = make()
    world.names.addresses["inside.example"] = ("127.0.0.1",)
    opened = []
    for data in (
        b"",
        b"CONNECT half",
        f"CONNECT allowed.example:{world.server.port} HTTP/1.1\r\n\r\n".encode(),
        f"GET http://allowed.example:{world.server.port}/stuck HTTP/1.1\r\n\r\n".encode(),
        b"CONNECT evil.test:443 HTTP/1.1\r\n\r\n",
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(data)
        opened.append((reader, writer))
    world.names.delay = 30
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(f"CONNECT inside.example:{world.server.port} HTTP/1.1\r\n\r\n".encode())
    opened.append((reader, writer))
    await asyncio.sleep(0.1)
    await world.proxy.stop()
    await world.proxy.stop()
    for reader, writer in opened:
        with suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), 10)
        writer.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", world.port)


async def test_an_agent_without_descriptors_lets_connections_wait(make: Make) -> None:
    import resource

    world = make()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as client:
        client.setblocking(False)
        lowest_free = os.dup(0)
        os.close(lowest_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
        try:
            await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", world.port))
            await asyncio.sleep(0.15)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert world.proxy.connections == 0
        client.send(b"CONNECT evil.test:443 HTTP/1.1\r\n\r\n")
        answer = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 100), 10)
    assert answer.startswith(b"HTTP/1.1 403 ")


def test_row_405_an_agent_with_granted_hosts_may_have_more_than_1024_files_open(monkeypatch):
    """Seen: one user's runs, sessions and connections were all 1,024, and no run of anybody could be set up."""
    import resource

    given: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: given[-1] if given else (1024, 20_000))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: given.append(limits))
    assert proxy.Shares().connections == 20_000 // 4
    assert given == [(20_000, 20_000)]
