"""A thread that looks after runs while there are any, and sleeps when there have been none for some seconds.

Not at once, because waking it takes the interpreter's lock from the run that has just begun: with runs that follow one
another it is a tenth of a millisecond each.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

_LINGER_SECONDS = 5.0

_Run = TypeVar("_Run")


class WatchThread(ABC, Generic[_Run]):
    """The runs and the thread, which is started at once.

    Args:
        name: Of the thread.
    """

    def __init__(self, name: str) -> None:
        self._runs: set[_Run] = set()
        self._changed = threading.Condition()  # re-entrant: a run may be collected as garbage in here
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def add(self, run: _Run) -> None:
        """Begin to watch."""
        with self._changed:
            self._runs.add(run)
            self._changed.notify()

    def remove(self, run: _Run) -> None:
        """Stop watching; nothing is called any more that is called under the lock."""
        with self._changed:
            self._runs.discard(run)

    def _work(self) -> None:
        busy_until = 0.0
        while True:
            with self._changed:
                while not self._runs and time.monotonic() > busy_until:
                    self._changed.wait()
                if self._runs:
                    busy_until = time.monotonic() + _LINGER_SECONDS
            self._round()

    @abstractmethod
    def _round(self) -> None:
        """Look at the runs once, of which there may be none, and rest before or after it; without the lock."""
