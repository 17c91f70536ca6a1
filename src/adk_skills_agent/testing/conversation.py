"""A rehearsed conversation: which request is expected next, and what the model then says.

A conversation keeps no state of its own about sessions: how far one has come is read from the request (how often the
model has already answered), so that concurrent sessions and repeated requests get the right turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from adk_skills_agent.testing.request import FunctionResponse, ModelRequest

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_SHOWN_CHARS = 400  # of a text quoted in a mismatch: enough to recognise, short enough to read


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of an answer; None is computed (characters by four)."""

    prompt: int | None = None
    output: int | None = None
    cached: int | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of the model.

    Attributes:
        name: The tool.
        args: Its arguments; strings may hold templates.
        undeclared: The model calls it although the request does not offer it, as real ones sometimes do.
    """

    name: str
    args: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    undeclared: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error of the model's service.

    Attributes:
        code: The HTTP status.
        status: Google's name for it, e.g. ``RESOURCE_EXHAUSTED``.
        message: The sentence.
        times: How often the same question gets it before it gets the answer; None is always.
    """

    code: int
    status: str
    message: str
    times: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model says: text, tool calls or both.

    Attributes:
        text: The text; it may hold templates.
        calls: The tool calls, after the text.
        finish_reason: Why it ended, e.g. ``STOP`` or ``MAX_TOKENS``.
        finish_message: What the service says about a reason that is an error.
        thought: What the model thought first; sent as a signed thought.
        usage: Token counts.
        stream_chunks: The text as it arrives when streamed: pieces (their join is the text), or how many equal ones.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    finish_reason: str = "STOP"
    usage: Usage = field(default_factory=Usage)
    stream_chunks: tuple[str, ...] | int = 3
    finish_message: str = ""
    thought: str = ""


@dataclass(frozen=True, slots=True)
class When:
    """What must hold for a request. Every condition given must hold; texts are compared with their case.

    Attributes:
        user_contains: Each is in the latest text a user wrote.
        system_contains: Each is in the system instruction.
        tools: Each is the name of an offered function.
        last_tool: The tool results just received are of these tools, in any order.
        tool_result_contains: Each is in the tool results just received: in their JSON, or in a string of them.
        tool_result: A part of one of the tool results just received: nested mappings are compared key by key, lists
            item by item.
        skills: Each is the name of a skill the request tells of.
        called: Each is a tool the model has called since the user's latest message.
        not_called: None of these has been.
    """

    user_contains: tuple[str, ...] = ()
    system_contains: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    last_tool: tuple[str, ...] = ()
    tool_result_contains: tuple[str, ...] = ()
    tool_result: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    skills: tuple[str, ...] = ()
    called: tuple[str, ...] = ()
    not_called: tuple[str, ...] = ()

    def objection(self, request: ModelRequest) -> str | None:
        """Why the request does not fit, as the end of the sentence "expected ..."; None when it fits."""
        for needle in self.user_contains:
            if needle not in request.user_text:
                return f"the user's text to contain {needle!r}; it is {_shown(request.user_text)}"
        for needle in self.system_contains:
            if needle not in request.system_text:
                return f"the system instruction to contain {needle!r}; it is {_shown(request.system_text)}"
        offered = request.tool_names
        for tool in self.tools:
            if tool not in offered:
                return f"the tool {tool!r} to be offered; the request offers {offered}"
        for skill in self.skills:
            if skill not in request.skills:
                return f"the skill {skill!r} to be offered; the request tells of {request.skills or 'no skill'}"
        made = [call.name for call in request.calls_of_turn] if self.called or self.not_called else []
        for tool in self.called:
            if tool not in made:
                return f"{tool!r} to have been called in this turn; the calls so far: {made or 'none'}"
        for tool in self.not_called:
            if tool in made:
                return f"{tool!r} not to have been called in this turn; the calls so far: {made}"
        return self._objection_to_results(request.last_function_responses)

    def _objection_to_results(self, results: list[FunctionResponse]) -> str | None:
        came = [result.name for result in results]
        if self.last_tool and sorted(self.last_tool) != sorted(came):
            return f"a result of {' and '.join(map(repr, self.last_tool))}; what came is {_came(results)}"
        if self.tool_result and not any(_has(result.response, self.tool_result) for result in results):
            return f"the tool result to have {dict(self.tool_result)!r}; what came is {_came(results)}"
        text = "\n".join(result.text for result in results)
        for needle in self.tool_result_contains:
            if needle not in text:
                return f"the tool result to contain {needle!r}; what came is {_came(results)}"
        return None


@dataclass(frozen=True, slots=True)
class Turn:
    """One rehearsed turn: a request that fits ``when`` gets ``refusal`` (as often as it says), then ``answer``."""

    when: When
    answer: Answer | None
    refusal: Refusal | None = None
    line: int = 0


