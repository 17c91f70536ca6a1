"""Prepared environments in a store that servers share: one prepares, the others fetch in seconds, without an index.

An environment is a stream of a tar archive in parts, and a list of the parts that is written last. What is fetched is
unpacked beside its place, checked and renamed, as one that was made here. Its name is what it is made of, the same as
its folder's, and the folder it was made for, whose path is in some of its files.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import os
import posixpath
import stat
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adk_skills_agent.errors import SkillsError, StorageDamaged, StorageError
from adk_skills_agent.packages.environments import (
    _ASIDE,
    _LOCK,
    Environment,
    _opened,
    _remove,
    _touch,
    _turn,
    environment_digest,
)
from adk_skills_agent.packages.lock import python_of
from adk_skills_agent.platforms import O_CLOEXEC, O_NOFOLLOW
from adk_skills_agent.storage import Sealer, open_objects
from adk_skills_agent.storage.tar_members import BoundedMember

if TYPE_CHECKING:
    from adk_skills_agent.packages.lock import Lock
    from adk_skills_agent.storage import ObjectStore

logger = logging.getLogger(__name__)

_FORMAT = 1
_PART_BYTES = 16 << 20
_MOST_PARTS = 4_096
_MOST_LIST_BYTES = 4 << 20
_MOST_FILES = 500_000
_MOST_BYTES = 32 << 30
_FOLDER = "environments"


class SharedEnvironments:
    """Environments in a store.

    ``url`` is as ``workspace_store`` has it: a folder, ``s3://bucket/prefix``, ``gs://...``. ``key`` encrypts them, and
    tells that nobody else wrote them: who can write to a store without a key decides what scripts of skills import.
    Raises ``ConfigError`` when there is no such store, or the key cannot be used.
    """

    def __init__(self, url: str | os.PathLike[str], key: bytes | str | None = None) -> None:
        self._objects: ObjectStore = open_objects(url)
        self._sealer = Sealer([key]) if key is not None else None

    def fetch(
        self, lock: Lock, *, cache: Path, python: str | None = None, what: str = "the packages"
    ) -> Environment | None:
        """The environment of a lock, put where one that was made here would be. Blocks.

        Returns None when the store has none, or one that cannot be used; the log says why.
        """
        digest = environment_digest(lock, python)
        root = cache / "environments"
        try:
            root.mkdir(parents=True, exist_ok=True)
            with _turn(root / (digest + _LOCK), what):
                found = _opened(root / digest, digest)
                if found is None:
                    found = self._fetched(digest, root, python_of(python).path)
        except (SkillsError, OSError, tarfile.TarError, ValueError) as error:
            logger.warning("the environment %s was not fetched from %s: %s", digest[:12], self._objects.shown, error)
            return None
        if found is not None:
            _touch(found)
        return found

    def save(self, environment: Environment, *, python: str | None = None) -> bool:
        """Put an environment into the store, unless it is there. Blocks.

        Returns whether it is there now; the log says why it is not.
        """
        name = _name(environment.digest, environment.folder.parent)
        try:
            if self._is_whole(name):
                return True
            parts = []
            for number, part in enumerate(_packed(environment.folder, python_of(python).path)):
                own = f"{name}/part-{number:04d}-{hashlib.sha256(part).hexdigest()[:16]}"
                self._objects.write(own, self._sealed(own, part))
                parts.append([own.rpartition("/")[2], hashlib.sha256(part).hexdigest()])
            listed = json.dumps({"format": _FORMAT, "parts": parts}).encode()
            self._objects.write(f"{name}/list", self._sealed(f"{name}/list", listed))
        except (StorageError, OSError, tarfile.TarError) as error:
            logger.warning("the environment %s was not put into %s: %s", name, self._objects.shown, error)
            return False
        return True

    def _is_whole(self, name: str) -> bool:
        """Whether a list is there with all its parts: a rule of a bucket may have removed some."""
        data = self._objects.read(f"{name}/list", _MOST_LIST_BYTES)
        if data is None:
            return False
        try:
            parts = {part[0] for part in json.loads(self._opened(f"{name}/list", data))["parts"]}
        except (StorageDamaged, ValueError, KeyError, TypeError, IndexError):
            return False
        return parts <= self._objects.names(name).keys()

    def _fetched(self, digest: str, root: Path, interpreter: str) -> Environment | None:
        name = _name(digest, root)
        data = self._objects.read(f"{name}/list", _MOST_LIST_BYTES)
        if data is None:
            return None
        listed: Any = json.loads(self._opened(f"{name}/list", data))
        if not isinstance(listed, dict) or listed.get("format") != _FORMAT or len(listed["parts"]) > _MOST_PARTS:
            raise StorageDamaged(f"{name}/list is of another version, or damaged.")
        aside = Path(tempfile.mkdtemp(prefix=f"{_ASIDE}{digest[:16]}-", dir=root))
        try:
            env = aside / "env"
            env.mkdir()
            _unpack(self._parts(name, listed["parts"]), env, interpreter)
            if _opened(env, digest) is None:
                raise StorageDamaged(f"{name} is not a whole environment.")
            target = root / digest
            if target.exists():
                target.rename(aside / "broken")
            env.rename(target)
        finally:
            _remove(aside)
        return _opened(root / digest, digest)

    def _parts(self, name: str, parts: list[list[str]]) -> Iterator[bytes]:
        for own, digest in parts:
            data = self._objects.read(f"{name}/{own}", 2 * _PART_BYTES)
            part = self._opened(f"{name}/{own}", data) if data is not None else b""
            if hashlib.sha256(part).hexdigest() != digest:
                raise StorageDamaged(f"{name}/{own} is missing or damaged.")
            yield part

    def _sealed(self, name: str, data: bytes) -> bytes:
        return self._sealer.seal(name, data) if self._sealer is not None else data

    def _opened(self, name: str, data: bytes) -> bytes:
        return self._sealer.open(name, data) if self._sealer is not None else data


def _name(digest: str, root: Path) -> str:
    """Some files of an environment name the folder it is in, so it is another one for another folder."""
    return f"{_FOLDER}-{hashlib.sha256(f'{_FORMAT} {digest} {root}'.encode()).hexdigest()[:40]}"


class _Parts(io.RawIOBase):
    """Collects what is written, compressed, in parts."""

    def __init__(self) -> None:
        self.ready: list[bytes] = []
        self._pending: list[bytes] = []
        self._size = 0
        self._compress = zlib.compressobj(1)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = len(data)
        self._take(self._compress.compress(bytes(data)))
        return size

    def finish(self) -> None:
        self._take(self._compress.flush())
        self._cut()

    def _take(self, data: bytes) -> None:
        self._pending.append(data)
        self._size += len(data)
        if self._size >= _PART_BYTES:
            self._cut()

    def _cut(self) -> None:
        if self._size:
            self.ready.append(b"".join(self._pending))
        self._pending, self._size = [], 0


def _packed(folder: Path, interpreter: str) -> Iterator[bytes]:
    """The archive of an environment, in parts; it is never in memory whole."""
    parts = _Parts()
    with tarfile.open(fileobj=parts, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for place, folders, files in os.walk(folder):
            folders.sort()
            for name in sorted([*files, *(one for one in folders if os.path.islink(f"{place}/{one}"))]):  # noqa: PTH114
                path = f"{place}/{name}"
                info = archive.gettarinfo(path, os.path.relpath(path, folder))
                if info.islnk():  # uv links files of its cache: each is written as one of its own
                    info.type, info.linkname = tarfile.REGTYPE, ""
                    info.size = os.stat(path).st_size  # noqa: PTH116
                info.uid = info.gid = 0
                info.uname = info.gname = ""
                if info.issym():
                    if not _is_good_link(info.name, info.linkname, interpreter):
                        raise StorageError(f"{info.name} is a link out of the environment.")
                    archive.addfile(info)
                elif info.isreg():
                    with open(path, "rb") as file:
                        archive.addfile(info, file)
                while parts.ready:
                    yield parts.ready.pop(0)
    parts.finish()
    yield from parts.ready


class _Joined(io.RawIOBase):
    """Reads the parts one after another."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self._decompress = zlib.decompressobj()
        self._left = b""
        self._input = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            if not self._input:
                self._input = next(self._parts, b"")
                if not self._input:
                    return 0
            try:
                self._left = self._decompress.decompress(self._input, 1 << 20)
            except zlib.error as error:
                raise StorageDamaged(f"a part of an environment is damaged: {error}") from error
            self._input = self._decompress.unconsumed_tail
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


