"""Containers that wait for the next runs of the same kind: started, their program answering, each used once.

A container belongs to the event loop it was started in; with the loop it goes.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import weakref
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from adk_skills_agent.sandbox.container.container import ContainerChannel
from adk_skills_agent.sandbox.warm_pool import WarmPool

_AFTER_SECONDS = 0.3
"""Starting the next container takes a processor for a while, which the run that is just beginning wants first."""
_LOOK_SECONDS = 1.0
_END_SECONDS = 30.0

Start = Callable[[], Coroutine[Any, Any, ContainerChannel]]


@dataclass(frozen=True, slots=True)
class _Spec:
    """A kind of container in one event loop; equal keys are made of equal settings."""

    key: str
    loop: asyncio.AbstractEventLoop
    start: Start = field(compare=False)


class Pool:
    """Hands out containers; fills up behind those it hands out."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._owner = os.getpid()
        self._asked: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, set[str]] = weakref.WeakKeyDictionary()
        self._pool: WarmPool[_Spec, _Waiting] = WarmPool(
            _make, _Waiting.is_usable, _end, delay=_AFTER_SECONDS, what="container"
        )

    async def take(self, key: str, wanted: int, start: Start) -> tuple[ContainerChannel, bool]:
        """A container of a kind, and whether it was waiting.

        Args:
            key: The kind: equal keys are made of equal settings.
            wanted: How many are to wait for the next ones, from the second time on; 0 for none.
            start: Makes one.
        """
        if self._owner != os.getpid():
            self._begin()  # a forked child: what waits, and the threads, are its parent's
        loop = asyncio.get_running_loop()
        asked = self._asked.setdefault(loop, set())
        found = self._pool.take(_Spec(key, loop, start), wanted) if wanted and key in asked else None
        asked.add(key)
        try:
            return (await start(), False) if found is None else (found.channel, True)
        finally:
            self._pool.refill()

    async def close(self) -> None:
        """End all that wait, in every loop; the pool can be used again afterwards."""
        self._asked.clear()
        await asyncio.to_thread(self._pool.close, _END_SECONDS)

    def abandon(self) -> None:
        """The same without a loop, and without waiting for those that are being made."""
        self._asked.clear()
        self._pool.close(0.0)

    def waiting(self) -> int:
        """How many wait now, in all loops."""
        return self._pool.idle()


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    channel: ContainerChannel
    loop: asyncio.AbstractEventLoop

    def is_usable(self) -> bool:
        return self.channel.is_open and not self.loop.is_closed()


def _make(spec: _Spec) -> _Waiting | None:
    """Start one in its event loop, and wait for it in a thread of the pool; None when the loop has ended."""
    coming: concurrent.futures.Future[ContainerChannel] | None = None
    starting = spec.start()
    try:
        coming = asyncio.run_coroutine_threadsafe(starting, spec.loop)
        while True:
            try:
                return _Waiting(coming.result(_LOOK_SECONDS), spec.loop)
            except TimeoutError:
                if not spec.loop.is_running():
                    coming.cancel()
                    return None
    except RuntimeError:  # the loop is closed
        starting.close()
        return None
    except concurrent.futures.CancelledError:
        return None


def _end(waiting: list[_Waiting]) -> None:
    for one in waiting:
        one.channel.kill()
