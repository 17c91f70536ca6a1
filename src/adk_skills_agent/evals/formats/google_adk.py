"""google-adk's EvalSet JSON, read by google-adk's own classes; with the ``test_config.json`` beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.cases import CaseTurn, EvalCase, Scenario
from adk_skills_agent.evals.formats.located import FieldReader, Node, Unreadable, json_document, skill_around
from adk_skills_agent.evals.formats.yaml_file import read_criteria
from adk_skills_agent.evals.judge import Rubric, check_ids
from adk_skills_agent.evals.metrics.registry import METRICS
from adk_skills_agent.evals.trace import from_invocations
from adk_skills_agent.format.models import Severity
from adk_skills_agent.sources.tree import read_regular

if TYPE_CHECKING:
    import google.adk.evaluation.eval_case as google_case
    from google.adk.evaluation.eval_rubrics import Rubric as GoogleRubric

CONFIG = "test_config.json"
RUBRIC_TYPE = "INSTRUCTION_ADHERENCE"
"""Rubrics of this type, and of none, are for our judge; the other types are for google-adk's own metrics."""
_MODEL = re.compile(r"[\w.-]*(?:/[\w.:@-]+)*")
"""Not ``module:attribute``, which would be imported: cases are often a stranger's (row 155)."""


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
    criteria, simulator = _config(reader.path, reader)
    cases = []
    for number, (case, node) in enumerate(zip(eval_set.eval_cases, nodes, strict=True)):
        if case.conversation_scenario is None and not case.conversation:
            reader.problem(
                _member(node, "conversation"), f"eval_cases[{number}].conversation", "It has no invocations."
            )
            continue
        skills = (skill,) if skill else _skills(reader, node, number) or ((found,) if found else ())
        cases.append(
            EvalCase(
                id=case.eval_id,
                turns=_turns(reader, case, node, number),
                scenario=_scenario(reader, node, case, simulator),
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
    if case.conversation_scenario is not None:
        asked = tuple(own for one in case.rubrics or () if (own := _rubric(reader, one, node)) is not None)
        try:
            check_ids(asked)
        except ConfigError as error:
            reader.problem(node, f"eval_cases[{number}].rubrics", error.message)
        return (CaseTurn(case.conversation_scenario.starting_prompt, rubrics=asked),)
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


def _scenario(
    reader: FieldReader, node: Node, case: google_case.EvalCase, simulator: Mapping[str, Any]
) -> Scenario | None:
    if case.conversation_scenario is None:
        return None
    settings = dict(simulator)
    model = str(settings.pop("model", ""))
    scenario = Scenario(case.conversation_scenario.model_dump(mode="json"), settings, model)
    if code := scenario.template_code:
        reader.problem(
            node,
            "conversation_scenario",
            f"{code[:60]!r} in a text of the persona, or in custom_instructions of {CONFIG}, is more than a name such "
            "as {{ stop_signal }}, or too much of them: a file of cases runs nothing. Write the text itself.",
        )
    return scenario


def _config(path: Path, reader: FieldReader) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Criteria and user simulator of the sibling file, as ``adk eval`` reads it; what is not used here is named."""
    config = path.parent / CONFIG
    if not config.is_file():
        return {}, {}
    other = FieldReader(config)
    try:
        document = json_document(read_regular(config).decode("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        reader.problems.append(f"{config}: It cannot be read: {error}.")
        return {}, {}
    except Unreadable as error:
        reader.problems.append(f"{config}:{error.line}: {error.message}")
        return {}, {}
    criteria = _member(document, "criteria")
    ours: dict[str, Node] = {}
    for name, node in (criteria.value if isinstance(criteria.value, dict) else {}).items():
        if name in METRICS:
            ours[name] = node
        else:
            other.note(
                node, "other-metric", f"criteria.{name} is not one of ours: adk eval measures it.", Severity.INFO
            )
    found = read_criteria(other, Node(ours, criteria.line), "criteria")
    simulator = _simulator(other, document)
    reader.problems += other.problems
    reader.notes += other.notes
    return found, simulator


def _simulator(reader: FieldReader, document: Node) -> Mapping[str, Any]:
    """``user_simulator_config``: what it says, and no defaults, so that a model nobody named is known as such."""
    from google.adk.evaluation.simulation.llm_backed_user_simulator import LlmBackedUserSimulatorConfig

    node = _member(document, "user_simulator_config")
    if node is document or node.value is None:
        return {}
    place = "user_simulator_config"
    fields = node.plain
    if isinstance(fields, dict) and fields.get("type") not in (None, "llm_backed"):
        reader.note(
            node, "other-user", f"{place}: a user of type {fields['type']!r} is not played here; llm_backed is."
        )
        return {}
    try:
        config = LlmBackedUserSimulatorConfig.model_validate(fields)
    except ValidationError as error:
        for one in error.errors(include_url=False, include_input=False):
            at, below = _at(node, one["loc"])
            reader.problem(at, ".".join(filter(None, [place, below])), f"{one['msg'].rstrip('.')}.")
        return {}
    except RecursionError:  # google-adk parses the template
        reader.problem(node, f"{place}.custom_instructions", "The template is nested too deeply.")
        return {}
    said: dict[str, Any] = config.model_dump(mode="json", exclude_unset=True)
    if not _MODEL.fullmatch(said.get("model", "")):
        reader.note(
            _member(node, "model"),
            "no-model-name",
            f"{place}.model: {said.pop('model')!r} is for you to say, with --user-model, and not for a file: it may be "
            "code, a file of rules or an address.",
        )
    configuration = said.get("model_configuration", {})
    if others := sorted(configuration.keys() - _OF_A_MODEL):
        reader.note(
            _member(node, "model_configuration"),
            "not-for-a-file",
            f"{place}.model_configuration: {', '.join(others)} counts for nothing; a file may say "
            f"{', '.join(sorted(_OF_A_MODEL))}.",
        )
        said["model_configuration"] = {key: configuration[key] for key in configuration.keys() & _OF_A_MODEL}
    return said


_OF_A_MODEL = frozenset(
    (
        *("temperature", "top_p", "top_k", "max_output_tokens", "seed", "stop_sequences"),
        *("presence_penalty", "frequency_penalty", "thinking_config", "safety_settings"),
    )
)
"""What a file may set for the model that plays the user: it has the user's key, and goes nowhere else (row 488)."""


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
