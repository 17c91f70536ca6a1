from __future__ import annotations

import gc
import string
import threading
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adk_skills_agent.catalog.search import SearchHit, SearchIndex
from adk_skills_agent.catalog.skill import headings_of
from adk_skills_agent.errors import ParseError
from adk_skills_agent.format import SkillMetadata

SKILLS = {
    "pdf-forms": "Fill in and flatten PDF forms.",
    "pdf-merge": "Join several documents into one.",
    "frontend-design": "Build user interfaces with TypeScript and Next.js.",
    "kubernetes-debugging": "Find out why pods of a cluster crash.",
    "database-migrations": "Plan schema changes of PostgreSQL.",
    "cpp-review": "Review C++ and C# code.",
    "ji-qi-xue-xi": "训练机器学习模型并评估结果。",
    "thai-writing": "แปลภาษาไทยเป็นภาษาอังกฤษ",
    "resume-writer": "Polish a résumé for an application.",
    "ci-pipelines": "Continuous integration with caching.",
}


def _skill(name: str, description: str) -> SkillMetadata:
    return SkillMetadata(name=name, description=description)


def _index(skills: dict[str, str], headings: dict[str, str] | None = None) -> SearchIndex:
    outlines = headings or {}
    return SearchIndex([_skill(*skill) for skill in skills.items()], lambda item: outlines.get(item.name, ""))


def _names(hits: list[SearchHit]) -> list[str]:
    return [hit.name for hit in hits]


@pytest.fixture(scope="module")
def index() -> SearchIndex:
    return _index(SKILLS, {"pdf-merge": "Overview\nHow to watermark pages"})


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("fill forms", "pdf-forms"),
        ("watermarking a page", "pdf-merge"),  # a heading, stemmed
        ("crashing pods", "kubernetes-debugging"),
        ("k8s", "kubernetes-debugging"),
        ("kuberntes", "kubernetes-debugging"),  # misspelled
        ("kubern", "kubernetes-debugging"),  # only begun
        ("front-end", "frontend-design"),
        ("front end", "frontend-design"),
        ("nextjs", "frontend-design"),
        ("next.js", "frontend-design"),
        ("DB migration", "database-migrations"),
        ("postgres", "database-migrations"),
        ("c++", "cpp-review"),
        ("C#", "cpp-review"),
        ("机器学习", "ji-qi-xue-xi"),
        ("如何评估模型", "ji-qi-xue-xi"),
        ("ภาษาไทย", "thai-writing"),
        ("resume", "resume-writer"),
        ("Ｒésumé", "resume-writer"),  # full width, accents
        ("CI", "ci-pipelines"),
    ],
)
def test_a_skill_is_found_by(index: SearchIndex, query: str, found: str) -> None:
    assert _names(index.search(query))[:1] == [found]


@pytest.mark.parametrize(
    "query",
    [
        "",
        "   ",
        "?!…",
        '"',
        "😀",
        "\x00",
        "\ud800",
        "' OR 1=1 --",
        'pdf" OR "*',
        "name:pdf AND NOT (forms",
        "NEAR(pdf forms, 2)",
        "pdf*",
        "^pdf",
        "{name description}: pdf",
        "-pdf +forms",
        "\U0001e900\U0001e922 𞤀",
        "a" * 100_000,
        "pdf forms " * 10_000,
        " ".join(f"word{number}" for number in range(20_000)),
        "机" * 100_000,
    ],
)
def test_any_text_is_a_legal_query(index: SearchIndex, query: str) -> None:
    hits = index.search(query)
    assert all(hit.name in SKILLS for hit in hits)


@given(st.text() | st.text(alphabet=string.punctuation + "pdf ANDORT\"*:^-()'"))
def test_no_query_ever_fails_and_hits_come_best_first(query: str) -> None:
    hits = _SHARED.search(query)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert all(hit.score > 0 for hit in hits)


_SHARED = _index(SKILLS)


@given(st.lists(st.text(max_size=80), max_size=6), st.text(max_size=20))
def test_any_description_can_be_indexed(descriptions: list[str], query: str) -> None:
    index = _index({f"skill-{number}": text for number, text in enumerate(descriptions)})
    assert len(index.search(query)) <= len(descriptions)
    assert index.diagnostics == ()


def test_operators_in_a_query_are_words_of_it() -> None:
    index = _index({"a-skill": "Use NOT and NEAR operators.", "b-skill": "Something else."})
    assert _names(index.search("near NOT operators")) == ["a-skill"]


