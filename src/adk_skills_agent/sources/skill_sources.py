"""The sources that ship: folders, anything ``adk-skills add`` takes, and any file system that fsspec knows.

A source of your own is a class with two methods; see :class:`~adk_skills_agent.catalog.skill_source.SkillSource`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from adk_skills_agent.catalog.skill_source import MAX_BYTES, MAX_SKILLS, FirstNames, SkillSource
from adk_skills_agent.errors import (
    ConfigError,
    InvalidResourcePath,
    RegistryError,
    ResourceNotFound,
    SkillNotFound,
    nearest,
)
from adk_skills_agent.format import MAX_SKILL_BYTES
from adk_skills_agent.format.models import SkillMetadata
from adk_skills_agent.installation import install_hint
from adk_skills_agent.sources.fetch import fetch_skills
from adk_skills_agent.sources.git import newest_commit
from adk_skills_agent.sources.origin import Origin, OriginKind, read_origin
from adk_skills_agent.sources.tree import SKIPPED, SkillTree, read_tree, skill_folders

logger = logging.getLogger(__name__)

_Stored: TypeAlias = tuple[str, int | None]
"""A file's path in its file system, and the size that this tells."""
_LISTED_BYTES = 256 << 10
"""Of a SKILL.md, to list it: its frontmatter must end within 64 Ki characters."""


class TreeSource(SkillSource):
    """Skills whose files are all at hand: given as trees, or by a function that gets them when they are listed.

    ``trees`` are by name; a function that returns them may block and is called in a thread.
    """

    def __init__(self, trees: Mapping[str, SkillTree] | Callable[[], Mapping[str, SkillTree]]) -> None:
        self._get = trees if callable(trees) else lambda: trees
        self._trees: Mapping[str, SkillTree] | None = None

    async def list_metadata(self) -> Sequence[SkillMetadata]:
        """Level 1 of every tree."""
        trees = await asyncio.to_thread(self._get)
        self._trees = trees
        return [tree.parsed(name).metadata for name, tree in trees.items()]

    async def list_files(self, name: str) -> Sequence[str]:
        """All its files."""
        return list((await self._tree(name)).files)

    async def read_file(self, name: str, path: str) -> bytes:
        """From memory."""
        tree = await self._tree(name)
        if path not in tree.files:
            raise ResourceNotFound(f"Skill {name!r} has no file {path!r}.", nearest(path, tree.files))
        return tree.files[path].data

    async def _tree(self, name: str) -> SkillTree:
        if self._trees is None:
            await self.list_metadata()
        trees = self._trees or {}
        if name not in trees:
            raise SkillNotFound(f"There is no skill {name!r}.", nearest(name, trees))
        return trees[name]


class FolderSource(SkillSource):
    """The skills below a folder of this machine, read when they are asked for.

    Args:
        folder: Holds folders with a SKILL.md, at any depth.
    """

    def __init__(self, folder: Path | str) -> None:
        self._root = Path(folder)
        self._places: dict[str, Path] = {}

    async def list_metadata(self) -> Sequence[SkillMetadata]:
        """Level 1 of every skill below the folder."""
        found = await asyncio.to_thread(self._scan)
        self._places = {metadata.name: place for metadata, place in found}
        return [metadata for metadata, _ in found]

    async def list_files(self, name: str) -> Sequence[str]:
        """All its files."""
        return list((await asyncio.to_thread(self._read, await self._place(name))).files)

    async def read_file(self, name: str, path: str) -> bytes:
        """Read now."""
        from adk_skills_agent.catalog.files import clean_path, locate, read_inside
        from adk_skills_agent.catalog.untrusted_files import real_path

        place = await self._place(name)

        def read() -> bytes:
            real = real_path(str(place))
            found = locate(real, clean_path(path))
            if found is None:
                raise ResourceNotFound(f"Skill {name!r} has no file {path!r}.", nearest(path, self._read(place).files))
            return read_inside(real, found, None)

        return await asyncio.to_thread(read)

    async def _place(self, name: str) -> Path:
        if name not in self._places:
            await self.list_metadata()
        if name not in self._places:
            raise SkillNotFound(f"There is no skill {name!r}.", nearest(name, self._places))
        return self._places[name]

    def _scan(self) -> list[tuple[SkillMetadata, Path]]:
        from adk_skills_agent.catalog import RegistryConfig, SkillsRegistry

        registry = SkillsRegistry(RegistryConfig(cache=False))
        registry.discover([self._root])
        return [(metadata, Path(metadata.file or "").parent) for metadata in registry.list_metadata()]

    def _read(self, place: Path) -> SkillTree:
        return read_tree(place, f"The skill {place.name!r}")


