"""A skill's ``eval_queries.json``: queries that should load the skill, and queries that should not (C47)."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter

from adk_skills_agent.evals.cases import CaseTurn, EvalCase
from adk_skills_agent.evals.formats.located import FieldReader, Node, skill_around

TRAIN_SHARE = 0.6
"""Of the queries, each kind for itself; the rest validates a new description."""
_ID_CHARS = 48


def fits(document: Node) -> bool:
    """Whether it is such a file: a list."""
    return isinstance(document.value, list)


def read(reader: FieldReader, document: Node, skill: str | None) -> list[EvalCase]:
    """The queries of the file, as cases about the skill whose folder it lies in."""
    folder, found = skill_around(reader.path)
    name = skill or found
    if not name:
        reader.problem(
            document, "", "Which skill are these queries about? Put the file into its folder, or name it with --skill."
        )
    queries: list[tuple[Node, str, bool]] = []
    for number, item in enumerate(reader.items(document, "")):
        place = f"[{number}]"
        fields = reader.mapping(
            item, place, ("query", "should_trigger"), required=("query", "should_trigger"), strict=False
        )
        query = reader.text(fields.get("query"), f"{place}.query")
        should = reader.truth(fields.get("should_trigger"), f"{place}.should_trigger")
        if query and should is not None:
            queries.append((item, query, should))
    train = _train({query for _, query, should in queries if should}) | _train(
        {query for _, query, should in queries if not should}
    )
    slugs = Counter(_slug(query) for query in {query for _, query, _ in queries})
    return [
        EvalCase(
            id=f"{name}/query/{_slug(query, alike=slugs[_slug(query)] > 1)}",
            turns=(CaseTurn(query),),
            source=reader.source(item),
            skills=(name,),
            skill_folder=folder,
            should_trigger=should,
            split="train" if query in train else "validation",
        )
        for item, query, should in queries
    ]


def _train(queries: set[str]) -> set[str]:
    """The same queries each time, whatever their order in the file."""
    ordered = sorted(queries, key=lambda query: hashlib.sha256(query.encode("utf-8", "surrogatepass")).digest())
    return set(ordered[: math.ceil(len(ordered) * TRAIN_SHARE)])


def _slug(query: str, *, alike: bool = False) -> str:
    """The words of a query, as an id; with a part of its hash when they do not tell it from others."""
    words = re.sub(r"\W+", "-", query.lower()).strip("-") or "empty"
    if len(words) <= _ID_CHARS and not alike:
        return words
    # Long queries may begin alike, short ones differ in signs only.
    return f"{words[:_ID_CHARS].rstrip('-')}-{hashlib.sha256(query.encode('utf-8', 'surrogatepass')).hexdigest()[:6]}"
