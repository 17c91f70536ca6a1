"""A model that hallucinates: it calls tools, skills and files that do not exist, and gets arguments wrong, by a seed.

Whether an answer is wrong depends on the seed and on the conversation alone: on what the user has said, how many
answers came before, the model's name and the ``seed`` the agent asks for. It depends neither on other conversations nor
on the order in which requests arrive, so that any number of trials may run at once, with the same numbers each time.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby
from typing import Any

from adk_skills_agent.testing.conversation import Answer, Call, Conversation, Refusal
from adk_skills_agent.testing.request import FunctionCall, JsonObject, ModelRequest, calls_of
from adk_skills_agent.testing.rules import RuleModel

SKILL_ARGUMENTS = ("skill_name", "skill", "name")
PATH_ARGUMENTS = ("file_path", "path", "script_path", "script", "reference")


class Hallucination(StrEnum):
    """What is wrong with a call: the tool's name, the skill's, a file's path, or an argument.

    An argument is left out, is one more than the tool has, or has the wrong type.
    """

    TOOL = "tool"
    SKILL = "skill"
    PATH = "path"
    ARGUMENT = "argument"


EVERY_KIND = tuple(Hallucination)


@dataclass(frozen=True, slots=True)
class ChaoticModel:
    """Says what another model says, but with the wrong calls at a given rate; then it tries again.

    The other model does not see the wrong calls and what came of them, so it goes on where it was.

    Attributes:
        model: What is right.
        rate: The share of answers with calls that come out wrong, 0 to 1.
        seed: Another seed, other mistakes.
        kinds: What may be wrong. A kind that a call has no place for (a path in ``list_skills``) is passed over.
        in_a_row: After so many wrong answers the next is right, so that a conversation ends at any rate.

    Raises:
        ValueError: The rate is not from 0 to 1, there is no kind, or the conversation refuses requests some times.
    """

    model: RuleModel | Conversation
    rate: float
    seed: int = 0
    kinds: tuple[Hallucination, ...] = EVERY_KIND
    in_a_row: int = 3

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise ValueError(f"rate must be from 0 to 1, not {self.rate}")
        if not self.kinds:
            raise ValueError("a chaotic model needs at least one kind of hallucination")
        if isinstance(self.model, Conversation) and any(turn.refusal and turn.answer for turn in self.model.turns):
            raise ValueError("a chaotic model cannot count how often a conversation refuses; use rules instead")

    @property
    def name(self) -> str:
        """For messages."""
        return f"chaotic {self.model.name}"

    def reply(self, request: ModelRequest) -> Answer | Refusal:
        """What the model says. Raises ``Mismatch`` when the other model has no answer."""
        history = _History(self, request)
        right = self._right(request.with_contents(history.right))
        if isinstance(right, Refusal) or not right.calls or history.row >= self.in_a_row:
            return right
        calls = [FunctionCall(one.name, dict(one.args)) for one in right.calls]
        wrong = self.mistake(calls, history.key)
        return right if wrong is None else _with_mistake(right, *wrong, request, history.key)

    def mistake(self, calls: Sequence[FunctionCall], key: str) -> tuple[int, Hallucination] | None:
        """Which call of an answer is wrong, and what about it; None when the answer is right.

        The same for an answer before and after it was made wrong, which is how a history can be read. ``key`` is what
        the draw depends on, besides the seed; see :func:`draw_key`.
        """
        draw = random.Random(f"{self.seed}\0{key}")  # noqa: S311  # repeatable is what it must be
        if draw.random() >= self.rate:
            return None
        number = draw.randrange(len(calls))
        kinds = sorted(self.kinds)
        draw.shuffle(kinds)
        kind = next((kind for kind in kinds if _has_place(calls[number], kind)), None)
        return None if kind is None else (number, kind)

    def _right(self, request: ModelRequest) -> Answer | Refusal:
        if isinstance(self.model, RuleModel):
            return self.model.reply(request)
        index, turn = self.model.turn_for(request)
        if turn.answer is None and turn.refusal is not None:
            return turn.refusal
        return self.model.filled(index, request)


def draw_key(model: str, seed: int | None, user_texts: Sequence[str], answers: int) -> str:
    """What decides whether an answer is wrong, besides the chaotic model's seed."""
    return "\0".join([model, str(seed), str(answers), *user_texts])