class Mismatch(Exception):
    """A request came that the conversation does not expect. ``message`` says what was expected and what came."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True, slots=True)
class Conversation:
    """A rehearsed conversation.

    Attributes:
        name: For messages.
        turns: In order; the n-th is for requests whose history holds n - 1 answers of the model.
        when: Which requests it is for, where a server rehearses several conversations (one per agent, say).
        about: One line for a reader.
        source: Where it was read from.
    """

    name: str
    turns: tuple[Turn, ...]
    when: When = field(default_factory=When)
    about: str = ""
    source: str = ""

    def turn_for(self, request: ModelRequest) -> tuple[int, Turn]:
        """The turn the request is for, and its index.

        Raises ``Mismatch`` when no turn fits, or its conditions do not hold.
        """
        index = request.model_turns
        if index >= len(self.turns):
            came = request.last_function_responses
            last = f"a result {_came(came)}" if came else f"the user's text {_shown(request.user_text)}"
            raise Mismatch(
                f"Conversation {self.name!r} has {len(self.turns)} turns and the model has already answered {index} "
                f"times, but one more request came, with {last}. Add a turn{self._at(None)}, or stop the agent earlier."
            )
        turn = self.turns[index]
        if (objection := turn.when.objection(request)) is not None:
            raise Mismatch(f"Turn {index + 1} of conversation {self.name!r}{self._at(turn)} expected {objection}")
        return index, turn

    def filled(self, index: int, request: ModelRequest) -> Answer:
        """The answer of a turn for this request, its templates filled.

        Raises ``Mismatch`` when the request does not offer a tool the answer calls, or a template finds nothing.
        """
        turn = self.turns[index]
        if turn.answer is None:
            raise ValueError(f"turn {index + 1} of {self.name!r} has no answer")
        place = f"Turn {index + 1} of conversation {self.name!r}{self._at(turn)}"
        return fill_answer(turn.answer, request, place)

    def _at(self, turn: Turn | None) -> str:
        if not self.source:
            return ""
        return f" ({self.source}:{turn.line})" if turn is not None else f" in {self.source}"


def fill_answer(answer: Answer, request: ModelRequest, place: str) -> Answer:
    """An answer for this request, its templates filled.

    Raises ``Mismatch`` when the request does not offer a tool the answer calls, or a template finds nothing.
    """
    for call in answer.calls:
        if not call.undeclared and call.name not in request.tool_names:
            raise Mismatch(f"{place} calls {call.name!r}, which the request does not offer: {request.tool_names}")
    try:
        calls = tuple(Call(c.name, fill(dict(c.args), request), c.undeclared) for c in answer.calls)
        chunks = answer.stream_chunks
        if not isinstance(chunks, int):
            chunks = tuple(fill_text(chunk, request) for chunk in chunks)
        text = fill_text(answer.text, request)
    except TemplateError as error:
        raise Mismatch(f"{place} uses {error}") from error
    return replace(answer, text=text, calls=calls, stream_chunks=chunks)


def _has(actual: object, expected: object) -> bool:
    if isinstance(expected, Mapping):
        return isinstance(actual, Mapping) and all(k in actual and _has(actual[k], v) for k, v in expected.items())
    if isinstance(expected, list):
        return isinstance(actual, list) and len(actual) == len(expected) and all(map(_has, actual, expected))
    if isinstance(actual, bool) or isinstance(expected, bool):
        return actual is expected
    return actual == expected


def _shown(text: str) -> str:
    return _cut(repr(text))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}... ({len(text)} characters)"


def _came(results: list[FunctionResponse]) -> str:
    if not results:
        return "no tool result"
    return " and ".join(f"of {r.name!r}: {_cut(r.json)}" for r in results)


# ``${...}`` in a rehearsed answer: a value out of an earlier tool result.
#
# ``${last.path}`` looks into the latest tool result, ``${use_skill.path}`` into the latest one of that tool; the path
# goes by key and list index (``${last.files.0.name}``). An argument that is nothing but one template keeps the
# value's type; anywhere else the value becomes text (JSON when it is not a string). ``$${`` is a plain ``${``.

_TEMPLATE = re.compile(r"\$(\$\{)|\$\{([^{}]*)\}")
LAST = "last"


class TemplateError(ValueError):
    """A template names something that is not in the tool results; the message says what is there."""


def fill(value: Any, request: ModelRequest) -> Any:
    """``value`` with every template in its strings (keys excluded) replaced.

    Raises ``TemplateError`` when there is no such tool result, or nothing at that path in it.
    """
    if isinstance(value, str):
        whole = _TEMPLATE.fullmatch(value)
        return _look_up(whole[2], request) if whole and whole[2] is not None else fill_text(value, request)
    if isinstance(value, Mapping):
        return {key: fill(item, request) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [fill(item, request) for item in value]
    return value


def fill_text(text: str, request: ModelRequest) -> str:
    """``text`` with every template replaced; a value that is not a string becomes JSON.

    Raises ``TemplateError`` as :func:`fill` does.
    """

    def replace(match: re.Match[str]) -> str:
        if match[1]:
            return match[1]
        found = _look_up(match[2], request)
        return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)

    return _TEMPLATE.sub(replace, text)


def _look_up(expression: str, request: ModelRequest) -> Any:
    source, *path = expression.strip().split(".")
    results = [r for r in request.function_responses if source in {LAST, r.name}]
    if not results:
        seen = sorted({r.name for r in request.function_responses})
        raise TemplateError(f"${{{expression}}}: no result of {source!r} yet; results so far: {seen or 'none'}")
    value: Any = results[-1].response
    for step in path:
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            there = sorted(map(str, value)) if isinstance(value, Mapping) else f"a {type(value).__name__}"
            raise TemplateError(f"${{{expression}}}: nothing at {step!r}; what is there: {there}")
    return value
