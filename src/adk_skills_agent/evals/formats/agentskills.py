"""The ``evals/evals.json`` of a skill, as agentskills.io and Anthropic's skill-creator write it (C46)."""

from __future__ import annotations

from pathlib import Path

from adk_skills_agent.evals.cases import CaseTurn, EvalCase
from adk_skills_agent.evals.formats.located import FieldReader, Node, skill_around
from adk_skills_agent.evals.judge import Rubric

_FIELDS = ("id", "prompt", "expected_output", "files", "assertions", "expectations")


def fits(document: Node) -> bool:
    """Whether it is such a file: a mapping with ``evals``."""
    return isinstance(document.value, dict) and "evals" in document.value


def read(reader: FieldReader, document: Node, skill: str | None) -> list[EvalCase]:
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
