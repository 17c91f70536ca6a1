"""Read and write files of an environment, confined to its folder whatever links and names are in the way."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from adk_skills_agent.sandbox.contract import WORK_DIR

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def inside(path: str | Path | PurePosixPath) -> PurePosixPath:
    """``path`` relative to the workspace.

    Args:
        path: Relative to the workspace, or absolute under ``/work``.

    Raises:
        ValueError: It leaves the workspace, or names no file in it.
    """
    text = os.fspath(path)
    given = PurePosixPath(text)
    if given.is_absolute() and given.is_relative_to(WORK_DIR):
        given = given.relative_to(WORK_DIR)
    parts: list[str] = []
    for part in given.parts:
        if part == ".." and parts:
            parts.pop()
        else:
            parts.append(part)
    if not parts or given.is_absolute() or ".." in parts or "\0" in text:
        raise ValueError(f"{text!r} is not a file inside {WORK_DIR}.")
    return PurePosixPath(*parts)


def read(root: Path, path: PurePosixPath, most: int | None) -> bytes:
    """The bytes of a regular file.

    Args:
        root: The host folder.
        path: Relative to it; see :func:`inside`.
        most: Largest file read, in bytes; None for no bound.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is a link, a folder or another special file, or larger than ``most``.
    """
    with _folder_of(root, path, make=False) as folder, _described(path):
        descriptor = os.open(path.name, _READ, dir_fd=folder)
    info = _regular(descriptor, path)
    with open(descriptor, "rb") as file:
        if most is not None and info.st_size > most:
            raise ValueError(f"{_shown(path)!r} has {info.st_size:,} bytes; at most {most:,} can be read at once.")
        return file.read(info.st_size)


def write(root: Path, path: PurePosixPath, content: bytes, most: int | None) -> None:
    """Create or replace a regular file, and the folders it is in. What begins with ``#!`` becomes executable.

    Raises:
        ValueError: A link, a folder or a special file is in the way, or ``content`` is larger than ``most`` bytes.
    """
    if most is not None and len(content) > most:
        raise ValueError(f"{_shown(path)!r} would have {len(content):,} bytes; a file has at most {most:,} here.")
    # Without the bit a script that was handed over as text could not be started by its name (row E8).
    mode = 0o700 if content.startswith(b"#!") else 0o600
    with _folder_of(root, path, make=True) as folder, _described(path):
        descriptor = os.open(path.name, _WRITE, mode, dir_fd=folder)
    _regular(descriptor, path)
    with open(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(content)


def copy_tree(source: Path, target: Path) -> list[str]:
    """Copy a folder's regular files with their executable bits.

    Links, special files and what cannot be read are left out.

    Returns:
        The relative paths that were left out.

    Raises:
        OSError: ``source`` itself cannot be read, or ``target`` is already there.
    """
    left_out: list[str] = []
    target.mkdir(parents=True)

    def unreadable(error: OSError) -> None:
        here = Path(error.filename)
        if here == source:
            raise error
        left_out.append(here.relative_to(source).as_posix())

    for folder, folders, files in os.walk(source, onerror=unreadable):
        here = Path(folder)
        for name in [*folders, *files]:
            item = here / name
            relative = item.relative_to(source)
            mode = item.lstat().st_mode
            if stat.S_ISDIR(mode):
                (target / relative).mkdir()
            elif stat.S_ISREG(mode):
                try:
                    descriptor = os.open(item, _READ)
                except PermissionError:
                    left_out.append(relative.as_posix())
                    continue
                with open(descriptor, "rb") as file:
                    write(target, PurePosixPath(relative.as_posix()), file.read(), None)
                if mode & 0o100:
                    (target / relative).chmod(0o700)
            else:
                left_out.append(relative.as_posix())
    return left_out


@contextlib.contextmanager
def _folder_of(root: Path, path: PurePosixPath, *, make: bool) -> Iterator[int]:
    """A descriptor of the folder a file is in, reached without following a link."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in path.parts[:-1]:
            with _described(path):
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, 0o700, dir_fd=descriptor)
                deeper = os.open(part, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = deeper
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _described(path: PurePosixPath) -> Iterator[None]:
    """Errors of the system as sentences with the path the model knows, not the host's."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "There is no such file", _shown(path)) from None
    except NotADirectoryError:
        raise FileNotFoundError(errno.ENOENT, "A part of the path is no folder", _shown(path)) from None
    except OSError as error:
        reason = {errno.ELOOP: "it is a symbolic link", errno.EISDIR: "it is a folder", errno.ENXIO: "it is a pipe"}
        because = reason.get(error.errno or 0, error.strerror or "the system refused it")
        raise ValueError(f"{_shown(path)!r} cannot be used: {because}.") from None
    except ValueError:
        raise ValueError(f"{_shown(path)!r} is no valid path.") from None


def _regular(descriptor: int, path: PurePosixPath) -> os.stat_result:
    """What is open, when it is a regular file; otherwise it is closed again."""
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode):
        os.close(descriptor)
        raise ValueError(f"{_shown(path)!r} is not a regular file.")
    return info


def _shown(path: PurePosixPath) -> str:
    return str(WORK_DIR / path)
