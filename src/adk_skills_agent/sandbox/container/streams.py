"""The streams of a container's main process: a connection to the engine becomes a channel (SANDBOX.md 4.5)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from adk_skills_agent.errors import EngineUnavailable, SandboxError
from adk_skills_agent.sandbox.container.engine import ANSWER_SECONDS, seen

_HEAD_BYTES = 8
_MOST_ANSWER_BYTES = 64 << 10
_CONNECT_SECONDS = 10.0
_HEAD_END = b"\r\n\r\n"
STDERR = 2


class AttachStream:
    """Standard input, output and error of one container."""

    def __init__(self, wire: Wire, already: bytes = b"") -> None:
        self._wire = wire
        self._held = bytearray(already)
        self._number = self._left = 0

    async def send(self, data: bytes) -> None:
        """To standard input; waits while the container does not read."""
        await self._wire.send(data)

    async def receive(self) -> tuple[int, bytes] | None:
        """What comes next, as ``(1 | 2, bytes)``; None at the end. A cancelled call loses nothing."""
        while not self._left:
            while len(self._held) < _HEAD_BYTES:
                if not await self._more():
                    return None
            self._number, self._left = self._held[0], int.from_bytes(self._held[4:_HEAD_BYTES], "big")
            del self._held[:_HEAD_BYTES]
        while not self._held:
            if not await self._more():
                return None
        piece = bytes(self._held[: self._left])
        del self._held[: len(piece)]
        self._left -= len(piece)
        return self._number, piece

    async def _more(self) -> bool:
        data = await self._wire.receive()
        self._held += data
        return bool(data)

    @property
    def ended(self) -> bool:
        """Whether the other side has closed it and everything was read."""
        return not self._held and self._wire.ended

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
                return AttachStream(wire, await _answered(wire, engine))
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


async def _answered(wire: Wire, engine: str) -> bytes:
    """Wait for the engine's consent; what already came of the streams behind it."""
    said = bytearray()
    while (end := said.find(_HEAD_END)) < 0:
        data = await wire.receive()
        said += data
        if not data or len(said) > _MOST_ANSWER_BYTES:
            raise ConnectionResetError(0, "the connection was closed")
    if bytes(said).split(b" ", 2)[1] in {b"101", b"200"}:
        return bytes(said[end + len(_HEAD_END) :])
    if end + len(_HEAD_END) == len(said):
        said += await wire.receive()
    reason = said[end:].decode("utf-8", "replace").strip()
    raise SandboxError(f"{engine} could not attach to the container: {reason[:300]}")


# Asyncio's own streams cannot be closed any more once their loop is, and a loop may be thrown away while a run is in
# it. So these are sockets, and TLS is a layer in memory over them.

_BUFFER_BYTES = 1 << 20
_PORT, _TLS_PORT = 2375, 2376
_open: set[socket.socket] = set()
"""Held, or the collector would end one before the run that closes it."""


async def open_wire(url: str) -> Wire:
    """Connect to an engine.

    Args:
        url: ``unix://`` and a path, or ``tcp://`` with a host and perhaps a port; with TLS when ``DOCKER_TLS_VERIFY``
            or ``DOCKER_CERT_PATH`` is set, as the docker command does it.

    Raises:
        OSError: Nobody is there, this user may not connect, or it is not the engine that the certificates are for.
    """
    loop = asyncio.get_running_loop()
    context, host = None, None
    places: list[tuple[int, Any]] = [(socket.AF_UNIX, url.removeprefix("unix://"))]
    if not url.startswith("unix://"):
        parts, context = urlsplit(url), _tls_context()
        host = parts.hostname
        port = parts.port or (_PORT if context is None else _TLS_PORT)
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        places = [(family, address) for family, _, _, _, address in found]
    problem: OSError = ConnectionRefusedError(0, "there is no such host")
    for family, address in places:
        wire = Wire(family, context, host)
        try:
            await wire.connect(address)
        except ssl.SSLError:
            wire.close()
            raise
        except OSError as error:
            wire.close()
            problem = error
        except BaseException:
            wire.close()
            raise
        else:
            return wire
    raise problem


