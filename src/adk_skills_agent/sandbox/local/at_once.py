"""When a run may be started in the event loop itself: only where that takes no noticeable time.

The folders it shows are looked at for that, and they may be on a slow disk. So only those that were looked at in no
time a moment ago, by a worker thread the first time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Hashable
from pathlib import Path

from adk_skills_agent.sandbox.contract import ExecutionRequest

_QUICK_SECONDS = 0.001
_REMEMBERED_SECONDS = 60.0
_MOST_REMEMBERED = 64


class TakesTimeError(Exception):
    """What was tried is not for the event loop."""


class QuickLooks:
    """Which looks at the disk took no time a moment ago."""

    def __init__(self) -> None:
        self._looked: dict[Hashable, float] = {}

    def was_quick(self, what: Hashable) -> bool:
        """Whether it was looked at in no time, not long ago."""
        when = self._looked.get(what)
        return when is not None and time.monotonic() - when < _REMEMBERED_SECONDS

    def remember(self, what: Hashable, seconds: float) -> None:
        """How long it took to look at it."""
        self._looked.pop(what, None)
        if seconds < _QUICK_SECONDS:
            self._looked[what] = time.monotonic()
            for oldest in list(self._looked)[:-_MOST_REMEMBERED]:
                self._looked.pop(oldest, None)


def was_quick(request: ExecutionRequest) -> bool:
    """Whether a run's folders were looked at in no time, not long ago."""
    return _folders.was_quick(_sources(request))


def remember(request: ExecutionRequest, seconds: float) -> None:
    """How long it took to look at them."""
    _folders.remember(_sources(request), seconds)


def is_empty(folder: Path | None) -> bool:
    """Whether there is nothing in a folder; also when there is no folder."""
    if folder is None:
        return True
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is None
    except OSError:
        return False


def _sources(request: ExecutionRequest) -> tuple[str, ...]:
    return tuple(str(mount.source) for mount in request.mounts)


_folders = QuickLooks()
