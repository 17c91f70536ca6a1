"""Copy a skill's folder once, through descriptors, into a private read-only one, and say what was copied by a digest.

Attack rows 43 to 45. Links are never followed while copying; what cannot be in a skill is left out with a note.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from dataclasses import dataclass, field

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.local.output_names import readable
from adk_skills_agent.sandbox.local.tree import Entry, Walk, on_disk, open_folder, portable

MAX_BYTES = 1 << 30
MAX_FILES = 20_000
MAX_SECONDS = 120.0
_CHUNK = 1 << 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_NOTES = 20

Snapshot = tuple[tuple[str, int, int, int, int, int, int], ...]
"""Per entry: path, mode, size, mtime and ctime in ns, inode and device. What is written, replaced, renamed or gets
another mode changes its ctime, which no program can set."""


@dataclass(slots=True)
class Copied:
    """What a folder holds.

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
    """Everything under a folder and the folder itself, as ``lstat`` sees it.

    Raises:
        OSError: The folder cannot be read.
        SandboxError: It holds too many files.
    """
    info = os.stat(folder)  # noqa: PTH116
    found = [(folder, info.st_mode, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino, info.st_dev)]
    pending = [folder]
    while pending:
        here = pending.pop()
        try:
            with os.scandir(here) as scan:
                for item in scan:
                    path, info = item.path, item.stat(follow_symlinks=False)
                    mode = info.st_mode
                    found.append(
                        (path, mode, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino, info.st_dev)
                    )
                    if stat.S_ISDIR(mode):
                        pending.append(path)
        except PermissionError:
            if here == folder:
                raise
        if len(found) > MAX_FILES:
            raise _too_many()
    return tuple(sorted(found))


def copy_skill(source: str, target: str | None, without: tuple[str, ...] = ()) -> Copied:
    """Copy ``source`` into the new folder ``target``, read-only; with None only find its digest.

    Regular files get mode 0444, or 0555 when they were executable by anybody, and keep their time of modification;
    folders get 0555. No set-user-id bit survives. A link that stays inside is written as a relative one; any other
    link, and everything that is no file, folder or link, is left out with a note. The folders ``without`` names are
    left out and not noted: whoever may not know of them would read it.

    Raises:
        SandboxError: It holds more than :data:`MAX_BYTES` or :data:`MAX_FILES`.
        OSError: It cannot be read, or ``target`` cannot be written.
    """
    return _Copy(source, target, ours=False, without=without).run()


def digest_of(folder: str) -> str:
    """The digest of a folder that :func:`copy_skill` made.

    Raises:
        SandboxError, OSError: It is not as it was made.
    """
    return _Copy(folder, None, ours=True).run().digest


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
            self._file(entry)
        elif stat.S_ISLNK(mode):
            self._link(entry)
        else:
            self._note(entry.path, "it is no file, folder or link")

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
                self._note(entry.path, "it is no file, folder or link")
                return
            executable = bool(info.st_mode & 0o111)
            content = hashlib.sha256()
            if self._target is None:
                size = self._read(source, content, None)
            else:
                copy = os.open(on_disk(self._target, entry.path), _CREATE, 0o600)
                try:
                    size = self._read(source, content, copy)
                    os.utime(copy, ns=(info.st_mtime_ns, info.st_mtime_ns))
                    os.fchmod(copy, 0o555 if executable else 0o444)
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
            rest = memoryview(chunk)
            while copy is not None and rest:
                rest = rest[os.write(copy, rest) :]
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
                self._note(entry.path, "it is a link to something that is no file or folder")
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
            self._result.notes.append(f"{readable(path)!r} of the skill was left out: {reason}.")


def _too_many() -> SandboxError:
    return SandboxError(
        f"The skill's folder holds more than {MAX_FILES:,} files; it is copied for its scripts, which is too much. "
        "Move what its scripts do not need (node_modules, .git, .venv) out of it."
    )