class OriginSource(SkillSource):
    """The skills of whatever ``adk-skills add`` takes: git, an archive, a web site, a package, an MCP server.

    They are fetched whole when they are listed; a repository only when its branch has a newer commit.

    Args:
        source: ``owner/repo``, a URL, a path; see :func:`~adk_skills_agent.sources.read_origin`.
        names: Which skills; None for all.
        ref: Branch, tag or commit. A commit never changes.
        allow_private: Whether a web server may lead into a private network.

    Raises:
        ConfigError: It is no source.
    """

    def __init__(
        self,
        source: str | Origin,
        names: Sequence[str] | None = None,
        *,
        ref: str | None = None,
        allow_private: bool = False,
    ) -> None:
        self.origin = source if isinstance(source, Origin) else read_origin(source, ref=ref)
        self.ignores_allowed_tools = self.origin.kind is OriginKind.MCP
        self._names, self._private = names, allow_private
        self._commit = ""
        self._inner = TreeSource(self._fetched)

    def cache_key(self) -> str:
        """The place and the names; for a server, also who asks it."""
        token = os.environ.get("ADK_SKILLS_MCP_TOKEN", "") if self.origin.kind is OriginKind.MCP else ""
        return f"{self.origin} {self._names} {token}"

    async def refresh(self) -> bool:
        """Whether a repository has a newer commit; True for other places."""
        if self.origin.kind is not OriginKind.GIT or not self._commit:
            return True
        return await asyncio.to_thread(newest_commit, self.origin.location, self.origin.ref) != self._commit

    async def list_metadata(self) -> Sequence[SkillMetadata]:
        """Fetches the skills."""
        return await self._inner.list_metadata()

    async def list_files(self, name: str) -> Sequence[str]:
        """Of what was fetched."""
        return await self._inner.list_files(name)

    async def read_file(self, name: str, path: str) -> bytes:
        """Of what was fetched."""
        return await self._inner.read_file(name, path)

    def _fetched(self) -> Mapping[str, SkillTree]:
        skills = fetch_skills(
            self.origin, self._names or (), everything=self._names is None, allow_private=self._private
        )
        self._commit = skills[0].commit if skills else ""
        return {skill.name: skill.tree for skill in skills}


