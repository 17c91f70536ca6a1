"""The files of a session as a store has them: what is on the disk, what of it changed, and putting it back."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from adk_skills_agent.errors import StorageDamaged
from adk_skills_agent.platforms import O_CLOEXEC, O_NOFOLLOW, O_NONBLOCK
from adk_skills_agent.sandbox import HOME_DIR, MAX_DEPTH

_UNSETTLED_NS = 20_000_000
"""A file that changed so short a time before it was looked at may change again without a new time: two ticks."""
_ROOTS = ("work", "tmp", "skills")
_MOST_NAME_BYTES = 255
MAX_ENTRIES = 100_000
"""Files and folders of one session."""


class StoredFile(NamedTuple):
    """One file in the store."""

    blob: str  # the name of the object with its bytes: ``<digest>.<number of the entry it came with>``
    size: int
    executable: bool  # whether its owner may execute it
    modified_ns: int  # its time of change, in nanoseconds since 1970


@dataclass(frozen=True, slots=True)
class Content:
    """All files and folders of a session."""

    # by path; the first part is ``work``, ``tmp`` or ``skills``
    files: Mapping[str, StoredFile] = field(default_factory=dict)
    folders: frozenset[str] = frozenset()  # their paths
    facts: Mapping[str, str] = field(default_factory=dict)  # what other parts of a server remember about the session

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files.values())

    def to_json(self) -> dict[str, object]:
        """For an entry of the log."""
        return {
            "files": {path: [*file] for path, file in self.files.items()},
            "folders": sorted(self.folders),
            "facts": dict(self.facts),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> Content:
        """The reverse, checked: nothing in a store may lead out of the session's folders.

        Raises ``ValueError`` when it would.
        """
        files, folders, facts = value["files"], value["folders"], value["facts"]
        if not isinstance(files, dict) or not isinstance(folders, list) or not isinstance(facts, dict):
            raise ValueError("files, folders or facts are missing")  # noqa: TRY004  # a damaged entry, not a caller's type
        if len(files) + len(folders) > MAX_ENTRIES:
            raise ValueError(f"there are more than {MAX_ENTRIES:,} files")
        for path in (*files, *folders):
            _check_path(path)
        found: dict[str, StoredFile] = {}
        for path, (blob, size, executable, modified_ns) in files.items():
            if not _is_blob(blob) or not isinstance(size, int) or size < 0 or not _is_time(modified_ns):
                raise ValueError(f"{path!r} is not described as a file")
            found[path] = StoredFile(blob, size, bool(executable), modified_ns)
        for fact in facts.values():
            json.loads(fact)
        return cls(found, frozenset(folders), {str(name): str(fact) for name, fact in facts.items()})


def _check_path(path: object) -> None:
    parts = path.split("/") if isinstance(path, str) else []
    if len(parts) < 2 or parts[0] not in _ROOTS or len(parts) > MAX_DEPTH + 8:
        raise ValueError(f"{str(path)[:80]!r} is no path of a session")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise ValueError(f"{str(path)[:80]!r} leaves the session's folders")
    if any(len(os.fsencode(part)) > _MOST_NAME_BYTES for part in parts):
        raise ValueError(f"{str(path)[:80]!r} is no path of a session: a name in it is too long")


def _is_time(nanoseconds: object) -> bool:
    """Whether it is a file's time of change as the system takes it."""
    return isinstance(nanoseconds, int) and -1 << 63 <= nanoseconds < 1 << 63


def _is_blob(name: object) -> bool:
    digest, _, number = name.partition(".") if isinstance(name, str) else ("", "", "")
    return len(digest) == 64 and digest.isalnum() and number.isdigit()


class _Stamp(NamedTuple):
    size: int
    modified_ns: int
    changed_ns: int
    inode: int
    executable: bool


@dataclass(frozen=True, slots=True)
class Seen:
    """The files on the disk at one moment."""

    files: Mapping[str, _Stamp] = field(default_factory=dict)  # by path as in :class:`Content`
    folders: frozenset[str] = frozenset()  # their paths
    taken_ns: int = 0  # when, in nanoseconds since 1970, by this machine's clock

    def is_settled(self, path: str, other: Seen) -> bool:
        """Whether a file is surely the same here and in a later look."""
        mine, theirs = self.files.get(path), other.files.get(path)
        return mine is not None and mine == theirs and mine.changed_ns < self.taken_ns - _UNSETTLED_NS


