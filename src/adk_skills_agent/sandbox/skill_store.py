"""The skill cache: a run sees a read-only copy of a skill that is named after what is in it, never the skill's folder.

So a skill cannot change between the check and the use (attack rows 43, 44), a script cannot reach the original, and a
large asset costs one copy and then only its ``lstat``: per use, source and copy are compared with how they were when
their contents were last read. What has changed is read again.

``<root>/<digest>/`` is an entry, ``<root>/<digest>.lock`` its lock: whoever uses the entry holds it shared, whoever
deletes the entry holds it alone. The time of the lock file is that of the last use; it holds the entry's size.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
import stat
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from adk_skills_agent.errors import CHANGED, SandboxError, SkillChanged, about
from adk_skills_agent.platforms import O_CLOEXEC, O_NOCTTY, O_NOFOLLOW, O_NONBLOCK, after_fork_in_child, locked
from adk_skills_agent.sandbox.contract import ExecutionRequest
from adk_skills_agent.sandbox.files.collect import (
    Entry,
    Stamp,
    Walk,
    on_disk,
    open_folder,
    portable,
    readable_name,
    stamp,
    write_all,
)
from adk_skills_agent.sandbox.files.removal import remove_tree

CACHE_VARIABLE = "ADK_SKILLS_SANDBOX_CACHE"
"""Variable of the agent's environment that names another folder for the cache."""
MAX_CACHE_BYTES = 4 << 30
MAX_CACHE_ENTRIES = 1_000
_STALE_SECONDS = 3600.0
_ASIDE = "."  # names of what is being made or thrown away begin so
_WRITABLE_BY_OTHERS = 0o022
_LOCK = os.O_RDWR | os.O_CREAT | O_NOFOLLOW | O_CLOEXEC
_PATIENCE_SECONDS = 5.0  # how long somebody may write to a skill's folder while its run waits
_PAUSES = (0.0, 0.005, 0.02, 0.05)
_IDLE_ENTRIES = 64  # kept locked, one descriptor each, though no run uses them just now


@dataclass(slots=True, eq=False)
class _Entry:
    """One entry of the cache that this process has locked."""

    root: str
    digest: str
    lock: int
    seen: Snapshot = ()
    users: int = 0

    @property
    def path(self) -> str:
        return f"{self.root}/{self.digest}"


@dataclass(frozen=True, slots=True)
class Materialised:
    """A skill's folder as its scripts see it, with modes 0555 and 0444; stays as it is until :meth:`release`.

    ``files`` are its entries, folders and links included; ``notes`` have a sentence for each entry that was left out.
    """

    path: Path
    digest: str
    bytes: int
    files: int
    notes: tuple[str, ...] = ()
    _entry: _Entry | None = field(default=None, repr=False, compare=False)

    def release(self) -> None:
        """The copy is no longer used here: the cache may throw it away some day. Call it once."""
        if self._entry is not None:
            _release(self._entry)


def materialise(source: Path, cache_root: Path | None = None, *, without: tuple[str, ...] = ()) -> Materialised:
    """The read-only copy of a skill's folder, made when there is none yet. Blocking: call it in a worker thread.

    Args:
        source: The folder.
        cache_root: The folder of the cache; None takes this user's (:func:`cache_folder`).
        without: Folders below it that are left out, relative to it with ``/``.

    Raises:
        SandboxError: The folder cannot be read, is too large or never stops changing; or the cache cannot be used.
    """
    root = cache_folder(cache_root)
    folder = os.path.abspath(source)  # noqa: PTH100
    try:
        with _lock:
            turn = _turns.setdefault((root, folder, without), threading.Lock())
        with turn:  # runs of one skill that start together copy it once
            deadline = time.monotonic() + _PATIENCE_SECONDS
            for pause in itertools.chain(_PAUSES, itertools.repeat(_PAUSES[-1])):
                found = _attempt(root, folder, without)
                if found is not None:
                    return found
                if time.monotonic() > deadline:
                    break
                time.sleep(pause)
    except OSError as error:
        reason = error.strerror or str(error)
        raise about(SandboxError(f"The skill's folder cannot be copied for its scripts: {reason}."), folder) from error
    sentence = "The skill's folder changes while it is copied for its scripts. Wait until nothing writes to it."
    raise about(SandboxError(sentence), folder)


