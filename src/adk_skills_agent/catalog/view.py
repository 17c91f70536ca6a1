"""What can be asked of a catalog, and a part of one for an agent: what that may not see does not exist for it.

The registry and a view of it answer the same questions (S4-10, S4-15, S4-16, C25, C26).
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import translate
from typing import TYPE_CHECKING

from adk_skills_agent.catalog.index import IndexedSkill
from adk_skills_agent.catalog.untrusted_files import shown
from adk_skills_agent.errors import SkillNotFound
from adk_skills_agent.format import normalise_name
from adk_skills_agent.format.models import Diagnostic, SkillMetadata

if TYPE_CHECKING:
    from adk_skills_agent.catalog.budget import CatalogText
    from adk_skills_agent.catalog.scopes import Scope
    from adk_skills_agent.catalog.search import SearchHit, SearchIndex
    from adk_skills_agent.catalog.skill import Skill


@dataclass(frozen=True, slots=True, eq=False)
class CatalogSnapshot:
    """The catalog at one time; never changed, only replaced."""

    version: int = 0  # grows with every change
    skills: Mapping[str, IndexedSkill] = field(default_factory=dict)
    problems: tuple[Diagnostic, ...] = ()  # what finding and reading them left; may have duplicates
    # location of a skill that another of the same name hides, to the location of that one
    shadowed: Mapping[str, str] = field(default_factory=dict)
    # for some problems, the other folders that they speak of
    about: Mapping[Diagnostic, tuple[str, ...]] = field(default_factory=dict)


class CatalogReader(ABC):
    """The questions to a catalog (S4-10, S4-15, S4-16). Safe to use from several threads."""

    @abstractmethod
    def _snapshot(self) -> CatalogSnapshot:
        """The catalog as it is now."""

    @abstractmethod
    def _load(self, entry: IndexedSkill) -> Skill:
        """The skill of an entry of the snapshot."""

    @abstractmethod
    def _ensure(self, entry: IndexedSkill) -> None:
        """Have the files of a skill here; blocks while a source gives them."""

    @abstractmethod
    def _index(self) -> SearchIndex:
        """The search index of at least the skills of the snapshot."""

    @abstractmethod
    def refresh(self) -> bool:
        """Look at the disk now; return whether anything changed."""

    @abstractmethod
    async def refresh_if_due(self) -> bool:
        """Look at the disk when the last look is old enough, off the event loop; return whether anything changed."""

    @abstractmethod
    def scope_of(self, name: str) -> Scope:
        """Who put a skill where it was found. Raises ``SkillNotFound`` when there is no such skill."""

    async def fetch(self, name: str) -> None:
        """Have the files of a skill here before it is loaded; only a skill of a source has to be fetched.

        Raises ``RegistryError`` when its source does not give them.
        """
        del name

    @property
    def has_sources(self) -> bool:
        """Whether there are skills whose files are not known before they are fetched."""
        return False

    def unanswered(self, name: str) -> str:
        """The source that may have a skill of that name, goes first and has listed nothing yet; empty for none."""
        del name
        return ""

    def ignores_allowed_tools(self, name: str) -> bool:
        """Whether ``allowed-tools`` of a skill counts for nothing, because of where it comes from."""
        del name
        return False

    @property
    def version(self) -> int:
        """Grows with every change of the catalog."""
        return self._snapshot().version

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Everything that was repaired, refused, shadowed or cut, each once, in a stable order (C19)."""
        return tuple(dict.fromkeys(self._snapshot().problems))

    def __len__(self) -> int:
        return len(self._snapshot().skills)

    def __bool__(self) -> bool:
        return True  # an empty catalog is still a catalog: ``registry or default`` must not drop it

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and entry_named(self._snapshot(), name) is not None

    def __iter__(self) -> Iterator[str]:
        """The names, sorted."""
        return iter(tuple(self._snapshot().skills))

    def list_metadata(self) -> list[SkillMetadata]:
        """The frontmatter of every skill, sorted by name."""
        return [entry.metadata for entry in self._snapshot().skills.values()]

    def get_metadata(self, name: str) -> SkillMetadata:
        """The frontmatter of one skill.

        Args:
            name: The catalog's name, or a spelling of it (``My Skill`` for ``my-skill``).

        Raises:
            SkillNotFound: With the nearest names as ``suggestions``.
        """
        return self._require(name).metadata

    def load_skill(self, name: str, *, fetch: bool = True) -> Skill:
        """A skill, lazily: nothing of it is read yet.

        Args:
            name: As for :meth:`get_metadata`.
            fetch: Whether a skill of a source is fetched first, which blocks; without it the skill has no files until
                somebody did (:meth:`fetch`).

        Raises:
            SkillNotFound: With the nearest names as ``suggestions``.
            RegistryError: Its source does not give it.
        """
        entry = self._require(name)
        if fetch:
            self._ensure(entry)
        return self._load(entry)

    def search(self, query: str, limit: int = 10) -> list[SearchHit]:
        """The skills that fit a question best, best first; name, description and headings count.

        The index is built at the first search, and again at the first search after a change.
        """
        snapshot = self._snapshot()
        return self._index().search(query, limit, keep=snapshot.skills.__contains__)

    def catalog_text(self, budget: int | None = None, *, model: str | None = None) -> CatalogText:
        """The catalog as a model gets it, within a token budget (C22).

        Args:
            budget: Tokens; None for what fits the model.
            model: The model's name, for its context size.
        """
        from adk_skills_agent.catalog.budget import catalog_budget_tokens, fit_catalog

        return fit_catalog(self.list_metadata(), catalog_budget_tokens(model) if budget is None else budget)

    def to_available_skills_xml(self, location: bool = False) -> str:
        """The whole catalog as ``<available_skills>`` (S4-15).

        Args:
            location: Whether each skill names the host path of its SKILL.md, for agents that read files themselves.
        """
        from adk_skills_agent.format import to_available_skills_xml

        return to_available_skills_xml(self.list_metadata(), location=location)

    def view(
        self,
        allow: Iterable[str] = (),
        deny: Iterable[str] = (),
        predicate: Callable[[SkillMetadata], bool] | None = None,
        *,
        include_disabled: bool = False,
        apart: Callable[[SkillMetadata, SkillMetadata], bool] | None = None,
    ) -> SkillsView:
        """A part of this catalog, for one agent (S4-16, C25). What is not in it is hidden entirely (C26).

        Args:
            allow: Names or wildcards (``db-*``) of what is shown; empty for everything.
            deny: Names or wildcards of what is hidden, even when allowed.
            predicate: Asked about each skill that is left, once for each change of the catalog.
            include_disabled: Whether skills that opted out with ``disable-model-invocation: true`` are shown.
            apart: Asked about a skill and one in its folder, whether the inner one is no part of the outer one, as one
                that is hidden is none.
        """
        return SkillsView(self, allow, deny, predicate, include_disabled=include_disabled, apart=apart)

    def _require(self, name: str) -> IndexedSkill:
        snapshot = self._snapshot()
        entry = entry_named(snapshot, name) if isinstance(name, str) else None
        if entry is None:
            raise _not_found(name, snapshot)
        return entry


