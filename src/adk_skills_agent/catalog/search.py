"""Find skills by what they are for: names, descriptions and headings, ranked (S4-17)."""

from __future__ import annotations

import math
import re
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Protocol

from adk_skills_agent.errors import SkillsError, spelled_alike
from adk_skills_agent.format.models import Diagnostic, Severity, SkillMetadata, nfkc

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

    The index does not follow later changes of ``items``: make a new one. ``headings`` reads the headings of a skill,
    one a line, once for each skill, at the first search; where it raises OSError or a SkillsError, the skill stays
    findable by its name and description, and a diagnostic says so.
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
        """The problems met while the index was built; empty before the first search."""
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


# A model's words into search terms: any string is a legal query, and none of it is ever syntax.

MAX_QUERY_CHARS = 4_000
"""Characters of a query that are looked at: a task description fits, a pasted file does not."""

MAX_TERMS = 32
"""Distinct terms of a query that are searched, the first ones: bounds the time of any query."""

_MIN_PREFIX = 3  # a shorter beginning matches everything
_MIN_SPELLING = 5  # a shorter word has too many neighbours

_MAX_RESPELLED = 8
"""Unknown words of a query that are looked up among near spellings, the first ones: the slowest part of a search."""

_SAYS_NOTHING = """
    a about all also an and any are as at be but by can could do does for from get give had has have he help her him
    his how i if in into is it its just let like may me my need of on or our out please she should so some than
    that the their them then there these they this those to us use used using via want was we were what when where
    which while who why will with would you your s t re ve ll
"""
_STOP_WORDS = frozenset(_SAYS_NOTHING.split())

# Spellings people use for one another everywhere; each word also finds the others of its line.
_SAME = tuple(
    tuple(line.split())
    for line in """
    k8s kubernetes
    js javascript
    ts typescript
    py python
    db database
    repo repository
    auth authentication
    config configuration
    docs documentation
    env environment
    perf performance
    infra infrastructure
    postgres postgresql
    a11y accessibility
    i18n internationalization
    l10n localization
    ppt pptx powerpoint
    xls xlsx excel
    golang go
    ci continuous-integration
    pr pull-request
    ml machine-learning
    llm language-model
    iac infrastructure-as-code
    tdd test-driven-development
    e2e end-to-end
    """.strip().splitlines()
)
_SYNONYMS: dict[str, tuple[tuple[str, ...], ...]] = {
    word: tuple(tuple(other.split("-")) for other in line if other != word)
    for line in _SAME
    for word in line
    if "-" not in word
}


@dataclass(frozen=True, slots=True)
class Term:
    """One thing to look for."""

    words: tuple[str, ...]  # consecutive words
    prefix: bool = False  # the last word is only the beginning of one
    alternative: bool = False  # not what was asked, but perhaps what was meant; it counts for less


def search_terms(
    query: str, knows: Callable[[Term], bool], spellings: Callable[[str], list[str]]
) -> list[tuple[Term, ...]]:
    """Turn a query into the terms to rank by, each with its alternatives; a skill need not match all of them.

    Words that say nothing are dropped, unless there is nothing else. A word no skill has is widened: to the words it
    begins, else to words spelled nearly like it. Neighbours may also be written as one word (``front end``), and a few
    abbreviations stand for what they abbreviate. The first ``MAX_QUERY_CHARS`` characters and ``MAX_TERMS`` distinct
    words count. Returns for each word of the query, in its order, the terms that at least one skill has, the asked one
    first.
    """
    asked = list(dict.fromkeys(asked_words(query[:MAX_QUERY_CHARS])))
    asked = ([words for words in asked if words[0] not in _STOP_WORDS] or asked)[:MAX_TERMS]
    found: list[dict[Term, None]] = []
    unknown = 0
    for words in asked:
        terms = [term] if knows(term := Term(words)) else []
        if not terms:
            unknown += 1
            terms = _widened(words, knows, spellings if unknown <= _MAX_RESPELLED else _none)
        if len(words) == 1:
            terms += [term for other in _SYNONYMS.get(words[0], ()) if knows(term := Term(other, alternative=True))]
        found.append(dict.fromkeys(terms))
    for at, (left, right) in enumerate(pairwise(asked)):
        if len(left) == len(right) == 1 and knows(joined := Term((left[0] + right[0],), alternative=True)):
            found[at][joined] = found[at + 1][joined] = None
    return [tuple(terms) for terms in found if terms]