class FsspecSource(SkillSource):
    """The skills below a URL of any file system of fsspec: ``s3://``, ``gs://``, ``memory://``, ``github://``.

    Args:
        url: The folder that holds folders with a SKILL.md.
        options: For the file system: credentials, endpoints.

    Raises:
        ConfigError: fsspec, or what it needs for such URLs, is not installed; or it is a web server, of which fsspec
            reads whatever it sends (row 482).
    """

    def __init__(self, url: str, **options: Any) -> None:
        if re.match(r"(?:[\w+]+::)*https?://", url):
            raise ConfigError(f"{url.partition('://')[0]}:// is no file system. Use OriginSource for a web site.")
        try:
            import fsspec
        except ImportError as error:
            raise ConfigError(f"FsspecSource needs fsspec. Install it: {install_hint('fsspec')}.") from error
        try:
            self._fs, self._root = fsspec.core.url_to_fs(url, **options)
        except (ImportError, ValueError) as error:
            raise ConfigError(f"{url.partition('://')[0]}:// cannot be used: {error}") from error
        self._key = f"{url} {sorted(options.items(), key=str)}"
        self._files: dict[str, dict[str, _Stored]] = {}
        self._names = FirstNames()
        self._seen: object = None

    def cache_key(self) -> str:
        """The URL and the options."""
        return self._key

    async def refresh(self) -> bool:
        """Whether names, sizes or times of files changed."""
        seen = await asyncio.to_thread(self._look)
        changed, self._seen = seen != self._seen, seen
        return changed

    async def list_metadata(self) -> Sequence[SkillMetadata]:
        """Level 1 of every skill; reads each SKILL.md."""
        return await asyncio.to_thread(self._list)

    async def list_files(self, name: str) -> Sequence[str]:
        """All its files."""
        return list(await self._known(name))

    async def read_file(self, name: str, path: str) -> bytes:
        """Read now."""
        files = await self._known(name)
        if path not in files:
            if ".." in path.split("/") or path.startswith("/"):
                raise InvalidResourcePath(f"The path {path!r} leaves the skill.")
            raise ResourceNotFound(f"Skill {name!r} has no file {path!r}.", nearest(path, files))
        most = MAX_SKILL_BYTES if path == "SKILL.md" else MAX_BYTES
        size = files[path][1] or 0
        if size <= most:  # else it is not asked for: some file systems fetch a file whole to read its beginning
            data = await asyncio.to_thread(self._beginning, files[path], most + 1)
            size = len(data)
        if size > most:
            raise RegistryError(f"Skill {name!r} has more than {most >> 20} MiB in {path!r}.")
        return data

    async def _known(self, name: str) -> Mapping[str, _Stored]:
        if name not in self._files:
            await self.list_metadata()
        if name not in self._files:
            raise SkillNotFound(f"There is no skill {name!r}.", nearest(name, self._files))
        return self._files[name]

    def _look(self) -> object:
        self._fs.invalidate_cache()
        found = self._fs.find(self._root, detail=True)
        return {
            path: (info.get("size"), str(info.get("mtime") or info.get("LastModified") or info.get("created")))
            for path, info in found.items()
        }

    def _beginning(self, stored: _Stored, most: int) -> bytes:
        path, size = stored
        if size == 0:  # a range of an empty object is an error
            return b""
        return bytes(self._fs.cat_file(path, start=0, end=most if size is None else min(size, most)))

    def _list(self) -> list[SkillMetadata]:
        from adk_skills_agent.format import parse_text

        root = self._root.rstrip("/")
        found = self._fs.find(root, detail=True)
        below: dict[str, _Stored] = {
            path[len(root) :].strip("/"): (path, info.get("size")) for path, info in found.items()
        }
        found_in: dict[str, tuple[SkillMetadata, dict[str, _Stored]]] = {}
        left = MAX_BYTES
        for folder in skill_folders(below)[: MAX_SKILLS + 1]:  # the registry says that there are more
            prefix = f"{folder}/" if folder else ""
            inside = {
                path[len(prefix) :]: stored
                for path, stored in below.items()
                if path.startswith(prefix) and SKIPPED.isdisjoint(path.split("/"))
            }
            skill_file = next(name for name in ("SKILL.md", "skill.md") if name in inside)
            if (inside[skill_file][1] or 0) > MAX_SKILL_BYTES:
                logger.warning("%s has more than %d bytes and is left out.", inside[skill_file][0], MAX_SKILL_BYTES)
                continue
            text = self._beginning(inside[skill_file], _LISTED_BYTES).decode("utf-8", "replace")
            parsed = parse_text(text, folder_name=folder.rpartition("/")[2] or "skill")
            left -= len(text) - len(parsed.body)
            if left < 0:  # all that is listed is kept
                raise RegistryError(f"The frontmatters of its skills have more than {MAX_BYTES >> 20} MiB together.")
            inside["SKILL.md"] = inside.pop(skill_file)
            found_in[folder] = parsed.metadata, inside
        files: dict[str, dict[str, _Stored]] = {}
        places = self._names.places({folder: metadata.name for folder, (metadata, _) in found_in.items()})
        for metadata, inside in map(found_in.__getitem__, places):
            files.setdefault(metadata.name, inside)
        self._files = files
        return [found_in[folder][0] for folder in places]
