"""What an execution finds in a session and has to leave, when it fails, as it was: names, environment, folder (S0-112).

Part of the program in a box (:mod:`.box_program`); see :mod:`.kernel`.
"""

from __future__ import annotations

import os
from typing import Any, Dict

Names = Dict[str, Any]


class State:
    """What an execution found: names, variables of the environment, working directory."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._before = dict(names)
        self._environment = dict(os.environ)
        self._folder = _folder()

    def restore(self) -> None:
        """Back to that. Name by name: threads may be using the others."""
        names, before = self._names, self._before
        for name in [name for name in names if name not in before]:
            names.pop(name, None)
        for name, value in before.items():
            if name not in names or names[name] is not value:
                names[name] = value
        _set_environment(self._environment)
        if self._folder is not None and _folder() != self._folder:
            _enter_if_there(self._folder)

    def leave(self, job: dict[str, Any]) -> None:
        """Take away what was there for this one execution, unless the code itself has changed it."""
        for name, value in job["env"].items():
            if os.environ.get(name) == value:
                if name in self._environment:
                    os.environ[name] = self._environment[name]
                else:
                    del os.environ[name]
        if job["cwd"] is not None and self._folder is not None and _folder() == job["cwd"]:
            _enter_if_there(self._folder)


def enter(job: dict[str, Any]) -> None:
    """Its variables and its folder, for one execution."""
    os.environ.update(job["env"])
    if job["cwd"] is not None:
        os.makedirs(job["cwd"], exist_ok=True)
        os.chdir(job["cwd"])


def _set_environment(wanted: dict[str, str]) -> None:
    for name in [name for name in os.environ if name not in wanted]:
        del os.environ[name]
    for name, value in wanted.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return None


def _enter_if_there(folder: str) -> None:
    try:
        os.chdir(folder)
    except OSError:
        pass
