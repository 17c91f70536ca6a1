"""The files of agentskills.io and Anthropic's skill-creator: ``evals.json`` and ``eval_queries.json`` (C46, C47)."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from pathlib import Path

from adk_skills_agent.evals.cases import CaseTurn, EvalCase
from adk_skills_agent.evals.formats.located import FieldReader, Node, skill_around
from adk_skills_agent.evals.judge import Rubric

_FIELDS = ("id", "prompt", "expected_output", "files", "assertions", "expectations")


def is_evals(document: Node) -> bool:
    """Whether it is an ``evals.json``: a mapping with ``evals``."""
    return isinstance(document.value, dict) and "evals" in document.value


def read_evals(reader: FieldReader, document: Node, skill: str | None) -> list[EvalCase]:
    """The cases of the file.

    ``assertions`` (``expectations`` with skill-creator) become rubrics; without any, ``expected_output`` is the one
    rubric. ``files`` are relative to the skill's folder.
    """
    top = reader.mapping(document, "", ("skill_name", "evals"), required=("skill_name", "evals"), strict=False)
    name = reader.text(top.get("skill_name"), "skill_name")
    folder, found = skill_around(reader.path)
    if folder is not None and found != name and "skill_name" in top:
        reader.note(top["skill_name"], "other-skill-name", f"skill_name is {name!r}; the skill here is {found!r}.")
    name = skill or (found if folder is not None else name)
    root = folder or reader.path.parent
    cases = []
    for number, item in enumerate(reader.items(top.get("evals"), "evals")):
        place = f"evals[{number}]"
        case = reader.mapping(item, place, _FIELDS, required=("id", "prompt"), strict=False)
        if not case:
            continue
        expected = reader.text(case.get("expected_output"), f"{place}.expected_output", empty=True)
        cases.append(
            EvalCase(
                id=f"{name}/{reader.identifier(case.get('id'), f'{place}.id')}",
                turns=(
                    CaseTurn(
                        reader.text(case.get("prompt"), f"{place}.prompt"),
                        rubrics=_rubrics(reader, case, place, expected),
                    ),
                ),
                source=reader.source(item),
                skills=(name,),
                skill_folder=folder,
                files=reader.input_files(case.get("files"), f"{place}.files", Path(root)),
                expected_output=expected,
            )
        )
    return cases


def _rubrics(reader: FieldReader, case: dict[str, Node], place: str, expected: str) -> tuple[Rubric, ...]:
    key = "assertions" if "assertions" in case else "expectations"
    texts = reader.texts(case.get(key), f"{place}.{key}")
    if texts:
        return tuple(Rubric(f"assertion-{number}", text) for number, text in enumerate(texts, 1))
    if expected.strip():
        return (Rubric("expected-output", f"The result is as described: {expected.strip()}"),)
    return ()


# Queries that should load the skill, and queries that should not.

TRAIN_SHARE = 0.6
"""Of the queries, each kind for itself; the rest validates a new description."""
_ID_CHARS = 48


def is_queries(document: Node) -> bool:
    """Whether it is an ``eval_queries.json``: a list."""
    return isinstance(document.value, list)


def read_queries(reader: FieldReader, document: Node, skill: str | None) -> list[EvalCase]:
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
