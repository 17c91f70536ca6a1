"""Whether each level works here, found once per process: of several that ask at once, one tries and all get its answer.

A trial is a run, so without this the first runs of an agent, which like to come together, would each begin with one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from adk_skills_agent.sandbox.contract import IsolationLevel

_answers: dict[IsolationLevel, str | None] = {}
_lock = threading.Lock()


def answered_once(level: IsolationLevel, attempt: Callable[[], str | None]) -> str | None:
    """Why a level does not work here; None when it does. Blocks while it is being tried, and never afterwards.

    Args:
        level: Which one.
        attempt: Finds out. What it raises is no answer, and the next one to ask tries again.
    """
    if level not in _answers:
        with _lock:
            if level not in _answers:
                _answers[level] = attempt()
    return _answers[level]


def _forget() -> None:
    global _lock  # noqa: PLW0603  # it may have been held when the process was forked
    _lock = threading.Lock()
    _answers.clear()  # a forked child may be another user, or in a world of its own


os.register_at_fork(after_in_child=_forget)
