"""Ranked word indexes: SQLite FTS5, and a plain one for a SQLite that lacks it."""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from typing import Protocol

from adk_skills_agent.catalog.query import Term

Row = tuple[str, str, str]
"""Name, description and headings of one skill, as ``words.indexed_text`` returns them."""

# A word of the name says more about a skill than one of its description, and that more than one of a heading.
_WEIGHTS = (4.0, 2.0, 1.0)
_ALTERNATIVE = 0.5  # what an alternative counts for, beside the asked term
_NEAR = 0.8  # difflib ratio above which a spelling is taken for another
MAX_NEAR = 2
"""Spellings that a word no skill has is widened to."""
_NONE: frozenset[int] = frozenset()


class RankedWords(Protocol):
    """What a search needs of an index of rows. A row is known by its position, and equal scores keep that order."""

    def knows(self, term: Term, hidden: Set[int] = _NONE) -> bool:
        """Whether any row has the term, besides the hidden ones."""

    def spellings(self, word: str, limit: int = MAX_NEAR) -> list[str]:
        """At most so many indexed words (or stems) spelled nearly like this one, nearest first."""

    def scores(self, terms: Sequence[Term]) -> Iterable[tuple[int, float]]:
        """Position and summed score (above 0, higher is better) of the rows that have any of the terms, unordered."""


class Fts5Words:
    """BM25 over an in-memory SQLite FTS5 table with Porter stemming. Raises sqlite3.OperationalError without FTS5.

    One connection; the caller lets one thread in at a time. It is closed with the object.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        import sqlite3

        self._connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self.close = weakref.finalize(self, self._connection.close)
        try:
            # content='': the rows themselves stay out of SQLite; only their words are kept.
            self._connection.execute(
                "CREATE VIRTUAL TABLE skills USING fts5(name, description, headings, content='', prefix='3 4',"
                " tokenize='porter unicode61 remove_diacritics 2')"
            )
            self._connection.execute("CREATE VIRTUAL TABLE vocabulary USING fts5vocab(skills, 'row')")
            self._connection.execute("BEGIN")
            self._connection.executemany(
                "INSERT INTO skills(rowid, name, description, headings) VALUES (?, ?, ?, ?)",
                ((position, *row) for position, row in enumerate(rows)),
            )
            self._connection.execute("COMMIT")
        except sqlite3.Error:
            self.close()
            raise

    def knows(self, term: Term, hidden: Set[int] = _NONE) -> bool:
        """Whether any row has the term, besides the hidden ones."""
        if hidden:
            rows = self._connection.execute("SELECT rowid FROM skills WHERE skills MATCH ?", (_match([term]),))
            return any(position not in hidden for (position,) in rows)
        found = self._connection.execute("SELECT 1 FROM skills WHERE skills MATCH ? LIMIT 1", (_match([term]),))
        return found.fetchone() is not None

    def spellings(self, word: str, limit: int = MAX_NEAR) -> list[str]:
        """Stems of the same first letter that are spelled nearly like this word."""
        stems = self._connection.execute(
            "SELECT term FROM vocabulary WHERE term >= ? AND term < ? AND length(term) BETWEEN ? AND ?",
            (word[0], chr(ord(word[0]) + 1), len(word) - 3, len(word) + 2),
        )
        return _nearest(word, [stem for (stem,) in stems], limit)

    def scores(self, terms: Sequence[Term]) -> Iterable[tuple[int, float]]:
        """BM25 of the rows that have any of the terms."""
        return self._connection.execute(
            "SELECT rowid, -bm25(skills, ?, ?, ?) FROM skills WHERE skills MATCH ?", (*_WEIGHTS, _match(terms))
        )


class PlainWords:
    """The same in plain Python, without stemming: weighted word frequencies times their rarity."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._count = len(rows)
        self._rows_of: dict[str, Counter[int]] = {}
        for position, row in enumerate(rows):
            for weight, field in zip(_WEIGHTS, row, strict=True):
                for word in set(field.split()):
                    self._rows_of.setdefault(word, Counter())[position] += int(weight)

    def knows(self, term: Term, hidden: Set[int] = _NONE) -> bool:
        """Whether any row has the term, besides the hidden ones."""
        return any(position not in hidden for position in self._weights(term))

    def spellings(self, word: str, limit: int = MAX_NEAR) -> list[str]:
        """Words of the same first letter that are spelled nearly like this one."""
        return _nearest(word, [known for known in self._rows_of if known[0] == word[0]], limit)

    def scores(self, terms: Sequence[Term]) -> Iterable[tuple[int, float]]:
        """Weighted frequency, saturating, times rarity, of the rows that have any of the terms."""
        total: dict[int, float] = {}
        for term in terms:
            weights = self._weights(term)
            rarity = math.log(1 + self._count / (1 + len(weights)))
            for position, weight in weights.items():
                total[position] = total.get(position, 0.0) + rarity * weight / (weight + _WEIGHTS[1])
        return total.items()

    def _weights(self, term: Term) -> Counter[int]:
        # Words of a phrase count when they are in the same row, in any order: positions are not kept.
        *whole, last = term.words
        lasts = [word for word in self._rows_of if word.startswith(last)] if term.prefix else [last]
        found: Counter[int] = Counter()
        for word in lasts:
            found |= self._rows_of.get(word, Counter())
        for word in whole:
            found &= self._rows_of.get(word, Counter())
        return found


def ranked_words(rows: Sequence[Row]) -> tuple[RankedWords, str | None]:
    """Return the best index this Python can make, and, when that is the plain one, what is missing."""
    try:
        import sqlite3
    except ImportError as error:
        return PlainWords(rows), str(error)
    try:
        return Fts5Words(rows), None
    except sqlite3.OperationalError as error:
        return PlainWords(rows), str(error)


def ranked(index: RankedWords, asked: Sequence[Sequence[Term]]) -> list[tuple[int, float]]:
    """Return position and score of the rows with any of the terms, best first, equal scores in the order of rows.

    Args:
        index: The rows.
        asked: Terms with their alternatives: of these, the one that fits a row best counts for that row.
    """
    alone = [terms[0] for terms in asked if len(terms) == 1 and not terms[0].alternative]
    total = dict(index.scores(alone)) if alone else {}  # one look-up for nearly all terms
    for alternatives in asked:
        best: dict[int, float] = {}
        for term in alternatives if len(alternatives) > 1 or alternatives[0].alternative else ():
            weight = _ALTERNATIVE if term.alternative else 1.0
            for position, score in index.scores([term]):
                best[position] = max(best.get(position, 0.0), weight * score)
        for position, score in best.items():
            total[position] = total.get(position, 0.0) + score
    return sorted(total.items(), key=lambda hit: (-hit[1], hit[0]))


def _match(terms: Sequence[Term]) -> str:
    # Words are letters and digits only (words.asked_words), so that nothing has to be escaped inside the quotes.
    return " OR ".join(f'"{" ".join(term.words)}"{"*" if term.prefix else ""}' for term in terms)


def _nearest(word: str, known: Sequence[str], limit: int) -> list[str]:
    from difflib import get_close_matches

    return get_close_matches(word, known, n=limit, cutoff=_NEAR)
