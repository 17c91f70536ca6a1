"""The streams of a container's main process, by asyncio: the engine's connection becomes a channel (SANDBOX.md 4.5)."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from adk_skills_agent.errors import EngineUnavailable, SandboxError

_HEAD_BYTES = 8
_MOST_ANSWER_BYTES = 64 << 10
_BUFFER_BYTES = 1 << 20
_CONNECT_SECONDS = 10.0
STDERR = 2


class AttachStream:
    """Standard input, output and error of one container."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._number = self._left = 0

    async def send(self, data: bytes) -> None:
        """To standard input; waits while the container does not read.

        Raises:
            OSError: The connection is gone.
        """
        self._writer.write(data)
        await self._writer.drain()

    async def receive(self) -> tuple[int, bytes] | None:
        """What comes next, as ``(1 | 2, bytes)``; None at the end. A cancelled call loses nothing.

        Raises:
            OSError: The connection broke.
        """
        try:
            while not self._left:
                head = await self._reader.readexactly(_HEAD_BYTES)
                self._number, self._left = head[0], int.from_bytes(head[4:], "big")
            piece = await self._reader.read(min(self._left, _BUFFER_BYTES))
        except asyncio.IncompleteReadError:
            return None
        if not piece:
            return None
        self._left -= len(piece)
        return self._number, piece

    @property
    def ended(self) -> bool:
        """Whether the other side has closed it and everything was read."""
        return self._reader.at_eof()

    def close(self) -> None:
        """Close the connection; safe to call twice, also when its loop is closed."""
        with contextlib.suppress(RuntimeError):
            self._writer.transport.abort()


async def attach(url: str, container: str, engine: str) -> AttachStream:
    """Connect to the streams of a running container.

    Args:
        url: Where the engine listens.
        container: Its id.
        engine: The engine's name, for sentences.

    Raises:
        EngineUnavailable: It cannot be reached.
        SandboxError: It refuses.
    """
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            reader, writer = await _open(url)
            try:
                path = f"/containers/{container}/attach?stream=1&stdin=1&stdout=1&stderr=1"
                writer.write(
                    f"POST {path} HTTP/1.1\r\nHost: engine\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
                    "Content-Length: 0\r\n\r\n".encode()
                )
                await writer.drain()
                head = await reader.readuntil(b"\r\n\r\n")
                status = head.split(b" ", 2)[1:2]
                if status not in ([b"101"], [b"200"]):
                    said = (await reader.read(_MOST_ANSWER_BYTES)).decode("utf-8", "replace").strip()
                    raise SandboxError(f"{engine} could not attach to the container: {said[:300]}")
            except BaseException:
                writer.transport.abort()
                raise
    except TimeoutError:
        raise EngineUnavailable(f"{engine} did not attach to the container within {_CONNECT_SECONDS:g} s.") from None
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise EngineUnavailable(f"{engine} cannot be reached to attach to a container: {reason}.") from error
    return AttachStream(reader, writer)


async def _open(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if url.startswith("unix://"):
        return await asyncio.open_unix_connection(url.removeprefix("unix://"), limit=_BUFFER_BYTES)
    parts = urlsplit(url)
    context = _tls_context()
    if context is None:
        return await asyncio.open_connection(parts.hostname, parts.port or 2375, limit=_BUFFER_BYTES)
    return await asyncio.open_connection(parts.hostname, parts.port or 2376, limit=_BUFFER_BYTES, ssl=context)


def _tls_context() -> ssl.SSLContext | None:
    import os

    folder = os.environ.get("DOCKER_CERT_PATH")
    if not (os.environ.get("DOCKER_TLS_VERIFY") or folder):
        return None
    place = Path(folder) if folder else Path.home() / ".docker"
    context = ssl.create_default_context(cafile=str(place / "ca.pem"))
    context.load_cert_chain(str(place / "cert.pem"), str(place / "key.pem"))
    return context