def _attempt(root: str, folder: str, without: tuple[str, ...]) -> Materialised | None:
    """The copy of what is in the folder now; None when it changed meanwhile."""
    source = _sources.setdefault((folder, without), FolderDigest(folder, without))
    copied = source.look()
    if copied is None:
        return None
    entry = _take(root, copied.digest)
    try:
        if not _as_made(entry) and not _make(entry, folder, copied, without):
            source.forget()
            _release(entry)
            return None
    except BaseException:
        _release(entry)
        raise
    return Materialised(Path(entry.path), copied.digest, copied.bytes, copied.files, tuple(copied.notes), entry)


def _as_made(entry: _Entry) -> bool:
    """Whether the entry is there and its content is what its name says; read only when its stamps have changed."""
    try:
        now = snapshot(entry.path)
        if entry.seen and now == entry.seen:
            return True
        if digest_of(entry.path) != entry.digest or any(_writable(stamp.mode) for _, stamp in now):
            return False
    except (OSError, SandboxError):
        return False
    if snapshot(entry.path) != now:
        return False
    entry.seen = now
    return True


def _make(entry: _Entry, folder: str, wanted: Copied, without: tuple[str, ...]) -> bool:
    """Put the entry there; False when the source is no longer what it was."""
    staging = aside(entry.root)
    try:
        made = copy_skill(folder, staging, without)
        if made.digest != entry.digest:
            return False
        with alone(entry.root):
            if _as_made(entry):
                return True  # another process was faster
            if os.path.lexists(entry.path):
                discard(entry.root, entry.path)
            os.rename(staging, entry.path)  # noqa: PTH104
        os.pwrite(entry.lock, f"{wanted.bytes} {wanted.files}\n".encode(), 0)
    finally:
        remove_tree(staging)
    clean_up(entry.root)
    if not _as_made(entry):
        raise OSError(errno.EIO, "the copy is not what was written")
    return True


def _writable(mode: int) -> bool:
    return bool(mode & 0o6222) and (mode & 0o170000) != 0o120000


def _take(root: str, digest: str) -> _Entry:
    with _lock:
        entry = _entries.pop((root, digest), None)
        if entry is None:
            # It may wait only for somebody who throws away this very entry.
            entry = _Entry(root, digest, lock_entry(root, digest))
        entry.users += 1
        _entries[root, digest] = entry
        return entry


def _release(entry: _Entry) -> None:
    with _lock:
        entry.users -= 1
        idle = [key for key, other in _entries.items() if not other.users]
        for key in idle[: max(0, len(idle) - _IDLE_ENTRIES)]:
            os.close(_entries.pop(key).lock)


_lock = threading.Lock()
_entries: dict[tuple[str, str], _Entry] = {}  # in the order of their last use
_sources: dict[tuple[str, tuple[str, ...]], FolderDigest] = {}  # by folder and what of it is left out
_turns: dict[tuple[str, str, tuple[str, ...]], threading.Lock] = {}  # by cache, too


def _forget() -> None:
    """A forked child: the locks may have been held by threads that are not there. Its lock files stay locked."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()
    _turns.clear()


after_fork_in_child(_forget)


@dataclass(frozen=True, slots=True)
class Staged:
    """A request whose mounts lead into the skill cache; ``notes`` say what of the folders was left out."""

    request: ExecutionRequest
    notes: tuple[str, ...]
    _copies: tuple[Materialised, ...]

    def release(self) -> None:
        """The run is over."""
        for copy in self._copies:
            copy.release()


def stage(request: ExecutionRequest) -> Staged:
    """Put the copies of a request's mounts in their place. Blocking: call it in a worker thread."""
    copies: list[Materialised] = []
    mounts = []
    try:
        for mount in request.mounts:
            if mount.copied:
                copies.append(materialise(mount.source, without=mount.without))
                if mount.digest and copies[-1].digest != mount.digest:
                    raise SkillChanged(CHANGED)
                mounts.append(replace(mount, source=copies[-1].path))
            else:
                mounts.append(mount)
    except BaseException:
        for copy in copies:
            copy.release()
        raise
    notes = tuple(note for copy in copies for note in copy.notes)
    return Staged(replace(request, mounts=tuple(mounts)), notes, tuple(copies))


