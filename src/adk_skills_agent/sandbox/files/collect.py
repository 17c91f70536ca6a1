"""Collect what a run left in its workspace: new and changed regular files, inside every bound.

Attack rows 10, 11, 39 to 42. A file that contains one of the run's secrets is neither collected nor kept for the
session's next run, which may be another skill's.

Runs after everything of the run is dead. Folders are entered through descriptors, links are never followed, a file is
opened without blocking and looked at again before it is read.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import stat
import time
import unicodedata
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from adk_skills_agent.errors import some_of
from adk_skills_agent.platforms import O_CLOEXEC, O_DIRECTORY, O_NOCTTY, O_NOFOLLOW, O_NONBLOCK
from adk_skills_agent.sandbox.contract import TMP_DIR, OutputFile, SandboxPolicy
from adk_skills_agent.sandbox.secrets import FileSearch, SecretForms

if TYPE_CHECKING:
    from adk_skills_agent.sandbox.files.workspace import Workspace

MAX_DEPTH = 32
MAX_SECONDS = 2.0
_COPY_BYTES = 1 << 20
_DIRECTORY = os.O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC
_FILE = os.O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY


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
        own: The tree is a finished run's: folders without permission are given it, and what is mounted in it (folders
            and ``pyvenv.cfg`` of an interpreter whose own place is below ``/tmp``) is not the run's, so it is no entry.

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
        self._device: int | None = None
        self._reasons = (f"more than {max_entries:,} files", f"looking took more than {max_seconds:g} s")
        self.skipped: list[tuple[str, str]] = []
        self.stopped: str | None = None

    def entries(self, folder: int) -> Generator[Entry, None, None]:
        """Everything under ``folder``, a descriptor that stays the caller's; close the generator when not done."""
        self._device = os.fstat(folder).st_dev if self._own else None
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
            if self._device is not None and info.st_dev != self._device:
                continue
            entry = Entry(path, item.name, folder, info)
            yield entry
            if not entry.is_folder:
                continue
            if depth + 1 >= self._max_depth:
                lost = ", so not kept" if self._own else ""
                self.skipped.append((path, f"nested deeper than {self._max_depth} folders{lost}"))
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

    ``identity`` is its device and inode: another run of the same user may have put something else there. It keeps
    those of its permissions that are in ``permissions``; with 0 they change only when it cannot be opened else.
    """
    if not permissions:
        with contextlib.suppress(PermissionError):
            return _same_file(os.open(name, _FILE, dir_fd=folder), identity)
    if not hasattr(os, "O_PATH"):
        mode = stat.S_IMODE(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode) & permissions | 0o600
        os.chmod(name, mode, dir_fd=folder, follow_symlinks=False)
        return _same_file(os.open(name, _FILE, dir_fd=folder), identity)
    place = _same_file(os.open(name, os.O_PATH | O_NOFOLLOW | O_CLOEXEC, dir_fd=folder), identity)
    try:
        path = f"/proc/self/fd/{place}"
        os.chmod(path, stat.S_IMODE(os.fstat(place).st_mode) & permissions | 0o600)  # noqa: PTH101
        return os.open(path, _FILE & ~O_NOFOLLOW)
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
    descriptor = os.open(name, os.O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{descriptor}", 0o700)  # noqa: PTH101
    finally:
        os.close(descriptor)


def disk_usage(path: str, max_entries: int, max_seconds: float) -> tuple[int, int]:
    """Bytes on disk (not sparse holes, nor the empty rest of a last block) and entries of a tree of any depth, counted
    up to the bounds.

    It holds one descriptor, however deep the tree is: the way back is "..", and is believed only when it leads to the
    folder the walk came from. A script that moves folders meanwhile ends this look; the next one starts again. Folders
    come in random order: what lies behind more of them than there is time for would never be counted (row 451).
    """
    usage = _Usage(max_entries, time.monotonic() + max_seconds)
    folder = _open_live_folder(path)
    above: list[tuple[tuple[int, int], list[str]]] = []
    try:
        below = usage.count(folder)
        while not usage.over:
            if below:
                try:
                    # One that its owner may enter and not list would hide what is in it.
                    child = _open_live_folder(below.pop(), folder)
                except OSError:  # gone
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


def _open_live_folder(name: str, parent: int | None = None) -> int:
    """As :func:`open_own_folder` where the run may go on: its permissions stay unless nothing could be counted."""
    try:
        return os.open(name, _DIRECTORY, dir_fd=parent)
    except PermissionError:
        make_accessible(name, parent)
        return os.open(name, _DIRECTORY, dir_fd=parent)


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
                taken = info.st_blocks * 512
                self.bytes += info.st_size if 0 < taken - info.st_size < _BLOCK_BYTES else taken
        seed = os.urandom(8)
        folders.sort(key=lambda name: hash((seed, name)))
        return folders


def _identity(folder: int) -> tuple[int, int]:
    info = os.fstat(folder)
    return info.st_dev, info.st_ino


_BLOCK_BYTES = 4096
_DEFAULT_ENTRIES = 100_000
_MAX_SKIPPED = 100
_MAX_LOOKED_AT, _MAX_NAMED = 1000, 5
_KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISCHR, "a device"),
)


@dataclass(slots=True)
class Collected:
    """What came out of a workspace.

    Attributes:
        files: The output files, sorted by path.
        skipped: ``(path, reason)`` of what is there and was not taken.
        changed: Relative host paths of all new or changed regular files, taken or not, and what ``lstat`` said; for a
            persistent workspace. Without those that contain a secret.
        folders: Relative host paths of all folders seen.
        present: Given files that are still there as regular files, changed or not.
        replaced: What came from the session and is now something it cannot keep (a link, a pipe), and what that is.
        outside: Files with a hard link outside of the workspace: their content may not be the run's.
        unseen: Folders that were not looked into.
        complete: Whether everything but ``unseen`` was looked at.
    """

    files: list[OutputFile] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    changed: dict[str, os.stat_result] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    present: set[str] = field(default_factory=set)
    replaced: dict[str, str] = field(default_factory=dict)
    outside: list[str] = field(default_factory=list)
    unseen: set[str] = field(default_factory=set)
    complete: bool = False
    notes: list[str] = field(default_factory=list)


def collect(workspace: Workspace, policy: SandboxPolicy, secrets: SecretForms | None = None) -> Collected:
    """Read the output files of a finished run."""
    result = Collected()
    most = policy.workspace_inodes if policy.workspace_inodes is not None else _DEFAULT_ENTRIES
    walk = Walk(most + len(workspace.given) + len(workspace.given_folders) + len(workspace.links), own=True)
    outputs = OutputFiles(policy)
    search = None if secrets is None else FileSearch(secrets)
    result.files = outputs.files
    hard_links: dict[tuple[int, int], list[Entry]] = {}
    environment = "/"  # how no path begins
    left_out = scratch = 0
    try:
        top = open_own_folder(workspace.work)
    except FileNotFoundError:
        result.notes.append("The script removed its workspace; there are no output files.")
        return result
    except NotADirectoryError:
        result.notes.append("The script replaced its workspace by something else; there are no output files.")
        return result
    try:
        with contextlib.closing(walk.entries(top)) as entries:
            for entry in entries:
                if entry.is_folder:
                    if not entry.path.startswith(environment) and _is_environment(entry):
                        environment = f"{entry.path}/"  # all in it comes next: depth first
                    if secrets is None or secrets.found_in(_bytes_of(entry.path)) is None:
                        result.folders.append(entry.path)
                    continue
                if workspace.links.get(entry.path) == entry.info.st_ino and stat.S_ISLNK(entry.info.st_mode):
                    continue
                reason = _why_not(entry)
                if not stat.S_ISREG(entry.info.st_mode):
                    if entry.path in workspace.persistent and reason is not None:
                        result.replaced[entry.path] = reason
                elif entry.path in workspace.given:
                    result.present.add(entry.path)
                    if workspace.given[entry.path] == stamp(entry.info):
                        continue
                secret = _secret_in(entry, search) if search is not None and stat.S_ISREG(entry.info.st_mode) else None
                reason = secret or reason
                no_result = is_scratch(entry.path) or entry.path.startswith(environment)
                if no_result and secret is None and stat.S_ISLNK(entry.info.st_mode):
                    scratch += 1  # dropped; nobody misses the links of node_modules/.bin one by one
                    continue
                if reason is None and no_result:
                    result.changed[entry.path] = entry.info  # for the session's next run; nobody's result
                    scratch += 1
                    continue
                if reason is None:
                    result.changed[entry.path] = entry.info
                    reason = _take(entry, outputs, result)
                elif stat.S_ISREG(entry.info.st_mode) and secret is None:
                    identity = (entry.info.st_dev, entry.info.st_ino)
                    hard_links.setdefault(identity, []).append(entry)
                    if no_result:
                        scratch += 1  # in one note with the others: the objects of a repository that was cloned here
                        continue
                if reason is not None and len(result.skipped) < _MAX_SKIPPED:
                    result.skipped.append((readable_name(entry.path), reason))
                elif reason is not None:
                    left_out += 1
    finally:
        os.close(top)
    for same in hard_links.values():
        # Only when every name of a file is in the workspace, its content is surely the run's.
        if len(same) == same[0].info.st_nlink:
            result.changed.update((entry.path, entry.info) for entry in same)
        else:
            result.outside.extend(entry.path for entry in same)
    result.unseen = {path for path, _ in walk.skipped}
    result.complete = walk.stopped is None
    result.skipped.extend((readable_name(path), reason) for path, reason in walk.skipped[:_MAX_SKIPPED])
    if walk.stopped:
        result.notes.append(f"Not all of the workspace was looked at for output files: {walk.stopped}.")
    if scratch:
        result.notes.append(scratch_note(scratch))
    if left_out:
        result.notes.append(f"{left_out:,} more files were not collected.")
    return result


def _is_environment(folder: Entry) -> bool:
    """Whether a folder of the finished run is a virtual environment, whatever its name."""
    try:
        os.stat(f"{folder.name}/pyvenv.cfg", dir_fd=folder.folder, follow_symlinks=False)
    except OSError:
        return False
    return True


SCRATCH_FOLDERS = frozenset({"__pycache__", "node_modules", "venv", "__MACOSX"})
"""Folders of caches and packages whose names have no dot at their beginning."""


def is_scratch(path: str) -> bool:
    """Whether a file of the workspace is no result: hidden, or in a cache, a virtual environment, a repository."""
    parts = path.split("/")
    return any((part.startswith(".") and part.strip(".")) or part in SCRATCH_FOLDERS for part in parts)


def scratch_note(count: int) -> str:
    """What is said of files that are no results."""
    files = "file is" if count == 1 else "files are"
    return (
        f"{count:,} hidden {files} left out of the output files (names with a dot, caches, environments); what is in "
        "the working directory stays there for the session."
    )


def left_in_home(home: str, *, is_tmp: bool = False) -> list[str]:
    """A sentence when a finished run left what looks like results in its home folder, which goes with the run.

    Names with a dot at their beginning are configuration and caches; nobody misses these. With ``is_tmp`` it is the
    folder for temporary files, too, as in a run with grants.
    """
    return _left_in(home, "~", "the home folder", is_tmp=is_tmp)


def left_in_tmp(tmp: str) -> list[str]:
    """The same for ``/tmp``, where it does not last longer than the run."""
    return _left_in(tmp, str(TMP_DIR), str(TMP_DIR), is_tmp=True)


def _left_in(place: str, shown_as: str, called: str, *, is_tmp: bool) -> list[str]:
    try:
        folder = open_own_folder(place)
    except OSError:
        return []  # the script removed it, or put something else there
    try:
        with os.scandir(folder) as scan:
            found = [item for item in itertools.islice(scan, _MAX_LOOKED_AT) if item.name[0] != "."]
            names = sorted(item.name for item in found if not is_tmp or _is_no_temporary_file(item))
    finally:
        os.close(folder)
    if not names:
        return []
    named = some_of(names, _MAX_NAMED, lambda name: repr(readable_name(f"{shown_as}/{portable(name)}")))
    were = "was" if len(names) == 1 else "were"
    return [f"{named} {were} not kept: {called} is new in every run. Write results to the working directory."]


_TEMPORARY = re.compile(
    r"[Rr]?tmp.*|.*\.(?:tmp|temp|lock|pid|log|sock|cache|bak)|[^.]*|.*\.(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{6,}"
)
"""Names of temporary files: of mktemp, Python, R and many programs; a result has an extension of a few letters."""


def _is_no_temporary_file(item: os.DirEntry[str]) -> bool:
    try:
        return item.is_file(follow_symlinks=False) and _TEMPORARY.fullmatch(item.name) is None
    except OSError:
        return False


def _why_not(entry: Entry) -> str | None:
    for test, kind in _KINDS:
        if test(entry.info.st_mode):
            return f"is {kind}"
    if not stat.S_ISREG(entry.info.st_mode):
        return "is not a regular file"
    # A hard link could make a file from elsewhere on the disk look like output.
    return "has several hard links" if entry.info.st_nlink != 1 else None


def _secret_in(entry: Entry, search: FileSearch) -> str | None:
    """Why a file is withheld, if it is; all of it is looked at, however large it is."""
    # What its name becomes outside counts, too: it may be put together only then (row 128).
    if (reason := search.withheld(_bytes_of(entry.path), _bytes_of(safe_name(entry.path) or ""))) is not None:
        return reason
    try:
        descriptor = _open(entry)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    try:
        before = b""
        while chunk := os.read(descriptor, 1 << 20):
            data = before + chunk
            if (reason := search.withheld(data)) is not None:
                return reason
            before = data[-search.reach :]
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    finally:
        os.close(descriptor)
    return None


def _bytes_of(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


class OutputFiles:
    """Output files within the bounds of a policy, under names that are safe to store."""

    def __init__(self, policy: SandboxPolicy) -> None:
        self.files: list[OutputFile] = []
        self._policy = policy
        self._taken: set[str] = set()
        self._room = policy.max_total_file_bytes

    @property
    def most(self) -> int:
        """Bytes that the next one may have."""
        return min(self._policy.max_file_bytes, self._room)

    def refusal(self, path: str, size: int) -> str | None:
        """Why a file is not taken; None when it may be added."""
        policy = self._policy
        if len(self.files) >= policy.max_files:
            return f"more than max_files={policy.max_files} output files"
        if size > policy.max_file_bytes:
            return f"larger than max_file_bytes={policy.max_file_bytes:,}"
        if size > self._room:
            return f"the output files together are larger than max_total_file_bytes={policy.max_total_file_bytes:,}"
        return "its path is too long" if safe_name(path) is None else None

    def add(self, path: str, content: bytes, kind: str | None = None) -> str:
        """Take a file that was not refused; the name it gets."""
        name = distinct_name(safe_name(path) or "", self._taken)
        self._room -= len(content)
        self.files.append(OutputFile(name, content, kind or mime_type(name)))
        return name


def _take(entry: Entry, outputs: OutputFiles, result: Collected) -> str | None:
    """Read one file; why not, if not."""
    if (reason := outputs.refusal(entry.path, entry.info.st_size)) is not None:
        return reason
    try:
        content = read_entry(entry, outputs.most)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if content is None:
        return "it changed while it was read"
    if (name := outputs.add(entry.path, content)) != entry.path:
        result.notes.append(f"Output file {readable_name(entry.path)!r} is called {name!r}.")
    return None


def read_entry(entry: Entry, limit: int) -> bytes | None:
    """The content of a regular file that was found, however the path may have changed since (attack row 40).

    None when it is not the file that was found, or larger than ``limit``.
    """
    try:
        descriptor = _open(entry)
    except OSError as error:
        if error.errno == errno.ESTALE:
            return None
        raise
    try:
        info = os.fstat(descriptor)
        if info.st_size > limit:
            return None
        chunks: list[bytes] = []
        left = limit + 1
        while left > 0 and (chunk := os.read(descriptor, min(left, 1 << 20))):
            chunks.append(chunk)
            left -= len(chunk)
        return b"".join(chunks) if left > 0 else None
    finally:
        os.close(descriptor)


def _open(entry: Entry) -> int:
    return open_own_file(entry.name, entry.folder, (entry.info.st_dev, entry.info.st_ino))


# Names of output files: what a script called them is hostile, what leaves the sandbox is safe to store and to show.

MAX_PATH_CHARS = 512
_MAX_PART_CHARS = 200
# Not allowed in a file name on some system that may store the artifact; a colon would also make "user:x" an artifact
# of another scope in google-adk.
_FORBIDDEN = frozenset('<>:"|?*\\')
_RESERVED = frozenset(
    ["con", "prn", "aux", "nul", "conin$", "conout$", *(f"{d}{n}" for d in ("com", "lpt") for n in "0123456789¹²³")]
)


def readable_name(path: str) -> str:
    """A path from the file system as text that is safe to print: every odd character is escaped.

    Never cut: half of a secret in it would not be found (row 163).
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in path)


