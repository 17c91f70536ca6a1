"""Walk a folder a hostile script wrote, through descriptors, inside bounds of entries, depth and time."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import NamedTuple

MAX_DEPTH = 32
MAX_SECONDS = 2.0
_COPY_BYTES = 1 << 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class Stamp(NamedTuple):
    """What ``lstat`` says of a file and changes when it is written, replaced, renamed or gets another mode.

    No program can set the ctime.
    """

    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int


def stamp(info: os.stat_result) -> Stamp:
    """The stamp of a file."""
    return Stamp(info.st_mode, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino, info.st_dev)


@dataclass(frozen=True, slots=True)
class Entry:
    """Something found.

    Attributes:
        path: Where it is under the folder walked, as UTF-8 text in every locale.
        name: Its name as the functions of :mod:`os` want it.
        folder: A descriptor of the folder it is in, valid until the walk goes on.
        info: What ``lstat`` says.
    """

    path: str
    name: str
    folder: int
    info: os.stat_result

    @property
    def is_folder(self) -> bool:
        """Whether it is a directory."""
        return stat.S_ISDIR(self.info.st_mode)


class Walk:
    """One bounded walk, depth first, sorted by name in every folder; links are entries, never followed.

    Args:
        max_entries: Entries looked at.
        max_depth: Folders inside folders.
        max_seconds: Wall time.
        own: The tree is a finished run's: folders without permission are given it.

    Attributes:
        skipped: Folders not entered: ``(path, reason)``.
        stopped: Why the walk ended early, or None when it saw everything.
    """

    def __init__(
        self,
        max_entries: int,
        *,
        max_depth: int = MAX_DEPTH,
        max_seconds: float = MAX_SECONDS,
        own: bool = False,
    ) -> None:
        self._left = max_entries
        self._own = own
        self._max_depth = max_depth
        self._deadline = time.monotonic() + max_seconds
        self._reasons = (f"more than {max_entries:,} files", f"looking took more than {max_seconds:g} s")
        self.skipped: list[tuple[str, str]] = []
        self.stopped: str | None = None

    def entries(self, folder: int) -> Generator[Entry, None, None]:
        """Everything under ``folder``, a descriptor that stays the caller's; close the generator when not done."""
        yield from self._visit(folder, "", 0)

    def _visit(self, folder: int, prefix: str, depth: int) -> Generator[Entry, None, None]:
        with os.scandir(folder) as scan:
            found = list(itertools.islice(scan, self._left + 1))
        for item in sorted(found, key=lambda entry: entry.name):
            if self._left <= 0 or time.monotonic() > self._deadline:
                self.stopped = self.stopped or self._reasons[0 if self._left <= 0 else 1]
                return
            self._left -= 1
            path = prefix + portable(item.name)
            try:
                info = item.stat(follow_symlinks=False)
            except OSError as error:
                self.skipped.append((path, f"cannot be looked at: {error.strerror}"))
                continue
            entry = Entry(path, item.name, folder, info)
            yield entry
            if not entry.is_folder:
                continue
            if depth + 1 >= self._max_depth:
                self.skipped.append((path, f"nested deeper than {self._max_depth} folders"))
                continue
            try:
                if self._own:
                    below = open_own_folder(item.name, folder)
                else:
                    below = os.open(item.name, _DIRECTORY, dir_fd=folder)
            except OSError as error:
                self.skipped.append((path, f"cannot be opened: {error.strerror}"))
                continue
            try:
                yield from self._visit(below, f"{path}/", depth + 1)
            finally:
                os.close(below)
            if self.stopped:
                return


def portable(path: str) -> str:
    """A path from the file system as UTF-8 text, the same in every locale of the agent (row 54)."""
    return os.fsencode(path).decode("utf-8", "surrogateescape")


def on_disk(folder: str, path: str) -> bytes:
    """Where a portable relative path is under a host folder."""
    return os.fsencode(folder) + b"/" + path.encode("utf-8", "surrogateescape")


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it; ``os.write`` may write less."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def copy_bytes(source: int, target: int, size: int) -> None:
    """Copy at most ``size`` bytes from where two descriptors are."""
    while size > 0 and (chunk := os.read(source, min(size, _COPY_BYTES))):
        write_all(target, chunk)
        size -= len(chunk)


def open_folder(path: str) -> int:
    """A descriptor of a folder that is not a link."""
    return os.open(path, _DIRECTORY)


def open_own_folder(name: str, parent: int | None = None) -> int:
    """The same for a folder of a run that is over, after giving ourselves the permissions the script took away."""
    try:
        descriptor = os.open(name, _DIRECTORY, dir_fd=parent)
    except PermissionError:
        make_accessible(name, parent)
        return os.open(name, _DIRECTORY, dir_fd=parent)
    if stat.S_IMODE(os.fstat(descriptor).st_mode) & 0o700 != 0o700:
        os.fchmod(descriptor, 0o700)
    return descriptor