def test_nothing_is_found_where_nothing_matches(index: SearchIndex) -> None:
    assert index.search("zygomorphic 999") == []


def test_an_empty_catalog_has_no_hits() -> None:
    assert _index({}).search("pdf") == []


@pytest.mark.parametrize("limit", [0, -1])
def test_no_hits_when_none_are_wanted(index: SearchIndex, limit: int) -> None:
    assert index.search("pdf", limit) == []


def test_limit_bounds_the_hits_and_keeps_the_best(index: SearchIndex) -> None:
    assert index.search("pdf forms", 1) == index.search("pdf forms")[:1]


def test_the_skill_whose_name_is_asked_for_comes_first() -> None:
    crowd = {f"git-{number}": "git commit git push, everything about git" for number in range(30)}
    index = _index({**crowd, "git": "Version control.", "how-to": "Guides."})
    assert _names(index.search("git"))[0] == "git"
    assert _names(index.search("Git-7"))[0] == "git-7"
    assert _names(index.search("git 7"))[0] == "git-7"
    assert _names(index.search("how to"))[0] == "how-to"


def test_a_word_of_the_name_counts_more_than_one_of_the_description() -> None:
    index = _index({"a": "Deploy things.", "deploy": "Ship things.", **{f"other-{n}": "Text." for n in range(8)}})
    assert _names(index.search("deploy it")) == ["deploy", "a"]


def test_equal_scores_come_in_the_order_of_names() -> None:
    names = ["delta", "alpha", "charlie", "bravo"]
    index = _index({**dict.fromkeys(names, "Same words here."), "zulu": "Others."})
    assert _names(index.search("same words")) == sorted(names)


def test_filtered_skills_do_not_count_towards_the_limit(index: SearchIndex) -> None:
    hits = index.search("pdf", 1, keep=lambda name: name != "pdf-forms")
    assert _names(hits) == ["pdf-merge"]


def test_a_filter_may_search_too(index: SearchIndex) -> None:
    assert _names(index.search("pdf", keep=lambda name: bool(index.search(name)))) == ["pdf-forms", "pdf-merge"]


def test_headings_are_read_once_and_only_when_something_is_searched() -> None:
    read: list[str] = []

    def headings(item: SkillMetadata) -> str:
        read.append(item.name)
        return ""

    index = SearchIndex([_skill("b", "x"), _skill("a", "x")], headings)
    assert read == []
    index.search("x")
    index.search("x")
    assert sorted(read) == ["a", "b"]


def test_a_skill_with_unreadable_headings_stays_findable_and_a_diagnostic_says_why(tmp_path: Path) -> None:
    gone = SkillMetadata(name="gone", description="Vanished meanwhile.", file=str(tmp_path / "gone" / "SKILL.md"))
    index = SearchIndex([gone], headings_of)
    assert _names(index.search("vanished")) == ["gone"]
    (found,) = index.diagnostics
    assert found.code == "headings-unreadable"
    assert found.file == str(gone.location)
    assert "gone" in found.message


def test_a_mistake_in_the_headings_callback_is_not_hidden() -> None:
    def headings(item: SkillMetadata) -> str:
        raise KeyError(item.name)

    with pytest.raises(KeyError):
        SearchIndex([_skill("a", "x")], headings).search("x")


def test_headings_come_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "SKILL.md"
    path.write_text("---\nname: a\n# comment: xylophone\n---\n# Marimba\n```\n# tuba\n```\n")
    item = SkillMetadata(name="a", description="x", file=str(path))
    index = SearchIndex([item], headings_of)
    assert _names(index.search("marimba")) == ["a"]
    assert index.search("xylophone tuba") == []
    with pytest.raises(ParseError):
        headings_of(SkillMetadata(name="a", description="x", file=str(tmp_path)))


def test_many_threads_may_search_at_once() -> None:
    index = _index({f"skill-{number}": f"Handles topic{number % 7} quickly." for number in range(200)})
    start = threading.Barrier(8)
    found: list[list[SearchHit]] = []

    def ask() -> None:
        start.wait()
        found.extend(index.search(f"topic{number % 7} quickly") for number in range(35))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 * 35
    assert all(len(hits) == 10 for hits in found)


def test_an_index_that_is_let_go_closes_its_connection() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        index = _index(SKILLS)
        index.search("pdf")
        del index
        gc.collect()
    assert caught == []
