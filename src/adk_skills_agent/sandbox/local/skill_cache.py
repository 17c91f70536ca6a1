"""The skill cache: a run sees a read-only copy of a skill that is named after what is in it, never the skill's folder.

So a skill cannot change between the check and the use (attack rows 43, 44), a script cannot reach the original, and a
large asset costs one copy and then only its ``lstat``: per use, source and copy are compared with how they were when
their contents were last read. What has changed is read again.
"""

from __future__ import annotations

import errno
import itertools
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.local.cache_folder import (
    alone,
    aside,
    cache_folder,
    clean_up,
    discard,
    lock_entry,
    note_size,
)
from adk_skills_agent.sandbox.local.removal import remove_tree
from adk_skills_agent.sandbox.local.skill_copy import Copied, Snapshot, copy_skill, digest_of, snapshot
from adk_skills_agent.sandbox.local.workspace import about

_PATIENCE_SECONDS = 5.0  # how long somebody may write to a skill's folder while its run waits
_PAUSES = (0.0, 0.005, 0.02, 0.05)
_IDLE_ENTRIES = 64  # kept locked, one descriptor each, though no run uses them just now
_SETTLED_NS = 50_000_000
"""A change within one tick of the file system's clock (10 ms at most) shows in no time stamp: what is younger than
this when it is read is read again the next time."""


_Key = tuple[str, str, tuple[str, ...]]
"""Cache, folder, and what of the folder is left out."""


@dataclass(slots=True, eq=False)
class _Entry:
    """One entry of the cache that this process has locked."""

    root: str
    digest: str
    lock: int
    seen: Snapshot = ()
    users: int = 0
    path: str = ""
    folder: Path = Path()

    def __post_init__(self) -> None:
        self.path = f"{self.root}/{self.digest}"
        self.folder = Path(self.path)


@dataclass(frozen=True, slots=True)
class _Source:
    """What a source folder was when it was last read."""

    seen: Snapshot
    copied: Copied


@dataclass(frozen=True, slots=True)
class Materialised:
    """A skill's folder as its scripts see it; stays as it is until :meth:`release`.

    Attributes:
        path: The copy: mode 0555, files 0444 or 0555.
        digest: SHA-256 of what is in it, in hexadecimal.
        bytes: Its size.
        files: Its entries, folders and links included.
        notes: One sentence for each entry of the source that was left out.
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
        cache_root: The folder of the cache; None takes this user's (:func:`.cache_folder.cache_folder`).
        without: Folders below it that are left out, relative to it with ``/``.

    Raises:
        SandboxError: The folder is not there, cannot be read, is too large or never stops changing; or the cache
            cannot be used.
    """
    root = cache_folder(cache_root)
    folder = os.path.abspath(source)  # noqa: PTH100
    try:
        found = _unchanged(root, folder, without)
        if found is not None:
            return found
        with _one_at_a_time((root, folder, without)):
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


def _unchanged(root: str, folder: str, without: tuple[str, ...]) -> Materialised | None:
    """The copy of a folder that is what it was the last time, as is the copy; None when something is to be done."""
    source = _sources.get((root, folder, without))
    if source is None or source.seen != snapshot(folder):
        return None
    copied = source.copied
    entry = _take(root, copied.digest)
    try:
        unchanged = bool(entry.seen) and snapshot(entry.path) == entry.seen
    except (OSError, SandboxError):
        unchanged = False
    if unchanged:
        return Materialised(entry.folder, copied.digest, copied.bytes, copied.files, tuple(copied.notes), entry)
    _release(entry)
    return None


def _attempt(root: str, folder: str, without: tuple[str, ...]) -> Materialised | None:
    before = snapshot(folder)
    key = (root, folder, without)
    source = _sources.get(key)
    if source is None or source.seen != before:
        began = time.time_ns()
        copied = copy_skill(folder, None, without)
        source = _Source(before, copied)
        if snapshot(folder) != before:
            return None
        if max(stamp[4] for stamp in before) < began - _SETTLED_NS:
            _sources[key] = source
        else:
            _sources.pop(key, None)
    entry = _take(root, source.copied.digest)
    try:
        if not _as_made(entry) and not _make(entry, folder, source.copied, without):
            _sources.pop(key, None)
            _release(entry)
            return None
    except BaseException:
        _release(entry)
        raise
    copied = source.copied
    return Materialised(entry.folder, copied.digest, copied.bytes, copied.files, tuple(copied.notes), entry)


def _as_made(entry: _Entry) -> bool:
    """Whether the entry is there and its content is what its name says; read only when its stamps have changed."""
    try:
        now = snapshot(entry.path)
        if entry.seen and now == entry.seen:
            return True
        if digest_of(entry.path) != entry.digest or any(_writable(stamp[1]) for stamp in now):
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
        note_size(entry.lock, wanted.bytes, wanted.files)
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
        if entry is not None:
            entry.users += 1
            _entries[root, digest] = entry
            return entry
    descriptor = lock_entry(root, digest)
    with _lock:
        entry = _entries.pop((root, digest), None)
        if entry is None:
            entry = _Entry(root, digest, descriptor)
        else:
            os.close(descriptor)
        entry.users += 1
        _entries[root, digest] = entry
        return entry


def _release(entry: _Entry) -> None:
    with _lock:
        entry.users -= 1
        idle = [key for key, other in _entries.items() if not other.users]
        for key in idle[: max(0, len(idle) - _IDLE_ENTRIES)]:
            os.close(_entries.pop(key).lock)


@contextmanager
def _one_at_a_time(key: _Key) -> Iterator[None]:
    """Runs of one skill that start together copy it once."""
    with _lock:
        lock, waiting = _turns.get(key, (None, 0))
        lock = lock or threading.Lock()
        _turns[key] = (lock, waiting + 1)
    try:
        with lock:
            yield
    finally:
        with _lock:
            waiting = _turns[key][1] - 1
            if waiting:
                _turns[key] = (lock, waiting)
            else:
                del _turns[key]


_lock = threading.Lock()
_entries: dict[tuple[str, str], _Entry] = {}  # in the order of their last use
_sources: dict[_Key, _Source] = {}
_turns: dict[_Key, tuple[threading.Lock, int]] = {}


def _forget() -> None:
    """A forked child: the locks may have been held by threads that are not there. Its lock files stay locked."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()
    _turns.clear()


os.register_at_fork(after_in_child=_forget)
