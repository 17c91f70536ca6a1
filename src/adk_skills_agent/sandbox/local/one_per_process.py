"""One of a thing in a process, made at the first use: a thread or a pool that serves every run.

A forked child gets one of its own: threads do not survive a fork, and the parent's locks may have been held.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

_Thing = TypeVar("_Thing")


class OnePerProcess(Generic[_Thing]):
    """Call it to get the thing.

    Args:
        make: Makes it; called once in each process, again when it raised.
        let_go: In a forked child: closes there what is its parent's.
    """

    def __init__(self, make: Callable[[], _Thing], let_go: Callable[[_Thing], None] | None = None) -> None:
        self._make = make
        self._let_go = let_go
        self._made: list[_Thing] = []
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._forget)

    def __call__(self) -> _Thing:
        """The one of this process."""
        if not self._made:
            with self._lock:
                if not self._made:
                    self._made.append(self._make())
        return self._made[0]

    @property
    def made(self) -> _Thing | None:
        """The one of this process, if anybody has asked for it."""
        return self._made[0] if self._made else None

    def _forget(self) -> None:
        made, self._made = self._made, []
        self._lock = threading.Lock()
        if self._let_go is not None:
            for thing in made:
                self._let_go(thing)
