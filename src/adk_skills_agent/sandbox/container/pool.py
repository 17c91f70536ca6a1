"""Containers that wait for the next runs of the same kind: started, their program answering, each used once.

A container belongs to the event loop it was started in; with the loop it goes.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from adk_skills_agent.errors import SkillsError
from adk_skills_agent.sandbox.container.container import ContainerChannel

logger = logging.getLogger(__name__)

MOST_IDLE = 8
"""Containers that wait, of all kinds together, in one loop."""
IDLE_SECONDS = 300.0
"""A container that waited so long is not taken any more, and a kind that was not asked for so long gets none."""
_AFTER_SECONDS = 0.3
"""Starting the next container takes a processor for a while, which the run that is just beginning wants first."""
_PAUSE_SECONDS = 30.0
"""After a container could not be made ahead: a broken engine must not be asked all the time."""

Start = Callable[[], Awaitable[ContainerChannel]]


@dataclass(slots=True)
class _Kind:
    """What is known of runs of one kind in one loop."""

    idle: list[tuple[float, ContainerChannel]] = field(default_factory=list)
    coming: int = 0
    asked: int = 0
    last: float = 0.0
    not_before: float = 0.0


@dataclass(slots=True)
class _Shelf:
    """Everything of one loop."""

    kinds: OrderedDict[str, _Kind] = field(default_factory=OrderedDict)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)


class Pool:
    """Hands out containers; fills up behind those it hands out."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shelves: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Shelf] = weakref.WeakKeyDictionary()
        self._closed = False

    async def take(self, key: str, wanted: int, start: Start) -> tuple[ContainerChannel, bool]:
        """A container of a kind, and whether it was waiting.

        Args:
            key: The kind: equal keys are made of equal settings.
            wanted: How many are to wait for the next ones, from the second time on; 0 for none.
            start: Makes one.
        """
        loop = asyncio.get_running_loop()
        self._sweep_closed_loops()
        shelf = self._shelf(loop)
        kind = shelf.kinds.setdefault(key, _Kind())
        shelf.kinds.move_to_end(key)
        kind.asked += 1
        kind.last = time.monotonic()
        found = self._waiting(kind)
        try:
            if found is not None:
                return found, True
            return await start(), False
        finally:
            if wanted and kind.asked > 1 and not self._closed:
                self._refill(loop, shelf, key, kind, wanted, start)

    def _waiting(self, kind: _Kind) -> ContainerChannel | None:
        while kind.idle:
            since, channel = kind.idle.pop(0)
            if channel.is_open and time.monotonic() - since < IDLE_SECONDS:
                return channel
            channel.kill()  # it ended while it waited; the next one takes its place
        return None

    def _refill(
        self, loop: asyncio.AbstractEventLoop, shelf: _Shelf, key: str, kind: _Kind, wanted: int, start: Start
    ) -> None:
        if time.monotonic() < kind.not_before:
            return
        while len(kind.idle) + kind.coming < wanted and self._make_room(shelf, key):
            kind.coming += 1
            task = loop.create_task(self._make(kind, start))
            shelf.tasks.add(task)
            task.add_done_callback(shelf.tasks.discard)

    def _make_room(self, shelf: _Shelf, key: str) -> bool:
        """Whether one more may wait; kinds nobody asked for lately give way."""
        while sum(len(kind.idle) + kind.coming for kind in shelf.kinds.values()) >= MOST_IDLE:
            oldest = next((name for name, kind in shelf.kinds.items() if kind.idle and name != key), None)
            if oldest is None:
                return False
            shelf.kinds[oldest].idle.pop(0)[1].kill()
        for name in [name for name, kind in shelf.kinds.items() if not kind.idle and not kind.coming and name != key]:
            if time.monotonic() - shelf.kinds[name].last > IDLE_SECONDS:
                del shelf.kinds[name]
        return True

    async def _make(self, kind: _Kind, start: Start) -> None:
        try:
            await asyncio.sleep(_AFTER_SECONDS)
            channel = await start()
        except SkillsError as error:
            kind.not_before = time.monotonic() + _PAUSE_SECONDS
            logger.warning("No container could be made ahead: %s", error.message)
            return
        finally:
            kind.coming -= 1
        if self._closed:
            channel.kill()
        else:
            kind.idle.append((time.monotonic(), channel))

    async def close(self) -> None:
        """End all that wait, in every loop; the pool can be used again afterwards."""
        self._closed = True
        try:
            self._sweep_closed_loops()
            own = asyncio.get_running_loop()
            with self._lock:
                shelves = dict(self._shelves)
            for loop, shelf in shelves.items():
                if loop is own and shelf.tasks:
                    await asyncio.wait(list(shelf.tasks))
                self._empty(shelf)
        finally:
            self._closed = False

    def abandon(self) -> None:
        """The same without a loop."""
        with self._lock:
            shelves = list(self._shelves.values())
        for shelf in shelves:
            self._empty(shelf)

    def waiting(self) -> int:
        """How many wait now, in all loops."""
        with self._lock:
            return sum(len(kind.idle) for shelf in self._shelves.values() for kind in shelf.kinds.values())

    def _empty(self, shelf: _Shelf) -> None:
        for kind in shelf.kinds.values():
            while kind.idle:
                kind.idle.pop()[1].kill()
            kind.asked = 0

    def _shelf(self, loop: asyncio.AbstractEventLoop) -> _Shelf:
        with self._lock:
            found = self._shelves.get(loop)
            if found is None:
                found = self._shelves[loop] = _Shelf()
                # Containers of a loop nobody closed properly end with it, not with the process.
                weakref.finalize(loop, self._empty, found).atexit = False
            return found

    def _sweep_closed_loops(self) -> None:
        with self._lock:
            shelves = [self._shelves.pop(loop) for loop in list(self._shelves) if loop.is_closed()]
        for shelf in shelves:
            self._empty(shelf)