class SessionFolders:
    """The folders of one session on this machine.

    ``tmp`` and ``skills`` lie beside the workspace and need not be there; the home folder in ``tmp`` is each run's own
    and never looked at.
    """

    def __init__(self, work: Path, tmp: Path, skills: Path) -> None:
        self.roots: Mapping[str, Path] = dict(zip(_ROOTS, (work, tmp, skills), strict=True))

    def on_disk(self, path: str) -> Path:
        """The place of a path on this machine."""
        root, _, rest = path.partition("/")
        return self.roots[root] / rest

    def look(self) -> Seen:
        """What is there now; links and special files are not a session's and left out. Blocks.

        Raises ``OSError`` when a folder cannot be read.
        """
        taken = time.time_ns()
        files: dict[str, _Stamp] = {}
        folders: set[str] = set()
        for root, place in self.roots.items():
            if place.is_dir():
                for path, info in _entries(place, root):
                    if info is None:
                        folders.add(path)
                    else:
                        files[path] = _stamp(info)
        return Seen(files, frozenset(folders), taken)

    def read(self, path: str) -> bytes:
        """A file's bytes; no link is followed. Raises ``OSError`` when it cannot be read, or is no file any more."""
        descriptor = os.open(self.on_disk(path), os.O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            return file.read()

    def put(
        self,
        wanted: Content,
        known: Mapping[str, StoredFile],
        keep: frozenset[str],
        fetch: Callable[[StoredFile], bytes],
    ) -> int:
        """Make the disk what a store has. Everything is fetched before anything here changes. Blocks.

        Paths in ``keep`` stay although the store does not have them.

        Returns:
            How many bytes were fetched.

        Raises:
            StorageError: Something cannot be fetched; nothing was changed.
            OSError: The disk does not take it.
        """
        missing = [path for path, file in wanted.files.items() if known.get(path) != file]
        work = self.roots["work"]
        aside = Path(tempfile.mkdtemp(prefix="fetched-", dir=work.parent))
        fetched = 0
        try:
            for number, (path, data) in enumerate(_fetched(missing, wanted.files, fetch)):
                fetched += len(data)
                file, place = wanted.files[path], aside / str(number)
                place.write_bytes(data)
                place.chmod(0o700 if file.executable else 0o600)
                os.utime(place, ns=(file.modified_ns, file.modified_ns))
            self._remove_others(wanted, keep)
            for path in sorted(wanted.folders):
                self._folder(self.on_disk(path))
            for number, path in enumerate(missing):
                target = self.on_disk(path)
                self._folder(target.parent)
                if target.is_dir() and not target.is_symlink():
                    shutil.rmtree(target)
                (aside / str(number)).replace(target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        return fetched

    def set_aside(self, paths: Sequence[str], folder: str) -> list[str]:
        """Move files into a folder of the workspace, so that nothing else takes their place.

        ``folder`` is its name in the workspace; what is not of the workspace gets a folder ``from-tmp`` or
        ``from-skills`` in it. Returns where they are now, as :attr:`Content.files` would have it. Raises ``OSError``
        when the disk refuses.
        """
        moved = []
        for path in paths:
            root, _, rest = path.partition("/")
            new = f"work/{folder}/{rest}" if root == "work" else f"work/{folder}/from-{root}/{rest}"
            if root == "work" and rest.startswith(f"{folder}/"):
                continue
            target = self.on_disk(new)
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.on_disk(path).replace(target)
            moved.append(new)
        return moved

    def _remove_others(self, wanted: Content, keep: frozenset[str]) -> None:
        here = self.look()
        for path in here.files.keys() - wanted.files.keys() - keep:
            self.on_disk(path).unlink(missing_ok=True)
        for path in sorted(here.folders - wanted.folders, reverse=True):
            with contextlib.suppress(OSError):  # something that is kept lies in it
                self.on_disk(path).rmdir()

    @staticmethod
    def _folder(place: Path) -> None:
        if place.is_symlink() or place.is_file():
            place.unlink()
        place.mkdir(mode=0o700, parents=True, exist_ok=True)


def _fetched(
    paths: Sequence[str], files: Mapping[str, StoredFile], fetch: Callable[[StoredFile], bytes]
) -> Iterator[tuple[str, bytes]]:
    """The bytes of files in their order, several at a time while they are small."""
    from concurrent.futures import ThreadPoolExecutor

    if len(paths) < 3:
        yield from ((path, fetch(files[path])) for path in paths)
        return
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        start = 0
        while start < len(paths):
            end, size = start, 0
            while end < len(paths) and (end == start or size + files[paths[end]].size <= _BATCH_BYTES):
                size += files[paths[end]].size
                end += 1
            batch = paths[start:end]
            yield from zip(batch, pool.map(lambda path: fetch(files[path]), batch), strict=True)
            start = end


_AT_ONCE = 8
_BATCH_BYTES = 32 << 20


def _entries(folder: Path, prefix: str) -> Iterator[tuple[str, os.stat_result | None]]:
    """Files with their state, and folders with None; depth first."""
    with os.scandir(folder) as entries:
        for entry in entries:
            path = f"{prefix}/{entry.name}"
            if prefix == "tmp" and entry.name == HOME_DIR.name:
                continue
            if entry.is_dir(follow_symlinks=False):
                yield path, None
                yield from _entries(Path(entry.path), path)
            elif entry.is_file(follow_symlinks=False):
                info = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(info.st_mode):
                    yield path, info


def _stamp(info: os.stat_result) -> _Stamp:
    return _Stamp(info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino, bool(info.st_mode & 0o100))


def content_name(data: bytes, name_of: Callable[[bytes], str] | None) -> str:
    """The name of some bytes: their sha256 in hexadecimal digits, or what a key makes of it."""
    digest = hashlib.sha256(data).digest()
    return name_of(digest) if name_of is not None else digest.hex()


def verified(data: bytes | None, file: StoredFile, name_of: Callable[[bytes], str] | None) -> bytes:
    """The bytes of a file, when they are what was stored.

    Raises ``StorageDamaged`` when they are missing, or others.
    """
    if data is None:
        raise StorageDamaged(f"The object {file.blob} is missing in the store.")
    # With a key its tag has been checked, and an earlier key would have given another name.
    if len(data) != file.size or (name_of is None and content_name(data, None) != file.blob.partition(".")[0]):
        raise StorageDamaged(f"The object {file.blob} in the store is damaged.")
    return data
