"""A connection to an engine that carries bytes both ways, and can be closed at any moment, its loop there or not.

Asyncio's own streams cannot be closed any more once their loop is, and a loop may be thrown away while a run is in it.
So these are sockets, and TLS is a layer in memory over them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

_BUFFER_BYTES = 1 << 20
_PORT, _TLS_PORT = 2375, 2376
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
        url: ``unix://`` and a path, or ``tcp://`` with a host and perhaps a port; with TLS when ``DOCKER_TLS_VERIFY``
            or ``DOCKER_CERT_PATH`` is set, as the docker command does it.

    Raises:
        OSError: Nobody is there, this user may not connect, or it is not the engine that the certificates are for.
    """
    loop = asyncio.get_running_loop()
    if url.startswith("unix://"):
        return await _connected([(socket.AF_UNIX, url.removeprefix("unix://"))])
    parts, context = urlsplit(url), _tls_context()
    port = parts.port or (_PORT if context is None else _TLS_PORT)
    found = await loop.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    wire = await _connected([(family, address) for family, _, _, _, address in found])
    if context is None:
        return wire
    secured = _SecuredWire(wire, context, parts.hostname)
    try:
        await secured.shake_hands()
    except BaseException:
        wire.close()
        raise
    return secured


async def _connected(places: list[tuple[int, Any]]) -> _PlainWire:
    loop = asyncio.get_running_loop()
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

    def take(self) -> bytes | None:
        """What is there now; nothing at the end, None when there is nothing yet or somebody waits for it."""
        if self._waiting:
            return None
        try:
            return b"" if self._is_closed else self._socket.recv(_BUFFER_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""

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
        except OSError:
            if bool(self._is_closed):  # by us meanwhile, whatever the other side thinks of it
                return b""
            raise
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
    """TLS over a wire.

    Args:
        wire: Carries the records.
        context: The certificates.
        host: Whose certificate the other side must have.
    """

    def __init__(self, wire: _PlainWire, context: ssl.SSLContext, host: str | None) -> None:
        self._wire = wire
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._held = b""  # read while somebody asked whether it has ended

    async def shake_hands(self) -> None:
        """Agree on keys.

        Raises:
            OSError: Not with this one.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                self._add(await self._wire.receive())
            else:
                break
        await self._flush()

    @property
    def ended(self) -> bool:
        while not self._held:
            found = self._read()
            if found is None:
                data = self._wire.take()
                if data is None:
                    return False
                self._add(data)
            elif found:
                self._held = found
            else:
                return True
        return False

    async def send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._tls.write(rest) :]
        await self._flush()

    async def receive(self) -> bytes:
        held, self._held = self._held, b""
        if held:
            return held
        while (found := self._read()) is None:
            await self._flush()  # what the protocol itself has to answer
            self._add(await self._wire.receive())
        return found

    def close(self) -> None:
        self._wire.close()

    def _read(self) -> bytes | None:
        """What has come; nothing at the end, None when more records are needed.

        Raises:
            OSError: Somebody has changed the records.
        """
        try:
            return self._tls.read(_BUFFER_BYTES)
        except ssl.SSLWantReadError:
            return None
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""

    def _add(self, data: bytes) -> None:
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    async def _flush(self) -> None:
        if data := self._outgoing.read():
            await self._wire.send(data)


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
