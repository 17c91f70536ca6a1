"""A scripted judge: answers the questions of ``instruction_adherence_score`` and of a blind comparison by a function.

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

Points = Callable[[str], int]
"""How good an output is, 1 to 5, as the judge of a blind comparison is shown it."""

_SCORED = re.compile(r"^Scores [0-9a-f]+-1: (.*)$", re.MULTILINE)
_OUTPUT = re.compile(
    r"^<<<BEGIN (?P<key>[0-9a-f]{16})-(?P<number>[12])>>>\n(?P<text>.*?)\n<<<END (?P=key)-(?P=number)>>>$",
    re.MULTILINE | re.DOTALL,
)
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


def compare_rule(points: Points) -> Rule:
    """A rule that compares two outputs blind; it applies only to such a question. An output's scores are its points.

    Args:
        points: Of an output; more points win, as many are a tie.
    """

    def answer(request: ModelRequest) -> Answer | None:
        asked = _SCORED.search(request.system_text)
        outputs = {match["number"]: match for match in _OUTPUT.finditer(request.user_text)}
        if asked is None or set(outputs) != {"1", "2"}:
            return None
        key = outputs["1"]["key"]
        given = {number: points(match["text"]) for number, match in outputs.items()}
        winner = "tie" if given["1"] == given["2"] else max(given, key=lambda number: given[number])
        lines = [f"Scores {key}-{number}: {re.sub('=N', f'={value}', asked[1])}" for number, value in given.items()]
        reasons = f"Scripted: {key}-1 has {given['1']} points, {key}-2 has {given['2']}."
        return Answer("\n".join([*lines, f"Reasons {key}: {reasons}", f"Winner {key}: {winner}"]))

    return Rule(answer)
