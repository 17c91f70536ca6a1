"""What can be asked of a catalog: the same questions to the registry and to a view of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from adk_skills_agent.catalog.indexed import IndexedSkill
from adk_skills_agent.errors import SkillNotFound
from adk_skills_agent.format import normalise_name
from adk_skills_agent.format.diagnostic import Diagnostic
from adk_skills_agent.format.models import SkillMetadata

if TYPE_CHECKING:
    from adk_skills_agent.catalog.budget import CatalogText
    from adk_skills_agent.catalog.filters import SkillsView
    from adk_skills_agent.catalog.scopes import Scope
    from adk_skills_agent.catalog.search import SearchHit, SearchIndex
    from adk_skills_agent.catalog.skill import Skill


@dataclass(frozen=True, slots=True, eq=False)
class CatalogSnapshot:
    """The catalog at one time; never changed, only replaced.

    Attributes:
        version: Grows with every change.
        skills: By name, in the order of the names.
        problems: What finding and reading them left; may have duplicates.
        shadowed: Location of a skill that another of the same name hides, to the location of that one.
        about: For some problems, the other folders that they speak of.
    """

    version: int = 0
    skills: Mapping[str, IndexedSkill] = field(default_factory=dict)
    problems: tuple[Diagnostic, ...] = ()
    shadowed: Mapping[str, str] = field(default_factory=dict)
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
        """Who put a skill where it was found.

        Raises:
            SkillNotFound: There is no such skill.
        """

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
        return isinstance(name, str) and _entry(self._snapshot(), name) is not None

    def __iter__(self) -> Iterator[str]:
        """The names, sorted."""
        return iter(tuple(self._snapshot().skills))

    def list_metadata(self) -> list[SkillMetadata]:
        """Level 1 of every skill, sorted by name."""
        return [entry.metadata for entry in self._snapshot().skills.values()]

    def get_metadata(self, name: str) -> SkillMetadata:
        """Level 1 of one skill.

        Args:
            name: The catalog's name, or a spelling of it (``My Skill`` for ``my-skill``).

        Raises:
            SkillNotFound: With the nearest names as ``suggestions``.
        """
        return self._require(name).metadata

    def load_skill(self, name: str) -> Skill:
        """A skill, lazily: nothing of it is read yet.

        Args:
            name: As :meth:`get_metadata`.

        Raises:
            SkillNotFound: With the nearest names as ``suggestions``.
        """
        return self._load(self._require(name))

    def search(self, query: str, limit: int = 10) -> list[SearchHit]:
        """The skills that fit a question best, best first; name, description and headings count.

        The index is built at the first search, and again at the first search after a change.

        Args:
            query: Words.
            limit: How many hits at most.
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
    ) -> SkillsView:
        """A part of this catalog, for one agent (S4-16, C25). What is not in it is hidden entirely (C26).

        Args:
            allow: Names or wildcards (``db-*``) of what is shown; empty for everything.
            deny: Names or wildcards of what is hidden, even when allowed.
            predicate: Asked about each skill that is left, once for each change of the catalog.
            include_disabled: Whether skills that opted out with ``disable-model-invocation: true`` are shown.
        """
        from adk_skills_agent.catalog.filters import SkillsView

        return SkillsView(self, allow, deny, predicate, include_disabled=include_disabled)

    def toolset(self, **settings: Any) -> Any:
        """A :class:`~adk_skills_agent.adk.skill_toolset.SkillToolset` with these skills, lazily.

        Args:
            settings: As its constructor.
        """
        # By name and only now: the catalog is below what google-adk sees, and is used without google-adk too.
        from importlib import import_module

        return import_module("adk_skills_agent.adk").SkillToolset(self, **settings)

    def _require(self, name: str) -> IndexedSkill:
        snapshot = self._snapshot()
        entry = _entry(snapshot, name) if isinstance(name, str) else None
        if entry is None:
            raise _not_found(name, snapshot)
        return entry


def _entry(snapshot: CatalogSnapshot, name: str) -> IndexedSkill | None:
    found = snapshot.skills.get(name)
    if found is None and len(name) <= 200:  # a longer one is no spelling of a name
        found = snapshot.skills.get(normalise_name(name))
    return found


def _not_found(name: object, snapshot: CatalogSnapshot) -> SkillNotFound:
    from adk_skills_agent.catalog.suggestions import nearest

    asked = str(name)
    suggestions = nearest(asked, snapshot.skills)
    shown_name = repr(asked if len(asked) <= 100 else asked[:100] + "...")
    if suggestions:
        hint = f" Did you mean {', '.join(map(repr, suggestions))}?"
    else:
        hint = " There are no skills." if not snapshot.skills else " Search for one, or list the skills."
    return SkillNotFound(f"There is no skill {shown_name}.{hint}", suggestions)