def _unpack(parts: Iterator[bytes], folder: Path, interpreter: str) -> None:
    """Write the files of an archive; only regular files and links that stay inside or lead to the interpreter."""
    count = size = 0
    made = {""}
    with tarfile.open(fileobj=io.BufferedReader(_Joined(parts), 1 << 20), mode="r|", tarinfo=BoundedMember) as archive:
        for info in archive:
            count, size = count + 1, size + info.size
            if count > _MOST_FILES or size > _MOST_BYTES:
                raise StorageDamaged("an environment in the store is larger than any that is made")
            names = info.name.split("/")
            if any(name in ("", ".", "..") for name in names):
                raise StorageDamaged(f"{info.name[:80]!r} leaves the environment")
            parent = "/".join(names[:-1])
            if parent not in made:
                _make_folders(folder, parent, made)
            target = folder / info.name
            if info.issym():
                if not _is_good_link(info.name, info.linkname, interpreter):
                    raise StorageDamaged(f"{info.name[:80]!r} is a link out of the environment")
                target.symlink_to(info.linkname)
            elif info.isreg():
                file = archive.extractfile(info)
                mode = 0o555 if info.mode & 0o111 else 0o444
                descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode)
                with os.fdopen(descriptor, "wb") as out:
                    while file is not None and (chunk := file.read(1 << 20)):
                        out.write(chunk)
                    os.fchmod(out.fileno(), mode)
                os.utime(target, (info.mtime, info.mtime))  # the bytecode is of files with these times
            else:
                raise StorageDamaged(f"{info.name[:80]!r} is no file")


def _make_folders(folder: Path, path: str, made: set[str]) -> None:
    """Make folders one by one, none of them through a link that the archive brought."""
    done = ""
    for name in path.split("/"):
        done = f"{done}/{name}" if done else name
        if done in made:
            continue
        place = folder / done
        with contextlib.suppress(FileExistsError):
            place.mkdir(mode=0o755)
        if not stat.S_ISDIR(place.lstat().st_mode):
            raise StorageDamaged(f"{done[:80]!r} is a file and a folder")
        made.add(done)


def _is_good_link(name: str, target: str, interpreter: str) -> bool:
    """Whether a link is the environment's Python, or stays inside."""
    if target.startswith("/"):
        return posixpath.dirname(name) == "bin" and posixpath.realpath(target) == posixpath.realpath(interpreter)
    inside = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
    return inside != ".." and not inside.startswith(("../", "/"))
