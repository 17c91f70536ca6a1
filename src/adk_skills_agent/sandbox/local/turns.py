"""A bounded number of places, handed out first come first served, over all event loops of the process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import deque

MAX_RUNNING = 64
"""Runs at the same time in one agent process: each holds three descriptors and at least one process."""


class _Waiter:
    __slots__ = ("future", "granted", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.future: asyncio.Future[None] = loop.create_future()
        self.granted = False


class Turns:
    """``async with turns.place():`` waits for one of ``places`` (an asyncio semaphore belongs to a single loop)."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._free = self._places
        self._waiting: deque[_Waiter] = deque()

    @property
    def free(self) -> int:
        """Places nobody has."""
        return self._free

    @property
    def wanted(self) -> int:
        """Places somebody has, or waits for; never more than there are."""
        return min(self._places, self._places - self._free + len(self._waiting))

    def place(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Hold one place."""
        return _Place(self)

    async def _take(self) -> None:
        with self._lock:
            if self._free > 0 and not self._waiting:
                self._free -= 1
                return
            waiter = _Waiter(asyncio.get_running_loop())
            self._waiting.append(waiter)
        try:
            await waiter.future
        except BaseException:
            with self._lock:
                granted = waiter.granted
                if not granted:
                    self._waiting.remove(waiter)
            if granted:  # the place was ours already when the wait was cancelled
                self._give_back()
            raise

    def _give_back(self) -> None:
        with self._lock:
            self._free += 1
            while self._free > 0 and self._waiting:
                waiter = self._waiting.popleft()
                waiter.granted = True
                self._free -= 1
                try:
                    waiter.loop.call_soon_threadsafe(_wake, waiter.future)
                except RuntimeError:  # its loop is closed; nobody waits any more
                    self._free += 1


class _Place(contextlib.AbstractAsyncContextManager[None]):
    """One use of a place; a class, because a generator costs each run several times as much."""

    __slots__ = ("_turns",)

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    async def __aenter__(self) -> None:
        await self._turns._take()

    async def __aexit__(self, *error: object) -> None:
        self._turns._give_back()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


RUNNING = Turns(MAX_RUNNING)
os.register_at_fork(after_in_child=RUNNING._reset)  # what the parent runs is not the child's
