"""The streams of a container's main process: a connection to the engine becomes a channel (SANDBOX.md 4.5)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import os
import socket
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from adk_skills_agent.errors import EngineUnavailable, SandboxError
from adk_skills_agent.sandbox.container.engine import ANSWER_SECONDS

_HEAD_BYTES = 8
_CONNECT_SECONDS = 10.0
_HEAD_END = b"\r\n\r\n"
STDERR = 2


class AttachStream:
    """Standard input, output and error output of one container."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._number = self._left = 0

    async def send(self, data: bytes) -> None:
        """To standard input; waits while the container does not read."""
        await self._wire.send(data)

    async def receive(self) -> tuple[int, bytes] | None:
        """What comes next, as ``(1 | 2, bytes)``; None at the end. A cancelled call loses nothing."""
        while not self._left:
            head = await self._wire.receive(exactly=_HEAD_BYTES)
            if len(head) < _HEAD_BYTES:
                return None
            self._number, self._left = head[0], int.from_bytes(head[4:], "big")
        piece = await self._wire.receive(self._left)
        self._left -= len(piece)
        return (self._number, piece) if piece else None

    @property
    def ended(self) -> bool:
        """Whether the other side has closed it and everything was read."""
        return self._wire.ended

    def close(self) -> None:
        """Close the connection; safe to call twice, also when its loop is closed."""
        self._wire.close()


async def attach(url: str, container: str, engine: str) -> AttachStream:
    """Connect to the streams of a running container."""
    limit = _CONNECT_SECONDS
    try:
        async with asyncio.timeout(limit):
            wire = await open_wire(url)
        limit = ANSWER_SECONDS  # Podman asks its runtime first
        try:
            async with asyncio.timeout(limit):
                path = f"/containers/{container}/attach?stream=1&stdin=1&stdout=1&stderr=1"
                await wire.send(
                    f"POST {path} HTTP/1.1\r\nHost: engine\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
                    "Content-Length: 0\r\n\r\n".encode()
                )
                await _answered(wire, engine)
                return AttachStream(wire)
        except BaseException:
            wire.close()
            raise
    except TimeoutError:
        raise EngineUnavailable(f"{engine} did not attach to the container within {limit:g} s.") from None
    except OSError as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise EngineUnavailable(f"{engine} cannot be reached to attach to a container: {reason}.") from error


async def answers(url: str, seconds: float) -> bool:
    """Whether somebody listens there. Who is busy does; no thread of the engine's is needed to know it."""
    try:
        async with asyncio.timeout(seconds):
            (await open_wire(url)).close()
    except TimeoutError:
        return True
    except OSError:
        return False
    return True


async def _answered(wire: Wire, engine: str) -> None:
    """Wait for the engine's consent."""
    head = await wire.receive(until=_HEAD_END)
    if not head.endswith(_HEAD_END):
        raise ConnectionResetError(0, "the connection was closed")
    if head.split(b" ", 2)[1] not in {b"101", b"200"}:
        reason = (await wire.receive()).decode("utf-8", "replace").strip()
        raise SandboxError(f"{engine} could not attach to the container: {reason[:300]}")


_BUFFER_BYTES = 1 << 20
_PORT, _TLS_PORT = 2375, 2376
_open: set[asyncio.BaseTransport] = set()
"""Held: asyncio takes it ill when one is collected that was not closed, and in a closed loop none can be.

Not who waits for its bytes: what runs in a loop that is thrown away has to be collected, or nothing cleans up after it.
"""


async def open_wire(url: str) -> Wire:
    """Connect to an engine, with TLS when the variables say so that the docker command has for it.

    Raises:
        OSError: Nobody is there, this user may not connect, or it is not the engine that the certificates are for.
    """
    loop = asyncio.get_running_loop()
    context, host = None, None
    places: list[tuple[int, Any]] = [(socket.AF_UNIX, url.removeprefix("unix://"))]
    if not url.startswith("unix://"):
        parts, context = urlsplit(url), _tls_context()
        host = None if context is None else parts.hostname
        port = parts.port or (_PORT if context is None else _TLS_PORT)
        found = await loop.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
        places = [(family, address) for family, _, _, _, address in found]
    problem: OSError = ConnectionRefusedError(0, "there is no such host")
    for family, address in places:
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)
            await loop.sock_connect(connection, address)
            reader = asyncio.StreamReader()
            transport, protocol = await loop.create_connection(
                functools.partial(_WireProtocol, reader), sock=connection, ssl=context, server_hostname=host
            )
            return Wire(connection, reader, transport, protocol)
        except BaseException as error:
            connection.close()
            if not isinstance(error, OSError) or isinstance(error, ssl.SSLError):
                raise
            problem = error
    raise problem


class _WireProtocol(asyncio.StreamReaderProtocol):
    """Tells when more can be written; holds its reader weakly, as asyncio's own does."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__(reader)
        self.has_room = asyncio.Event()
        self.has_room.set()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.has_room.clear()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.has_room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.has_room.set()


class Wire:
    """Bytes to an engine and from it, which can be closed at any moment, its loop there or not."""

    def __init__(
        self,
        connection: socket.socket,
        reader: asyncio.StreamReader,
        transport: asyncio.Transport,
        protocol: _WireProtocol,
    ) -> None:
        self._socket, self._reader, self._transport, self._protocol = connection, reader, transport, protocol
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        _open.add(transport)

    @property
    def ended(self) -> bool:
        """Whether the other side has closed it and everything was read; never blocks."""
        if self._is_closed or self._reader.at_eof() or self._reader.exception() is not None:
            return True
        # The loop may not have run since. What a reader holds it tells nobody but by its private name.
        try:
            return not self._reader._buffer and self._socket.recv(1, socket.MSG_PEEK) == b""  # type: ignore[attr-defined]
        except BlockingIOError:
            return False
        except OSError:
            return True

    async def send(self, data: bytes) -> None:
        """Send all; a cancelled call goes on with it. An OSError when the connection is gone."""
        self._transport.write(data)
        await self._protocol.has_room.wait()
        if (problem := self._reader.exception()) is not None:
            raise problem
        if self._transport.is_closing():
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))

    async def receive(self, most: int = _BUFFER_BYTES, *, exactly: int = 0, until: bytes = b"") -> bytes:
        """What comes next: at most or exactly so many bytes, or all up to a mark; less at the end.

        A cancelled call loses nothing. An OSError when the connection broke.
        """
        try:
            if exactly:
                return await self._reader.readexactly(exactly)
            return await (self._reader.readuntil(until) if until else self._reader.read(min(most, _BUFFER_BYTES)))
        except asyncio.IncompleteReadError as error:
            return error.partial
        except asyncio.LimitOverrunError:
            return b""
        except OSError:
            if self._is_closed:  # by us meanwhile, whatever the other side thinks of it
                return b""
            raise

    def close(self) -> None:
        """Close it; from any thread, safe to call twice."""
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # whoever waits for it sees its end
        try:
            self._loop.call_soon_threadsafe(self._abort)
        except RuntimeError:  # the loop is closed
            self._socket.close()

    def _abort(self) -> None:
        self._transport.abort()
        _open.discard(self._transport)


def _tls_context() -> ssl.SSLContext | None:
    folder = os.environ.get("DOCKER_CERT_PATH")
    if not (os.environ.get("DOCKER_TLS_VERIFY") or folder):
        return None
    place = Path(folder) if folder else Path.home() / ".docker"
    context = ssl.create_default_context(cafile=str(place / "ca.pem"))
    context.load_cert_chain(str(place / "cert.pem"), str(place / "key.pem"))
    return context