def entry_named(snapshot: CatalogSnapshot, name: str) -> IndexedSkill | None:
    """The skill of a name, or of a spelling of one."""
    found = snapshot.skills.get(name)
    if found is None and len(name) <= 200:  # a longer one is no spelling of a name
        found = snapshot.skills.get(normalise_name(name))
    return found


def _not_found(name: object, snapshot: CatalogSnapshot) -> SkillNotFound:
    from adk_skills_agent.errors import nearest

    asked = str(name)
    suggestions = nearest(asked, snapshot.skills)
    shown_name = repr(asked if len(asked) <= 100 else asked[:100] + "...")
    if suggestions:
        hint = f" Did you mean {', '.join(map(repr, suggestions))}?"
    else:
        hint = " There are no skills." if not snapshot.skills else " Search for one, or list the skills."
    return SkillNotFound(f"There is no skill {shown_name}.{hint}", suggestions)


OPT_OUT_FIELD = "disable-model-invocation"
_TRUE = frozenset({"true", "yes", "on", "1"})


class SkillsView(CatalogReader):
    """What one agent sees of a catalog; made by ``view()``.

    Args:
        source: The registry, or another view.
        allow: Names or wildcards of what is shown; empty for everything.
        deny: Names or wildcards of what is hidden; stronger than ``allow``.
        predicate: Asked about each skill that is left, once for each change of the catalog.
        include_disabled: Whether skills that opted out of being used by a model are shown.
        apart: Asked about a skill and one in its folder, whether the inner one is no part of the outer one.
    """

    def __init__(
        self,
        source: CatalogReader,
        allow: Iterable[str] = (),
        deny: Iterable[str] = (),
        predicate: Callable[[SkillMetadata], bool] | None = None,
        *,
        include_disabled: bool = False,
        apart: Callable[[SkillMetadata, SkillMetadata], bool] | None = None,
    ) -> None:
        self._source = source
        self._apart = apart
        self._allow = _pattern(allow)
        self._deny = _pattern(deny)
        self._predicate = predicate
        self._include_disabled = include_disabled
        self._filtered: tuple[CatalogSnapshot, CatalogSnapshot, frozenset[str]] | None = None
        self._set_apart: dict[str, set[str]] = {}  # by the location of a skill, folders in its own
        self._restricted: dict[str, tuple[Skill, tuple[str, ...], Skill]] = {}

    def refresh(self) -> bool:
        """Look at the disk now, for everybody; return whether anything changed."""
        return self._source.refresh()

    async def refresh_if_due(self) -> bool:
        """Look at the disk when the last look is old enough; return whether anything changed."""
        return await self._source.refresh_if_due()

    @property
    def has_sources(self) -> bool:
        """Whether there are skills whose files are not known before they are fetched."""
        return self._source.has_sources

    def unanswered(self, name: str) -> str:
        """As the whole catalog has it."""
        return self._source.unanswered(name)

    def ignores_allowed_tools(self, name: str) -> bool:
        """As the whole catalog has it."""
        return self._source.ignores_allowed_tools(name)

    async def fetch(self, name: str) -> None:
        """Have the files of a skill here before it is loaded.

        Raises:
            RegistryError: Its source does not give them.
        """
        entry = entry_named(self._snapshot(), name)
        if entry is not None:
            await self._source.fetch(entry.name)

    def scope_of(self, name: str) -> Scope:
        """Who put a skill that this view shows where it was found.

        Raises:
            SkillNotFound: No skill has that name, or this view hides it.
        """
        return self._source.scope_of(self._require(name).name)

    def _snapshot(self) -> CatalogSnapshot:
        return self._current()[0]

    def _current(self) -> tuple[CatalogSnapshot, frozenset[str]]:
        """The visible skills, and the folders of hidden ones."""
        whole = self._source._snapshot()
        filtered = self._filtered
        if filtered is None or filtered[0] is not whole:
            filtered = self._filtered = (whole, *self._filter(whole))
        return filtered[1], filtered[2]

    def _index(self) -> SearchIndex:
        return self._source._index()  # one index for all views; what a view hides is kept out of its answers

    def _ensure(self, entry: IndexedSkill) -> None:
        self._source._ensure(entry)

    def _load(self, entry: IndexedSkill) -> Skill:
        skill = self._source._load(entry)
        base = os.path.dirname(entry.location) + "/"
        below = {folder for folder in self._current()[1] if folder.startswith(base)}
        below |= self._set_apart.get(entry.location, set())
        nested = tuple(sorted(folder[len(base) :] for folder in below))
        if not nested:
            return skill
        made_from, without, restricted = self._restricted.get(entry.location, (None, (), skill))
        if made_from is not skill or without != nested:
            restricted = skill.excluding(nested)
            self._restricted[entry.location] = (skill, nested, restricted)
        return restricted

    def _filter(self, whole: CatalogSnapshot) -> tuple[CatalogSnapshot, frozenset[str]]:
        skills = {name: entry for name, entry in whole.skills.items() if self._shows(entry)}
        hidden = {entry.location for name, entry in whole.skills.items() if name not in skills}
        hidden |= {location for location, winner in whole.shadowed.items() if winner in hidden}
        folders = frozenset(map(os.path.dirname, hidden))
        self._set_apart = self._nested(skills.values()) if self._apart is not None else {}
        visible = {shown(os.path.dirname(entry.location)) for entry in skills.values()}
        as_shown = set(map(shown, folders))
        problems = tuple(
            problem
            for problem in whole.problems
            if folders.isdisjoint(whole.about.get(problem, ())) and self._may_be_told(problem, visible, as_shown)
        )
        return CatalogSnapshot(whole.version, skills, problems, whole.shadowed, whole.about), folders

    def _nested(self, skills: Iterable[IndexedSkill]) -> dict[str, set[str]]:
        """The folders of skills that are no part of the one they lie in, by the location of that one."""
        assert self._apart is not None  # noqa: S101  # the caller looked
        of_folder = {os.path.dirname(entry.location): entry for entry in skills}
        found: dict[str, set[str]] = {}
        for folder, inner in of_folder.items():
            passed = folder
            while (above := os.path.dirname(passed)) != passed:
                passed = above
                outer = of_folder.get(above)
                if outer is not None and self._apart(outer.metadata, inner.metadata):
                    found.setdefault(outer.location, set()).add(folder)
        return found

    def _may_be_told(self, problem: Diagnostic, visible: set[str], hidden: set[str]) -> bool:
        """Whether an agent that must not know the hidden skills may read of a problem, by its place."""
        if problem.file is None:
            return True
        above = path = shown(problem.file)
        while above:  # the nearest skill above decides
            if above in visible or above in hidden:
                return above in visible
            above = above.rpartition("/")[0]
        folder, _, name = path.rpartition("/")
        # A SKILL.md that gave no skill: the folder's name is the only one it has.
        return name.lower() != "skill.md" or self._shows_name(normalise_name(folder.rpartition("/")[2]))

    def _shows(self, entry: IndexedSkill) -> bool:
        if not self._shows_name(entry.name):
            return False
        if not self._include_disabled and is_opted_out(entry):
            return False
        return self._predicate is None or bool(self._predicate(entry.metadata))

    def _shows_name(self, name: str) -> bool:
        if self._allow is not None and not self._allow.fullmatch(name):
            return False
        return self._deny is None or not self._deny.fullmatch(name)


def is_opted_out(entry: IndexedSkill) -> bool:
    """Whether the author wants no model to use the skill on its own (``disable-model-invocation: true``, C25)."""
    if not entry.may_have_field(OPT_OUT_FIELD):
        return False
    value = entry.metadata.extra.get(OPT_OUT_FIELD)
    return isinstance(value, str) and value.strip().lower() in _TRUE


def _pattern(names: Iterable[str]) -> re.Pattern[str] | None:
    """One pattern for several wildcards; None for none. One string is one wildcard, not its letters."""
    wildcards = (names,) if isinstance(names, str) else tuple(names)
    return re.compile("|".join(translate(wildcard) for wildcard in wildcards)) if wildcards else None
