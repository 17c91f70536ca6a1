"""A ``google.adk.skills.Skill``, as the tools see it."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from adk_skills_agent.adk.skills.known import RESOURCE_FOLDERS, SKILL_FILE, KnownSkill, not_found, wanted_tools
from adk_skills_agent.catalog.files import clean_path, is_readable_name
from adk_skills_agent.catalog.scopes import Scope
from adk_skills_agent.errors import CHANGED, CatalogError, SkillChanged
from adk_skills_agent.format.models import SkillMetadata
from adk_skills_agent.sandbox import temporary_folder

if TYPE_CHECKING:
    import google.adk.skills

    from adk_skills_agent.catalog import Skill


class MemorySkill(KnownSkill):
    """Reads nothing of the object but its name, description, instructions, frontmatter and ``resources.get_*/list_*``.

    ``name`` is what a registry calls it, when that is not the name in its frontmatter.
    """

    def __init__(self, skill: google.adk.skills.Skill, folders: MemoryFolders, name: str | None = None) -> None:
        self.object = skill
        self._folders = folders
        self._name = name

    def __repr__(self) -> str:
        return f"MemorySkill({self.name!r})"

    @property
    def name(self) -> str:
        """Of the frontmatter, unless a registry has another."""
        return self.object.name if self._name is None else self._name

    @property
    def description(self) -> str:
        """Of the frontmatter."""
        return self.object.description

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Of the frontmatter."""
        own = getattr(self.object.frontmatter, "metadata", None)
        return own if isinstance(own, Mapping) else {}

    @property
    def allowed_tools(self) -> tuple[str, ...]:
        """The entries of the field."""
        text = getattr(self.object.frontmatter, "allowed_tools", None)
        return wanted_tools(text) if isinstance(text, str) else ()

    @property
    def compatibility(self) -> str | None:
        """Of the frontmatter."""
        text = getattr(self.object.frontmatter, "compatibility", None)
        return text if isinstance(text, str) else None

    @property
    def in_memory(self) -> bool:
        """Always."""
        return True

    def frontmatter(self) -> dict[str, Any]:
        """The object's own description."""
        return self.object.frontmatter.model_dump()

    def instructions(self) -> str:
        """The object's."""
        return self.object.instructions

    def version(self) -> str:
        """Over frontmatter, instructions and every resource; computed each time, as the object may be changed."""
        level1 = json.dumps(self.frontmatter(), sort_keys=True, default=str)
        digest = hashlib.sha256()
        for path, content in {"": level1.encode(), SKILL_FILE: self.instructions().encode(), **self._content()}.items():
            digest.update(f"{path}\0{len(content)}\0".encode("utf-8", "surrogatepass"))
            digest.update(content)
        return digest.hexdigest()

    def files(self) -> tuple[str, ...]:
        """The paths of its resources that name a file inside a folder."""
        resources = self.object.resources
        listed = [
            f"{folder}/{name}"
            for folder, names in (
                ("references", resources.list_references()),
                ("assets", resources.list_assets()),
                ("scripts", resources.list_scripts()),
            )
            for name in _texts(names)
        ]
        return tuple(sorted(path for path in listed if is_readable_name(path)))

    def find(self, path: str, prefixes: Sequence[str] = RESOURCE_FOLDERS) -> str:
        """As the contract says."""
        cleaned = clean_path(path)
        for candidate in (cleaned, *(f"{prefix}/{cleaned}" for prefix in prefixes)):
            if self._content_of(candidate) is not None:
                return candidate
        files = self.files()
        same_name = [file for file in files if file.rpartition("/")[2] == cleaned] if prefixes else []
        if len(same_name) == 1:
            return same_name[0]
        raise not_found(self.name, path, files, prefixes)

    def has_file(self, path: str) -> bool:
        """In the object."""
        return self._content_of(path) is not None

    def read_bytes(self, path: str, limit: int | None = None) -> bytes:
        """From the object; text as UTF-8."""
        content = self._content_of(path)
        if content is None:
            raise not_found(self.name, path, self.files(), ())
        return content if limit is None else content[:limit]

    def size(self, path: str) -> int:
        """Of the content."""
        return len(self.read_bytes(path))

    def local(self) -> Skill:
        """Written to a private folder, once for each version; google-adk has no exec bits, so none is set."""
        from adk_skills_agent.catalog import Skill

        name = self.name if self._name is None else self._name.replace("/", "-")
        if "/" in name or not is_readable_name(name):
            raise CatalogError(f"The name {self.name[:80]!r} cannot be the name of a folder.")
        files = self._content()
        files[SKILL_FILE] = self._skill_file()
        folder = self._folders.folder(name, self.version(), files)
        # Not read back from the file: the catalog would repair a name that google-adk accepts. Grants go by this one,
        # as rules do: a registry's own (row 356).
        return Skill(SkillMetadata(self.name, self.description, str(folder / SKILL_FILE)))

    def _content(self) -> dict[str, bytes]:
        found = {path: self._content_of(path) for path in self.files()}
        return {path: content for path, content in found.items() if content is not None}

    def _content_of(self, path: str) -> bytes | None:
        if path == SKILL_FILE:
            return self._skill_file()
        folder, _, name = path.partition("/")
        resources = self.object.resources
        content: object = None
        if not name:
            return None
        if folder == "references":
            content = resources.get_reference(name)
        elif folder == "assets":
            content = resources.get_asset(name)
        elif folder == "scripts":
            script = resources.get_script(name)
            content = None if script is None else script.src
        if isinstance(content, str):
            return content.encode("utf-8", "surrogateescape")
        return content if isinstance(content, bytes) else None

    def _skill_file(self) -> bytes:
        level1 = {
            ("allowed-tools" if key == "allowed_tools" else key): value
            for key, value in self.frontmatter().items()
            if value not in (None, {}, [])
        }
        # Through JSON: an object's metadata may hold values that YAML would write as Python tags.
        plain = json.loads(json.dumps(level1, default=str))
        head = yaml.safe_dump(plain, allow_unicode=True, sort_keys=False)
        return f"---\n{head}---\n\n{self.instructions()}".encode("utf-8", "surrogateescape")


