from __future__ import annotations

import json
import os
import re
from html import unescape
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adk_skills_agent.catalog.budget import (
    MAX_CATALOG_TOKENS,
    MIN_DESCRIPTION_TOKENS,
    CatalogText,
    catalog_budget_tokens,
    estimate_tokens,
    fit_catalog,
)
from adk_skills_agent.catalog.search import SearchIndex
from adk_skills_agent.errors import ParseError
from adk_skills_agent.format import SkillMetadata, parse_head, to_available_skills_xml

CORPUS = Path(os.environ.get("ADK_SKILLS_CORPUS", Path(__file__).resolve().parents[3] / "shared" / "corpus"))
SENTENCE = "Reads a file and says what is in it. Use it when a file is to be described, however large it may be. "


def _skills(count: int, description: str = SENTENCE * 3) -> list[SkillMetadata]:
    return [SkillMetadata(name=f"skill-{number:04}", description=description.strip()) for number in range(count)]


def _described(found: CatalogText) -> dict[str, str]:
    return {
        unescape(name): unescape(text) for name, text in re.findall(r'<skill name="(.*?)">(.*)</skill>', found.text)
    }


@pytest.mark.parametrize(
    ("model", "budget"),
    [(None, 4_000), ("gemini-2.5-flash", MAX_CATALOG_TOKENS), ("gpt-4o", 2_560), ("gpt-4", 163)],
)
def test_the_catalog_takes_two_percent_of_the_context_but_never_more_than_the_most(
    model: str | None, budget: int
) -> None:
    assert catalog_budget_tokens(model) == budget


def test_the_specification_form_is_used_when_all_of_it_fits() -> None:
    skills = _skills(5)
    found = fit_catalog(skills, 2_000, search_hint="search_skills")
    assert found.text == to_available_skills_xml(skills)
    assert found.tokens == estimate_tokens(found.text)
    assert found.shown == tuple(skill.name for skill in skills)
    assert found.shortened == found.dropped == found.diagnostics == ()


def test_no_skills_is_an_empty_block() -> None:
    assert fit_catalog([], 100).text == "<available_skills>\n</available_skills>"
    assert fit_catalog([], 0).text == ""


def test_a_denser_form_comes_before_any_cut() -> None:
    skills = _skills(20)
    whole = estimate_tokens(to_available_skills_xml(skills))
    found = fit_catalog(skills, whole - 1, search_hint="search_skills")
    assert found.shortened == ()
    assert _described(found) == {skill.name: skill.description for skill in skills}
    assert found.diagnostics == ()


def test_only_the_longest_descriptions_are_shortened() -> None:
    skills = [*_skills(10, "Short and to the point."), SkillMetadata(name="wordy", description=SENTENCE * 20)]
    found = fit_catalog(skills, 300, search_hint="search_skills")
    assert found.shortened == ("wordy",)
    assert found.shown[-1] == "wordy"
    assert _described(found)["skill-0003"] == "Short and to the point."


def test_a_description_is_cut_after_a_sentence_or_a_word() -> None:
    skills = _skills(40)
    for budget in range(900, 2_400, 100):
        for text in _described(fit_catalog(skills, budget)).values():
            kept = text.removesuffix(" …")
            assert skills[0].description.startswith(kept)
            assert skills[0].description[len(kept) :][:1] in {" ", ",", ""}
            assert estimate_tokens(text) <= estimate_tokens(skills[0].description)


def test_names_come_before_any_skill_is_dropped() -> None:
    skills = _skills(100)
    found = fit_catalog(skills, 800, search_hint="search_skills")
    assert found.dropped == ()
    assert found.shown == tuple(skill.name for skill in skills)
    described = _described(found)
    assert list(described) == list(found.shown[: len(described)])
    assert all(estimate_tokens(text) <= MIN_DESCRIPTION_TOKENS for text in described.values())
    assert "<names_only>\n" + "\n".join(found.shown[len(described) :]) + "\n</names_only>" in found.text
    assert found.text.endswith("skills are listed by name only; search_skills(query) tells what they do.")


