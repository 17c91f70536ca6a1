"""A store of objects: a folder, any file system of fsspec, or what another layer brings.

An object is bytes under a name such as ``3f9a/log/000000000007``. All that is asked of a store is that a reader finds
an object whole, that names are listed as soon as they are written, and that of several writers who *create* the same
name just one succeeds. No clock is compared between machines.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from adk_skills_agent.errors import ConfigError, StorageDamaged, StorageError
from adk_skills_agent.installation import install_hint
from adk_skills_agent.platforms import O_CLOEXEC, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK

_T = TypeVar("_T")
_ASIDE = ".aside-"
MOST_BYTES = 1 << 30
"""Of one object; a store holds what whoever can write to it put there (row 169)."""
MOST_NAMES = 2 << 20
"""Objects of one folder: a session has at most a few times as many as its workspace may have files."""
ASIDE_SECONDS = 3_600.0
"""What a process left aside is surely nobody's after so long."""
_AT_ONCE = 8
"""Objects that are read or written at a time, where each is a request to another machine."""
_TRIES = 3
_FIRST_PAUSE = 0.2
_PATIENCE_SECONDS = 10.0
"""A request that took longer to fail is not tried again: the client has tried for that long itself."""
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS})


class ObjectStore(ABC):
    """Objects by name. Every method blocks, and may be called from any thread."""

    shown: str = ""  # how the store is called in sentences for the owner; never with credentials

    @abstractmethod
    def read(self, name: str, most: int = MOST_BYTES) -> bytes | None:
        """The object; None when there is none.

        Raises ``StorageDamaged`` when it is larger than ``most`` bytes, or ``StorageError`` when the store does not
        answer, or refuses.
        """

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Put an object in its place, whole or not at all; one of that name is replaced.

        Raises ``StorageError`` when the store refuses.
        """

    @abstractmethod
    def create(self, name: str, data: bytes) -> bool:
        """Put an object where there is none; of several who try at once, one does.

        ``data`` must not be what another caller would write: an answer that got lost is told by it. Returns False when
        there is another one already. Raises ``StorageError`` when the store refuses.
        """

    @abstractmethod
    def names(self, folder: str) -> Mapping[str, int]:
        """The objects of a folder by their last part, and their sizes in bytes (0 where the store does not say).

        Raises ``StorageError`` when the store does not answer.
        """

    @abstractmethod
    def folders(self) -> Sequence[str]:
        """The first parts of all names, sorted. Raises ``StorageError`` when the store does not answer."""

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """Remove objects; those that are not there are no error. Raises ``StorageError`` when the store refuses."""

    def sweep(self, folder: str, seconds: float = ASIDE_SECONDS) -> None:  # noqa: B027  # most stores have nothing to do
        """Remove what killed processes left half written in a folder; nothing where a store has no such thing.

        What is younger than ``seconds`` stays: somebody may be writing it.
        """

    def remove_folders(self, folder: str) -> None:  # noqa: B027  # most stores have no folders
        """Remove a folder and those in it, where nothing is in them, and where a store has such things."""

    def check(self) -> None:
        """Make sure that of two who create the same object one is refused.

        Raises ``ConfigError`` when both succeed: two servers could not be kept apart, or ``StorageError`` when the
        store does not answer, or is read-only.
        """
        name = f"check/{os.urandom(8).hex()}"
        try:
            first, second = self.create(name, b"first"), self.create(name, b"second")
        finally:
            with contextlib.suppress(StorageError):
                self.delete([name])
                self.remove_folders("check")
        if not first or second:
            raise ConfigError(
                f"The store {self.shown} lets two servers create the same object, so it cannot keep their files apart. "
                "Use a local or network folder, Amazon S3, Google Cloud Storage or Azure Blob Storage."
            )

    def write_all(self, objects: Mapping[str, Callable[[], bytes]]) -> None:
        """Several objects; their bytes are asked for when it is their turn.

        Raises ``StorageError`` when the store refuses one.
        """
        _each(lambda item: self.write(item[0], item[1]()), list(objects.items()))


def _each(do: Callable[[Any], _T], items: Sequence[Any]) -> list[_T]:
    if len(items) < 3:
        return [do(item) for item in items]
    with ThreadPoolExecutor(min(_AT_ONCE, len(items))) as pool:
        return list(pool.map(do, items))


def within(data: bytes, most: int, name: str, shown: str) -> bytes:
    """The bytes of an object. Raises ``StorageDamaged`` when there are more than ``most``."""
    if len(data) > most:
        raise StorageDamaged(f"{shown}: {name} is larger than any that is written.")
    return data


def open_objects(url: str | os.PathLike[str], **options: Any) -> ObjectStore:
    """The store at a URL.

    ``url`` is a folder of this machine or of a network file system (``file://`` and ``local://``, too), ``memory://``,
    or any URL of fsspec (``s3://bucket/prefix``, ``gs://bucket/prefix``, ``abfs://...``); ``options`` are for its file
    system: credentials, endpoints. Raises ``ConfigError`` when there is no such kind of store, or what it needs is not
    installed.
    """
    text = os.fspath(url)
    if not isinstance(text, str) or not text:
        raise ConfigError(f"A store is a folder or a URL such as s3://bucket/prefix, not {url!r}.")
    if "://" not in text:
        return FolderObjects(Path(text))
    kind, _, rest = text.partition("://")
    if kind in _FOLDERS:
        return FolderObjects(Path(rest))
    return FsspecObjects(text, **options)


_FOLDERS = frozenset({"file", "local"})
"""What fsspec calls this machine's folders; its own class for them makes no folder and no conditional write."""


class FolderObjects(ObjectStore):
    """Objects as files of a folder, which several machines may have mounted. Needs hard links, as NFS has them.

    The folder is made when it is first written to, for this user alone.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.expanduser().absolute()
        self.shown = str(self._folder)

    def read(self, name: str, most: int = MOST_BYTES) -> bytes | None:
        """See :meth:`ObjectStore.read`: a regular file, no link, no pipe that nobody writes to."""
        folder, _, last = name.rpartition("/")
        try:
            with self._opened(folder) as there:
                descriptor = os.open(last, os.O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, dir_fd=there)
            with os.fdopen(descriptor, "rb") as file:
                info = os.fstat(descriptor)
                if stat.S_ISREG(info.st_mode) and info.st_size <= most:
                    return within(file.read(info.st_size + 1), most, name, self.shown)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise self._failed("read", error) from error
        raise StorageDamaged(f"{self.shown}: {name} is no file, or larger than any that is written.")

    def write(self, name: str, data: bytes) -> None:
        """See :meth:`ObjectStore.write`: aside, flushed, renamed."""
        folder, _, last = name.rpartition("/")
        try:
            with self._aside(folder, data) as (there, aside):
                os.replace(aside, last, src_dir_fd=there, dst_dir_fd=there)
        except OSError as error:
            raise self._failed("written", error) from error

    def create(self, name: str, data: bytes) -> bool:
        """See :meth:`ObjectStore.create`: a second name for the file aside, which only one can give it."""
        folder, _, last = name.rpartition("/")
        try:
            with self._aside(folder, data) as (there, aside):
                try:
                    os.link(aside, last, src_dir_fd=there, dst_dir_fd=there, follow_symlinks=False)
                except FileExistsError:
                    with contextlib.suppress(StorageDamaged):  # another's, and larger
                        return self.read(name, len(data)) == data
                    return False
                except OSError as error:
                    if error.errno not in _NO_HARD_LINKS:
                        raise
                    raise StorageError(
                        f"The store {self.shown} is on a file system without hard links, so two servers cannot be kept "
                        "apart there. Use another file system, or a bucket by its URL."
                    ) from error
                with contextlib.suppress(OSError):
                    os.fsync(there)
        except OSError as error:
            raise self._failed("written", error) from error
        return True

    def names(self, folder: str) -> Mapping[str, int]:
        """See :meth:`ObjectStore.names`."""
        found: dict[str, int] = {}
        try:
            with self._opened(folder) as there, os.scandir(there) as entries:
                for entry in entries:
                    if len(found) == MOST_NAMES:
                        raise StorageDamaged(f"{self.shown}: {folder} has more objects than are ever written.")
                    if not entry.name.startswith(_ASIDE) and entry.is_file(follow_symlinks=False):
                        with contextlib.suppress(FileNotFoundError):
                            found[entry.name] = entry.stat(follow_symlinks=False).st_size
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            raise self._failed("read", error) from error
        return found

    def folders(self) -> Sequence[str]:
        """See :meth:`ObjectStore.folders`."""
        try:
            with os.scandir(self._folder) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._failed("read", error) from error

    def delete(self, names: Iterable[str]) -> None:
        """See :meth:`ObjectStore.delete`; folders stay, because others may be writing into them."""
        try:
            for name in names:
                folder, _, last = name.rpartition("/")
                with contextlib.suppress(FileNotFoundError, NotADirectoryError), self._opened(folder) as there:
                    os.unlink(last, dir_fd=there)
        except OSError as error:
            raise self._failed("changed", error) from error

    def remove_folders(self, folder: str) -> None:
        """See :meth:`ObjectStore.remove_folders`."""
        above, _, last = folder.rpartition("/")
        with contextlib.suppress(OSError), self._opened(above) as there:
            for _, folders, _, place in os.fwalk(last, topdown=False, dir_fd=there):
                for name in folders:
                    with contextlib.suppress(OSError):  # somebody writes there again
                        os.rmdir(name, dir_fd=place)
            os.rmdir(last, dir_fd=there)

    @contextlib.contextmanager
    def _opened(self, folder: str, *, make: bool = False) -> Iterator[int]:
        """A descriptor of a folder of the store.

        Who can write to the store may put a link in the place of a folder: what that leads to is none of the store's,
        and nothing is read, written or deleted there (row 231). Raises ``OSError`` when there is no such folder.
        """
        if make:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        there = os.open(self._folder, os.O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        try:
            for part in filter(None, folder.split("/")):
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, 0o700, dir_fd=there)
                below = os.open(part, os.O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW, dir_fd=there)
                os.close(there)
                there = below
            yield there
        finally:
            os.close(there)

    @contextlib.contextmanager
    def _aside(self, folder: str, data: bytes) -> Iterator[tuple[int, str]]:
        """The folder, and the name of a file in it that has the bytes, on the disk; the name is gone afterwards."""
        aside = f"{_ASIDE}{os.urandom(8).hex()}"
        with contextlib.ExitStack() as stack:
            for attempt in range(_TRIES):
                try:
                    there = stack.enter_context(self._opened(folder, make=True))
                    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | O_CLOEXEC, 0o600, dir_fd=there)
                    break
                except FileNotFoundError:  # another process removed the folder while it was empty
                    if attempt == _TRIES - 1:
                        raise
            try:
                with os.fdopen(descriptor, "wb", buffering=0) as file:
                    left = memoryview(data)
                    while left:
                        left = left[file.write(left) :]
                    os.fsync(descriptor)
                yield there, aside
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(aside, dir_fd=there)

    def sweep(self, folder: str, seconds: float = ASIDE_SECONDS) -> None:
        """See :meth:`ObjectStore.sweep`."""
        with contextlib.suppress(OSError), self._opened(folder) as there, os.scandir(there) as entries:
            for entry in entries:
                if entry.name.startswith(_ASIDE):
                    with contextlib.suppress(OSError):
                        if time.time() - entry.stat(follow_symlinks=False).st_mtime > seconds:
                            os.unlink(entry.name, dir_fd=there)

    def _failed(self, done: str, error: OSError) -> StorageError:
        return StorageError(
            f"The store {self.shown} cannot be {done}: {error.strerror or type(error).__name__}. Check that the folder "
            "is there, has room, and is this user's."
        )


class FsspecObjects(ObjectStore):
    """Objects of any file system that fsspec knows.

    Raises ``ConfigError`` when fsspec or the file system's own package is missing.
    """

    def __init__(self, url: str, **options: Any) -> None:
        self.shown = _without_credentials(url)
        self._url = url
        try:
            import fsspec
        except ImportError as error:
            raise ConfigError(f"The store {self.shown} needs fsspec. Install it: {install_hint('fsspec')}.") from error
        try:
            # What another server wrote a moment ago must be seen: no listing is remembered.
            self._fs, root = fsspec.core.url_to_fs(url, use_listings_cache=False, **options)
        except Exception as error:  # each file system has its own; some connect, or open a file, at once
            kind = url.partition("://")[0]
            raise ConfigError(f"The store {self.shown} cannot be used: {kind}:// {_why(error, url)}") from error
        self._root = root.rstrip("/")
        self._in_memory = url.startswith("memory://")

    def read(self, name: str, most: int = MOST_BYTES) -> bytes | None:
        """See :meth:`ObjectStore.read`."""
        data = self._tried("read", lambda: self._read(name, most))
        return None if data is None else within(data, most, name, self.shown)

    def _read(self, name: str, most: int) -> bytes | None:
        try:
            data = self._fs.cat_file(self._path(name), start=0, end=most + 1)
        except FileNotFoundError:
            return None
        return bytes(data)

    def write(self, name: str, data: bytes) -> None:
        """See :meth:`ObjectStore.write`."""
        self._tried("written", lambda: self._fs.pipe_file(self._path(name), data))

    def create(self, name: str, data: bytes) -> bool:
        """See :meth:`ObjectStore.create`: a conditional write, as S3, Google Cloud Storage and Azure have it."""
        path = self._path(name)
        if self._in_memory:
            with _MEMORY:
                if self._fs.exists(path):
                    return self._read(name, len(data)) == data
                self._fs.pipe_file(path, data)
                return True
        try:
            self._fs.pipe_file(path, data, mode="create")
        except Exception as error:  # each file system has its own for "there is one already", and for a lost answer
            there = self._tried("read", lambda: self._read(name, len(data)))
            if there is None:
                raise self._failed("written", error) from error
            return there == data
        return True

    def names(self, folder: str) -> Mapping[str, int]:
        """See :meth:`ObjectStore.names`."""
        found = self._tried("read", lambda: self._listed(self._path(folder)))
        if len(found) > MOST_NAMES:  # fsspec has no way to ask for fewer
            raise StorageDamaged(f"{self.shown}: {folder} has more objects than are ever written.")
        return {
            info["name"].rstrip("/").rpartition("/")[2]: int(info.get("size") or 0)
            for info in found
            if info["type"] == "file"
        }

    def folders(self) -> Sequence[str]:
        """See :meth:`ObjectStore.folders`."""
        found = self._tried("read", lambda: self._listed(self._root))
        return sorted(info["name"].rstrip("/").rpartition("/")[2] for info in found if info["type"] == "directory")

    def delete(self, names: Iterable[str]) -> None:
        """See :meth:`ObjectStore.delete`."""
        _each(self._delete, list(names))

    def _delete(self, name: str) -> None:
        def remove() -> None:
            with contextlib.suppress(FileNotFoundError):
                self._fs.rm_file(self._path(name))

        self._tried("changed", remove)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _listed(self, path: str) -> list[dict[str, Any]]:
        self._fs.invalidate_cache()
        try:
            return list(self._fs.ls(path, detail=True))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _tried(self, done: str, do: Callable[[], _T]) -> _T:
        """Do it, a few times where it fails: all that is done so may be done twice."""
        began = time.monotonic()
        for attempt in range(_TRIES):
            try:
                return do()
            except PermissionError as error:
                raise self._failed(done, error) from error
            except Exception as error:  # each file system has its own exceptions
                if attempt == _TRIES - 1 or time.monotonic() - began > _PATIENCE_SECONDS:
                    raise self._failed(done, error) from error
            time.sleep(_FIRST_PAUSE * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def _failed(self, done: str, error: Exception) -> StorageError:
        why = _why(error, self._url)
        return StorageError(
            f"The store {self.shown} cannot be {done}: {why}. Check its address, the network, and what the credentials "
            "of this server allow."
        )


_MEMORY = threading.Lock()


_USER = re.compile(r"(?<=://)([^/?]*)@")
_QUERY = re.compile(r"\?[^:/]*")


def _without_credentials(url: str) -> str:
    """A URL, also a chain of some (``zip://a.zip::s3://...``), without users, passwords and queries."""
    return _QUERY.sub("", _USER.sub("", url))


def _why(error: Exception, url: str) -> str:
    """What an error says, in one line, without the credentials of the URL."""
    text = " ".join(str(error).split())
    for user in _USER.findall(url):
        text = text.replace(f"{user}@", "").replace(user.partition(":")[2] or f"{user}@", "...")
    for query in _QUERY.findall(url):
        text = text.replace(query, "")
    return text[:200] or type(error).__name__
