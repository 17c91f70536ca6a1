"""A skill that is a folder on this machine, as the tools see it."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from adk_skills_agent.adk.folder_version import FolderVersion
from adk_skills_agent.adk.known_skill import RESOURCE_FOLDERS, SKILL_FILE, KnownSkill, not_found, wanted_tools
from adk_skills_agent.adk.listing_stamp import ListingStamp
from adk_skills_agent.catalog.scopes import Scope
from adk_skills_agent.errors import ResourceNotFound

if TYPE_CHECKING:
    from adk_skills_agent.catalog import Skill

_FOUND = 256
_Way = tuple[tuple[int, int, int], ...]
"""Device, inode and ctime of a skill's folder, of the folders on the way to one of its files, and of that."""

_TRUE = frozenset({"true", "yes", "on", "1"})


class DiskSkill(KnownSkill):
    """Level 1 to 3 of a folder, read when asked for.

    Args:
        skill: The catalog's skill.
        scope: Where the catalog found it.
    """

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
