"""Recall of the skill search over real skills: how often the skill a query was written for is among the first five.

    python benchmarks/recall/measure.py [--half tune|held-out|both] [--misses]

The catalog is what a registry makes of the first 1,530 skills of the corpus: the first skill of each name. A query is
answered when one of the hits has the name of the skill it was written for, or the very same description (whitespace
folded): the corpus holds copies of a skill under other names. README.md says how the queries were written.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from adk_skills_agent.catalog.search import SearchIndex
from adk_skills_agent.catalog.skill import headings_of
from adk_skills_agent.errors import ParseError
from adk_skills_agent.format import parse_head
from adk_skills_agent.format.models import SkillMetadata

HERE = Path(__file__).resolve().parent
CORPUS = Path(os.environ.get("ADK_SKILLS_CORPUS", HERE.parents[2] / "shared" / "corpus"))
CATALOG_SKILLS = 1_530
HALVES = ("tune", "held-out")


@dataclass(frozen=True)
class Answer:
    """One query and at which place (from 1) its skill came, None when not among the hits."""

    query: str
    skill: str
    half: str
    place: int | None
    seconds: float
    hits: tuple[str, ...]


def corpus_skills(corpus: Path, count: int) -> dict[str, SkillMetadata]:
    """The first skills of the corpus by their path in it, in the order of layout.jsonl."""
    found: dict[str, SkillMetadata] = {}
    with (corpus / "layout.jsonl").open(encoding="utf-8") as lines:
        for line, _ in zip(lines, range(count), strict=False):
            path = json.loads(line)["skill"]
            try:
                found[path] = parse_head(corpus / path / "SKILL.md").metadata
            except ParseError as error:
                print(f"skipped: {error}")
    return found


def first_of_each_name(skills: dict[str, SkillMetadata]) -> list[SkillMetadata]:
    """What a registry lists: a skill shadows the later ones of its name."""
    catalog: dict[str, SkillMetadata] = {}
    for item in skills.values():
        catalog.setdefault(item.name, item)
    return list(catalog.values())


def queries(half: str) -> Iterator[tuple[str, str]]:
    """Query and path of its skill."""
    for line in (HERE / "queries.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["half"] == half:
            yield row["query"], row["skill"]


def answers(index: SearchIndex, skills: dict[str, SkillMetadata], half: str, limit: int = 50) -> list[Answer]:
    """Ask every query of a half."""
    found = []
    for query, path in queries(half):
        target = skills[path]
        start = time.perf_counter()
        hits = index.search(query, limit)
        seconds = time.perf_counter() - start
        same = (
            place
            for place, hit in enumerate(hits, 1)
            if hit.name == target.name or hit.description.split() == target.description.split()
        )
        found.append(Answer(query, path, half, next(same, None), seconds, tuple(hit.name for hit in hits)))
    return found


def recall(found: list[Answer], at: int = 5) -> float:
    """Share of the queries whose skill is among the first hits."""
    return sum(answer.place is not None and answer.place <= at for answer in found) / len(found)


def corpus_measure(corpus: Path) -> list[dict[str, object]]:
    """The rows of ``make bench``: recall of both halves, and whether the catalogue keeps to its budgets."""
    from adk_skills_agent.catalog.budget import catalog_budget_tokens, fit_catalog

    skills = corpus_skills(corpus, CATALOG_SKILLS)
    catalog = first_of_each_name(skills)
    index = SearchIndex(catalog, headings_of)
    rows: list[dict[str, object]] = []
    for half in HALVES:
        found = answers(index, skills, half)
        value = recall(found)
        rows.append(
            {
                "what": f"search in {len(catalog):,} real skills, recall@5, {len(found)} queries, {half} half",
                "ours": f"{value:.3f}",
                "theirs": "no local search",
                "ratio": "",
                "bar": ">= 0.90",
                "held": value >= 0.90,
            }
        )
    for model in (None, "gemini-2.5-flash"):
        budget = catalog_budget_tokens(model)
        text = fit_catalog(catalog, budget, search_hint="search_skills")
        lost = [name for name in text.dropped if name not in [hit.name for hit in index.search(name, 5)]]
        rows.append(
            {
                "what": f"catalogue of {len(catalog):,} real skills, budget {budget:,} tokens: "
                f"{len(text.dropped)} left out, {len(lost)} of them not found by name",
                "ours": f"{text.tokens:,} tokens",
                "theirs": "no budget",
                "ratio": "",
                "bar": "never over it",
                "held": text.tokens <= budget and not lost,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--half", choices=[*HALVES, "both"], default="both")
    parser.add_argument("--misses", action="store_true", help="print the queries of the tune half that failed")
    chosen = parser.parse_args()
    skills = corpus_skills(CORPUS, CATALOG_SKILLS)
    catalog = first_of_each_name(skills)
    index = SearchIndex(catalog, headings_of)
    start = time.perf_counter()
    index.search("anything")
    print(f"{len(skills)} skills, {len(catalog)} in the catalog, index built in {time.perf_counter() - start:.2f} s")
    for half in HALVES if chosen.half == "both" else (chosen.half,):
        found = answers(index, skills, half)
        first = sum(answer.place == 1 for answer in found) / len(found)
        rank = sum(1 / answer.place for answer in found if answer.place) / len(found)
        slow = sorted(answer.seconds for answer in found)
        print(
            f"{half}: {len(found)} queries, recall@5 {recall(found):.3f}, recall@1 {first:.3f}, mean reciprocal rank"
            f" {rank:.3f}, median {1000 * slow[len(slow) // 2]:.1f} ms, slowest {1000 * slow[-1]:.1f} ms"
        )
        for answer in found if chosen.misses and half == "tune" else ():
            if answer.place is None or answer.place > 5:
                print(f"  {answer.place}: {answer.query!r} -> {answer.skill}; got {answer.hits[:5]}")


if __name__ == "__main__":
    main()
