"""A path that a model wrote -> a file inside the skill, and no other (S4-22, row 9)."""

from __future__ import annotations

import os
import re
import stat

from adk_skills_agent.catalog.ignore import VERSION_CONTROL
from adk_skills_agent.catalog.opening import is_link_error, open_real
from adk_skills_agent.catalog.spelling import is_inside, real_path, shown
from adk_skills_agent.errors import CatalogError, InvalidResourcePath

_DRIVE = re.compile(r"[A-Za-z]:(?:/|$)")  # of Windows; "a:b.txt" is a plain name
MAX_PATH_LENGTH = 1024  # characters; the longest real path in a skill has 73
MAX_FILE_BYTES = 64 << 20  # what is larger is not for a model, and must not fill the host's memory


def clean_path(path: object) -> str:
    """The relative path in its plain form: no ``.``, no empty parts.

    Raises:
        InvalidResourcePath: It is empty, not text, absolute, has ``..``, backslashes, control characters or lone
            surrogates, is too long, or names version control data.
    """
    if not isinstance(path, str):
        raise InvalidResourcePath(f"A path must be text, not {type(path).__name__}. Give a path like 'scripts/run.py'.")
    asked = repr(path if len(path) <= 100 else path[:100] + "...")
    if any(ord(c) < 32 or ord(c) == 127 or 0xD800 <= ord(c) < 0xE000 for c in path):
        raise InvalidResourcePath(f"The path {asked} has control characters or is not valid text. Remove them.")
    if len(path) > MAX_PATH_LENGTH:
        raise InvalidResourcePath(f"The path {asked} has more than {MAX_PATH_LENGTH} characters. Give a shorter one.")
    if "\\" in path:
        raise InvalidResourcePath(f"The path {asked} has a backslash. Separate folders with '/'.")
    if path.startswith("/") or _DRIVE.match(path):
        raise InvalidResourcePath(f"The path {asked} is absolute. Give it relative to the skill's folder.")
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if not parts:
        raise InvalidResourcePath(f"The path {asked} names no file. Give a path like 'scripts/run.py'.")
    if ".." in parts:
        raise InvalidResourcePath(f"The path {asked} has '..'. Only files inside the skill's folder can be used.")
    if not VERSION_CONTROL.isdisjoint(parts):
        raise InvalidResourcePath(f"The path {asked} is version control data, which is not part of the skill.")
    return "/".join(parts)


def is_readable_name(path: str) -> bool:
    """Whether :func:`clean_path` takes the path of a file that exists, so that it can be asked for."""
    try:
        return clean_path(path) == path
    except InvalidResourcePath:
        return False


def locate(folder: str, path: str) -> str | None:
    """Where a file of a skill really is, relative to its folder; links inside the skill are followed.

    Args:
        folder: Absolute path of the skill's folder.
        path: What :func:`clean_path` returned.

    Returns:
        The relative path without links, or None when there is no regular file.

    Raises:
        InvalidResourcePath: A link on the way leaves the skill, or leads to version control data.
    """
    target = real_path(os.path.join(folder, path))
    # What lies inside by its real path says that the folder's own is real, which need not be found out then.
    real = folder if is_inside(target, folder) else real_path(folder)
    if not is_inside(target, real):
        raise InvalidResourcePath(f"The path {path!r} is a link that leaves the skill's folder, so it is refused.")
    relative = target[len(real) :].lstrip("/")
    if not VERSION_CONTROL.isdisjoint(relative.split("/")):
        raise InvalidResourcePath(f"The path {path!r} is version control data, which is not part of the skill.")
    try:
        status = os.lstat(target)
    except (OSError, ValueError):
        return None
    return relative if stat.S_ISREG(status.st_mode) else None


def read_inside(real: str, relative: str, limit: int | None) -> bytes:
    """Read a file by a way without links, so that nothing swapped in after :func:`locate` is followed.

    Args:
        real: Real path of the skill's folder.
        relative: What :func:`locate` returned.
        limit: How many bytes at most; None for the whole file, up to 64 MiB.

    Raises:
        InvalidResourcePath: Part of the way is a link now, or the end is no regular file.
        CatalogError: The file cannot be read, or is larger than 64 MiB and no limit was given.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        file = open_real(f"{real.rstrip('/')}/{relative}", flags)
    except OSError as error:
        if is_link_error(error):
            raise InvalidResourcePath(f"The path {relative!r} passes a link, so it is refused.") from error
        raise CatalogError(f"{shown(relative)} cannot be read: {error.strerror}.") from error
    try:
        return _read(file, relative, limit)
    except OSError as error:
        raise CatalogError(f"{shown(relative)} cannot be read: {error.strerror}.") from error
    finally:
        os.close(file)


def _read(file: int, relative: str, limit: int | None) -> bytes:
    if not stat.S_ISREG(os.fstat(file).st_mode):
        raise InvalidResourcePath(f"The path {relative!r} is not a regular file, so it is refused.")
    wanted = MAX_FILE_BYTES + 1 if limit is None else max(0, limit)
    chunks: list[bytes] = []
    while wanted > 0:
        chunk = os.read(file, min(wanted, 1 << 20))
        if not chunk:
            break
        chunks.append(chunk)
        wanted -= len(chunk)
    if limit is None and wanted == 0:
        raise CatalogError(f"{shown(relative)} is larger than {MAX_FILE_BYTES} bytes. Read a part of it with a limit.")
    return b"".join(chunks)
