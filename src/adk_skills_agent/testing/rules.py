"""A model made of rules: what the request shows decides what it says.

Unlike a rehearsed conversation it is not written for one agent or one question: the same rules answer thousands of
conversations at once. Nothing is remembered between requests; how far a conversation has come, its history tells.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from adk_skills_agent.testing.conversation import Answer, Call, Mismatch, Refusal, When, fill_answer
from adk_skills_agent.testing.request import ModelRequest

AnswerMaker = Callable[[ModelRequest], Answer | None]
"""Makes an answer for a request; None when the rule has none for it."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What to say when something holds.

    A rule that calls a tool applies only where the tool is offered, and until the very call has been made since the
    user's latest message; then the next rule has its turn.

    Attributes:
        answer: What the model says, or a function of the request that makes it. Texts may hold templates.
        when: What must hold.
        times: How often its calls may be made in a turn.
        line: Where it was read; 0 when it was not.
    """

    answer: Answer | Refusal | AnswerMaker
    when: When = field(default_factory=When)
    times: int = 1
    line: int = 0


@dataclass(frozen=True, slots=True)
class RuleModel:
    """Answers a request by the first of its rules that applies.

        model = RuleModel(
            [
                Rule(call("load_skill", skill_name="csv-report"), When(user_contains=("CSV",), skills=("csv-report",))),
                Rule(say("Done."), When(last_tool=("load_skill",))),
            ],
            otherwise=say("I cannot help with that."),
        )
        with GeminiServer(model) as server: ...

    Attributes:
        rules: In order.
        otherwise: What to say when none applies; None refuses the request, with the reason of each rule.
        name: For messages.
        source: Where it was read from.
    """

    rules: Sequence[Rule]
    otherwise: Answer | Refusal | None = None
    name: str = "rules"
    source: str = ""

    def reply(self, request: ModelRequest) -> Answer | Refusal:
        """What the model says. Raises ``Mismatch`` when no rule applies, or a template finds nothing."""
        objections = []
        for number, rule in enumerate(self.rules, 1):
            place = f"Rule {number} of {self.name!r}" + (f" ({self.source}:{rule.line})" if rule.line else "")
            said, objection = _said(rule, request, place)
            if said is not None:
                return said
            objections.append(f"rule {number} expected {objection}")
        if isinstance(self.otherwise, Answer):
            return fill_answer(self.otherwise, request, f"`otherwise` of {self.name!r}")
        if self.otherwise is not None:
            return self.otherwise
        raise Mismatch(f"No rule of {self.name!r} is for this request: {'; '.join(objections) or 'it has none'}.")


def call(name: str, /, **args: object) -> Answer:
    """An answer that calls one tool.

    Texts in ``args`` may hold templates.
    """
    return Answer(calls=(Call(name, args),))


def say(text: str) -> Answer:
    """An answer in words, which may hold templates."""
    return Answer(text)


def _said(rule: Rule, request: ModelRequest, place: str) -> tuple[Answer | Refusal | None, str]:
    """The rule's answer, or why it has none."""
    if (objection := rule.when.objection(request)) is not None:
        return None, objection
    answer = rule.answer
    if callable(answer):
        made = answer(request)
        if made is None:
            return None, "something its function did not find"
        answer = made
    if isinstance(answer, Refusal):
        return answer, ""
    for one in answer.calls:
        if not one.undeclared and one.name not in request.tool_names:
            return None, f"the tool {one.name!r} to be offered; the request offers {request.tool_names}"
    filled = fill_answer(answer, request, place)
    if filled.calls and _spent(filled, request, rule.times):
        return None, f"its call not to have been made {rule.times} time(s) in this turn"
    return filled, ""


def _spent(answer: Answer, request: ModelRequest, times: int) -> bool:
    made = request.calls_of_turn
    return all(sum(m.name == c.name and m.args == dict(c.args) for m in made) >= times for c in answer.calls)


# A scripted judge: answers the questions of ``instruction_adherence_score`` and of a blind comparison by a function.
#
# A judge model is a model like any other, so a rule for it can stand among an agent's rules on one server.

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
    """A rule that judges; it applies only to a judge's questions."""

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

    Of ``points`` more win; as many are a tie.
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
