"""The streams of a container's main process, by asyncio: the engine's connection becomes a channel (SANDBOX.md 4.5)."""

from __future__ import annotations

import asyncio

from adk_skills_agent.errors import EngineUnavailable, SandboxError
from adk_skills_agent.sandbox.container.engine import ANSWER_SECONDS
from adk_skills_agent.sandbox.container.wire import Wire, open_wire

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
        """To standard input; waits while the container does not read.

        Raises:
            OSError: The connection is gone.
        """
        await self._wire.send(data)

    async def receive(self) -> tuple[int, bytes] | None:
        """What comes next, as ``(1 | 2, bytes)``; None at the end. A cancelled call loses nothing.

        Raises:
            OSError: The connection broke.
        """
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
    """Connect to the streams of a running container.

    Args:
        url: Where the engine listens.
        container: Its id.
        engine: The engine's name, for sentences.

    Raises:
        EngineUnavailable: It cannot be reached.
        SandboxError: It refuses.
    """
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
    """Whether somebody listens there. Who is busy does; no thread of the engine's is needed to know it.

    Args:
        url: Where the engine listens.
        seconds: How long it may take.
    """
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
