"""Which command lines a running interpreter of ours can carry out itself, which saves the start of another."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping, Sequence

from adk_skills_agent.sandbox.local.python_view import shown_at

USUAL_FLAGS = ("-s", "-B", "-X", "utf8")
"""The switches scripts of skills are run with."""

# What an interpreter or its C library reads when it starts, before a running one could be given it.
_READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "GLIBC_", "MALLOC_", "TZ")
_SWITCHES = frozenset({"-s", "-B", "-u"})
BASE = {
    "LANG": "C.UTF-8",
    "PYTHONUTF8": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONNOUSERSITE": "1",
    "PYTHONUNBUFFERED": "1",
}
"""Variables of the base environment an interpreter reads at its start."""


def is_usual(python: str, flags: Sequence[str]) -> bool:
    """Whether an interpreter is the agent's own, and its switches set nothing the base environment would not.

    Args:
        python: As a sandbox sees it.
        flags: As :func:`script_position` permits them.
    """
    own = os.path.dirname(shown_at(sys.executable)) == os.path.dirname(python)  # noqa: PTH120
    return own and set(flags) <= {*_SWITCHES, "-X", "utf8"}


def script_position(command: list[str], environment: Mapping[str, str]) -> int | None:
    """Where the script is in a command line a running interpreter can carry out; None when it must be started.

    Only for the agent's own interpreter, with the switches scripts are run with and an environment that changes nothing
    about it.
    """
    if os.path.dirname(command[0]) != os.path.dirname(sys.executable) or not _same_file(command[0]):  # noqa: PTH120
        return None
    for name, value in environment.items():
        if name.startswith(_READ_AT_START) and BASE.get(name) != value:
            return None
    position = 1
    while position < len(command):
        word = command[position]
        if word in _SWITCHES:
            position += 1
        elif word == "-X" and command[position + 1 : position + 2] == ["utf8"]:
            position += 2
        else:
            break
    if position >= len(command) or not command[position].endswith(".py") or command[position].startswith("-"):
        return None
    return position


@functools.lru_cache(maxsize=16)
def _same_file(path: str) -> bool:
    return os.path.realpath(path) == os.path.realpath(sys.executable)