class _History:
    """A request's history as the chaotic model made it."""

    def __init__(self, chaotic: ChaoticModel, request: ModelRequest) -> None:
        self.right: list[JsonObject] = []  # the contents without wrong calls and their results
        self.row = 0  # wrong answers directly before this request
        texts: list[str] = []
        answers, wrong = 0, False
        for of_model, group in groupby(request.contents, lambda content: content.get("role") == "model"):
            contents = list(group)
            if of_model:
                calls = [call for content in contents for call in calls_of(content)]
                key = draw_key(request.model, request.seed, texts, answers)
                wrong = bool(calls) and self.row < chaotic.in_a_row and chaotic.mistake(calls, key) is not None
                self.row = self.row + 1 if wrong else 0
                answers += 1
            elif any(_is_said(content) for content in contents):
                texts += [part["text"] for content in contents for part in content["parts"] if "text" in part]
                self.row = 0
            self.right += [one for one in contents if not (wrong and (of_model or _is_result(one)))]
        self.key = draw_key(request.model, request.seed, texts, answers)  # what the draw for this request depends on


def _is_said(content: Mapping[str, Any]) -> bool:
    return any("text" in part for part in content.get("parts") or ())


def _is_result(content: Mapping[str, Any]) -> bool:
    return any("functionResponse" in part for part in content.get("parts") or ())


def _has_place(call: FunctionCall, kind: Hallucination) -> bool:
    if kind is Hallucination.SKILL:
        return _text_argument(call.args, SKILL_ARGUMENTS) is not None
    if kind is Hallucination.PATH:
        return _text_argument(call.args, PATH_ARGUMENTS) is not None
    return True


def _text_argument(args: Mapping[str, Any], names: Sequence[str]) -> str | None:
    return next((name for name in names if isinstance(args.get(name), str)), None)


def _with_mistake(right: Answer, number: int, kind: Hallucination, request: ModelRequest, key: str) -> Answer:
    draw = random.Random(f"mistake\0{key}")  # noqa: S311  # repeatable is what it must be
    call = right.calls[number]
    args = dict(call.args)
    if kind is Hallucination.TOOL:
        wrong = Call(_other(call.name, _TOOL_NAMES, request.tool_names, draw), args, undeclared=True)
    elif kind is Hallucination.ARGUMENT:
        wrong = Call(call.name, _wrong_arguments(args, draw), call.undeclared)
    else:
        names, forms, real = (
            (SKILL_ARGUMENTS, _SKILL_NAMES, request.skills)
            if kind is Hallucination.SKILL
            else (PATH_ARGUMENTS, _PATHS, [])
        )
        argument = _text_argument(args, names) or ""
        args[argument] = _other(args[argument], forms, [*real, args[argument]], draw)
        wrong = Call(call.name, args, call.undeclared)
    calls = [wrong if n == number else one for n, one in enumerate(right.calls)]
    return replace(right, calls=tuple(calls))


_TOOL_NAMES = ("{0}_tool", "execute_{0}", "call_{0}", "{0}s", "default_api.{0}")
_SKILL_NAMES = ("{0}-helper", "{0}s", "my-{0}", "{0}-v2", "skill-{0}")
_ARGUMENTS = ("verbose", "timeout_ms", "output_format", "options")
_PATHS = ("src/{0}", "{0}.bak", "/skill/{0}/main", "../{0}", "{0}/index.md", "tmp/{0}")


def _other(name: str, forms: Sequence[str], real: Sequence[str], draw: random.Random) -> str:
    """A name like ``name`` that is not one of the real ones."""
    drawn = draw.choice(forms).format(name)
    while drawn in real:
        drawn += "_x"
    return drawn


def _wrong_arguments(args: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    way = draw.choice(("drop", "add", "type")) if args else "add"
    if way == "add":
        return {**args, _other("", _ARGUMENTS, list(args), draw): True}
    name = draw.choice(sorted(args))
    if way == "drop":
        return {key: value for key, value in args.items() if key != name}
    return {**args, name: {"value": args[name]}}
