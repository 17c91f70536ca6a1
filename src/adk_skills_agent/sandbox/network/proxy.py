"""The checking proxy of a run: the only way out of its network namespace, served by the agent's event loop.

For every connection: read one bounded head, parse it once, compare the host with the allow-list, resolve the name
once, refuse addresses of this machine and the networks around it, and connect to the address that was checked. What
cannot be decided is refused, and every decision is logged and kept for the operator. It cannot see what travels inside
TLS: an allowed host that answers for others (a CDN) reaches those as well.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
import struct
import sys
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TypeVar

from adk_skills_agent.platforms import PAGE_BYTES, allow_many_files
from adk_skills_agent.sandbox.contract import NetworkDecision
from adk_skills_agent.sandbox.network.hosts import MAX_NAME, AddressNetwork, AllowedHosts, address_refusal
from adk_skills_agent.sandbox.network.proxy_request import ProxyRequest, Refused, parse_request
from adk_skills_agent.sandbox.network.resolver import Resolver
from adk_skills_agent.sandbox.process.tree import kernel_setting
from adk_skills_agent.sandbox.threads import OnePerProcess, Patience, Turn, more_for

logger = logging.getLogger(__name__)

_END_OF_HEAD = b"\r\n\r\n"
_MAX_ADDRESSES = 4  # tried in turn when the first does not answer
_LOOKUPS = 2  # at a time, those included that nobody waits for any more: they hold threads of the agent (row 150)
_NO_DESCRIPTOR_SECONDS, _NO_PLACE_SECONDS = 0.1, 0.1
_SHARE_OF_FILES = 4  # of what the agent may have open; a connection has two
_LOOK_SECONDS = 0.05
# What a host sends and nobody reads is memory of the agent: 33 MiB for a connection, if the kernel is left to choose.
# The kernel doubles what it is asked for; 4 MiB are enough for 20 MB/s at 100 ms. Where a program may not ask for so
# much, the kernel's own choice is 6 MiB. Only so many connections have that as take an eighth of the machine's memory
# for TCP (row 388); the others have little.
_RECEIVE_BYTES, _LITTLE_BYTES = 2 << 20, 128 << 10
_SHARE_OF_TCP = 8
_CONNECTION_SECONDS = 0.0005  # of the loop's time, for one that is refused
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: what was not sent is thrown away at once


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


class Shares:
    """What all proxies of this process have together, which is the agent's and the machine's, and counts for no run.

    Whoever comes later finds half of what the one before left. What counts is what is there: nothing has to be given
    back.

    Attributes:
        connections: At a time, at most: each is two open files of the agent (row 387).
        large: Of these, how many may receive much ahead, which is memory of the machine (row 388).
    """

    def __init__(self) -> None:
        import resource

        # Runs and sessions have files of the agent, too: more than the other half of 1,024 (row 405).
        allow_many_files()
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.connections = (1 << 20 if files == resource.RLIM_INFINITY else files) // _SHARE_OF_FILES
        memory = kernel_setting("net/ipv4/tcp_mem", 1 << 16) * PAGE_BYTES
        self.large = memory // _SHARE_OF_TCP // _most_received()
        self._lock = threading.Lock()
        self._proxies: weakref.WeakSet[Proxy] = weakref.WeakSet()

    def join(self, proxy: Proxy) -> None:
        """Count a proxy, for as long as there is one."""
        with self._lock:
            self._proxies.add(proxy)

    def has_connection(self, user: str) -> bool:
        """Whether a user may have another connection now."""
        return self._has(user, self.connections, lambda proxy: len(proxy._clients))

    def has_large(self, user: str) -> bool:
        """Whether a user may have another one that receives much."""
        return self._has(user, self.large, lambda proxy: proxy._large)

    def _has(self, user: str, most: int, held: Callable[[Proxy], int]) -> bool:
        with self._lock:
            proxies = list(self._proxies)
        own, left = 0, most
        for proxy in proxies:
            if proxy.is_alive:
                count = held(proxy)
                left -= count
                own += count if proxy.user == user else 0
        return more_for(own, left, times=1) > 0


shares = OnePerProcess(Shares)


class Proxy:
    """One run's proxy; it belongs to one event loop, and every method but the constructor is called there.

    ``label`` says in the log whose proxy it is, ``user`` for whom it is; ``redact`` takes secrets out of a name before
    it is logged or kept.
    ``allow_addresses``, networks allowed although they are private, are for tests.
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
        user: str = "",
        redact: Callable[[str], str] | None = None,
    ) -> None:
        self.decisions: list[NetworkDecision] = []
        self.undisclosed = 0
        self.connections = 0
        self.failures = 0
        self._hosts = hosts
        self._ports = frozenset(ports)
        self._resolve = resolve
        self._allow_addresses = tuple(allow_addresses)
        self._limits = limits or ProxyLimits()
        self._who = f"{label}: " if label else ""
        self.user = user
        self._shares, self._large, self._has_waited = shares(), 0, False
        self._redact = redact
        self._lookups = asyncio.Semaphore(_LOOKUPS)
        self._looking_up: set[asyncio.Future[Sequence[str]]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listener: socket.socket | None = None
        self._clients: dict[asyncio.Task[None], list[socket.socket]] = {}
        self._pause: asyncio.TimerHandle | None = None
        self._patience = Patience()
        self._turn = Turn(user)

    def start(self, listener: socket.socket) -> None:
        """Serve a listening socket, which is the proxy's from now on."""
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        listener.setblocking(False)
        self._shares.join(self)
        self._listen()

    @property
    def is_alive(self) -> bool:
        """Whether its connections are more than what a closed event loop has left."""
        return self._loop is not None and not self._loop.is_closed()

    def abort(self) -> None:
        """Stop listening and end every connection at once. Safe to call twice, and after the loop was closed."""
        listener, self._listener = self._listener, None
        if listener is None or self._loop is None:
            return
        if self._pause is not None:
            self._pause.cancel()
        if self._loop.is_closed():
            for client, *upstream in self._clients.values():
                _give_up(upstream)
                client.close()
        else:
            self._loop.remove_reader(listener.fileno())
            for task in self._clients:
                task.cancel()
            for lookup in self._looking_up:
                lookup.cancel()
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
        if room and self._listener is not None and self._loop is not None:
            self._loop.add_reader(self._listener.fileno(), self._accept)

    def _rest(self, seconds: float | None = None) -> None:
        """Take no connections for a while, or until one ends."""
        assert self._loop is not None  # noqa: S101  # only called while serving
        assert self._listener is not None  # noqa: S101
        self._loop.remove_reader(self._listener.fileno())
        if seconds is not None:
            self._pause = self._loop.call_later(seconds, self._listen)

    def _accept(self) -> None:
        assert self._loop is not None  # noqa: S101  # only called while serving
        assert self._listener is not None  # noqa: S101
        if not self._shares.has_connection(self.user):  # it stays in the queue
            if not self._has_waited:
                logger.warning(
                    "%sproxy: a connection has to wait: all runs together may have %d, a part of this process' limit "
                    "of open files (ulimit -n)",
                    self._who,
                    self._shares.connections,
                )
            self._has_waited = True
            self._rest(_NO_PLACE_SECONDS)
            return
        try:
            client, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:  # the agent has no descriptor left; the connection stays in the queue
            logger.warning("%sproxy: a connection has to wait: %s", self._who, error.strerror)
            self._rest(_NO_DESCRIPTOR_SECONDS)
            return
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, BUFFER_BYTES)  # as to a host
        self.connections += 1
        sockets = [client]
        task = self._loop.create_task(self._serve(sockets))
        self._clients[task] = sockets
        task.add_done_callback(self._gone)
        full = len(self._clients) >= self._limits.connections
        rest = self._turn.took(_CONNECTION_SECONDS, 0)
        self._rest(None if full else max(rest, 1.0 / self._limits.connections_per_second))

    def _gone(self, task: asyncio.Task[None]) -> None:
        client, *upstream = self._clients.pop(task)
        _give_up(upstream)
        client.close()
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures += 1
            logger.error("%sproxy: a connection was dropped by an error of the proxy", self._who, exc_info=error)
        if self._pause is None:
            self._listen()

    # One connection

    async def _serve(self, sockets: list[socket.socket]) -> None:
        client = Client(sockets[0], self._patience, self.user)
        try:
            await self._converse(client, sockets)
        except Refused as refused:
            host, port = refused.host, refused.port
            self._decide(NetworkDecision(host, port, False, str(refused), refused.address, refused.listed))
            where = f"{_short(host)}:{port}: " if host and port is not None else ""
            with suppress(OSError):
                await self._answer(client, refused.status, f"{where}{refused}")
        except OSError as error:  # a side broke off, or nothing moved for too long: there is nobody to tell
            logger.debug("%sproxy: a connection ended early: %s", self._who, error or type(error).__name__)
        if self._patience.is_over and self._listener is not None:
            logger.warning("%sproxy: it is closed, because the script watches connections so often", self._who)
            self.abort()

    async def _converse(self, client: Client, sockets: list[socket.socket]) -> None:
        head, early = await self._head(client)
        request = parse_request(head)
        host, port = request.host, request.port
        if not self._hosts.allows(host):
            raise Refused("the host is not in the allow-list", status=403, host=host, port=port, listed=False)
        ports = self._hosts.ports_of(host, self._ports)
        if port not in ports:
            reason = f"the port is not in the allow-list ({', '.join(map(str, sorted(ports))) or 'none'})"
            raise Refused(reason, status=403, host=host, port=port, listed=False)
        addresses = await self._addresses(host, port)
        with self._buffer() as received:
            upstream = await self._connect(request, addresses, sockets, received)
            if isinstance(upstream, int):
                await self._answer(client, upstream, f"{host}:{port} did not accept a connection")
                return
            tunnel = Tunnel(client, upstream, self._limits.idle_seconds)
            if request.head is None:
                async with asyncio.timeout(self._limits.idle_seconds):
                    await client.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await tunnel.carry(early)
            else:
                await tunnel.exchange(request.head, early, request.body_bytes)
            await self._taken(upstream)

    @contextmanager
    def _buffer(self) -> Iterator[int | None]:
        """Bytes that the kernel may keep of what a host sends, for one connection; None leaves it to the kernel."""
        is_large = self._shares.has_large(self.user)
        self._large += is_large
        try:
            yield (_RECEIVE_BYTES if _may_receive() >= _RECEIVE_BYTES else None) if is_large else _LITTLE_BYTES
        finally:
            self._large -= is_large

    async def _head(self, client: Client) -> tuple[bytes, bytes]:
        """The head of the request, and what came after it."""
        limit = self._limits.head_bytes
        data = b""
        try:
            async with asyncio.timeout(self._limits.head_seconds):
                end = -1
                while end < 0 and len(data) <= limit:
                    part = await client.receive(4096)
                    if not part:
                        if data:
                            raise Refused("the request is incomplete")
                        raise ConnectionAbortedError("the client closed without a request")
                    known = len(data)
                    data += part
                    end = data.find(_END_OF_HEAD, max(known - len(_END_OF_HEAD) + 1, 0))
                    if end < 0 and data.count(b"\n", known) != data.count(b"\r\n", max(known - 1, 0)):
                        raise Refused("a line does not end in CR LF")
        except TimeoutError:
            raise Refused("the request took too long to arrive", status=408) from None
        if end < 0 or end > limit:
            raise Refused(f"the head of the request is larger than {limit} bytes", status=431)
        return data[:end], data[end + len(_END_OF_HEAD) :]

    async def _addresses(self, host: str, port: int) -> list[str]:
        """The addresses of the host that may be connected to, at least one."""
        try:
            async with asyncio.timeout(self._limits.resolve_seconds):
                await self._lookups.acquire()
                lookup = asyncio.ensure_future(self._resolve(host, port))
                self._looking_up.add(lookup)
                lookup.add_done_callback(self._looked_up)
                found = await asyncio.shield(lookup)
        except TimeoutError:
            raise Refused("the name was not resolved in time", status=504, host=host, port=port) from None
        except OSError as error:
            logger.debug("%sproxy: %s: %s", self._who, self._shown(host), error)
            raise Refused("the name does not resolve", status=502, host=host, port=port) from None
        fit = []
        worst: tuple[str, str] | None = None
        private = self._hosts.networks_of(host)
        for address in found[:_MAX_ADDRESSES]:
            try:
                reason = address_refusal(address, allowed=self._allow_addresses, private=private)
            except OSError as error:
                reason = f"the address could not be checked: {error.strerror}"
                raise Refused(reason, status=503, host=host, port=port) from None
            if reason is None:
                fit.append(address)
            else:
                worst = worst or (address, reason)
        if not fit:
            if worst is None:
                raise Refused("the name does not resolve", status=502, host=host, port=port)
            # The script learns what kind of address it is, not which: that is the operator's network.
            address, kind = worst
            reason = f"the name leads to an address that is refused ({kind})"
            raise Refused(reason, status=403, host=host, port=port, address=address)
        return fit

    def _looked_up(self, lookup: asyncio.Future[Sequence[str]]) -> None:
        self._looking_up.discard(lookup)
        self._lookups.release()
        if not lookup.cancelled():
            lookup.exception()  # nobody may have waited for it

    async def _connect(
        self, request: ProxyRequest, addresses: list[str], sockets: list[socket.socket], received: int | None
    ) -> socket.socket | int:
        """Connect to one of the checked addresses, without a second lookup; an HTTP status when none answers."""
        loop = asyncio.get_running_loop()
        status = 502
        for address in addresses:
            self._decide(NetworkDecision(request.host, request.port, True, "allowed", address))
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            try:
                upstream = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
                sockets.append(upstream)
                upstream.setblocking(False)
                # What the kernel holds for a host that reads nothing is the agent's memory, and no run's (row 210).
                upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, BUFFER_BYTES)
                if received is not None:
                    upstream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, received)  # row 220
                async with asyncio.timeout(self._limits.connect_seconds):
                    await loop.sock_connect(upstream, (address, request.port))
            except OSError as error:
                status = 504 if isinstance(error, TimeoutError) else 502
                logger.log(
                    logging.DEBUG if self.undisclosed else logging.INFO,
                    "%sproxy: %s:%d at %s did not answer: %s",
                    self._who,
                    self._shown(request.host),
                    request.port,
                    address,
                    error.strerror or type(error).__name__,
                )
                _give_up(sockets[1:])
                del sockets[1:]
            else:
                return upstream
        return status

    async def _taken(self, upstream: socket.socket) -> None:
        """Wait until the host has taken what was sent to it: the connection keeps its place until then (row 210)."""
        async with asyncio.timeout(self._limits.idle_seconds):
            while _not_taken(upstream):  # noqa: ASYNC110  # the kernel tells nobody when it has got rid of it
                await asyncio.sleep(_LOOK_SECONDS)

    async def _answer(self, client: Client, status: int, sentence: str) -> None:
        """Tell the client why, and let it read that before the connection is closed."""
        body = f"Sandbox network policy: {sentence}.\n".encode()
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        async with asyncio.timeout(self._limits.linger_seconds):
            await client.send(head.encode("ascii") + body)
            client.end()
            # Closing with unread bytes would reset the connection and could take the answer with it.
            while await client.receive(BUFFER_BYTES):
                pass

    # Decisions

    def _decide(self, decision: NetworkDecision) -> None:
        if len(self.decisions) >= self._limits.decisions:
            if not self.undisclosed:
                logger.warning("%sproxy: further decisions are only counted", self._who)
            self.undisclosed += 1
            return
        decision = replace(decision, host=self._shown(decision.host))
        self.decisions.append(decision)
        logger.log(
            logging.INFO if decision.allowed else logging.WARNING,
            "%sproxy: %s %s:%s%s: %s",
            self._who,
            "allowed" if decision.allowed else "refused",
            decision.host or "?",
            decision.port or "?",
            f" ({decision.address})" if decision.address else "",
            decision.reason,
        )

    def _shown(self, host: str) -> str:
        return _short(host if self._redact is None else self._redact(host))  # half a secret would not be found


