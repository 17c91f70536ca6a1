"""Opening files of skills so that a link swapped in between the look and the opening is never followed."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TypeAlias

from adk_skills_agent.catalog.spelling import is_inside, real_path, shown
from adk_skills_agent.errors import ParseError

Permits: TypeAlias = Callable[[str], bool]
"""Whether a real path is one that the owner allowed skills to be in."""

_LINK_ERRORS = frozenset({errno.ELOOP, errno.EMLINK, errno.ENOTDIR})  # what O_NOFOLLOW says, system by system
_NO_LINKS_AT_ALL = getattr(os, "O_NOFOLLOW_ANY", 0)  # macOS
_PASS = getattr(os, "O_PATH", os.O_RDONLY)  # Linux: a folder on the way need not be readable


def is_link_error(error: OSError) -> bool:
    """Whether a file was not opened because a link is, or was put, in the way."""
    return error.errno in _LINK_ERRORS


def open_real(path: str, flags: int) -> int:
    """Open a file by its real path; no part of it may be a link.

    Args:
        path: What ``real_path`` returned.
        flags: As for ``os.open``.

    Returns:
        A file descriptor.

    Raises:
        OSError: As ``os.open``; ``is_link_error`` when a part of the path is a link by now.
    """
    if _NO_LINKS_AT_ALL:
        return os.open(path, flags | _NO_LINKS_AT_ALL)
    *folders, name = path.split("/")[1:]
    at = os.open("/", _PASS | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            below = os.open(folder, _PASS | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = below
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=at)
    finally:
        os.close(at)


def skill_file_opener(permits: Permits | None) -> Callable[[str | os.PathLike[str], int], int]:
    """How a SKILL.md is opened: a link inside its skill is followed, any other is not.

    Args:
        permits: Asked about the real folder of the skill; None when it may be anywhere.

    Returns:
        An opener for ``format.read_text`` and the like. It raises ParseError for a link that leaves the skill and a
        folder that is not permitted (any more), else OSError as ``os.open``.
    """

    def open_skill_file(location: str | os.PathLike[str], flags: int) -> int:
        if permits is None:
            try:
                return os.open(location, flags | os.O_NOFOLLOW)  # nearly every SKILL.md is a plain file
            except OSError as error:
                if not is_link_error(error):
                    raise
        path = os.fspath(location)
        folder, _, name = path.rpartition("/")
        real = permitted_folder(folder, permits)
        target = real_path(f"{real.rstrip('/')}/{name}")
        if not is_inside(target, real):
            raise ParseError(
                f"{shown(path)} is a link to {shown(target)}, outside its skill, so it is not read. "
                "Put a copy in its place."
            )
        return open_real(target, flags)

    return open_skill_file


def permitted_folder(folder: str, permits: Permits | None) -> str:
    """The real path of a skill's folder.

    Raises:
        ParseError: It is not permitted (any more): a link was put in its place, or in that of a folder above.
    """
    real = real_path(folder or "/")
    if permits is not None and not permits(real):
        raise ParseError(
            f"The skill in {shown(folder)} is now in {shown(real)}, outside what is trusted, so it is not read."
        )
    return real
