"""End runs whose event loop cannot: it is blocked beyond their deadline, or was closed without cancelling them.

One thread per agent, which sleeps while nothing runs. The deadline is the loop's own work; this is for when it fails.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

LATE_SECONDS = 1.0
"""How long after the deadline and its grace a run is ended from here: the loop may be merely busy."""

_LOOK_SECONDS = 0.25

_logger = logging.getLogger("adk_skills_agent.sandbox")


@dataclass(slots=True, eq=False)
class Dependent:
    """One run and its loop.

    Attributes:
        loop_closed: Whether the loop is closed.
        lost: Ends the run and cleans up after it without a loop; called at most once, in a thread of its own.
        overdue: Ends it although the loop does not; called at most once, must not block. Set before ``deadline``.
        deadline: When the loop should have ended it at the latest, by ``time.monotonic()``; None for never.
        is_overdue: ``overdue`` was called.
        is_lost: ``lost`` was called, or is about to be.
    """

    loop_closed: Callable[[], bool]
    lost: Callable[[], None]
    overdue: Callable[[], None] = lambda: None
    deadline: float | None = None
    is_overdue: bool = False
    is_lost: bool = False


class LoopWatch:
    """The thread; started with the first run."""

    def __init__(self) -> None:
        self._runs: set[Dependent] = set()
        self._changed = threading.Condition()  # re-entrant: a run may be collected as garbage in here
        threading.Thread(target=self._work, name="adk-skills-loop-watch", daemon=True).start()

    def add(self, run: Dependent) -> None:
        """Begin to watch."""
        with self._changed:
            self._runs.add(run)
            self._changed.notify()

    def remove(self, run: Dependent) -> None:
        """Stop watching; afterwards nothing of the run is called any more."""
        with self._changed:
            self._runs.discard(run)

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._runs:
                    self._changed.wait()
            time.sleep(_LOOK_SECONDS)  # most runs have ended by then
            with self._changed:
                for run in tuple(self._runs):
                    try:
                        self._look(run)
                    except Exception:
                        self._runs.discard(run)
                        _logger.exception("A run that has no event loop any more could not be ended.")

    def _look(self, run: Dependent) -> None:
        if run.loop_closed():
            self._runs.discard(run)
            run.is_lost = True
            threading.Thread(target=run.lost, name="adk-skills-lost-run", daemon=True).start()
        elif run.deadline is not None and not run.is_overdue and time.monotonic() > run.deadline + LATE_SECONDS:
            run.is_overdue = True
            run.overdue()


_watch: LoopWatch | None = None
_lock = threading.Lock()


def loop_watch() -> LoopWatch:
    """This process's; a forked child gets one of its own."""
    global _watch  # noqa: PLW0603  # one thread per process is the point
    if _watch is None:
        with _lock:
            if _watch is None:
                _watch = LoopWatch()
    return _watch


def _forget() -> None:
    global _watch, _lock  # noqa: PLW0603  # threads do not survive a fork, and the lock may have been held
    _watch = None
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget)
