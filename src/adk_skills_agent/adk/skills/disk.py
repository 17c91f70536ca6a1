"""A skill that is a folder on this machine, as the tools see it."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from adk_skills_agent.adk.skills.known import RESOURCE_FOLDERS, SKILL_FILE, KnownSkill, not_found, wanted_tools
from adk_skills_agent.catalog.files import MAX_FOLDERS
from adk_skills_agent.catalog.scopes import Scope
from adk_skills_agent.catalog.untrusted_files import NOT_LISTED
from adk_skills_agent.errors import CatalogError, ResourceNotFound
from adk_skills_agent.sandbox import FolderDigest

if TYPE_CHECKING:
    from adk_skills_agent.catalog import Skill


_FOUND = 256
_Way = tuple[tuple[int, int, int], ...]
"""Device, inode and ctime of a skill's folder, of the folders on the way to one of its files, and of that."""

_TRUE = frozenset({"true", "yes", "on", "1"})


class DiskSkill(KnownSkill):
    """Level 1 to 3 of a folder, read when asked for."""

    def __init__(self, skill: Skill, scope: Scope = Scope.EXPLICIT) -> None:
        self._skill = skill
        self._scope = scope
        self._listing = ListingStamp(str(skill.skill_dir))
        self._folder = str(skill.skill_dir)
        self._found: dict[str, _Way] = {}
        self._version = FolderVersion(str(skill.skill_dir), skill.name, skill.without)

    def __repr__(self) -> str:
        return f"DiskSkill({self.name!r})"

    @property
    def name(self) -> str:
        """The catalog's name."""
        return self._skill.name

    @property
    def description(self) -> str:
        """As of the last look at the file."""
        return self._skill.description

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The author's keys; those of google-adk in its types (the file's scalars are text)."""
        own: dict[str, Any] = dict(self._skill.metadata.metadata)
        inject = own.get("adk_inject_state")
        if isinstance(inject, str):
            own["adk_inject_state"] = inject.strip().lower() in _TRUE
        tools = own.get("adk_additional_tools")
        if isinstance(tools, str):
            own["adk_additional_tools"] = list(wanted_tools(tools))
        return own

    @property
    def allowed_tools(self) -> tuple[str, ...]:
        """The entries of the field."""
        return wanted_tools(self._skill.metadata.allowed_tools)

    @property
    def compatibility(self) -> str | None:
        """As written."""
        return self._skill.metadata.compatibility

    @property
    def in_memory(self) -> bool:
        """Never."""
        return False

    @property
    def scope(self) -> Scope:
        """Where the catalog found it."""
        return self._scope

    def frontmatter(self) -> dict[str, Any]:
        """Level 1, the unknown fields included."""
        level1 = self._skill.metadata
        return {
            "name": self.name,
            "description": level1.description,
            "license": level1.license,
            "compatibility": level1.compatibility,
            "allowed_tools": level1.allowed_tools,
            "metadata": dict(self.metadata),
            **level1.extra,
        }

    def instructions(self) -> str:
        """The body; read again when the file changed (C21)."""
        return self._skill.instructions

    def version(self) -> str:
        """The digest of the whole folder; computed again only when a stamp of a file moved."""
        self._skill.read_bytes(self._skill.location.name, 1)  # refuses a folder that was replaced by a link
        return self._version.now()

    def copy_digest(self, version: str) -> str:
        """The same: the version is what the sandbox's copy counts."""
        return version

    def stamp(self, read: Sequence[str], since: int) -> object | None:
        """By the stamps of the folders, and of the files that are read."""
        return self._listing.now((self._skill.location.name, *read), since)

    def files(self) -> tuple[str, ...]:
        """Every file but the SKILL.md, wherever it lies."""
        return tuple(file.path for file in self._skill.files())

    def find(self, path: str, prefixes: Sequence[str] = RESOURCE_FOLDERS) -> str:
        """As the contract says; links inside the skill are followed."""
        known = self._found.get(path) if not prefixes else None
        if known is not None and known == self._way_to(path):
            return path
        try:
            found = self._skill.find(path, prefixes)
        except ResourceNotFound as error:
            files = self.files()
            if any(suggestion.startswith(f"{path.rstrip('/')}/") for suggestion in error.suggestions):
                raise  # a folder: the catalog's sentence says so
            raise not_found(self.name, path, files, prefixes) from None
        if found == path and not prefixes:
            self._remember(path)
        return found

    def read_bytes(self, path: str, limit: int | None = None) -> bytes:
        """Read now."""
        return self._skill.read_bytes(self._own_name(path), limit)

    def size(self, path: str) -> int:
        """Of the file a link leads to."""
        return self._skill.resolve(self._own_name(path)).stat().st_size

    def local(self) -> Skill:
        """The folder itself."""
        return self._skill

    def _remember(self, path: str) -> None:
        self._found.pop(path, None)
        way = self._way_to(path)
        if way is not None:
            self._found[path] = way
            for oldest in list(self._found)[:-_FOUND]:
                self._found.pop(oldest, None)

    def _way_to(self, path: str) -> _Way | None:
        """Which folders a path leads through and which file it leads to; None when it is no file, or by a link."""
        try:
            here = self._folder
            way = [os.stat(here)]  # noqa: PTH116
            for part in path.split("/"):
                here = f"{here}/{part}"
                way.append(os.lstat(here))
        except OSError:
            return None
        if not stat.S_ISREG(way[-1].st_mode) or any(not stat.S_ISDIR(info.st_mode) for info in way[:-1]):
            return None
        return tuple((info.st_dev, info.st_ino, info.st_ctime_ns) for info in way)

    def _own_name(self, path: str) -> str:
        return self._skill.location.name if path == SKILL_FILE else path