@contextlib.contextmanager
def parent_of(top: int, path: str) -> Iterator[tuple[int, bytes]]:
    """A descriptor of the folder a portable relative path is in, and its last name; no link on the way is followed."""
    *folders, name = path.encode("utf-8", "surrogateescape").split(b"/")
    folder = os.open(".", _DIRECTORY, dir_fd=top)
    try:
        for part in folders:
            below = os.open(part, _DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder, name
    finally:
        os.close(folder)


def open_own_file(name: str | bytes, folder: int, identity: tuple[int, int], permissions: int = 0) -> int:
    """Open the regular file that was found under a name, for reading, after giving ourselves the permission.

    Args:
        name: Its name in ``folder``.
        folder: A descriptor.
        identity: Its device and inode. Another run of the same user may have put something else there.
        permissions: Which of its permissions it keeps, besides reading and writing for its owner; 0 changes them only
            when it cannot be opened else.

    Raises:
        OSError: It is something else by now, or somebody else's.
    """
    if not permissions:
        with contextlib.suppress(PermissionError):
            return _same_file(os.open(name, _FILE, dir_fd=folder), identity)
    if not hasattr(os, "O_PATH"):
        mode = stat.S_IMODE(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode) & permissions | 0o600
        os.chmod(name, mode, dir_fd=folder, follow_symlinks=False)
        return _same_file(os.open(name, _FILE, dir_fd=folder), identity)
    place = _same_file(os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder), identity)
    try:
        path = f"/proc/self/fd/{place}"
        os.chmod(path, stat.S_IMODE(os.fstat(place).st_mode) & permissions | 0o600)  # noqa: PTH101
        return os.open(path, _FILE & ~os.O_NOFOLLOW)
    finally:
        os.close(place)


def _same_file(descriptor: int, identity: tuple[int, int]) -> int:
    info = os.fstat(descriptor)
    if stat.S_ISREG(info.st_mode) and (info.st_dev, info.st_ino) == identity:
        return descriptor
    os.close(descriptor)
    if stat.S_ISLNK(info.st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    raise OSError(errno.ESTALE, "it is not the file any more that was found")


def make_accessible(name: str, parent: int | None = None) -> None:
    """Give ourselves all permissions of a folder, and never of what a link with its name leads to."""
    if not hasattr(os, "O_PATH"):
        # Nothing of the run is alive any more, so the folder cannot be swapped for a link in between.
        if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        os.chmod(name, 0o700, dir_fd=parent)
        return
    descriptor = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{descriptor}", 0o700)  # noqa: PTH101
    finally:
        os.close(descriptor)


def disk_usage(path: str, max_entries: int, max_seconds: float) -> tuple[int, int]:
    """Bytes on disk (not sparse holes) and entries of a tree of any depth, counted up to the bounds.

    It holds one descriptor, however deep the tree is: the way back is "..", and is believed only when it leads to the
    folder the walk came from. A script that moves folders meanwhile ends this look; the next one starts again.
    """
    usage = _Usage(max_entries, time.monotonic() + max_seconds)
    folder = open_folder(path)
    above: list[tuple[tuple[int, int], list[str]]] = []
    try:
        below = usage.count(folder)
        while not usage.over:
            if below:
                try:
                    child = os.open(below.pop(), _DIRECTORY, dir_fd=folder)
                except OSError:  # gone, or without permission
                    continue
                above.append((_identity(folder), below))
                os.close(folder)
                folder = child
                below = usage.count(folder)
            elif above:
                parent, below = above.pop()
                up = os.open("..", _DIRECTORY, dir_fd=folder)
                os.close(folder)
                folder = up
                if _identity(folder) != parent:
                    break
            else:
                break
    except OSError:
        return usage.bytes, usage.entries  # taken away under the walk; what was counted holds
    finally:
        os.close(folder)
    return usage.bytes, usage.entries


class _Usage:
    def __init__(self, max_entries: int, deadline: float) -> None:
        self.bytes = 0
        self.entries = 0
        self.over = False
        self._max_entries = max_entries
        self._deadline = deadline
        self._linked: set[tuple[int, int]] = set()

    def count(self, folder: int) -> list[str]:
        """Add what is in one folder; the names of the folders in it."""
        folders: list[str] = []
        with os.scandir(folder) as scan:
            for item in scan:
                if self.entries >= self._max_entries or time.monotonic() > self._deadline:
                    self.over = True
                    return []
                self.entries += 1
                try:
                    info = item.stat(follow_symlinks=False)
                except OSError:  # gone
                    continue
                if stat.S_ISDIR(info.st_mode):
                    folders.append(item.name)
                elif info.st_nlink > 1:  # several names, one content
                    if (info.st_dev, info.st_ino) in self._linked:
                        continue
                    self._linked.add((info.st_dev, info.st_ino))
                self.bytes += info.st_blocks * 512
        return folders


def _identity(folder: int) -> tuple[int, int]:
    info = os.fstat(folder)
    return info.st_dev, info.st_ino
