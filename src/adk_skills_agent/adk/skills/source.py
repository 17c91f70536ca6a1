"""Where a toolset's skills come from: a catalog on disk, google-adk objects, and a google-adk registry."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adk_skills_agent.adk.skills.google_objects import from_object, registry_skill
from adk_skills_agent.adk.skills.known import RESOURCE_FOLDERS, SKILL_FILE, KnownSkill, not_found, wanted_tools
from adk_skills_agent.adk.skills.memory import MemoryFolders
from adk_skills_agent.catalog.files import MAX_FOLDERS
from adk_skills_agent.catalog.scopes import Scope
from adk_skills_agent.catalog.search import SearchIndex
from adk_skills_agent.catalog.skill import markdown_headings
from adk_skills_agent.catalog.untrusted_files import NOT_LISTED, is_inside, real_path
from adk_skills_agent.errors import CatalogError, ConfigError, ResourceNotFound, SkillNotFound, nearest
from adk_skills_agent.format.models import Diagnostic, Severity, SkillMetadata
from adk_skills_agent.recent import Recent
from adk_skills_agent.sandbox import FolderDigest, in_worker

if TYPE_CHECKING:
    import google.adk.skills

    from adk_skills_agent.catalog import CatalogReader, Skill
    from adk_skills_agent.sources.integrity import IntegrityCheck

logger = logging.getLogger(__name__)

_MOST_NAMES = 200_000
_FOUND = 256
_Way = tuple[tuple[int, int, int], ...]
"""Device, inode and ctime of a skill's folder, of the folders on the way to one of its files, and of that."""

_TRUE = frozenset({"true", "yes", "on", "1"})


class DiskSkill(KnownSkill):
    """Level 1 to 3 of a folder, read when asked for."""

    def __init__(
        self,
        skill: Skill,
        scope: Scope = Scope.EXPLICIT,
        integrity: IntegrityCheck | None = None,
        *,
        without_tools: bool = False,
    ) -> None:
        self._skill = skill
        self._without_tools: bool | None = without_tools or None  # None: the lock has not been asked
        self._integrity = integrity
        self._scope = scope
        self._listing = ListingStamp(str(skill.skill_dir))
        self._folder = str(skill.skill_dir)
        self._found: dict[str, _Way] = {}
        self._everything = ListingStamp(self._folder, listed=False)
        self._all_files: tuple[int, tuple[str, ...] | None] | None = None
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
        """The entries of the field; none for a skill of an MCP server, also an installed one."""
        asked = wanted_tools(self._skill.metadata.allowed_tools)
        if asked and self._without_tools is None:
            self._without_tools = _is_of_mcp(self._skill.skill_dir)
        return () if self._without_tools else asked

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
            "allowed_tools": level1.allowed_tools if self.allowed_tools else None,
            "metadata": dict(self.metadata),
            **level1.extra,
        }

    def instructions(self) -> str:
        """The body; read again when the file changed (C21).

        Raises ``IntegrityError`` when it is pinned and not what its lock says, as for every read of its files.
        """
        self._check()
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

    def all_files(self) -> tuple[str, ...] | None:
        """As the contract says; gone through again only when a folder changed."""
        stamp = self._everything.now((), time.time_ns())
        known = self._all_files
        if known is not None and known[0] == stamp:
            return known[1]
        found = _everything_in(self._folder, self._skill.without)
        if found is not None:
            found = tuple(path for path in found if path != self._skill.location.name)
        self._all_files = None if stamp is None else (stamp, found)
        return found

    def has_file(self, path: str) -> bool:
        """In its folder; a path that is not there costs one look."""
        return os.path.lexists(f"{self._folder}/{path}") and self._skill.has_file(path)

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
        self._check()
        return self._skill.read_bytes(self._own_name(path), limit)

    def size(self, path: str) -> int:
        """Of the file a link leads to."""
        return self._skill.resolve(self._own_name(path)).stat().st_size

    def local(self) -> Skill:
        """The folder itself."""
        self._check()
        return self._skill

    def pinned(self) -> str:
        """The version that its lock names, where ``integrity="require"`` was asked for."""
        return self._check()

    def _check(self) -> str:
        if self._integrity is None:
            return ""
        return self._integrity.check(self.name, self._skill.skill_dir, self._version.now)

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
"""Nanoseconds: a file that changed so shortly before it was read may change again and keep its stamp."""

