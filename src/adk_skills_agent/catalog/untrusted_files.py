"""Opening files of skills so that a link swapped in between the look and the opening is never followed."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Final, TypeAlias

from adk_skills_agent.errors import CatalogError, ParseError
from adk_skills_agent.platforms import O_CLOEXEC, O_DIRECTORY, O_NOFOLLOW

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

    Returns:
        A file descriptor.

    Raises:
        OSError: As ``os.open``; ``is_link_error`` when a part of the path is a link by now.
    """
    if _NO_LINKS_AT_ALL:
        return os.open(path, flags | _NO_LINKS_AT_ALL)
    *folders, name = path.split("/")[1:]
    at = os.open("/", _PASS | O_DIRECTORY | O_CLOEXEC)
    try:
        for folder in folders:
            below = os.open(folder, _PASS | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = below
        return os.open(name, flags | O_NOFOLLOW, dir_fd=at)
    finally:
        os.close(at)


def skill_file_opener(permits: Permits | None) -> Callable[[str | os.PathLike[str], int], int]:
    """How a SKILL.md is opened: a link inside its skill is followed, any other is not.

    Returns an opener for ``format.read_text`` and the like. It raises ParseError for a link that leaves the skill and a
    folder that is not permitted (any more), else OSError as ``os.open``.
    """

    def open_skill_file(location: str | os.PathLike[str], flags: int) -> int:
        if permits is None:
            try:
                return os.open(location, flags | O_NOFOLLOW)  # nearly every SKILL.md is a plain file
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


# How paths are compared, resolved and shown.

_TRIES = 50  # a link that is replaced at each of them is replaced on purpose


def is_inside(path: str, folder: str) -> bool:
    """Whether an absolute path is a folder or lies below it; both without links and without ``..``."""
    return path == folder or path.startswith(folder if folder.endswith("/") else folder + "/")


def real_path(path: str | os.PathLike[str]) -> str:
    """The absolute path without links, existing or not.

    ``os.path.realpath`` of Python 3.11 fails when a link turns into something else while it is followed. Raises
    ``CatalogError`` when a link on the way changes all the time.
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


# What tells that a file or a folder is unchanged, and when that can be believed.

NO_STAMP = 0
"""The stamp of what is read again every time."""

_SECOND = 1_000_000_000
_FINE_WINDOW_NS = 100_000_000  # the kernel's clock for time stamps ticks every 1 to 10 ms
_COARSE_WINDOW_NS = 2 * _SECOND  # FAT and some network file systems keep whole seconds, or every other one


def stamp_of(status: os.stat_result) -> int:
    """One number for size, mtime, ctime and inode: thousands are kept, and compared at each look.

    The ctime is in it because a program can set the mtime back, but not the ctime. The hash of a tuple of integers is
    the same in every process of one Python version, which the index on disk notes.
    """
    return hash((status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)) or 1


def stamp_of_link(link: os.stat_result, target: os.stat_result) -> int:
    """The stamp of a file that is reached by a link: it changes when either does."""
    return hash((stamp_of(link), stamp_of(target))) or 1


def is_settled(status: os.stat_result, read_at_ns: int) -> bool:
    """Whether a later change is sure to give another stamp.

    A file that is changed twice within one tick of the file system's clock can have the same stamp both times, so
    what was read that soon after its last change must be read again (git calls such entries racy). ``read_at_ns`` is
    the wall clock from before reading.
    """
    changed = status.st_ctime_ns
    window = _COARSE_WINDOW_NS if changed % _SECOND == 0 else _FINE_WINDOW_NS
    return max(changed, status.st_mtime_ns) < read_at_ns - window


# What an entry of a scanned folder is, when a link may be broken or go in a circle.


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it is a folder or leads to one."""
    try:
        return entry.is_dir()
    except OSError:
        return False  # a loop of links: reading it says so


def leads_to_file(entry: os.DirEntry[str]) -> bool:
    """Whether it is a file or leads to one."""
    try:
        return entry.is_file()
    except OSError:
        return False  # a loop of links, or no permission: looked at, and reported, when it is visited


# Which folders a scan and a file listing pass over, and why.

VERSION_CONTROL: Final = frozenset({".git", ".hg", ".svn", ".jj", ".bzr", "CVS"})
"""Not part of a skill: never scanned, never listed, never read (a ``.git/config`` can hold a token)."""

INSTALLED: Final = frozenset({"node_modules", ".venv", ".tox", ".nox"})
"""Rebuilt from a manifest and huge: neither scanned nor listed, but a file named in a skill can be read."""

_CACHES: Final = frozenset({"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".cache", ".eggs"})

NOT_SCANNED: Final = VERSION_CONTROL | INSTALLED | _CACHES
"""Discovery does not look for skills in these (C5)."""

NOT_LISTED: Final = VERSION_CONTROL | INSTALLED
"""``Skill.files()`` does not list what is in these. Caches are listed: real skills ship files in them."""

RESOURCE_FOLDERS: Final = frozenset({"scripts", "references", "assets"})
"""A skill's own three folders (S2). A SKILL.md in them is a sample or a template, not a skill to offer."""

VIRTUAL_ENVIRONMENT_MARK: Final = "pyvenv.cfg"
"""A folder with this file is a Python virtual environment, whatever its name."""