class Wire:
    """Bytes to an engine and from it, which can be closed at any moment, its loop there or not."""

    def __init__(self, family: int, context: ssl.SSLContext | None = None, host: str | None = None) -> None:
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._waiting = 0  # of this loop's operations on the socket
        self._is_closed = self._at_end = False
        self._held = bytearray()
        self._unsent = bytearray()
        self._sender: asyncio.Task[None] | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = None if context is None else context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        _open.add(self._socket)

    async def connect(self, address: Any) -> None:
        """Connect, and agree on keys.

        Raises:
            OSError: Nobody is there, or it is somebody else.
        """
        await self._loop.sock_connect(self._socket, address)
        while self._tls is not None:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                self._add(await self._receive())
            else:
                await self._flush()
                return

    @property
    def ended(self) -> bool:
        """Whether the other side has closed it and everything was read; never blocks."""
        try:
            self._decrypt()
            while not (self._held or self._at_end or self._waiting):
                self._add(self._socket.recv(_BUFFER_BYTES))
                self._decrypt()
        except BlockingIOError:
            return False
        except OSError:
            return True
        return self._at_end and not self._held

    async def send(self, data: bytes) -> None:
        """Send all; a cancelled call has sent all or goes on with it.

        Raises:
            OSError: The connection is gone.
        """
        if self._tls is None:
            await self._send(data)
            return
        rest = memoryview(data)
        while rest:
            rest = rest[self._tls.write(rest) :]
        await self._flush()

    async def receive(self) -> bytes:
        """What comes next; nothing at the end. A cancelled call loses nothing.

        Raises:
            OSError: The connection broke.
        """
        self._decrypt()
        while not (self._held or self._at_end):
            await self._flush()  # what the protocol itself has to answer
            self._add(await self._receive())
            self._decrypt()
        data, self._held = bytes(self._held), bytearray()
        return data

    def close(self) -> None:
        """Close it; from any thread, safe to call twice."""
        if not self._is_closed:
            self._is_closed = True
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # whoever waits for it sees its end
        self._close_when_unused()

    def _close_when_unused(self) -> None:
        # A descriptor the loop still looks at must not become another file's.
        if self._is_closed and (not self._waiting or self._loop.is_closed()):
            self._socket.close()
            _open.discard(self._socket)

    def _add(self, data: bytes) -> None:
        """Bytes of the socket; none at its end."""
        if self._tls is None:
            self._held += data
            self._at_end = not data
        elif data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    def _decrypt(self) -> None:
        """Take what has come out of its records."""
        try:
            while self._tls is not None and not self._at_end:
                data = self._tls.read(_BUFFER_BYTES)
                self._held += data
                self._at_end = not data
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            self._at_end = True

    async def _flush(self) -> None:
        if data := self._outgoing.read():
            await self._send(data)

    async def _receive(self) -> bytes:
        if self._is_closed:
            return b""
        self._waiting += 1
        try:
            return await self._loop.sock_recv(self._socket, _BUFFER_BYTES)
        except OSError:
            if bool(self._is_closed):  # by us meanwhile, whatever the other side thinks of it
                return b""
            raise
        finally:
            self._waiting -= 1
            self._close_when_unused()

    async def _send(self, data: bytes) -> None:
        if not self._unsent:
            with contextlib.suppress(BlockingIOError):
                data = data[self._socket.send(data) :]
        self._unsent += data
        if not self._unsent:
            return
        if self._sender is None or self._sender.done():
            self._sender = self._loop.create_task(self._send_rest())
            self._sender.add_done_callback(seen)
        await asyncio.shield(self._sender)

    async def _send_rest(self) -> None:
        self._waiting += 1
        try:
            while self._unsent:
                piece = bytes(self._unsent[:_BUFFER_BYTES])
                await self._loop.sock_sendall(self._socket, piece)
                del self._unsent[: len(piece)]
        finally:
            self._waiting -= 1
            self._close_when_unused()


def _tls_context() -> ssl.SSLContext | None:
    folder = os.environ.get("DOCKER_CERT_PATH")
    if not (os.environ.get("DOCKER_TLS_VERIFY") or folder):
        return None
    place = Path(folder) if folder else Path.home() / ".docker"
    context = ssl.create_default_context(cafile=str(place / "ca.pem"))
    context.load_cert_chain(str(place / "cert.pem"), str(place / "key.pem"))
    return context