def safe_name(path: str) -> str | None:
    """The path an output file gets: relative, printable, usable on every system; None when it is too long.

    The parts come from directory entries, so ``..``, an empty part or a leading slash cannot occur.
    """
    text = unicodedata.normalize("NFC", path)
    if len(text) > MAX_PATH_CHARS:
        return None
    return "/".join(_safe_part(part) for part in text.split("/"))


def distinct_name(name: str, taken: set[str]) -> str:
    """``name``, or a variation that no earlier file has, also where upper and lower case are the same."""
    folder, _, last = name.rpartition("/")
    stem, dot, suffix = last.rpartition(".")
    if not stem:
        stem, dot, suffix = last, "", ""
    candidate, number = name, 1
    while candidate.casefold() in taken:
        number += 1
        variation = f"{stem}~{number}{dot}{suffix}"
        candidate = f"{folder}/{variation}" if folder else variation
    taken.add(candidate.casefold())
    return candidate


def _safe_part(part: str) -> str:
    characters = [c if c.isprintable() and c not in _FORBIDDEN else "_" for c in part[:_MAX_PART_CHARS]]
    name = "".join(characters)
    if name.startswith(" "):
        name = f"_{name[1:]}"
    if name.endswith((" ", ".")):
        name = f"{name[:-1]}_"
    return f"_{name}" if name.partition(".")[0].rstrip().lower() in _RESERVED else name


