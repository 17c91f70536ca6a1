"""How paths are compared, resolved and shown."""

from __future__ import annotations

import os

from adk_skills_agent.errors import CatalogError

_TRIES = 50  # a link that is replaced at each of them is replaced on purpose


def is_inside(path: str, folder: str) -> bool:
    """Whether an absolute path is a folder or lies below it; both without links and without ``..``."""
    return path == folder or path.startswith(folder if folder.endswith("/") else folder + "/")


def real_path(path: str | os.PathLike[str]) -> str:
    """The absolute path without links, existing or not.

    ``os.path.realpath`` of Python 3.11 fails when a link turns into something else while it is followed.

    Raises:
        CatalogError: A link on the way changes all the time.
    """
    for _ in range(_TRIES):
        try:
            return os.path.realpath(path)
        except OSError:
            continue
    raise CatalogError(f"{shown(os.fspath(path))} has a link that changes all the time. Try again when it is still.")


def shown(path: str) -> str:
    """A path as it can be printed on one line: control characters and undecodable bytes as escapes."""
    if path.isascii() and path.isprintable():
        return path
    text = path.encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)