def _short(host: str) -> str:
    return host if len(host) <= MAX_NAME else f"{host[:MAX_NAME]}..."


def _give_up(upstream: list[socket.socket]) -> None:
    """Close connections to hosts; what a host has not taken by now is thrown away.

    Else the kernel of this machine would offer it for minutes after the run, in memory that nobody counts (row 210).
    """
    for each in upstream:
        if _not_taken(each):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        each.close()


def _most_received() -> int:
    """Bytes that the kernel keeps for one that may receive much: twice what is asked for, or what it chooses itself."""
    return 2 * _RECEIVE_BYTES if _may_receive() >= _RECEIVE_BYTES else kernel_setting("net/ipv4/tcp_rmem", 6 << 20)


def _may_receive() -> int:
    """The most that a program may have the kernel keep for a connection."""
    return kernel_setting("net/core/rmem_max", 0)


def _not_taken(upstream: socket.socket) -> int:
    """Bytes that were sent and that the host has not acknowledged."""
    import fcntl
    import termios

    try:
        return int.from_bytes(fcntl.ioctl(upstream.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    except OSError:  # not connected
        return 0


# Carries bytes between two connected sockets, in the event loop, with one bounded buffer per direction.

BUFFER_BYTES = 64 << 10
_RESCHEDULE_SECONDS = 1.0  # moving the idle deadline for every chunk would cost more than the chunk


class _Over(Exception):  # no error: the exchange is complete
    """The host has sent everything."""


_T = TypeVar("_T")


def _done(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


class Client:
    """The agent's end of a connection with a script; an ``OSError`` when that is watched too often at the other end."""

    def __init__(self, connection: socket.socket, patience: Patience, user: str = "") -> None:
        self._loop = asyncio.get_running_loop()
        self._connection = connection
        self._patience = patience
        self._turn = Turn(user)

    async def receive(self, most_bytes: int) -> bytes:
        """What has come, as soon as something has; empty at the end."""
        await self.rest()
        while (data := self._call(lambda: self._connection.recv(most_bytes), len)) is None:
            await self._until(self._loop.add_reader, self._loop.remove_reader)
        return data

    async def rest(self) -> None:
        """Wait until it is this connection's turn again."""
        await self._turn.come()

    async def send(self, data: bytes) -> None:
        """Send all of it."""
        rest = memoryview(data)
        while rest:
            while (sent := self._call(functools.partial(self._connection.send, rest), int)) is None:
                await self.rest()
                await self._until(self._loop.add_writer, self._loop.remove_writer)
            rest = rest[sent:]

    def end(self) -> None:
        """Nothing more is sent."""
        self._connection.shutdown(socket.SHUT_WR)

    def _call(self, call: Callable[[], _T], size_of: Callable[[_T], int]) -> _T | None:
        began = time.thread_time()
        try:
            result = call()
        except (BlockingIOError, InterruptedError):
            return None
        self._patience.take(began)
        self._turn.took(time.thread_time() - began, size_of(result))
        if self._patience.is_over:
            raise ConnectionAbortedError("it is watched so often that the agent would have no time for others")
        return result

    async def _until(self, watch: Callable[..., None], leave: Callable[[int], bool]) -> None:
        ready, descriptor = self._loop.create_future(), self._connection.fileno()
        watch(descriptor, _done, ready)
        try:
            await ready
        finally:
            leave(descriptor)


class Tunnel:
    """One connection through the proxy; its sockets stay the caller's to close.

    Raises ``TimeoutError`` when nothing moved for ``idle_seconds``, ``OSError`` when a side broke off.
    """

    def __init__(self, client: Client, upstream: socket.socket, idle_seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._client = client
        self._upstream = upstream
        self._idle_seconds = idle_seconds
        self._deadline = asyncio.timeout(idle_seconds)
        self._moved = self._loop.time()

    async def carry(self, early: bytes) -> None:
        """Carry both directions until both have ended."""
        await self._both(self._send(early), self._receive())

    async def exchange(self, head: bytes, early: bytes, body_bytes: int) -> None:
        """Send one request and carry its answer until the host closes.

        A second request on the same connection is never read as one: it ends the exchange, and the client has to open
        a new connection, which is checked.
        """
        try:
            await self._both(self._send_one(head, early, body_bytes), self._receive_one())
        except _Over:
            return

    async def _both(self, *directions: Coroutine[None, None, None]) -> None:
        tasks = [self._loop.create_task(direction) for direction in directions]
        try:
            async with self._deadline:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            if not task.cancelled():
                task.result()

    async def _send(self, early: bytes) -> None:
        data = early or await self._client.receive(BUFFER_BYTES)
        while data:
            await self._pass_on(data)
            data = await self._client.receive(BUFFER_BYTES)
        self._upstream.shutdown(socket.SHUT_WR)

    async def _send_one(self, head: bytes, early: bytes, body_bytes: int) -> None:
        await self._pass_on(head)
        left = body_bytes
        data = early
        while left > 0:
            data = data or await self._client.receive(min(left, BUFFER_BYTES))
            if not data:
                raise ConnectionAbortedError("the client closed before its request was complete")
            part, data = data[:left], data[left:]
            left -= len(part)
            await self._pass_on(part)
        if data or await self._client.receive(1):
            raise ConnectionAbortedError("the client sent more than one request")
        self._upstream.shutdown(socket.SHUT_WR)  # the client has closed, as the host would see it without a proxy

    async def _pass_on(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._upstream, data)
        self._touch()

    async def _receive(self) -> None:
        while data := await self._loop.sock_recv(self._upstream, BUFFER_BYTES):
            self._touch()
            await self._client.send(data)
            self._touch()
            await self._client.rest()
        self._client.end()

    async def _receive_one(self) -> None:
        await self._receive()
        raise _Over

    def _touch(self) -> None:
        now = self._loop.time()
        if now - self._moved >= _RESCHEDULE_SECONDS and not self._deadline.expired():
            self._moved = now
            self._deadline.reschedule(now + self._idle_seconds)
