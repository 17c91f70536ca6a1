"""Our own form, in YAML: everything a case can say, checked strictly.

skill: csv-report                        # or skills: [...]; for every case that does not say otherwise
criteria: {tool_args_score: 0.5}         # metric to threshold, or to its options; default: whatever applies
cases:
  - id: totals
    prompt: Summarise sample.csv.        # or turns: [{prompt, calls, answer_contains, rubrics}]
    files: [data/sample.csv]             # relative to this file
    calls:                               # tools that are to be called; with the arguments that matter
      - {name: load_skill, args: {skill_name: csv-report}}
    answer_contains: [North, "1,200"]    # each in the final text
    expected_files: [report.md, {name: "*.csv", contains: [total]}]
    rubrics:                             # for the judge
      - The answer names the region with the highest sales.
      - {id: file, text: The report has a table.}
    state: {user: Ada}                   # the session's state at the start
  - id: not-a-table
    prompt: Write a poem about tables.
    should_trigger: false                # makes it a trigger query
"""

from __future__ import annotations

from typing import Any

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.cases import CaseTurn, EvalCase, ExpectedFile
from adk_skills_agent.evals.formats.located import FieldReader, Node, skill_around
from adk_skills_agent.evals.judge import Rubric
from adk_skills_agent.evals.metrics.registry import read_options
from adk_skills_agent.evals.trace import ToolCall

_TURN = ("prompt", "calls", "answer_contains", "rubrics")
_CASE = (
    "id",
    *_TURN,
    "turns",
    "skill",
    "skills",
    "files",
    "expected_files",
    "expected_output",
    "should_trigger",
    "state",
    "criteria",
)
_TOP = ("skill", "skills", "criteria", "cases")


def fits(document: Node) -> bool:
    """Whether it is such a file: a mapping with ``cases``."""
    return isinstance(document.value, dict) and "cases" in document.value


def read(reader: FieldReader, document: Node, skill: str | None) -> list[EvalCase]:
    """The cases of the file."""
    top = reader.mapping(document, "", _TOP, required=("cases",))
    folder, found = skill_around(reader.path)
    skills = (skill,) if skill else _skills(reader, top, "") or ((found,) if found else ())
    criteria = read_criteria(reader, top.get("criteria"), "criteria")
    cases = []
    for number, item in enumerate(reader.items(top.get("cases"), "cases")):
        place = f"cases[{number}]"
        fields = reader.mapping(item, place, _CASE, required=("id",))
        if not fields:
            continue
        own_skills = (skill,) if skill else _skills(reader, fields, place) or skills
        cases.append(
            EvalCase(
                id=reader.identifier(fields.get("id"), f"{place}.id"),
                turns=_turns(reader, item, fields, place),
                source=reader.source(item),
                skills=own_skills,
                skill_folder=folder if own_skills == (found,) else None,
                files=reader.input_files(fields.get("files"), f"{place}.files", reader.path.parent),
                expected_files=_files(reader, fields.get("expected_files"), f"{place}.expected_files"),
                expected_output=reader.text(fields.get("expected_output"), f"{place}.expected_output"),
                should_trigger=_trigger(reader, fields, place, own_skills),
                initial_state=reader.values(fields.get("state"), f"{place}.state"),
                criteria={**criteria, **read_criteria(reader, fields.get("criteria"), f"{place}.criteria")},
            )
        )
    return cases


def read_criteria(reader: FieldReader, node: Node | None, place: str) -> dict[str, Any]:
    """Metric to criterion, as google-adk's EvalConfig has it; each checked by its metric."""
    found: dict[str, Any] = {}
    if node is not None and not isinstance(node.value, dict):
        reader.problem(node, place, f"Expected a mapping of metrics to thresholds, found {node.kind}.")
        return found
    for name, value in node.value.items() if node is not None and isinstance(node.value, dict) else ():
        try:
            read_options(name, value.plain)
        except ConfigError as error:
            reader.problem(value, f"{place}.{name}", error.message)
        else:
            found[name] = value.plain
    return found


