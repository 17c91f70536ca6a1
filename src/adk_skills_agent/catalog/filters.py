"""A part of a catalog for one agent: what it may not see does not exist for it (S4-16, C25, C26)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import translate
from typing import TYPE_CHECKING

from adk_skills_agent.catalog.indexed import IndexedSkill
from adk_skills_agent.catalog.reading import CatalogReader, CatalogSnapshot
from adk_skills_agent.catalog.spelling import shown
from adk_skills_agent.format import normalise_name
from adk_skills_agent.format.diagnostic import Diagnostic
from adk_skills_agent.format.models import SkillMetadata

if TYPE_CHECKING:
    from adk_skills_agent.catalog.scopes import Scope
    from adk_skills_agent.catalog.search import SearchIndex
    from adk_skills_agent.catalog.skill import Skill

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
    """

    def __init__(
        self,
        source: CatalogReader,
        allow: Iterable[str] = (),
        deny: Iterable[str] = (),
        predicate: Callable[[SkillMetadata], bool] | None = None,
        *,
        include_disabled: bool = False,
    ) -> None:
        self._source = source
        self._allow = _pattern(allow)
        self._deny = _pattern(deny)
        self._predicate = predicate
        self._include_disabled = include_disabled
        self._filtered: tuple[CatalogSnapshot, CatalogSnapshot, frozenset[str]] | None = None
        self._restricted: dict[str, tuple[Skill, tuple[str, ...], Skill]] = {}

    def refresh(self) -> bool:
        """Look at the disk now, for everybody; return whether anything changed."""
        return self._source.refresh()

    async def refresh_if_due(self) -> bool:
        """Look at the disk when the last look is old enough; return whether anything changed."""
        return await self._source.refresh_if_due()

    def scope_of(self, name: str) -> Scope:
        """Who put a skill that this view shows where it was found.

        Raises:
            SkillNotFound: There is none, or it is hidden here.
        """
        return self._source.scope_of(self._require(name).name)

    def _snapshot(self) -> CatalogSnapshot:
        return self._current()[0]

    def _current(self) -> tuple[CatalogSnapshot, frozenset[str]]:
        """What is shown, and the folders of what is hidden."""
        whole = self._source._snapshot()
        filtered = self._filtered
        if filtered is None or filtered[0] is not whole:
            filtered = self._filtered = (whole, *self._filter(whole))
        return filtered[1], filtered[2]

    def _index(self) -> SearchIndex:
        return self._source._index()  # one index for all views; what a view hides is kept out of its answers

    def _load(self, entry: IndexedSkill) -> Skill:
        skill = self._source._load(entry)
        base = os.path.dirname(entry.location) + "/"
        nested = tuple(sorted(folder[len(base) :] for folder in self._current()[1] if folder.startswith(base)))
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
        visible = {shown(os.path.dirname(entry.location)) for entry in skills.values()}
        places = _Places(whole.about, folders, visible, self._shows_name)
        problems = tuple(problem for problem in whole.problems if places.may_be_told(problem))
        return CatalogSnapshot(whole.version, skills, problems, whole.shadowed, whole.about), folders

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


class _Places:
    """Which problems speak of what is hidden: their place, or a place in their sentence, belongs to a hidden skill."""

    def __init__(
        self,
        about: Mapping[Diagnostic, tuple[str, ...]],
        hidden: frozenset[str],
        visible: set[str],
        shows_name: Callable[[str], bool],
    ) -> None:
        self._about = about
        self._hidden = hidden
        self._hidden_as_shown = set(map(shown, hidden))
        self._visible = visible
        self._shows_name = shows_name

    def may_be_told(self, problem: Diagnostic) -> bool:
        """Whether an agent that must not know the hidden skills may read it."""
        if any(folder in self._hidden for folder in self._about.get(problem, ())):
            return False
        if problem.file is None:
            return True
        path = shown(problem.file)
        folder, _, name = path.rpartition("/")
        below_skill = path
        while below_skill:  # the nearest skill above decides
            if below_skill in self._visible:
                return True
            if below_skill in self._hidden_as_shown:
                return False
            below_skill = below_skill.rpartition("/")[0]
        if name.lower() != "skill.md":
            return True
        # A SKILL.md that gave no skill: the folder's name is the only one it has.
        return self._shows_name(normalise_name(folder.rpartition("/")[2]))


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
