"""Skills with their eval cases, and a judge on the loopback interface, for the tests of the evaluation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adk_skills_agent.testing import Answer, ModelRequest, Rule, RuleModel

ASKED = re.compile(r"^ID: (\S+)\nProperty: (.*)$", re.MULTILINE)


def make_skill(folder: Path, name: str = "reporter", body: str = "Write REPORT at the end.") -> Path:
    skill = folder / name
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Reports on {name} data.\n---\n{body}\n")
    return skill


def write_json(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1))
    return path


def judge_model(
    says: Callable[[str, int], str], *, form: str = "ID: {id}\nRationale: why.\nVerdict {id}: {said}\n"
) -> RuleModel:
    """A judge: ``says`` gets each property and the number of the request, and returns yes, no or nothing."""
    count = 0

    def answer(request: ModelRequest) -> Answer | None:
        nonlocal count
        count += 1
        asked = ASKED.findall(request.user_text)
        if not asked:
            return None
        said = [(key, says(text, count)) for key, text in asked]
        return Answer("\n".join(form.format(id=key, said=word) for key, word in said if word) or "I cannot say.")

    return RuleModel([Rule(answer)])
