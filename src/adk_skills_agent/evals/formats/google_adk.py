"""google-adk's EvalSet JSON, read by google-adk's own classes; the thresholds of the ``test_config.json`` beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from adk_skills_agent.evals.cases import CaseTurn, EvalCase
from adk_skills_agent.evals.formats.fields import FieldReader
from adk_skills_agent.evals.formats.located import Node, Unreadable, json_document
from adk_skills_agent.evals.formats.skill_of import skill_around
from adk_skills_agent.evals.formats.yaml_file import read_criteria
from adk_skills_agent.evals.metrics.table import METRICS
from adk_skills_agent.evals.rubrics import Rubric
from adk_skills_agent.evals.trace import from_invocations
from adk_skills_agent.format.diagnostic import Severity

if TYPE_CHECKING:
    import google.adk.evaluation.eval_case as google_case
    from google.adk.evaluation.eval_rubrics import Rubric as GoogleRubric

CONFIG = "test_config.json"
RUBRIC_TYPE = "INSTRUCTION_ADHERENCE"
"""Rubrics of this type, and of none, are for our judge; the other types are for google-adk's own metrics."""


def fits(document: Node) -> bool:
    """Whether it is an EvalSet: a mapping with ``eval_cases``."""
    return isinstance(document.value, dict) and "eval_cases" in document.value


def read(reader: FieldReader, document: Node, skill: str | None) -> list[EvalCase]:
    """The cases of the file. Each may name its ``skills`` (google-adk ignores them); else it is about all of them."""
    from google.adk.evaluation.eval_set import EvalSet

    try:
        eval_set = EvalSet.model_validate(document.plain)
    except ValidationError as error:
        for one in error.errors(include_url=False, include_input=False):
            node, place = _at(document, one["loc"])
            reader.problem(node, place, f"{one['msg'].removeprefix('Value error, ').rstrip('.')}.")
        return []
    folder, found = skill_around(reader.path)
    items = _member(document, "eval_cases").value
    nodes = items if isinstance(items, list) else []
    criteria = _criteria(reader.path, reader)
    cases = []
    for number, (case, node) in enumerate(zip(eval_set.eval_cases, nodes, strict=True)):
        if case.conversation is None:
            reader.note(
                node,
                "scenario-not-run",
                f"Case {case.eval_id!r} has a conversation_scenario, which needs a simulated user: use adk eval.",
                Severity.ERROR,
            )
            continue
        if not case.conversation:
            reader.problem(
                _member(node, "conversation"), f"eval_cases[{number}].conversation", "It has no invocations."
            )
            continue
        skills = (skill,) if skill else _skills(reader, node, number) or ((found,) if found else ())
        cases.append(
            EvalCase(
                id=case.eval_id,
                turns=_turns(reader, case, node, number),
                source=reader.source(node),
                skills=skills,
                skill_folder=folder if skills == (found,) else None,
                initial_state=dict(case.session_input.state) if case.session_input else {},
                criteria=criteria,
            )
        )
        if case.final_session_state:
            reader.note(node, "unused-field", f"eval_cases[{number}].final_session_state is not used.", Severity.INFO)
    return cases


def _turns(reader: FieldReader, case: google_case.EvalCase, node: Node, number: int) -> tuple[CaseTurn, ...]:
    invocations = case.conversation or []
    turns = []
    for index, (invocation, turn) in enumerate(zip(invocations, from_invocations(invocations).turns, strict=True)):
        place = f"eval_cases[{number}].conversation[{index}]"
        here = _at(node, ("conversation", index))[0]
        if not turn.user_text.strip():
            reader.problem(here, f"{place}.user_content", "The user's message has no text.")
        rubrics: dict[str, Rubric] = {}
        for rubric in (*(case.rubrics or ()), *(invocation.rubrics or ())):
            own = _rubric(reader, rubric, here)
            if own is None:
                continue
            if own.id in rubrics:
                reader.problem(here, f"{place}.rubrics", f"Two rubrics have the id {own.id!r}. Give each its own.")
            rubrics[own.id] = own
        turns.append(CaseTurn(turn.user_text, turn.calls, turn.final_text, tuple(rubrics.values())))
    return tuple(turns)


def _rubric(reader: FieldReader, rubric: GoogleRubric, node: Node) -> Rubric | None:
    text = rubric.rubric_content.text_property or ""
    if rubric.type not in (None, RUBRIC_TYPE):
        reader.note(
            node, "other-rubric-type", f"Rubric {rubric.rubric_id!r} is of type {rubric.type}: not judged here."
        )
        return None
    if not text.strip() or not rubric.rubric_id:
        reader.problem(node, "rubrics", f"Rubric {rubric.rubric_id!r} needs an id and a text_property.")
        return None
    return Rubric(rubric.rubric_id, text, rubric.description or "")


def _skills(reader: FieldReader, node: Node, number: int) -> tuple[str, ...]:
    fields = node.value if isinstance(node.value, dict) else {}
    return reader.texts(fields.get("skills"), f"eval_cases[{number}].skills")


def _criteria(path: Path, reader: FieldReader) -> Mapping[str, Any]:
    """Of the sibling file, as ``adk eval`` reads it; metrics that are not ours are named."""
    config = path.parent / CONFIG
    if not config.is_file():
        return {}
    other = FieldReader(config)
    try:
        criteria = _member(json_document(config.read_text(encoding="utf-8-sig")), "criteria")
    except (OSError, UnicodeDecodeError) as error:
        reader.problems.append(f"{config}: It cannot be read: {error}.")
        return {}
    except Unreadable as error:
        reader.problems.append(f"{config}:{error.line}: {error.message}")
        return {}
    ours: dict[str, Node] = {}
    for name, node in (criteria.value if isinstance(criteria.value, dict) else {}).items():
        if name in METRICS:
            ours[name] = node
        else:
            other.note(
                node, "other-metric", f"criteria.{name} is not one of ours: adk eval measures it.", Severity.INFO
            )
    found = read_criteria(other, Node(ours, criteria.line), "criteria")
    reader.problems += other.problems
    reader.notes += other.notes
    return found


def _member(node: Node, name: str) -> Node:
    """A field of a mapping in either spelling (``eval_id``, ``evalId``); the mapping itself when it is not there."""
    if isinstance(node.value, dict):
        for key, value in node.value.items():
            if _plain_name(key) == _plain_name(name):
                return value
    return node


def _at(node: Node, location: tuple[int | str, ...]) -> tuple[Node, str]:
    """The value at a location of pydantic's, or the nearest above it, and the location as a person writes it."""
    place = ""
    for step in location:
        if isinstance(step, int):
            place += f"[{step}]"
            if isinstance(node.value, list) and step < len(node.value):
                node = node.value[step]
            continue
        if isinstance(node.value, dict):
            below = _member(node, step)
            name = next((key for key in node.value if _plain_name(key) == _plain_name(step)), _snake(step))
            if below is node and step[:1].isupper():
                continue  # a member of a union, which is no field
            place, node = (f"{place}.{name}" if place else name), below
        elif not step[:1].isupper():
            place += f".{_snake(step)}"
    return node, place


def _plain_name(name: str) -> str:
    return name.replace("_", "").lower()


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()
