"""A scripted judge: answers the questions of ``instruction_adherence_score`` by a function of yours.

A judge model is a model like any other, so a rule for it can stand among an agent's rules on one server.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from adk_skills_agent.testing.conversation import Answer
from adk_skills_agent.testing.request import ModelRequest
from adk_skills_agent.testing.rules import Rule

Holds = Callable[[str, str], bool]
"""Whether a property (the first text) holds for a conversation (the second), as the judge is shown them."""

_PROPERTY = re.compile(r"^ID: (?P<id>\S+)\nProperty: (?P<text>.*)$", re.MULTILINE)


def judge_rule(holds: Holds) -> Rule:
    """A rule that judges; it applies only to a judge's questions.

    Args:
        holds: Says of each property whether it holds.
    """

    def answer(request: ModelRequest) -> Answer | None:
        if "Rationale:" not in request.system_text or "Verdict" not in request.system_text:
            return None
        conversation, _, _ = request.user_text.rpartition("<<<END ")
        asked = request.user_text[len(conversation) :]
        lines = []
        for match in _PROPERTY.finditer(asked):
            met = holds(match["text"], conversation)
            lines.append(f"ID: {match['id']}\nRationale: Scripted.\nVerdict {match['id']}: {'yes' if met else 'no'}")
        return Answer("\n\n".join(lines)) if lines else None

    return Rule(answer)