def _widened(
    words: tuple[str, ...], knows: Callable[[Term], bool], spellings: Callable[[str], list[str]]
) -> list[Term]:
    word = words[0]
    if len(words) > 1:
        return []
    if len(word) >= _MIN_PREFIX and knows(begun := Term((word,), prefix=True)):
        return [begun]
    if len(word) < _MIN_SPELLING or not word.isalpha():
        return []
    # The index holds stems, so a near spelling is the beginning of a word.
    return [term for near in spellings(word) if knows(term := Term((near,), prefix=True, alternative=True))]


def _none(word: str) -> list[str]:  # noqa: ARG001 - stands in for ``spellings``
    return []


# Ranked word indexes: SQLite FTS5, and a plain one for a SQLite that lacks it.

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
    """The interface of a search index. A row is known by its position, and equal scores keep that order."""

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
        return spelled_alike(word, (stem for (stem,) in stems), limit, _NEAR)

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
        return spelled_alike(word, (known for known in self._rows_of if known[0] == word[0]), limit, _NEAR)

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

    Of a term's alternatives, the one that fits a row best counts for that row.
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


# Text into searchable words: the same for what is indexed and for what is asked.

MAX_WORD = 64
"""Characters of a word that count. Longer ones are data (keys, digests), not words."""

# Scripts written without spaces between words. Their characters are indexed one by one and asked for in pairs.
_UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f"  # Myanmar
    "\u1780-\u17ff"  # Khmer
    "\u3040-\u30ff\u31f0-\u31ff"  # Hiragana, Katakana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Han
    "\uac00-\ud7a3"  # Hangul: has spaces, but glues particles to its words
    "\U00020000-\U0003ffff"  # Han, extensions
)
_WORD = re.compile(r"[^\W_]+")
_UNSPACED_OR_WORD = re.compile(f"[{_UNSPACED}]+|[^{_UNSPACED}]+")
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")

# A compound of two parts (front-end, next.js, don't) is also findable written as one word.
_JOINERS = "-._'\u2019"
_COMPOUND = re.compile(rf"(?<![^\W_])(?<![{_JOINERS}])([^\W_]+)[{_JOINERS}]([^\W_]+)(?![{_JOINERS}]?[^\W_])")

# Names whose punctuation is what tells them apart.
_SPELLED_OUT = {"c++": "cpp", "c#": "csharp", "f#": "fsharp", ".net": "dotnet"}
_PUNCTUATED = re.compile(r"(?<![\w.])(?:c\+\+|[cf]#|\.net)(?!\w)")


def fold(text: str) -> str:
    """One spelling for letters that differ in width, case or composition, and words for ``c++``, ``c#``, ``.net``."""
    if not text.isascii():
        text = nfkc(text)
    return _PUNCTUATED.sub(lambda match: _SPELLED_OUT[match[0]], text.casefold())


def indexed_text(text: str) -> str:
    """Return the words of a text, separated by single spaces, ready for the index.

    Unspaced scripts come as single characters; a two-part compound adds its joined form.
    """
    folded = fold(text)
    words = [word[:MAX_WORD] for word in _WORD.findall(folded)]
    if not folded.isascii():
        words = [
            piece
            for word in words
            for run in _UNSPACED_OR_WORD.findall(word)
            for piece in (run if _IS_UNSPACED.match(run) else (run,))
        ]
    words += [(match[1] + match[2])[:MAX_WORD] for match in _COMPOUND.finditer(folded)]
    return " ".join(words)


def asked_words(text: str) -> list[tuple[str, ...]]:
    """Return what a query asks for, in its order: one-word tuples, and pairs of characters of unspaced scripts."""
    asked: list[tuple[str, ...]] = []
    for word in _WORD.findall(fold(text)):
        if word.isascii():
            asked.append((word[:MAX_WORD],))
            continue
        for run in _UNSPACED_OR_WORD.findall(word[:MAX_WORD]):
            if not _IS_UNSPACED.match(run) or len(run) == 1:
                asked.append((run,))
            else:
                asked += [(run[at], run[at + 1]) for at in range(len(run) - 1)]
    return asked
