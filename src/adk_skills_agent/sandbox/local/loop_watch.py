"""End runs whose event loop cannot: it is blocked beyond their deadline, or was closed without cancelling them.

One thread per agent, which sleeps while nothing runs. The deadline is the loop's own work; this is for when it fails.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from adk_skills_agent.sandbox.local.one_per_process import OnePerProcess
from adk_skills_agent.sandbox.local.watch_thread import WatchThread

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


class LoopWatch(WatchThread[Dependent]):
    """The thread; started with the first run. After ``remove`` nothing of the run is called any more."""

    def __init__(self) -> None:
        super().__init__("adk-skills-loop-watch")

    def _round(self) -> None:
        time.sleep(_LOOK_SECONDS)  # most runs have ended by then
        with self._changed:
            lost = [run for run in self._runs if run.loop_closed()]
            for run in lost:
                self._runs.discard(run)
                run.is_lost = True
            for run in tuple(self._runs):
                _look_at_deadline(run)
        for run in lost:
            _end(run)


def _look_at_deadline(run: Dependent) -> None:
    if run.deadline is None or run.is_overdue or time.monotonic() <= run.deadline + LATE_SECONDS:
        return
    run.is_overdue = True
    try:
        run.overdue()
    except Exception:
        _logger.exception("A run could not be ended although its deadline had passed.")


def _end(run: Dependent) -> None:
    try:
        threading.Thread(target=_lose, args=(run,), name="adk-skills-lost-run", daemon=True).start()
    except RuntimeError:  # no thread to be had; ending the run may give one back
        _lose(run)


def _lose(run: Dependent) -> None:
    try:
        run.lost()
    except Exception:
        _logger.exception("A run that has no event loop any more could not be ended.")


loop_watch = OnePerProcess(LoopWatch)
"""This process's."""