def _skills(reader: FieldReader, fields: dict[str, Node], place: str) -> tuple[str, ...]:
    dot = f"{place}." if place else ""
    if "skill" in fields and "skills" in fields:
        reader.problem(fields["skills"], f"{dot}skills", "Give `skill` or `skills`, not both.")
    if "skill" in fields:
        return (reader.text(fields["skill"], f"{dot}skill"),)
    return reader.texts(fields.get("skills"), f"{dot}skills")


def _trigger(reader: FieldReader, fields: dict[str, Node], place: str, skills: tuple[str, ...]) -> bool | None:
    should = reader.truth(fields.get("should_trigger"), f"{place}.should_trigger")
    if should is not None and len(skills) != 1:
        reader.problem(
            fields["should_trigger"], f"{place}.should_trigger", "A trigger query is about one skill: name it."
        )
    return should


def _turns(reader: FieldReader, item: Node, fields: dict[str, Node], place: str) -> tuple[CaseTurn, ...]:
    single = [name for name in _TURN if name in fields]
    if "turns" not in fields:
        if "prompt" not in fields:
            reader.problem(item, f"{place}.prompt", "This field is missing. Give `prompt`, or `turns` with several.")
        return (_turn(reader, fields, place),)
    if single:
        reader.problem(fields["turns"], f"{place}.turns", f"With `turns`, `{single[0]}` belongs into a turn.")
    turns = []
    for number, turn in enumerate(reader.items(fields["turns"], f"{place}.turns")):
        at = f"{place}.turns[{number}]"
        turns.append(_turn(reader, reader.mapping(turn, at, _TURN, required=("prompt",)), at))
    if not turns and isinstance(fields["turns"].value, list):
        reader.problem(fields["turns"], f"{place}.turns", "Give at least one turn.")
    return tuple(turns)


def _turn(reader: FieldReader, fields: dict[str, Node], place: str) -> CaseTurn:
    return CaseTurn(
        user_text=reader.text(fields.get("prompt"), f"{place}.prompt"),
        expected_calls=_calls(reader, fields.get("calls"), f"{place}.calls"),
        reference="\n".join(reader.texts(fields.get("answer_contains"), f"{place}.answer_contains")),
        rubrics=_rubrics(reader, fields.get("rubrics"), f"{place}.rubrics"),
    )


def _calls(reader: FieldReader, node: Node | None, place: str) -> tuple[ToolCall, ...]:
    calls = []
    for number, item in enumerate(reader.items(node, place)):
        at = f"{place}[{number}]"
        if isinstance(item.value, str):
            calls.append(ToolCall(reader.text(item, at)))
            continue
        fields = reader.mapping(item, at, ("name", "args"), required=("name",))
        calls.append(
            ToolCall(reader.text(fields.get("name"), f"{at}.name"), reader.values(fields.get("args"), f"{at}.args"))
        )
    return tuple(calls)


def _rubrics(reader: FieldReader, node: Node | None, place: str) -> tuple[Rubric, ...]:
    found: dict[str, Rubric] = {}
    for number, item in enumerate(reader.items(node, place)):
        at = f"{place}[{number}]"
        if isinstance(item.value, str):
            rubric = Rubric(f"rubric-{number + 1}", reader.text(item, at))
        else:
            fields = reader.mapping(item, at, ("id", "text", "description"), required=("id", "text"))
            rubric = Rubric(
                reader.identifier(fields.get("id"), f"{at}.id"),
                reader.text(fields.get("text"), f"{at}.text"),
                reader.text(fields.get("description"), f"{at}.description"),
            )
        if rubric.id in found:
            reader.problem(item, f"{at}.id", f"Another rubric has the id {rubric.id!r}. Give each its own.")
        found[rubric.id] = rubric
    return tuple(found.values())


def _files(reader: FieldReader, node: Node | None, place: str) -> tuple[ExpectedFile, ...]:
    files = []
    for number, item in enumerate(reader.items(node, place)):
        at = f"{place}[{number}]"
        if isinstance(item.value, str):
            files.append(ExpectedFile(reader.text(item, at)))
            continue
        fields = reader.mapping(item, at, ("name", "contains"), required=("name",))
        files.append(
            ExpectedFile(
                reader.text(fields.get("name"), f"{at}.name"), reader.texts(fields.get("contains"), f"{at}.contains")
            )
        )
    return tuple(files)
