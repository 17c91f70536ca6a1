"""What a sandbox with a file system of its own sees of a Python installation, read-only.

Its folders, and the one they are in only when there is nothing else in it: that may be a project's (row 55).
"""

from __future__ import annotations

import functools
import os
import sys

from adk_skills_agent.sandbox.contract import WORK_DIR
from adk_skills_agent.sandbox.local.landlock import python_folders
from adk_skills_agent.sandbox.local.system_view import SYSTEM_FOLDERS, SYSTEM_LINKS

_MAX_LINKS = 16
MOVED = "/opt"
_SHARED = ("/", "/usr", "/usr/local", "/opt")
_HARMLESS = (".lock", ".setup-stamp", ".gitignore", "CACHEDIR.TAG", "man", "etc", "doc")


@functools.lru_cache(maxsize=16)
def python_folders_of(python: str | None) -> tuple[str, ...]:
    """What has to be shown, at its own path, for an interpreter to work (row 55), wherever it is installed.

    Args:
        python: Its absolute path; None for the one running the agent.
    """
    prefixes = [sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix] if python is None else []
    prefixes += _prefixes_of(python or sys.executable)
    shown: dict[str, None] = {}
    for prefix in dict.fromkeys(prefixes):
        folders = python_folders([prefix])
        alone = _holds_nothing_else(prefix, folders)
        shown.update(dict.fromkeys([prefix] if alone else folders))
    return tuple(folder for folder in shown if not _is_system(folder) and os.path.exists(folder))  # noqa: PTH110


def _holds_nothing_else(prefix: str, folders: tuple[str, ...]) -> bool:
    """Whether a prefix can be shown as a whole, which costs the kernel less than each of its folders."""
    if prefix in _SHARED:
        return False
    try:
        with os.scandir(prefix) as entries:
            return all(entry.path in folders or entry.name in _HARMLESS for entry in entries)
    except OSError:
        return False


def shown_at(path: str) -> str:
    """Where a host path of an interpreter is inside: the same, unless that is in the workspace, which stays empty."""
    return f"{MOVED}{path}" if path.startswith(f"{WORK_DIR}/") else path


def _is_system(folder: str) -> bool:
    """Whether it is visible without being named."""
    parts = folder.split("/")[1:]
    if parts[0] in SYSTEM_LINKS:
        return True
    if parts[:2] == ["usr", "local"]:
        return len(parts) > 2 and parts[2] in SYSTEM_FOLDERS
    return parts[0] == "usr" and len(parts) > 1 and parts[1] in SYSTEM_FOLDERS


def _prefixes_of(python: str) -> list[str]:
    """Folders an interpreter's path leads through, by its links, and where its virtual environment comes from."""
    prefixes = []
    path = python
    for _ in range(_MAX_LINKS):
        prefix = os.path.dirname(os.path.dirname(path))  # noqa: PTH120
        prefixes.append(prefix)
        prefixes += _home_of(prefix)
        if not os.path.islink(path):  # noqa: PTH114
            break
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))  # noqa: PTH115, PTH118, PTH120
    real = os.path.realpath(python)
    return [*prefixes, os.path.dirname(os.path.dirname(real))]  # noqa: PTH120


def _home_of(prefix: str) -> list[str]:
    """The installation a virtual environment was made from, as its ``pyvenv.cfg`` says."""
    try:
        with open(f"{prefix}/pyvenv.cfg", encoding="utf-8") as stream:
            for line in stream:
                name, _, value = line.partition("=")
                if name.strip() == "home":
                    home = value.strip()
                    return [os.path.dirname(home), os.path.dirname(os.path.realpath(home))]  # noqa: PTH120
    except (OSError, UnicodeDecodeError):
        return []
    return []
