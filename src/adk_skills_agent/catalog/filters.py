"""A part of a catalog for one agent: what it may not see does not exist for it (S4-16, C25, C26)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fnmatch import translate
from typing import TYPE_CHECKING

from adk_skills_agent.catalog.indexed import IndexedSkill
from adk_skills_agent.catalog.reading import CatalogReader, CatalogSnapshot
from adk_skills_agent.format.models import SkillMetadata

if TYPE_CHECKING:
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
        self._filtered: tuple[CatalogSnapshot, CatalogSnapshot] | None = None

    def refresh(self) -> bool:
        """Look at the disk now, for everybody; return whether anything changed."""
        return self._source.refresh()

    async def refresh_if_due(self) -> bool:
        """Look at the disk when the last look is old enough; return whether anything changed."""
        return await self._source.refresh_if_due()

    def _snapshot(self) -> CatalogSnapshot:
        whole = self._source._snapshot()
        filtered = self._filtered
        if filtered is None or filtered[0] is not whole:
            filtered = self._filtered = (whole, self._filter(whole))
        return filtered[1]

    def _index(self) -> SearchIndex:
        return self._source._index()  # one index for all views; what a view hides is kept out of its answers

    def _load(self, entry: IndexedSkill) -> Skill:
        return self._source._load(entry)

    def _filter(self, whole: CatalogSnapshot) -> CatalogSnapshot:
        skills = {name: entry for name, entry in whole.skills.items() if self._shows(entry)}
        hidden = {entry.location for name, entry in whole.skills.items() if name not in skills}
        problems = tuple(problem for problem in whole.problems if problem.file not in hidden)
        return CatalogSnapshot(whole.version, skills, problems)

    def _shows(self, entry: IndexedSkill) -> bool:
        if self._allow is not None and not self._allow.fullmatch(entry.name):
            return False
        if self._deny is not None and self._deny.fullmatch(entry.name):
            return False
        if not self._include_disabled and is_opted_out(entry):
            return False
        return self._predicate is None or bool(self._predicate(entry.metadata))


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
