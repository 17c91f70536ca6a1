"""Find skills by what they are for: names, descriptions and headings, ranked (S4-17)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

from adk_skills_agent.catalog.query import MAX_QUERY_CHARS, Term, search_terms
from adk_skills_agent.catalog.ranking import MAX_NEAR, RankedWords, ranked, ranked_words
from adk_skills_agent.catalog.words import asked_words, indexed_text
from adk_skills_agent.errors import SkillsError
from adk_skills_agent.format.diagnostic import Diagnostic, Severity
from adk_skills_agent.format.models import SkillMetadata

_MANY_NEAR = 30  # near spellings looked at when those of hidden skills are among them


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A skill that was found.

    Attributes:
        name: Its name in the catalog.
        description: Its whole description.
        score: How well it matches; higher is better, comparable within one search only.
    """

    name: str
    description: str
    score: float


class SearchIndex:
    """Ranks skills by name, description and headings with BM25; built at the first search, usable from many threads.

    Args:
        items: The skills, each name once. The index does not follow later changes: make a new one.
        headings: Reads the headings of a skill, one a line (``headings.headings_of``). Called once for each skill,
            at the first search. When it raises OSError or a SkillsError, the skill stays findable by its name and
            description and a diagnostic says so.
    """

    def __init__(self, items: Iterable[SkillMetadata], headings: Callable[[SkillMetadata], str]) -> None:
        # In the order of names, so that equal scores come in that order.
        self._items = sorted(items, key=lambda item: item.name)
        self._headings = headings
        self._lock = threading.Lock()
        self._words: RankedWords | None = None
        self._position_of: dict[tuple[tuple[str, ...], ...], int] = {}
        self._diagnostics: list[Diagnostic] = []

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """What went wrong while the index was built; empty before the first search."""
        return tuple(self._diagnostics)

    def search(self, query: str, limit: int = 10, *, keep: Callable[[str], bool] | None = None) -> list[SearchHit]:
        """Return the skills that match best.

        A skill matches when it has any word of the query; the one whose name is the query comes first. Equal scores
        come in the order of names. Any text is a legal query: quotes and operators are not syntax.

        Args:
            query: What is looked for, in words (see ``query.search_terms`` for what is made of it).
            limit: At most so many hits.
            keep: Says of a name whether it may be found. The others do not count towards the limit, and their words
                are unknown: what is asked for is understood as if they were not there.

        Returns:
            Hits, best first; none when nothing matches or the query has no word.
        """
        if limit <= 0:
            return []
        # Outside the lock: ``keep`` is foreign code.
        hidden: frozenset[int] = frozenset()
        if keep is not None:
            hidden = frozenset(position for position, item in enumerate(self._items) if not keep(item.name))
        with self._lock:
            found = self._ranked(query, self._words or self._build(), hidden)
        hits: list[SearchHit] = []
        for position, score in found:
            if position not in hidden:
                item = self._items[position]
                hits.append(SearchHit(item.name, item.description, score))
                if len(hits) == limit:
                    break
        return hits

    def _ranked(self, query: str, words: RankedWords, hidden: frozenset[int]) -> list[tuple[int, float]]:
        def knows(term: Term) -> bool:
            return words.knows(term, hidden)

        def spellings(word: str) -> list[str]:
            if not hidden:
                return words.spellings(word)
            near = (one for one in words.spellings(word, _MANY_NEAR) if knows(Term((one,), prefix=True)))
            return list(islice(near, MAX_NEAR))

        found = ranked(words, search_terms(query, knows, spellings))
        named = self._position_of.get(_as_name(query[:MAX_QUERY_CHARS]))
        if named is None or named in hidden:
            return found
        best = found[0][1] if found else 0.0
        own = next((score for position, score in found if position == named), 0.0)
        return [(named, best + own), *(hit for hit in found if hit[0] != named)]

    def _build(self) -> RankedWords:
        rows = [
            (indexed_text(item.name), indexed_text(item.description), indexed_text(self._headings_of(item)))
            for item in self._items
        ]
        for position, item in enumerate(self._items):
            if as_name := _as_name(item.name):
                self._position_of.setdefault(as_name, position)
        self._words, missing = ranked_words(rows)
        if missing:
            self._diagnostics.append(
                Diagnostic(
                    "search-without-fts5",
                    Severity.WARNING,
                    f"This Python's SQLite has no full-text search ({missing}); skills are ranked in plain Python, "
                    "without stemming. Use a Python built with SQLite FTS5 for better results.",
                )
            )
        return self._words

    def _headings_of(self, item: SkillMetadata) -> str:
        try:
            return self._headings(item)
        except (OSError, SkillsError) as error:
            self._diagnostics.append(
                Diagnostic(
                    "headings-unreadable",
                    Severity.WARNING,
                    f"The headings of skill '{item.name}' cannot be read ({error}); search finds it by its name and "
                    "description only. Make its SKILL.md readable.",
                    file=item.file,
                )
            )
            return ""


def _as_name(text: str) -> tuple[tuple[str, ...], ...]:
    """What a name and a query that means it have in common: "PDF forms" means ``pdf-forms``."""
    return tuple(asked_words(text))