# Whether what a skill shows of its folder may have changed, found without a look at every file.
#
# A list of files changes only with a folder, whose own stamp then moves; so there are as many looks as the skill has
# folders and links, and one for each file whose content is shown.

SETTLED_NS = 2_000_000_000
"""What changed that shortly before it was read may change again and keep its stamp: file systems count in ticks."""

_Mark = tuple[int, int, int, int, int]


class ListingStamp:
    """Of one skill's folder. May be used by several threads.

    Args:
        folder: Absolute path.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._places: tuple[str, ...] = ()
        self._marks: tuple[_Mark | None, ...] = ()

    def now(self, read: Sequence[str], since: int) -> int | None:
        """Equal to the last one while the list of files and the content of some of them are the same.

        Args:
            read: Relative paths of those whose content counts.
            since: When reading them began, by ``time.time_ns()``.

        Returns:
            None when a change may be missed, because something changed just before, or is not there.
        """
        try:
            with self._lock:
                marks = tuple(map(_mark, self._places))
                if not marks or marks != self._marks:
                    self._places = places = tuple(_places(self._folder))
                    self._marks = marks = tuple(map(_mark, places))
                places = self._places
            contents = [_mark(f"{self._folder}/{path}") for path in read]
        except OSError:
            return None
        latest = max((max(mark[3], mark[4]) for mark in (*marks, *contents) if mark is not None), default=0)
        if None in contents or len(places) > MAX_FOLDERS or latest >= since - SETTLED_NS:
            return None
        return hash((places, marks, tuple(contents)))


def _mark(path: str) -> _Mark | None:
    """What moves when a folder's entries or a file's content change; None for a link that leads nowhere."""
    try:
        info = os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        return None
    return (info.st_ino, info.st_mode, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def _places(folder: str) -> Iterator[str]:
    """The folder, the folders below it that are listed, and the links in them."""
    pending = [folder]
    count = 0
    while pending and count <= MAX_FOLDERS:
        here = pending.pop()
        count += 1
        yield here
        try:
            with os.scandir(here) as entries:
                for entry in entries:
                    if entry.is_symlink():
                        count += 1
                        yield entry.path
                    elif entry.is_dir(follow_symlinks=False) and entry.name not in NOT_LISTED:
                        pending.append(entry.path)
        except OSError:
            if here == folder:
                raise


# The digest of everything in a skill's folder, also of what no list shows: a script can read and run all of it.

_TRIES = 3


class FolderVersion:
    """Computes the digest that the sandbox gives its copy of the folder; again only when the stamp of a file moved.

    Hidden files, ``node_modules``, ``.git`` and files too many to list count too. May be used by several threads.

    Args:
        folder: Absolute path.
        name: The skill's name, for sentences.
        without: Folders below it that the sandbox's copy leaves out.
    """

    def __init__(self, folder: str, name: str, without: tuple[str, ...] = ()) -> None:
        self._name = name
        self._digest = FolderDigest(folder, without, settled_ns=SETTLED_NS)

    def now(self) -> str:
        """The sha256 of this moment, in hexadecimal.

        Raises:
            CatalogError: The folder cannot be read, or does not stop changing.
            SandboxError: It holds too much to be run at all.
        """
        try:
            for _ in range(_TRIES):
                if (found := self._digest.look()) is not None:
                    return found.digest
        except OSError as error:
            raise CatalogError(f"Skill '{self._name}' cannot be read: {error.strerror}.") from error
        raise CatalogError(f"Skill '{self._name}' is being changed just now. Try again in a moment.")