def _texts(names: Iterable[object]) -> list[str]:
    return [name for name in names if isinstance(name, str)]


# Skills that exist only in memory, put on the disk once so that they can be mounted and run.


class MemoryFolders:
    """A private folder with one subfolder for each version of a skill; removed by :meth:`close` or with the object.

    May be used by several threads. In a forked child it starts anew: the folders are its parent's.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._root: Path | None = None
        self._pid = os.getpid()
        self._removal: weakref.finalize[..., object] | None = None

    def folder(self, name: str, version: str, files: Mapping[str, bytes]) -> Path:
        """The folder of one version; written at the first call. Raises ``CatalogError`` when it cannot be written."""
        try:
            with self._lock:
                parent = self._own_root() / version[:32]
                final = parent / name
                if not final.is_dir():
                    parent.mkdir(exist_ok=True)
                    part = Path(tempfile.mkdtemp(dir=parent))
                    for path, content in files.items():
                        target = part / path
                        target.parent.mkdir(parents=True, exist_ok=True)
                        target.write_bytes(content)
                    part.rename(final)
                return final
        except OSError as error:
            raise CatalogError(f"The skill {name!r} cannot be written to disk: {error.strerror or error}.") from error

    def close(self) -> None:
        """Remove everything; a later use starts anew."""
        with self._lock:
            removal, self._removal, self._root = self._removal, None, None
        if removal is not None:
            removal()

    def _own_root(self) -> Path:
        if self._pid != os.getpid():
            self._pid, self._root = os.getpid(), None
        if self._root is None or not self._root.is_dir():
            self._root, self._removal = temporary_folder("memory", self)
        return self._root


# A skill with other instructions than its file has: what google-adk's optimizer tries out.


class EditedSkill(KnownSkill):
    """Everything but the body is the other skill's."""

    def __init__(self, original: KnownSkill, instructions: str) -> None:
        self._original = original
        self._instructions = instructions

    @property
    def name(self) -> str:
        """The original's."""
        return self._original.name

    @property
    def description(self) -> str:
        """The original's."""
        return self._original.description

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The original's."""
        return self._original.metadata

    @property
    def allowed_tools(self) -> tuple[str, ...]:
        """The original's."""
        return self._original.allowed_tools

    @property
    def compatibility(self) -> str | None:
        """The original's."""
        return self._original.compatibility

    @property
    def in_memory(self) -> bool:
        """As the original."""
        return self._original.in_memory

    @property
    def scope(self) -> Scope:
        """The original's."""
        return self._original.scope

    def frontmatter(self) -> dict[str, Any]:
        """The original's."""
        return self._original.frontmatter()

    def instructions(self) -> str:
        """The other body."""
        return self._instructions

    def version(self) -> str:
        """Another version than the original's: what was approved of that one is not approved of this."""
        return self._version_over(self._original.version())

    def _version_over(self, original: str) -> str:
        text = f"{original}\0{self._instructions}"
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def copy_digest(self, version: str) -> str:
        """The original's, whose folder it is."""
        original = self._original.version()
        if self._version_over(original) != version:
            raise SkillChanged(CHANGED)
        return self._original.copy_digest(original)

    def files(self) -> tuple[str, ...]:
        """The original's."""
        return self._original.files()

    def all_files(self) -> tuple[str, ...] | None:
        """The original's."""
        return self._original.all_files()

    def find(self, path: str, prefixes: Sequence[str] = RESOURCE_FOLDERS) -> str:
        """In the original."""
        return self._original.find(path, prefixes)

    def has_file(self, path: str) -> bool:
        """In the original."""
        return self._original.has_file(path)

    def read_bytes(self, path: str, limit: int | None = None) -> bytes:
        """From the original."""
        return self._original.read_bytes(path, limit)

    def size(self, path: str) -> int:
        """Of the original."""
        return self._original.size(path)

    def local(self) -> Skill:
        """The original's folder; its scripts are the same."""
        return self._original.local()
