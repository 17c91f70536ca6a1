"""A connection to an engine that carries bytes both ways, and can be closed at any moment, its loop there or not.

Asyncio's own streams cannot be closed any more once their loop is, and a loop may be thrown away while a run is in it.
Only connections with TLS, which asyncio does with streams alone, keep to them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

_BUFFER_BYTES = 1 << 20
_open: set[socket.socket] = set()
"""Held, or the collector would end one before the run that closes it."""


class Wire(Protocol):
    """Bytes to an engine and from it."""

    @property
    def ended(self) -> bool:
        """Whether the other side has closed it and everything was read; never blocks."""

    async def send(self, data: bytes) -> None:
        """Send all; a cancelled call has sent all or goes on with it.

        Raises:
            OSError: The connection is gone.
        """

    async def receive(self) -> bytes:
        """What comes next; nothing at the end. A cancelled call loses nothing.

        Raises:
            OSError: The connection broke.
        """

    def close(self) -> None:
        """Close it; from any thread, safe to call twice."""


async def open_wire(url: str) -> Wire:
    """Connect to an engine.

    Args:
        url: ``unix://`` and a path, or ``tcp://`` with a host and perhaps a port.

    Raises:
        OSError: Nobody is there, or this user may not connect.
    """
    parts = urlsplit(url)
    secured = None if url.startswith("unix://") else _tls_context()
    if secured is not None:
        return _SecuredWire(
            *await asyncio.open_connection(parts.hostname, parts.port or 2376, limit=_BUFFER_BYTES, ssl=secured)
        )
    loop = asyncio.get_running_loop()
    if url.startswith("unix://"):
        places = [(socket.AF_UNIX, url.removeprefix("unix://"))]
    else:
        found = await loop.getaddrinfo(parts.hostname, parts.port or 2375, type=socket.SOCK_STREAM)
        places = [(family, address) for family, _, _, _, address in found]  # type: ignore[misc]
    problem: OSError = ConnectionRefusedError(0, "there is no such host")
    for family, address in places:
        connection = socket.socket(family, socket.SOCK_STREAM)
        connection.setblocking(False)
        wire = _PlainWire(connection, loop)
        try:
            await loop.sock_connect(connection, address)
        except OSError as error:
            wire.close()
            problem = error
        except BaseException:
            wire.close()
            raise
        else:
            return wire
    raise problem


class _PlainWire:
    def __init__(self, connection: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self._socket = connection
        self._loop = loop
        self._waiting = 0  # of this loop's operations on the socket
        self._is_closed = False
        self._unsent = bytearray()
        self._sender: asyncio.Task[None] | None = None
        _open.add(connection)

    @property
    def ended(self) -> bool:
        try:
            return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    async def send(self, data: bytes) -> None:
        if not self._unsent:
            with contextlib.suppress(BlockingIOError):
                data = data[self._socket.send(data) :]
        self._unsent += data
        if not self._unsent:
            return
        if self._sender is None or self._sender.done():
            self._sender = self._loop.create_task(self._send_rest())
            self._sender.add_done_callback(_seen)
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

    async def receive(self) -> bytes:
        if self._is_closed:
            return b""
        self._waiting += 1
        try:
            return await self._loop.sock_recv(self._socket, _BUFFER_BYTES)
        finally:
            self._waiting -= 1
            self._close_when_unused()

    def close(self) -> None:
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


class _SecuredWire:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @property
    def ended(self) -> bool:
        return self._reader.at_eof()

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def receive(self) -> bytes:
        return await self._reader.read(_BUFFER_BYTES)

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._writer.transport.abort()


def _seen(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()  # taken, so that it is not reported as lost when who waited for it was cancelled


def _tls_context() -> ssl.SSLContext | None:
    folder = os.environ.get("DOCKER_CERT_PATH")
    if not (os.environ.get("DOCKER_TLS_VERIFY") or folder):
        return None
    place = Path(folder) if folder else Path.home() / ".docker"
    context = ssl.create_default_context(cafile=str(place / "ca.pem"))
    context.load_cert_chain(str(place / "cert.pem"), str(place / "key.pem"))
    return context