_MOST_ENTRIES = 20_000
"""Of a skill, with those by links; a sandbox copies no more."""

_Mark = tuple[int, int, int, int, int]


class ListingStamp:
    """Of one skill's folder; with ``listed`` False of the folders, too, that no list shows. For several threads."""

    def __init__(self, folder: str, *, listed: bool = True) -> None:
        self._folder = folder
        self._passed_over = NOT_LISTED if listed else frozenset()
        self._lock = threading.Lock()
        self._places: tuple[str, ...] = ()
        self._marks: tuple[_Mark | None, ...] = ()

    def now(self, read: Sequence[str], since: int) -> int | None:
        """Equal to the last one while the list of files and the content of some of them are the same.

        ``since`` is when reading them began, by ``time.time_ns()``. Returns None when a change may be missed, because
        something changed just before, or is not there.
        """
        try:
            with self._lock:
                marks = tuple(map(_mark, self._places))
                if not marks or marks != self._marks:
                    self._places = places = tuple(_places(self._folder, self._passed_over))
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
    """A stamp that changes with a folder's entries or a file's content; None for a broken link."""
    try:
        info = os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        return None
    return (info.st_ino, info.st_mode, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def _places(folder: str, passed_over: Collection[str]) -> Iterator[str]:
    """The folder, the folders below it but for some names, and the links in them."""
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
                    elif entry.is_dir(follow_symlinks=False) and entry.name not in passed_over:
                        pending.append(entry.path)
        except OSError:
            if here == folder:
                raise


def _everything_in(folder: str, without: Collection[str]) -> tuple[str, ...] | None:
    """The path of every file below a folder, also by links to folders; None when they are too many or have no end.

    It has to see what a sandbox shows, whose copy of a skill leaves nothing out that can be run (row 348).
    """
    real = real_path(folder)
    files: list[str] = []
    count = 0
    # The path as a command has it, the folder without links, and the folders whose links led there.
    pending: list[tuple[str, str, tuple[str, ...]]] = [("", real, ())]
    while pending:
        path, here, led = pending.pop()
        try:
            with os.scandir(here) as entries:
                for entry in entries:
                    count += 1
                    if count > _MOST_ENTRIES:
                        return None
                    name, target = path + entry.name, entry.path
                    through = led
                    if entry.is_symlink():
                        target, through = real_path(target), (*led, here)
                    if not is_inside(target, real) or _is_left_out(target[len(real) + 1 :], without):
                        continue
                    if not (entry.is_dir(follow_symlinks=False) if through is led else os.path.isdir(target)):  # noqa: PTH112
                        files.append(name)
                    elif through is not led and any(is_inside(one, target) for one in through):
                        return None  # it leads back
                    else:
                        pending.append((f"{name}/", target, through))
        except PermissionError:
            continue  # nor can it be copied
        except OSError:
            return None
    return tuple(sorted(files))


def _is_left_out(path: str, without: Collection[str]) -> bool:
    return any(is_inside(path, one) for one in without)


# The digest of everything in a skill's folder, also of what no list shows: a script can read and run all of it.

_TRIES = 3


class FolderVersion:
    """Computes the digest that the sandbox gives its copy of the folder; again only when the stamp of a file moved.

    Hidden files, ``node_modules``, ``.git`` and files too many to list count too. May be used by several threads.
    """

    def __init__(self, folder: str, name: str, without: tuple[str, ...] = ()) -> None:
        self._name = name
        self._digest = FolderDigest(folder, without, settled_ns=SETTLED_NS)

    def now(self) -> str:
        """The sha256 of this moment, in hexadecimal.

        Raises ``CatalogError`` when the folder cannot be read, or does not stop changing, or ``SandboxError`` when it
        holds too much to be run at all.
        """
        try:
            for _ in range(_TRIES):
                if (found := self._digest.look()) is not None:
                    return found.digest
        except OSError as error:
            raise CatalogError(f"Skill '{self._name}' cannot be read: {error.strerror}.") from error
        raise CatalogError(f"Skill '{self._name}' is being changed just now. Try again in a moment.")


_KEPT_DISK_SKILLS = 256


@dataclass(frozen=True, slots=True)
class FoundSkill:
    """A skill that a search found."""

    name: str
    description: str


def _is_of_mcp(folder: Path) -> bool:
    """Whether a lock says that the skill in a folder was installed from an MCP server."""
    from adk_skills_agent.sources.integrity import locked_skill_at
    from adk_skills_agent.sources.origin import OriginKind

    try:
        found = locked_skill_at(folder)
    except ConfigError:
        return True  # a lock that cannot be read gives nobody tools
    return found is not None and found[0].origin.kind is OriginKind.MCP


class SkillSource:
    """All skills one toolset may use. Local skills win over those of the registry.

    Args:
        catalog: Skills on disk.
        user_catalog: The same with those that only a user may ask for (``disable-model-invocation``, C25).
        objects: Skills in memory.
        registry: google-adk's registry, for skills that are fetched by name.
        hides: Says of a name and its scope whether the model must not know it; hidden skills do not exist here.
        named_by: Say whether a grant or a rule names a skill, which is hidden while a source before it may have it.
        apart: Says of two names and their scopes whether the second, in the folder of the first, is no part of it.
        cache_turns: For how many invocations what the registry gave is kept (S2-13).
        integrity: Compares pinned skills with their locks; None for nobody.

    Raises:
        ValueError: Two of the local skills have the same name (S0-18).
    """

    def __init__(
        self,
        catalog: CatalogReader | None = None,
        objects: Iterable[google.adk.skills.Skill | KnownSkill] = (),
        registry: google.adk.skills.SkillRegistry | None = None,
        *,
        user_catalog: CatalogReader | None = None,
        hides: Callable[[str, Scope], bool] = lambda _name, _scope: False,
        named_by: Sequence[Callable[[str], bool]] = (),
        apart: Callable[[tuple[str, Scope], tuple[str, Scope]], bool] | None = None,
        cache_turns: int = 16,
        integrity: IntegrityCheck | None = None,
    ) -> None:
        self.integrity = integrity
        self._whole = user_catalog if user_catalog is not None else catalog
        # Views, so that the folder of a hidden skill is not shown as a part of the skill it lies in either.
        self._keeps_apart = apart
        self.catalog, self._user_catalog = (
            one.view(predicate=self._shows, include_disabled=True, apart=self._is_apart if apart else None)
            if one is not None
            else None
            for one in (catalog, self._whole)
        )
        self.registry = registry
        self.folders = MemoryFolders()
        self._objects: dict[str, KnownSkill] = {}
        for skill in objects:
            if skill.name in self._objects or (catalog is not None and skill.name in catalog):
                raise ValueError(f"Duplicate skill name '{skill.name}'.")
            self._objects[skill.name] = skill if isinstance(skill, KnownSkill) else from_object(skill, self.folders)
        self._hides, self._named_by = hides, named_by
        self._told: set[str] = set()
        self._had: set[str] = set()  # local names: none becomes that of the registry (row 485)
        self._visible: tuple[int, list[SkillMetadata]] | None = None
        self._fetched: Recent[str, dict[str, asyncio.Task[KnownSkill | None]]] = Recent(cache_turns)
        # Bounded by hand: Recent would be one more file that each call passes.
        self._disk: dict[str, tuple[object, DiskSkill]] = {}
        self._index: SearchIndex | None = None

    def __iter__(self) -> Iterator[str]:
        """The names of the local skills."""
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.list_metadata())

    @property
    def version(self) -> int:
        """Grows with every change of the catalog; objects do not change."""
        return self.catalog.version if self.catalog is not None else 0

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The diagnostics of the skills on disk, hidden ones included: for the owner, never for a model."""
        if self._whole is None:
            return ()
        awaited = ((name, self._whole.unanswered(name)) for name in sorted(self._told))
        hidden = [Diagnostic("name-awaited", Severity.WARNING, _awaited(*one)) for one in awaited if one[1]]
        return (*self._whole.diagnostics, *hidden)

    def names(self) -> list[str]:
        """The names of the local skills that are not hidden, those of the catalog first (C31)."""
        return [item.name for item in self.list_metadata()]

    def all_names(self) -> list[str]:
        """The names of all local skills, hidden ones too: for the owner, never for a model."""
        disk = [item.name for item in self._whole.list_metadata()] if self._whole is not None else []
        return [*disk, *self._objects]

    def list_metadata(self) -> list[SkillMetadata]:
        """Level 1 of the local skills that are not hidden; made again only when the catalog changed."""
        version = self.version
        if self._visible is None or self._visible[0] != version:
            disk = self.catalog.list_metadata() if self.catalog is not None else []
            memory = [SkillMetadata(skill.name, skill.description) for skill in self._objects.values()]
            if self.registry is not None and len(self._had) < _MOST_NAMES:
                self._had.update(item.name for item in disk)
            self._visible = (version, [*disk, *(item for item in memory if not self.hides(item.name))])
        return self._visible[1]

    def local(self, name: str) -> KnownSkill | None:
        """A local skill that the model may know, or None; a spelling of a catalog's name is taken too."""
        return self._shown(self._objects.get(name) or self._on_disk(name, self.catalog))

    def for_user(self, name: str) -> KnownSkill | None:
        """A local skill that a user may ask for by name, or None."""
        return self._shown(self._objects.get(name) or self._on_disk(name, self._user_catalog))

    def owned(self, name: str) -> KnownSkill | None:
        """A local skill, hidden or not: for the owner, never for a model. From any thread."""
        found = self._objects.get(name)
        if found is not None or self._whole is None:
            return found
        try:
            skill, without = self._whole.load_skill(name), self._whole.ignores_allowed_tools(name)
            return DiskSkill(skill, self._whole.scope_of(name), self.integrity, without_tools=without)
        except SkillNotFound:
            return None

    def names_for_user(self) -> list[str]:
        """The names that :meth:`for_user` knows, sorted (C31)."""
        disk = list(self._user_catalog) if self._user_catalog is not None else []
        return sorted([*disk, *(name for name in self._objects if not self.hides(name))])

    def _shown(self, found: KnownSkill | None) -> KnownSkill | None:
        return None if found is None or self._rule(found.name, found.scope) else found

    def listed(self) -> list[KnownSkill]:
        """The local skills that are not hidden."""
        return [skill for skill in map(self.local, self.names()) if skill is not None]

    @property
    def fetches(self) -> bool:
        """Whether there are skills whose files are not known yet: of a registry, or of a source of the catalog."""
        return self.registry is not None or (self.catalog is not None and self.catalog.has_sources)

    async def fetch(self, name: str) -> None:
        """Have the files of a local skill here, where a source of the catalog has to give them.

        Raises:
            RegistryError: It does not.
        """
        if self.catalog is not None and self.catalog.has_sources:
            await self.catalog.fetch(name)

    async def get(self, name: str, invocation_id: str | None = None) -> KnownSkill | None:
        """A skill by name: local, else of the registry, which is asked once for each name and invocation.

        Raises:
            Exception: Whatever the registry raises.
        """
        await self.fetch(name)
        found = self.local(name)
        if found is not None or self.registry is None or self.hides(name):
            return found
        if not isinstance(invocation_id, str):
            return self._allowed(name, await self._fetch(name))
        turn = self._fetched.get(invocation_id)
        if turn is None:
            turn = self._fetched[invocation_id] = {}
        task = turn.get(name)
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            task = turn[name] = asyncio.get_running_loop().create_task(self._fetch(name))
        try:
            # Shielded: one cancelled caller must not take the answer away from the others.
            return self._allowed(name, await asyncio.shield(task))
        except Exception:
            if turn.get(name) is task:
                del turn[name]  # the next call asks again
            raise

    def nearest(self, name: str) -> tuple[str, ...]:
        """The names of local skills most like a wrong one."""
        return nearest(name, self.names())

    async def search(self, query: str, limit: int) -> list[FoundSkill]:
        """The local skills that fit a question best, best first."""
        return await in_worker(self._search, query, limit)

    async def refresh_if_due(self) -> None:
        """Look for changes on disk when the last look is old enough."""
        if self.catalog is not None:
            await self.catalog.refresh_if_due()

    def close(self) -> None:
        """Forget what was fetched and remove what was written to disk. May block."""
        turns = list(self._fetched.values())
        self._fetched.clear()
        for turn in turns:
            for task in turn.values():
                if not task.done() and not task.get_loop().is_closed():
                    task.get_loop().call_soon_threadsafe(task.cancel)
        self.folders.close()

    def _shows(self, metadata: SkillMetadata) -> bool:
        """Whether a skill of the catalog is not hidden."""
        try:
            scope = self._whole.scope_of(metadata.name) if self._whole is not None else Scope.EXPLICIT
        except SkillNotFound:  # it went while this was asked
            return False
        return not self._rule(metadata.name, scope)

    def _is_apart(self, outer: SkillMetadata, inner: SkillMetadata) -> bool:
        assert self._whole is not None  # noqa: S101  # of whose views this is asked
        assert self._keeps_apart is not None  # noqa: S101
        try:
            both = [(one.name, self._whole.scope_of(one.name)) for one in (outer, inner)]
        except SkillNotFound:  # it went while this was asked
            return True
        return self._keeps_apart(*both)

    def _rule(self, name: str, scope: Scope) -> bool:
        """Whether a skill is hidden, by a rule, or because it is not known yet whose name that is (row 485)."""
        if self._hides(name, scope):
            return True
        source = self._whole.unanswered(name) if self._whole is not None and name not in self._objects else ""
        if not source or not self._is_named(name):
            return False
        if name not in self._told:
            self._told.add(name)
            logger.warning("%s", _awaited(name, source))
        return True

    def _is_named(self, name: str) -> bool:
        """Whether grants or rules go by a name."""
        return any(named(name) for named in self._named_by)

    def hides(self, name: str) -> bool:
        """Whether the model must not know a name, of a local skill or of one that only the registry has."""
        scope = Scope.EXPLICIT
        if self._whole is not None and name not in self._objects:
            try:
                scope = self._whole.scope_of(name)
            except SkillNotFound:
                pass
        return self._rule(name, scope)

    async def _fetch(self, name: str) -> KnownSkill | None:
        assert self.registry is not None  # noqa: S101 - the caller looked
        return registry_skill(await self.registry.get_skill(name=name), name, self.folders)

    def _allowed(self, asked: str, found: KnownSkill | None) -> KnownSkill | None:
        """A skill of the registry, unless its author's name for it is hidden, or has rules that another id evades."""
        own = found.frontmatter().get("name") if found is not None else None
        if found is None or self.hides(str(own)):
            return None
        if any(name in self._had and self._is_named(name) for name in (asked, str(own))):
            logger.warning("the registry's skill %r is refused: grants or rules are for the local one", asked)
            return None
        names = [(name, Scope.EXPLICIT) for name in (asked, str(own))]
        if own is not None and own != asked and self._keeps_apart is not None and self._keeps_apart(*names):
            logger.warning("the registry's skill %r is refused: it is %r, for which stricter rules hold", asked, own)
            return None
        return found

    def _on_disk(self, name: str, catalog: CatalogReader | None) -> DiskSkill | None:
        if catalog is None:
            return None
        try:
            skill = catalog.load_skill(name, fetch=False)
            made_from, known = self._disk.pop(skill.name, (None, None))
            if known is None or made_from is not skill:
                without = catalog.ignores_allowed_tools(skill.name)
                known = DiskSkill(skill, catalog.scope_of(skill.name), self.integrity, without_tools=without)
        except SkillNotFound:
            return None
        self._disk[skill.name] = (skill, known)  # kept for the digest it remembers
        if len(self._disk) > _KEPT_DISK_SKILLS:
            self._disk.pop(next(iter(self._disk)), None)
        return known

    def _headings(self, item: SkillMetadata) -> str:
        return markdown_headings(self._objects[item.name].instructions())

    def _search(self, query: str, limit: int) -> list[FoundSkill]:
        found: list[FoundSkill] = []
        if self._objects:
            if self._index is None:
                items = [SkillMetadata(skill.name, skill.description) for skill in self._objects.values()]
                self._index = SearchIndex(items, self._headings)
            hits = self._index.search(query, limit, keep=lambda name: not self.hides(name))
            found += [FoundSkill(hit.name, hit.description) for hit in hits]
        if self.catalog is not None:
            # Hidden ones are left out below, so some more are asked for.
            hits = [hit for hit in self.catalog.search(query, limit * 2) if not self.hides(hit.name)]
            found += [FoundSkill(hit.name, hit.description) for hit in hits]
        return found[:limit]


def _awaited(name: str, source: str) -> str:
    return (
        f"The skill {name!r} is hidden until the source {source!r} answers, which goes first: grants or rules go by "
        "its name. To have it without that, give its own source a higher priority (add_source(priority=...))."
    )