# The folder of the cache: where it is, that it is ours alone, which entries are in use, and what is thrown away.


def cache_folder(chosen: Path | None = None) -> str:
    """The folder of the cache, made and checked: a real folder of this user that nobody else can write.

    As root it can be entered, though not listed, by others (mode 0711), because a run then has another user id; else it
    is closed to them (0700).
    """
    problem: SandboxError | None = None
    for candidate in _candidates(chosen):
        try:
            return _checked(candidate)
        except OSError as error:
            sentence = f"The folder of the skill cache cannot be made: {error.strerror}. Set {CACHE_VARIABLE}."
            problem = problem or about(SandboxError(sentence), candidate)
    assert problem is not None  # noqa: S101  # there is always a candidate
    raise problem


def aside(root: str) -> str:
    """A new name in the cache for what is being made or thrown away."""
    return f"{root}/{_ASIDE}{os.urandom(8).hex()}"


def lock_entry(root: str, digest: str) -> int:
    """Take an entry into use: a descriptor that holds its lock until it is closed."""
    import fcntl

    path = f"{root}/{digest}.lock"
    while True:
        descriptor = os.open(path, _LOCK, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            # Whoever threw the entry away meanwhile has removed the lock file as well.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                    os.utime(descriptor)
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def alone(root: str) -> contextlib.AbstractContextManager[None]:
    """Keep every other process from replacing or throwing away entries."""
    return locked(f"{root}/{_ASIDE}lock")


def discard(root: str, path: str) -> None:
    """Delete a tree of the cache: out of the way first, so that nobody meets half of it."""
    doomed = aside(root)
    try:
        os.rename(path, doomed)  # noqa: PTH104
    except FileNotFoundError:
        return
    remove_tree(doomed)


def clean_up(root: str, *, max_bytes: int = MAX_CACHE_BYTES, max_entries: int = MAX_CACHE_ENTRIES) -> int:
    """Throw away the entries unused for longest, until the cache is inside its bounds; how many.

    Entries that any process has in use stay.
    """
    with alone(root):
        entries: list[tuple[float, int, str]] = []
        with os.scandir(root) as scan:
            for item in scan:
                info = item.stat(follow_symlinks=False)
                if item.name.endswith(".lock") and item.name != f"{_ASIDE}lock":
                    entries.append((info.st_mtime, _size(item.path), item.name.removesuffix(".lock")))
                elif (
                    item.name.startswith(_ASIDE)
                    and stat.S_ISDIR(info.st_mode)
                    and time.time() - info.st_ctime > _STALE_SECONDS
                ):
                    remove_tree(item.path)  # by a process that was killed while it made or deleted an entry
        total, count, thrown = sum(size for _, size, _ in entries), len(entries), 0
        for _, size, digest in sorted(entries):
            if total <= max_bytes and count <= max_entries:
                break
            if _throw_away(root, digest):
                total, count, thrown = total - size, count - 1, thrown + 1
        return thrown


def _throw_away(root: str, digest: str) -> bool:
    import fcntl

    path = f"{root}/{digest}.lock"
    try:
        descriptor = os.open(path, os.O_RDWR | O_NOFOLLOW | O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        discard(root, f"{root}/{digest}")
        os.unlink(path)  # noqa: PTH108
    except OSError:  # somebody uses it
        return False
    finally:
        os.close(descriptor)
    return True


def _candidates(chosen: Path | None) -> Iterator[str]:
    named = str(chosen) if chosen is not None else os.environ.get(CACHE_VARIABLE, "")
    if named:
        yield os.path.abspath(named)  # noqa: PTH100
        return
    user = os.geteuid()
    if user == 0:
        # Not under root's home, which a run that has dropped its user id cannot enter.
        yield "/var/cache/adk-skills/skills"
    else:
        base = os.environ.get("XDG_CACHE_HOME", "")
        if not os.path.isabs(base):  # noqa: PTH117
            base = os.path.expanduser("~/.cache")  # noqa: PTH111
        if os.path.isabs(base):  # noqa: PTH117
            yield f"{base}/adk-skills/skills"
    import tempfile

    yield f"{tempfile.gettempdir()}/adk-skills-cache-{user}"


def _checked(root: str) -> str:
    user = os.geteuid()
    wanted = 0o711 if user == 0 else 0o700
    try:
        info = os.lstat(root)
    except FileNotFoundError:
        parent = os.path.dirname(root)  # noqa: PTH120
        os.makedirs(parent, 0o755 if user == 0 else 0o700, exist_ok=True)  # noqa: PTH103
        with contextlib.suppress(FileExistsError):
            os.mkdir(root, wanted)  # noqa: PTH102
            os.chmod(root, wanted)  # noqa: PTH101  # whatever the umask is
        info = os.lstat(root)
    if not stat.S_ISDIR(info.st_mode):
        problem = "is not a folder (a symbolic link does not count)"
    elif info.st_uid != user:
        problem = f"belongs to user {info.st_uid}, not to {user}"
    elif info.st_mode & _WRITABLE_BY_OTHERS:
        problem = "can be written by others"
    else:
        if stat.S_IMODE(info.st_mode) != wanted:
            os.chmod(root, wanted)  # noqa: PTH101
        return root
    sentence = f"The folder of the skill cache {problem}: what is in it cannot be trusted. Delete it, or set"
    raise about(SandboxError(f"{sentence} {CACHE_VARIABLE} to another one."), root)


def _size(path: str) -> int:
    try:
        with open(path, "rb") as stream:
            return int(stream.read(64).split()[0])
    except (OSError, ValueError, IndexError):
        return 0  # being made, or by a process that was killed then


# Copy a skill's folder once, through descriptors, into a private read-only one, and say what was copied by a digest.
#
# Attack rows 43 to 45. Links are never followed while copying; what cannot be in a skill is left out with a note.

MAX_BYTES = 1 << 30
MAX_FILES = 20_000
MAX_SECONDS = 120.0
_CHUNK = 1 << 20
_READ = os.O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | O_NOFOLLOW | O_CLOEXEC
_MAX_NOTES = 20

SETTLED_NS = 50_000_000
"""A change within one tick of the file system's clock (10 ms at most) shows in no time stamp: what is younger than
this when it is read is read again the next time."""

Snapshot = tuple[tuple[str, Stamp], ...]
"""Each entry's path and stamp."""


@dataclass(slots=True)
class Copied:
    """The content of a folder.

    Attributes:
        digest: SHA-256, in hexadecimal, over the paths, the executable bits, the contents and the targets of links.
        bytes: Sizes of the files together.
        files: Entries, folders and links included.
        notes: One sentence for each entry that was left out.
    """

    digest: str = ""
    bytes: int = 0
    files: int = 0
    notes: list[str] = field(default_factory=list)


def snapshot(folder: str) -> Snapshot:
    """Everything under a folder and the folder itself, as ``lstat`` sees it; a SandboxError for too many files."""
    found = [(folder, stamp(os.stat(folder)))]  # noqa: PTH116
    pending = [folder]
    while pending:
        here = pending.pop()
        try:
            with os.scandir(here) as scan:
                for item in scan:
                    info = item.stat(follow_symlinks=False)
                    found.append((item.path, stamp(info)))
                    if stat.S_ISDIR(info.st_mode):
                        pending.append(item.path)
        except PermissionError:
            if here == folder:
                raise
        if len(found) > MAX_FILES:
            raise _too_many()
    return tuple(sorted(found))


def copy_skill(source: str, target: str | None, without: tuple[str, ...] = ()) -> Copied:
    """Copy ``source`` into the new folder ``target``, read-only; with None only find its digest.

    Regular files get mode 0444, or 0555 when they were executable by anybody, or 0545 when they were not and begin
    with ``#!``, so that one script starts another by its path; they keep their time of modification. Folders get
    0555. No set-user-id bit survives. A link that stays inside is written as a relative one; any other link, and
    everything that is no file, folder or link, is left out with a note. The folders ``without`` names are left out
    and not noted: whoever may not know of them would read it.
    """
    return _Copy(source, target, ours=False, without=without).run()


class FolderDigest:
    """The digest of what :func:`copy_skill` would copy; all is read again only when a stamp moved. Thread-safe.

    What changed less than ``settled_ns`` before it was read may change again and keep its stamp, by the file system's
    clock: it is read again the next time.
    """

    def __init__(self, folder: str, without: tuple[str, ...] = (), *, settled_ns: int = SETTLED_NS) -> None:
        self._folder = folder
        self._without = without
        self._settled_ns = settled_ns
        self._known: tuple[Snapshot, Copied] | None = None

    def look(self) -> Copied | None:
        """What is in the folder now; None when it changed while it was read."""
        began = time.time_ns()
        before = snapshot(self._folder)
        known = self._known
        if known is not None and known[0] == before:
            return known[1]
        copied = copy_skill(self._folder, None, self._without)
        if snapshot(self._folder) != before:
            return None
        settled = max(seen.ctime_ns for _, seen in before) < began - self._settled_ns
        self._known = (before, copied) if settled else None
        return copied

    def forget(self) -> None:
        """Read all of it the next time."""
        self._known = None


def digest_of(folder: str) -> str:
    """The digest of a folder that :func:`copy_skill` made."""
    return _Copy(folder, None, ours=True).run().digest


# No lock names such a file of macOS, and an archive of Python may begin like one, so that no run gets it (row 385).
_OF_FILE_MANAGER = ".DS_Store"


class _Copy:
    def __init__(self, source: str, target: str | None, *, ours: bool, without: tuple[str, ...] = ()) -> None:
        self._source = source
        self._real = os.path.realpath(source)
        self._target = target
        self._ours = ours  # made by copy_skill: its links are taken literally
        self._without = tuple(f"{portable(folder)}/" for folder in without)
        self._hash = hashlib.sha256()
        self._result = Copied()
        self._left_out = 0

    def run(self) -> Copied:
        walk = Walk(MAX_FILES, max_seconds=MAX_SECONDS)
        folders: list[bytes] = []
        top = open_folder(self._real)
        try:
            if self._target is not None:
                os.mkdir(self._target, 0o700)  # noqa: PTH102
            with contextlib.closing(walk.entries(top)) as entries:
                for entry in entries:
                    self._entry(entry, folders)
        finally:
            os.close(top)
        if walk.stopped:
            raise (
                _too_many() if "files" in walk.stopped else SandboxError(f"The skill cannot be copied: {walk.stopped}.")
            )
        for path, reason in walk.skipped:
            if not self._is_left_out(path):
                self._note(path, reason)
        if self._left_out > _MAX_NOTES:
            self._result.notes.append(f"{self._left_out - _MAX_NOTES:,} more entries of the skill were left out.")
        if self._target is not None:
            for folder in (*reversed(folders), os.fsencode(self._target)):
                os.chmod(folder, 0o555)  # noqa: PTH101, S103
        self._result.digest = self._hash.hexdigest()
        return self._result

    def _entry(self, entry: Entry, folders: list[bytes]) -> None:
        if self._is_left_out(entry.path):
            return
        mode = entry.info.st_mode
        if entry.is_folder:
            self._add(b"folder", entry.path)
            if self._target is not None:
                folders.append(on_disk(self._target, entry.path))
                os.mkdir(folders[-1], 0o700)  # noqa: PTH102
        elif stat.S_ISREG(mode):
            if entry.path.rpartition("/")[2] != _OF_FILE_MANAGER:
                self._file(entry)
        elif stat.S_ISLNK(mode):
            self._link(entry)
        else:
            self._note(entry.path, "it is not a file, folder or link")

    def _is_left_out(self, path: str) -> bool:
        return f"{path}/".startswith(self._without)

    def _file(self, entry: Entry) -> None:
        try:
            source = os.open(entry.name, _READ, dir_fd=entry.folder)
        except PermissionError:
            self._note(entry.path, "it cannot be read")
            return
        try:
            info = os.fstat(source)
            if not stat.S_ISREG(info.st_mode):
                self._note(entry.path, "it is not a file, folder or link")
                return
            # In our own copy the group's bit tells what was executable from what begins with "#!".
            executable = bool(info.st_mode & (0o010 if self._ours else 0o111))
            content = hashlib.sha256()
            if self._target is None:
                size = self._read(source, content, None)
            else:
                copy = os.open(on_disk(self._target, entry.path), _CREATE, 0o600)
                try:
                    size = self._read(source, content, copy)
                    os.utime(copy, ns=(info.st_mtime_ns, info.st_mtime_ns))
                    os.fchmod(copy, 0o555 if executable else 0o545 if _names_interpreter(source) else 0o444)
                finally:
                    os.close(copy)
        finally:
            os.close(source)
        self._add(b"program" if executable else b"file", entry.path, content.digest(), size.to_bytes(8, "big"))

    def _read(self, source: int, content: hashlib._Hash, copy: int | None) -> int:
        size = 0
        while chunk := os.read(source, _CHUNK):
            size += len(chunk)
            self._result.bytes += len(chunk)
            if self._result.bytes > MAX_BYTES:
                raise SandboxError(
                    f"The skill's folder holds more than {MAX_BYTES >> 20:,} MiB; it is copied for its scripts, which "
                    "is too much. Move large data out of it and pass it as input files."
                )
            content.update(chunk)
            if copy is not None:
                write_all(copy, chunk)
        return size

    def _link(self, entry: Entry) -> None:
        wanted = os.readlink(entry.name, dir_fd=entry.folder)
        if not self._ours:
            folder = os.path.dirname(os.fsdecode(on_disk(self._real, entry.path)))  # noqa: PTH120
            real = os.path.realpath(os.path.join(folder, wanted))  # noqa: PTH118
            if real != self._real and not real.startswith(f"{self._real}/"):
                self._note(entry.path, "it is a link that leaves the skill")
                return
            try:
                kind = os.lstat(real).st_mode
            except OSError:
                self._note(entry.path, "it is a link to nothing")
                return
            if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
                self._note(entry.path, "it is a link to something that is not a file or folder")
                return
            # Through real folders only, so that it means the same in the copy, whatever other links there are.
            wanted = os.path.relpath(real, folder)
        self._add(b"link", entry.path, portable(wanted).encode("utf-8", "surrogateescape"))
        if self._target is not None:
            os.symlink(os.fsencode(wanted), on_disk(self._target, entry.path))  # noqa: PTH211

    def _add(self, kind: bytes, path: str, *facts: bytes) -> None:
        self._result.files += 1
        for part in (kind, path.encode("utf-8", "surrogateescape"), *facts):
            self._hash.update(len(part).to_bytes(8, "big"))
            self._hash.update(part)

    def _note(self, path: str, reason: str) -> None:
        self._left_out += 1
        if self._left_out <= _MAX_NOTES:
            self._result.notes.append(f"{readable_name(path)!r} of the skill was left out: {reason}.")


def _names_interpreter(source: int) -> bool:
    return os.pread(source, 2, 0) == b"#!"


def _too_many() -> SandboxError:
    return SandboxError(
        f"The skill's folder holds more than {MAX_FILES:,} files; it is copied for its scripts, which is too much. "
        "Move what its scripts do not need (node_modules, .git, .venv) out of it."
    )
