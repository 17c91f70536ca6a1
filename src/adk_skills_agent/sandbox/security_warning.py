"""Warnings about missing isolation, shown at the place in the caller's code that runs something."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from adk_skills_agent.errors import SecurityWarning

_PACKAGE = str(Path(__file__).resolve().parents[1]) + "/"
_said: set[str] = set()


def warn_insecure(sentence: str) -> None:
    """Warn with a :class:`SecurityWarning` whose place is the nearest caller outside of this package.

    How many frames of ours lie between differs from way to way, so they are looked through.
    """
    frame = sys._getframe(1)
    level = 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
        level += 1
    warnings.warn(sentence, SecurityWarning, stacklevel=level)


def warn_insecure_once(sentence: str) -> None:
    """As :func:`warn_insecure`, but each sentence only once in a process."""
    if sentence not in _said:
        _said.add(sentence)
        warn_insecure(sentence)