# The type of an output file, by suffix. A fixed table: the host's own would make results differ between machines.

_BY_SUFFIX = {
    "bin": "application/octet-stream",
    "bmp": "image/bmp",
    "css": "text/css",
    "csv": "text/csv",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "epub": "application/epub+zip",
    "gif": "image/gif",
    "gz": "application/gzip",
    "htm": "text/html",
    "html": "text/html",
    "ico": "image/vnd.microsoft.icon",
    "ics": "text/calendar",
    "ipynb": "application/x-ipynb+json",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "js": "text/javascript",
    "json": "application/json",
    "jsonl": "application/jsonl",
    "log": "text/plain",
    "md": "text/markdown",
    "mjs": "text/javascript",
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "odp": "application/vnd.oasis.opendocument.presentation",
    "ods": "application/vnd.oasis.opendocument.spreadsheet",
    "odt": "application/vnd.oasis.opendocument.text",
    "ogg": "audio/ogg",
    "parquet": "application/vnd.apache.parquet",
    "pdf": "application/pdf",
    "png": "image/png",
    "ppt": "application/vnd.ms-powerpoint",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "py": "text/x-python",
    "rtf": "application/rtf",
    "sh": "application/x-sh",
    "sql": "application/sql",
    "svg": "image/svg+xml",
    "tar": "application/x-tar",
    "tex": "text/x-tex",
    "tif": "image/tiff",
    "tiff": "image/tiff",
    "toml": "application/toml",
    "tsv": "text/tab-separated-values",
    "txt": "text/plain",
    "wav": "audio/wav",
    "webm": "video/webm",
    "webp": "image/webp",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "xml": "application/xml",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "zip": "application/zip",
}


def mime_type(path: str) -> str:
    """The media type of a file by its suffix; ``application/octet-stream`` when the suffix says nothing."""
    return _BY_SUFFIX.get(path.rpartition("/")[2].rpartition(".")[2].lower(), "application/octet-stream")
