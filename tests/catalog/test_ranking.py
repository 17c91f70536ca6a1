from __future__ import annotations

import sqlite3

import pytest

from adk_skills_agent.catalog.search import Fts5Words, PlainWords, RankedWords, Term, ranked, ranked_words, search_terms

ROWS = [
    ("pdf forms", "fill in pdf forms", "overview"),
    ("kubernetes", "debug 机 器 pods", "logs"),
    ("notes", "take notes about pdf", "sharing"),
    ("other", "nothing", "nothing"),
    ("more", "nothing", "nothing"),
]


@pytest.fixture(params=[Fts5Words, PlainWords])
def index(request: pytest.FixtureRequest) -> RankedWords:
    made: RankedWords = request.param(ROWS)
    return made


def _search(index: RankedWords, query: str) -> list[int]:
    return [position for position, _ in ranked(index, search_terms(query, index.knows, index.spellings))]


def test_rows_come_best_first(index: RankedWords) -> None:
    assert _search(index, "pdf") == [0, 2]
    assert _search(index, "pdf notes") == [2, 0]


def test_phrases_prefixes_and_misspellings_are_found(index: RankedWords) -> None:
    assert _search(index, "机器") == [1]
    assert _search(index, "kube") == [1]
    assert _search(index, "kubernetse") == [1]
    assert _search(index, "saxophone") == []


def test_equal_rows_keep_their_order(index: RankedWords) -> None:
    assert _search(index, "nothing") == [3, 4]


def test_knows_says_what_is_indexed(index: RankedWords) -> None:
    assert index.knows(Term(("pods",)))
    assert not index.knows(Term(("pod", "s")))
    assert index.knows(Term(("po",), prefix=True))


def test_an_alternative_counts_less_than_what_was_asked(index: RankedWords) -> None:
    asked = dict(ranked(index, [(Term(("kubernetes",)),)]))
    meant = dict(ranked(index, [(Term(("kubernetes",), alternative=True),)]))
    assert meant[1] == pytest.approx(asked[1] / 2)


def test_of_alternatives_only_the_best_counts(index: RankedWords) -> None:
    alone = dict(ranked(index, [(Term(("kubernetes",)),)]))
    both = dict(ranked(index, [(Term(("kubernetes",)), Term(("pods",), alternative=True))]))
    assert both[1] == pytest.approx(alone[1])


def test_this_python_ranks_with_fts5() -> None:
    found, missing = ranked_words(ROWS)
    assert isinstance(found, Fts5Words)
    assert missing is None


def test_a_closed_index_lets_go_of_its_connection() -> None:
    index = Fts5Words(ROWS)
    index.close()
    with pytest.raises(sqlite3.ProgrammingError):
        index.knows(Term(("pdf",)))
