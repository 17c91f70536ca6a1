"""A proxy in front of a real server on the loopback, with names of its own, for the tests of the proxy."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from adk_skills_agent.sandbox.contract import NetworkDecision
from adk_skills_agent.sandbox.network.hosts import parse_hosts, parse_networks
from adk_skills_agent.sandbox.network.proxy import Proxy, ProxyLimits
from own_descriptors import sockets_at

HOSTS = (
    "allowed.example",
    "*.wild.example",
    "rebind.example",
    "inside.example",
    "1.2.3.4.nip.io",
    "xn--bcher-kva.example",
)


@dataclass
class Names:
    """A name server: what it answers (``next_addresses`` once), and how often it was asked."""

    addresses: dict[str, Sequence[str]] = field(default_factory=dict)
    next_addresses: dict[str, Sequence[str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    delay: float = 0.0

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        await asyncio.sleep(self.delay)
        if host not in self.addresses:
            raise OSError("Name or service not known")
        return self.next_addresses.pop(host, self.addresses[host])


class Server:
    """An origin server that keeps what it was sent; the path decides how it answers."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.port = 0
        self.sent = 0  # bytes of large answers that somebody has taken
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Wait for the ends of connections, which come when the other side has closed them."""
        assert self._server is not None
        self._server.close()
        async with asyncio.timeout(20):
            while self._serving:
                await asyncio.wait(self._serving)
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            await self._answer(reader, writer)
        finally:
            self._serving.discard(task)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.requests.append(head)
            length = next(
                (int(x.split(b":")[1]) for x in head.split(b"\r\n") if x.lower().startswith(b"content-length")), 0
            )
            body = await reader.readexactly(length)
            self.requests[-1] += body
            if b"/stuck" in head:
                await reader.read()
            elif b"/big" in head:
                writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
                for _ in range(64):
                    writer.write(b"x" * (1 << 20))
                    await writer.drain()
                    self.sent += 1 << 20
            else:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\nhello" % (5 + len(body)) + body)
                await writer.drain()
                if b"/keep" in head:
                    await reader.read()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@dataclass
class World:
    server: Server
    names: Names
    proxy: Proxy
    port: int

    async def ask(self, data: bytes, *, end: bool = False) -> bytes:
        """Send bytes to the proxy and read until it closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(data)
            with suppress(ConnectionError):
                await writer.drain()
                if end:
                    writer.write_eof()
            async with asyncio.timeout(20):
                return await reader.read()
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def connect(self, target: str) -> bytes:
        """CONNECT, and one request through the tunnel when there is one."""
        return await self.ask(f"CONNECT {target} HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n".encode("latin-1"))

    async def get(self, host: str, path: str = "/") -> bytes:
        return await self.ask(f"GET http://{host}:{self.server.port}{path} HTTP/1.1\r\n\r\n".encode())

    @property
    def last(self) -> NetworkDecision:
        return self.proxy.decisions[-1]


Make = Callable[..., World]


@asynccontextmanager
async def worlds() -> AsyncIterator[Make]:
    """Builds worlds on one server; afterwards nothing of their proxies is left."""
    server = Server()
    await server.start()
    proxies: list[Proxy] = []
    own_ports = {server.port}  # each of its sockets has one of them at one end

    def build(
        *,
        hosts: Sequence[str] = HOSTS,
        ports: Sequence[int] | None = None,
        allow: Sequence[str] = ("127.0.0.1/32",),
        redact: Callable[[str], str] | None = None,
        user: str = "",
        **limits: float,
    ) -> World:
        names = Names({host.replace("*.", "a.b."): ("127.0.0.1",) for host in HOSTS})
        proxy = Proxy(
            parse_hosts(hosts),
            (server.port,) if ports is None else ports,
            resolve=names.resolve,
            allow_addresses=parse_networks(allow),
            limits=ProxyLimits(**limits),  # type: ignore[arg-type]
            label="skill/run.py",
            user=user,
            redact=redact,
        )
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        proxy.start(listener)
        proxies.append(proxy)
        own_ports.update((port, *proxy._ports))
        return World(server, names, proxy, port)

    yield build
    for proxy in proxies:
        await proxy.stop()
    await server.stop()
    deadline = asyncio.get_running_loop().time() + 30
    while (left := sockets_at(*own_ports)) and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.01)  # asyncio closes a socket in a turn after the one in which it says so
    assert left == []
    assert [proxy.failures for proxy in proxies] == [0] * len(proxies)
    gc.collect()
