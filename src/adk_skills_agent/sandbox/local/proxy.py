"""The checking proxy of a run: the only way out of its network namespace, served by the agent's event loop.

For every connection: read one bounded head, parse it once, compare the host with the allow-list, resolve the name
once, refuse addresses of this machine and the networks around it, and connect to the address that was checked. What
cannot be decided is refused, and every decision is logged and kept for the owner. It cannot see what travels inside
TLS: an allowed host that answers for others (a CDN) reaches those as well.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from adk_skills_agent.sandbox.contract import NetworkDecision
from adk_skills_agent.sandbox.hostnames import AllowedHosts
from adk_skills_agent.sandbox.local.addresses import AddressNetwork, refusal
from adk_skills_agent.sandbox.local.proxy_request import BadRequest, ProxyRequest, parse_request
from adk_skills_agent.sandbox.local.resolver import Resolver
from adk_skills_agent.sandbox.local.tunnel import BUFFER_BYTES, Traffic, Tunnel

logger = logging.getLogger(__name__)

_END_OF_HEAD = b"\r\n\r\n"
_MAX_ADDRESSES = 4  # tried in turn when the first does not answer
_LOOKUPS = 2  # at a time, so that one run does not hold all resolver threads
_NO_DESCRIPTOR_SECONDS = 0.1
_PHRASES = {
    400: "Bad Request",
    403: "Forbidden",
    408: "Request Timeout",
    411: "Length Required",
    431: "Request Header Fields Too Large",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


@dataclass(frozen=True, slots=True)
class ProxyLimits:
    """Bounds of one run's proxy. Times in seconds.

    Attributes:
        head_bytes: Largest head of a request.
        head_seconds: How long a client may take to send it.
        resolve_seconds: How long a lookup may take.
        connect_seconds: How long connecting to one address may take.
        idle_seconds: A connection on which nothing moves for so long is closed.
        linger_seconds: How long a refused client may take to read the answer.
        connections: Open at the same time; more wait in the listener's queue.
        connections_per_second: Taken from the queue, so that a script cannot keep the agent's event loop busy.
        decisions: Kept and logged; more are only counted.
    """

    head_bytes: int = 16 << 10
    head_seconds: float = 10.0
    resolve_seconds: float = 10.0
    connect_seconds: float = 10.0
    idle_seconds: float = 60.0
    linger_seconds: float = 1.0
    connections: int = 32
    connections_per_second: int = 200
    decisions: int = 1000


class _Refused(Exception):
    """A connection that is answered by the proxy itself."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Proxy:
    """One run's proxy; it belongs to one event loop, and every method but the constructor is called there.

    Args:
        hosts: Names that may be reached; none allows nothing.
        ports: Ports that may be reached.
        resolve: Gives a name's addresses.
        allow_addresses: Networks allowed although they are private, for tests.
        limits: See :class:`ProxyLimits`.
        label: Whose proxy this is, for the log.
        redact: Takes secrets out of a name before it is logged or kept.
    """

    def __init__(
        self,
        hosts: AllowedHosts,
        ports: Sequence[int],
        *,
        resolve: Resolver,
        allow_addresses: Sequence[AddressNetwork] = (),
        limits: ProxyLimits | None = None,
        label: str = "",
        redact: Callable[[str], str] | None = None,
    ) -> None:
        self.decisions: list[NetworkDecision] = []
        self.undisclosed = 0
        self.traffic = Traffic()
        self.connections = 0
        self.failures = 0
        self._hosts = hosts
        self._ports = frozenset(ports)
        self._resolve = resolve
        self._allow_addresses = tuple(allow_addresses)
        self._limits = limits or ProxyLimits()
        self._label = label
        self._redact = redact
        self._lookups = asyncio.Semaphore(_LOOKUPS)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listener: socket.socket | None = None
        self._clients: dict[asyncio.Task[None], list[socket.socket]] = {}
        self._listening = False
        self._pause: asyncio.TimerHandle | None = None
        self._second = (0.0, 0)

    def start(self, listener: socket.socket) -> None:
        """Serve a listening socket, which is the proxy's from now on."""
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        listener.setblocking(False)
        self._listen()

    def abort(self) -> None:
        """Stop listening and end every connection at once. Safe to call twice, and after the loop was closed."""
        listener, self._listener = self._listener, None
        if listener is None or self._loop is None:
            return
        if self._pause is not None:
            self._pause.cancel()
        if self._loop.is_closed():
            for sockets in self._clients.values():
                _close(sockets)
        else:
            if self._listening:
                self._loop.remove_reader(listener.fileno())
            for task in self._clients:
                task.cancel()
        listener.close()

    async def stop(self) -> None:
        """The same, and wait until all of it is gone."""
        self.abort()
        while self._clients:
            await asyncio.wait(tuple(self._clients))

    # Taking connections

    def _listen(self) -> None:
        self._pause = None
        room = len(self._clients) < self._limits.connections
        if room and not self._listening and self._listener is not None and self._loop is not None:
            self._loop.add_reader(self._listener.fileno(), self._accept)
            self._listening = True

    def _rest(self, seconds: float | None = None) -> None:
        """Take no connections for a while, or until one ends."""
        assert self._loop is not None  # noqa: S101  # only called while serving
        assert self._listener is not None  # noqa: S101
        self._loop.remove_reader(self._listener.fileno())
        self._listening = False
        if seconds is not None:
            self._pause = self._loop.call_later(seconds, self._listen)

    def _accept(self) -> None:
        assert self._loop is not None  # noqa: S101  # only called while serving
        assert self._listener is not None  # noqa: S101
        try:
            client, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:  # the agent has no descriptor left; the connection stays in the queue
            logger.warning("%sproxy: a connection has to wait: %s", self._who(), error.strerror)
            self._rest(_NO_DESCRIPTOR_SECONDS)
            return
        client.setblocking(False)
        self.connections += 1
        sockets = [client]
        task = self._loop.create_task(self._serve(sockets))
        self._clients[task] = sockets
        task.add_done_callback(self._gone)
        if len(self._clients) >= self._limits.connections:
            self._rest()
        elif (wait := self._too_fast()) > 0:
            self._rest(wait)

    def _too_fast(self) -> float:
        """Seconds to wait before the next connection is taken."""
        assert self._loop is not None  # noqa: S101  # only called while serving
        now = self._loop.time()
        began, count = self._second
        if now - began >= 1.0:
            began, count = now, 0
        self._second = (began, count + 1)
        return began + 1.0 - now if count + 1 >= self._limits.connections_per_second else 0.0

    def _gone(self, task: asyncio.Task[None]) -> None:
        _close(self._clients.pop(task))
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures += 1
            logger.error("%sproxy: a connection was dropped by an error of the proxy", self._who(), exc_info=error)
        if self._pause is None:
            self._listen()

    # One connection

    async def _serve(self, sockets: list[socket.socket]) -> None:
        client = sockets[0]
        try:
            await self._converse(client, sockets)
        except _Refused as refused:
            with suppress(OSError):
                await self._answer(client, refused)
        except OSError as error:  # a side broke off, or nothing moved for too long: there is nobody to tell
            logger.debug("%sproxy: a connection ended early: %s", self._who(), error or type(error).__name__)

    async def _converse(self, client: socket.socket, sockets: list[socket.socket]) -> None:
        head, early = await self._head(client)
        request = self._parse(head)
        self._check_name(request)
        addresses = await self._addresses(request)
        upstream = await self._connect(request, addresses, sockets)
        tunnel = Tunnel(client, upstream, self.traffic, self._limits.idle_seconds)
        if request.head is None:
            await self._send(client, b"HTTP/1.1 200 Connection established\r\n\r\n")
            await tunnel.carry(early)
        else:
            await tunnel.exchange(request.head, early, request.body_bytes)

    async def _head(self, client: socket.socket) -> tuple[bytes, bytes]:
        """The head of the request, and what came after it."""
        loop = asyncio.get_running_loop()
        limit = self._limits.head_bytes
        data = b""
        try:
            async with asyncio.timeout(self._limits.head_seconds):
                while (end := data.find(_END_OF_HEAD)) < 0 and len(data) <= limit:
                    part = await loop.sock_recv(client, 4096)
                    if not part:
                        if data:
                            self._refuse("", None, "the request is incomplete")
                        raise ConnectionAbortedError("the client closed without a request")
                    data += part
                    if end < 0 and data.count(b"\n") != data.count(b"\r\n") and _END_OF_HEAD not in data:
                        raise self._refused(400, "", None, "a line does not end in CR LF")
        except TimeoutError:
            raise self._refused(408, "", None, "the request took too long to arrive") from None
        if end < 0 or end > limit:
            raise self._refused(431, "", None, f"the head of the request is larger than {limit} bytes")
        return data[:end], data[end + len(_END_OF_HEAD) :]

    def _parse(self, head: bytes) -> ProxyRequest:
        try:
            return parse_request(head)
        except BadRequest as error:
            raise self._refused(error.status, error.host, error.port, str(error)) from None

    def _check_name(self, request: ProxyRequest) -> None:
        host, port = request.host, request.port
        if not self._hosts.allows(host):
            raise self._refused(403, host, port, "the host is not in the allow-list")
        if port not in self._ports:
            allowed = ", ".join(map(str, sorted(self._ports))) or "none"
            raise self._refused(403, host, port, f"the port is not in the allow-list ({allowed})")

    async def _addresses(self, request: ProxyRequest) -> list[str]:
        """The addresses of the host that may be connected to, at least one."""
        host, port = request.host, request.port
        try:
            async with asyncio.timeout(self._limits.resolve_seconds), self._lookups:
                found = await self._resolve(host, port)
        except TimeoutError:
            raise self._refused(504, host, port, "the name was not resolved in time") from None
        except OSError as error:
            logger.debug("%sproxy: %s: %s", self._who(), self._shown(host), error)
            raise self._refused(502, host, port, "the name does not resolve") from None
        fit = []
        worst: tuple[str, str] | None = None
        for address in found[:_MAX_ADDRESSES]:
            try:
                reason = refusal(address, allowed=self._allow_addresses)
            except OSError as error:
                raise self._refused(503, host, port, f"the address could not be checked: {error.strerror}") from None
            if reason is None:
                fit.append(address)
            else:
                worst = worst or (address, reason)
        if not fit:
            if worst is None:
                raise self._refused(502, host, port, "the name does not resolve")
            # The script learns what kind of address it is, not which: that is the owner's network.
            address, reason = worst
            raise self._refused(403, host, port, f"the name leads to an address that is refused ({reason})", address)
        return fit

    async def _connect(
        self, request: ProxyRequest, addresses: list[str], sockets: list[socket.socket]
    ) -> socket.socket:
        """Connect to one of the checked addresses; there is no second lookup."""
        loop = asyncio.get_running_loop()
        status = 502
        for address in addresses:
            self._decide(NetworkDecision(request.host, request.port, True, "allowed", address))
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            try:
                upstream = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
                sockets.append(upstream)
                upstream.setblocking(False)
                async with asyncio.timeout(self._limits.connect_seconds):
                    await loop.sock_connect(upstream, (address, request.port))
            except OSError as error:
                status = 504 if isinstance(error, TimeoutError) else 502
                logger.log(
                    logging.DEBUG if self.undisclosed else logging.INFO,
                    "%sproxy: %s:%d at %s did not answer: %s",
                    self._who(),
                    self._shown(request.host),
                    request.port,
                    address,
                    error.strerror or type(error).__name__,
                )
                _close(sockets[1:])
                del sockets[1:]
            else:
                return upstream
        raise _Refused(status, f"{request.host}:{request.port} did not accept a connection")

    async def _send(self, client: socket.socket, data: bytes) -> None:
        async with asyncio.timeout(self._limits.idle_seconds):
            await asyncio.get_running_loop().sock_sendall(client, data)

    async def _answer(self, client: socket.socket, refused: _Refused) -> None:
        """Tell the client why, and let it read that before the connection is closed."""
        body = f"Sandbox network policy: {refused}.\n".encode()
        head = (
            f"HTTP/1.1 {refused.status} {_PHRASES[refused.status]}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._limits.linger_seconds):
            await loop.sock_sendall(client, head.encode("ascii") + body)
            client.shutdown(socket.SHUT_WR)
            # Closing with unread bytes would reset the connection and could take the answer with it.
            while await loop.sock_recv(client, BUFFER_BYTES):
                pass

    # Decisions

    def _refused(self, status: int, host: str, port: int | None, reason: str, address: str | None = None) -> _Refused:
        self._refuse(host, port, reason, address)
        where = f"{host}:{port}: " if host and port is not None else ""
        return _Refused(status, f"{where}{reason}")

    def _refuse(self, host: str, port: int | None, reason: str, address: str | None = None) -> None:
        self._decide(NetworkDecision(host, port, False, reason, address))

    def _decide(self, decision: NetworkDecision) -> None:
        if len(self.decisions) >= self._limits.decisions:
            if not self.undisclosed:
                logger.warning("%sproxy: further decisions are only counted", self._who())
            self.undisclosed += 1
            return
        decision = replace(decision, host=self._shown(decision.host))
        self.decisions.append(decision)
        logger.log(
            logging.INFO if decision.allowed else logging.WARNING,
            "%sproxy: %s %s:%s%s: %s",
            self._who(),
            "allowed" if decision.allowed else "refused",
            decision.host or "?",
            decision.port or "?",
            f" ({decision.address})" if decision.address else "",
            decision.reason,
        )

    def _shown(self, host: str) -> str:
        return host if self._redact is None else self._redact(host)

    def _who(self) -> str:
        return f"{self._label}: " if self._label else ""


def _close(sockets: list[socket.socket]) -> None:
    for each in sockets:
        each.close()