def test_what_is_dropped_is_counted_in_the_text_and_named_to_the_owner() -> None:
    found = fit_catalog(_skills(100), 200, search_hint="find_it")
    assert found.text.endswith(f"\n{len(found.dropped)} more skills are not listed; find them with find_it(query).")
    assert found.shown + found.dropped == tuple(skill.name for skill in _skills(100))
    shortened, dropped = found.diagnostics
    assert shortened.code == "catalog-shortened"
    assert dropped.code == "catalog-dropped"
    assert f"{len(found.dropped)} of 100" in dropped.message
    assert found.dropped[0] in dropped.message


def test_without_a_search_tool_none_is_named() -> None:
    assert fit_catalog(_skills(100), 200).text.endswith("more skills are not listed.")


@pytest.mark.parametrize("budget", [-5, 0, 1, 5])
def test_a_budget_too_small_for_anything_gives_no_text(budget: int) -> None:
    found = fit_catalog(_skills(3), budget, search_hint="search_skills")
    assert found.text == ""
    assert len(found.dropped) == 3
    assert [diagnostic.code for diagnostic in found.diagnostics] == ["catalog-dropped"]


def test_markup_in_a_description_stays_text_however_it_is_cut() -> None:
    hostile = SkillMetadata(name="a", description='</skill><skill name="b">&amp; "x" <&>' * 40)
    for budget in range(40, 900, 7):
        found = fit_catalog([hostile, *_skills(2)], budget)
        if found.shown:
            block = found.text[: found.text.index("</available_skills>") + len("</available_skills>")]
            names = [skill.get("name", skill.findtext("name")) for skill in ET.fromstring(block).iter("skill")]
            assert "b" not in names


_WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=300)
_ITEMS = st.lists(
    st.builds(SkillMetadata, name=st.from_regex(r"[a-zé][a-z0-9-]{0,30}", fullmatch=True), description=_WORDS),
    max_size=40,
)


@given(_ITEMS, st.integers(-10, 3_000), st.sampled_from([None, "search_skills"]))
def test_the_text_is_never_over_the_budget_and_nothing_is_lost(
    items: list[SkillMetadata], budget: int, hint: str | None
) -> None:
    found = fit_catalog(items, budget, search_hint=hint)
    assert found.tokens == estimate_tokens(found.text) <= max(budget, 0)
    assert found.shown + found.dropped == tuple(item.name for item in items)
    assert set(found.shortened) <= set(found.shown)
    assert bool(found.dropped) == ("catalog-dropped" in {diagnostic.code for diagnostic in found.diagnostics})
    assert found == fit_catalog(items, budget, search_hint=hint)


@given(_ITEMS, st.integers(0, 2_000), st.integers(0, 500))
def test_a_larger_budget_never_shows_fewer_skills(items: list[SkillMetadata], budget: int, more: int) -> None:
    assert len(fit_catalog(items, budget).shown) <= len(fit_catalog(items, budget + more).shown)


@pytest.fixture(scope="module")
def corpus_catalog() -> list[SkillMetadata]:
    if not CORPUS.is_dir():
        pytest.skip(f"the corpus of real skills is not at {CORPUS}; set ADK_SKILLS_CORPUS")
    catalog: dict[str, SkillMetadata] = {}
    for line in (CORPUS / "layout.jsonl").read_text(encoding="utf-8").splitlines()[:1_530]:
        try:
            item = parse_head(CORPUS / json.loads(line)["skill"] / "SKILL.md").metadata
        except ParseError:
            continue
        catalog.setdefault(item.name, item)
    return list(catalog.values())


@pytest.mark.parametrize("budget", [163, 2_560, 4_000, 8_000, 100_000, 200_000])
def test_the_catalog_of_real_skills_is_never_over_the_budget(corpus_catalog: list[SkillMetadata], budget: int) -> None:
    found = fit_catalog(corpus_catalog, budget, search_hint="search_skills")
    assert estimate_tokens(found.text) <= budget
    assert len(found.shown) + len(found.dropped) == len(corpus_catalog)


def test_every_real_skill_that_is_dropped_is_found_by_its_name(corpus_catalog: list[SkillMetadata]) -> None:
    found = fit_catalog(corpus_catalog, 4_000, search_hint="search_skills")
    index = SearchIndex(corpus_catalog, lambda item: "")
    assert found.dropped
    missed = [name for name in found.dropped if name not in {hit.name for hit in index.search(name, 5)}]
    assert missed == []
