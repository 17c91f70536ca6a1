"""Where a toolset's skills come from: a catalog on disk, google-adk objects, and a google-adk registry."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adk_skills_agent.adk.skills.disk import DiskSkill
from adk_skills_agent.adk.skills.google_objects import from_object, registry_skill
from adk_skills_agent.adk.skills.known import KnownSkill
from adk_skills_agent.adk.skills.memory import MemoryFolders
from adk_skills_agent.catalog.scopes import Scope
from adk_skills_agent.catalog.search import SearchIndex
from adk_skills_agent.catalog.skill import markdown_headings
from adk_skills_agent.errors import SkillNotFound, nearest
from adk_skills_agent.format.models import SkillMetadata

if TYPE_CHECKING:
    import google.adk.skills

    from adk_skills_agent.catalog import CatalogReader

_KEPT_DISK_SKILLS = 256


@dataclass(frozen=True, slots=True)
class FoundSkill:
    """A skill that a search found."""

    name: str
    description: str


class SkillSource:
    """All skills one toolset may use. Local skills win over those of the registry.

    Args:
        catalog: Skills on disk.
        user_catalog: The same with those that only a user may ask for (``disable-model-invocation``, C25).
        objects: Skills in memory.
        registry: google-adk's registry, for skills that are fetched by name.
        hides: Says of a name and its scope whether the model must not know it; hidden skills do not exist here.
        cache_turns: For how many invocations what the registry gave is kept (S2-13).

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
        cache_turns: int = 16,
    ) -> None:
        self._whole = user_catalog if user_catalog is not None else catalog
        # Views, so that the folder of a hidden skill is not shown as a part of the skill it lies in either.
        self.catalog = catalog.view(predicate=self._shows, include_disabled=True) if catalog is not None else None
        self._user_catalog = (
            self._whole.view(predicate=self._shows, include_disabled=True) if self._whole is not None else None
        )
        self.registry = registry
        self.folders = MemoryFolders()
        self._objects: dict[str, KnownSkill] = {}
        for skill in objects:
            if skill.name in self._objects or (catalog is not None and skill.name in catalog):
                raise ValueError(f"Duplicate skill name '{skill.name}'.")
            self._objects[skill.name] = skill if isinstance(skill, KnownSkill) else from_object(skill, self.folders)
        self._rule = hides
        self._visible: tuple[int, list[SkillMetadata]] | None = None
        self._cache_turns = cache_turns
        self._fetched: OrderedDict[str, dict[str, asyncio.Task[KnownSkill | None]]] = OrderedDict()
        self._disk: OrderedDict[str, tuple[object, DiskSkill]] = OrderedDict()
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
            return DiskSkill(self._whole.load_skill(name), self._whole.scope_of(name))
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

    async def get(self, name: str, invocation_id: str | None = None) -> KnownSkill | None:
        """A skill by name: local, else of the registry, which is asked once for each name and invocation.

        Raises:
            Exception: Whatever the registry raises.
        """
        found = self.local(name)
        if found is not None or self.registry is None or self.hides(name):
            return found
        if not isinstance(invocation_id, str):
            return self._allowed(await self._fetch(name))
        turn = self._fetched.setdefault(invocation_id, {})
        while len(self._fetched) > self._cache_turns:
            self._fetched.popitem(last=False)
        task = turn.get(name)
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            task = turn[name] = asyncio.get_running_loop().create_task(self._fetch(name))
        try:
            # Shielded: one cancelled caller must not take the answer away from the others.
            return self._allowed(await asyncio.shield(task))
        except Exception:
            if turn.get(name) is task:
                del turn[name]  # the next call asks again
            raise

    def nearest(self, name: str) -> tuple[str, ...]:
        """The names of local skills most like a wrong one."""
        return nearest(name, self.names())

    async def search(self, query: str, limit: int) -> list[FoundSkill]:
        """The local skills that fit a question best, best first."""
        return await asyncio.to_thread(self._search, query, limit)

    async def refresh_if_due(self) -> None:
        """Look for changes on disk when the last look is old enough."""
        if self.catalog is not None:
            await self.catalog.refresh_if_due()

    def close(self) -> None:
        """Forget what was fetched and remove what was written to disk. May block."""
        fetched, self._fetched = self._fetched, OrderedDict()
        for turn in fetched.values():
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

    def _allowed(self, found: KnownSkill | None) -> KnownSkill | None:
        """A skill of the registry, unless its author's name for it is hidden."""
        return None if found is None or self.hides(str(found.frontmatter().get("name"))) else found

    def _on_disk(self, name: str, catalog: CatalogReader | None) -> DiskSkill | None:
        if catalog is None:
            return None
        try:
            skill = catalog.load_skill(name)
            made_from, known = self._disk.pop(skill.name, (None, None))
            if known is None or made_from is not skill:
                known = DiskSkill(skill, catalog.scope_of(skill.name))
        except SkillNotFound:
            return None
        self._disk[skill.name] = (skill, known)  # kept for the digest it remembers
        if len(self._disk) > _KEPT_DISK_SKILLS:
            self._disk.popitem(last=False)
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
