"""What an agent asked its model: one recorded request, with the questions a test asks about it."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

JsonObject = dict[str, Any]

_LISTED_SKILL = re.compile(r"<skill>\s*<name>\s*([^<]+?)\s*</name>")
_SCHEMAS = ("parametersJsonSchema", "parameters_json_schema", "parameters")
_SKILL_PARAMETERS = ("skill_name", "skill", "name")


@dataclass(frozen=True, slots=True)
class FunctionResponse:
    """The result of one tool call, as the agent sent it back."""

    name: str
    response: JsonObject
    id: str | None = None

    @property
    def json(self) -> str:
        """Its JSON form, keys in the order they came."""
        return json.dumps(self.response, ensure_ascii=False)

    @property
    def text(self) -> str:
        """Its JSON form, then every string in it as it is, so that multi-line text can be searched."""
        return "\n".join([self.json, *_strings(self.response)])


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call the model made, as the agent sent it back."""

    name: str
    args: JsonObject


@dataclass(frozen=True)
class ModelRequest:
    """One request to the model, valid as Gemini sees it.

    Attributes:
        method: ``generateContent``, ``streamGenerateContent`` or ``countTokens``.
        model: The model's name, without ``models/``.
        body: The whole body, as parsed from JSON.
    """

    method: str
    model: str
    body: JsonObject

    @property
    def contents(self) -> list[JsonObject]:
        """The history: ``{"role": ..., "parts": [...]}`` in order."""
        return list(self.body.get("contents", ()))

    @property
    def system_text(self) -> str:
        """The system instruction, its parts joined by newlines; empty when there is none."""
        system = self.body.get("systemInstruction") or {}
        return "\n".join(_texts(system))

    @property
    def declarations(self) -> list[JsonObject]:
        """Every function declaration, in order."""
        return [d for tool in self.body.get("tools") or () for d in tool.get("functionDeclarations") or ()]

    @property
    def tool_names(self) -> list[str]:
        """The names of the functions the model may call, in order."""
        return [d["name"] for d in self.declarations]

    def declaration(self, name: str) -> JsonObject:
        """The declaration of one function.

        Raises ``KeyError`` when the request does not offer it; the message lists what it offers.
        """
        for declaration in self.declarations:
            if declaration["name"] == name:
                return declaration
        raise KeyError(f"the request offers no function {name!r}, only {self.tool_names}")

    @property
    def user_text(self) -> str:
        """The text of the latest message that a user wrote; empty when there is none."""
        for content in reversed(self.contents):
            if content.get("role", "user") == "user" and (texts := _texts(content)):
                return "\n".join(texts)
        return ""

    @cached_property
    def function_responses(self) -> list[FunctionResponse]:
        """Every tool result in the history, in order."""
        return [response for content in self.contents for response in _responses(content)]

    @cached_property
    def skills(self) -> list[str]:
        """The skills the request tells of, by name: what a tool allows for a skill's name, and what a list holds."""
        found: list[str] = []
        for declaration in self.declarations:
            schema = next((v for k in _SCHEMAS if isinstance(v := declaration.get(k), dict)), {})
            properties = schema.get("properties") or {}
            for name in _SKILL_PARAMETERS:
                found += (properties.get(name) or {}).get("enum") or ()
        told = [self.system_text, *(d.get("description") or "" for d in self.declarations)]
        told += [text for response in self.function_responses for text in _strings(response.response)]
        found += [html.unescape(name) for text in told for name in _LISTED_SKILL.findall(text)]
        return list(dict.fromkeys(found))

    @property
    def seed(self) -> int | None:
        """The seed the agent asks the model to use (``generationConfig.seed``)."""
        seed = (self.body.get("generationConfig") or {}).get("seed")
        return seed if isinstance(seed, int) else None

    @cached_property
    def calls_of_turn(self) -> list[FunctionCall]:
        """Every call the model has made since the user's latest message, in order."""
        found: list[FunctionCall] = []
        for content in self.contents:
            if content.get("role", "user") == "user" and _texts(content):
                found = []
            elif content.get("role") == "model":
                found += calls_of(content)
        return found

    def with_contents(self, contents: list[JsonObject]) -> ModelRequest:
        """The same request with another history."""
        return ModelRequest(self.method, self.model, {**self.body, "contents": contents})

    @property
    def last_function_responses(self) -> list[FunctionResponse]:
        """The tool results in the last content: what the model is asked to react to. Empty when it is not a result."""
        return _responses(self.contents[-1]) if self.contents else []

    @cached_property
    def model_turns(self) -> int:
        """How many times the model has already answered: runs of model contents, so that a split answer counts once."""
        roles = [content.get("role", "user") for content in self.contents]
        return sum(role == "model" and (i == 0 or roles[i - 1] != "model") for i, role in enumerate(roles))

    @cached_property
    def prompt_tokens(self) -> int:
        """An estimate of the prompt's tokens: characters of contents, system text and declarations by four."""
        chars = len(self.system_text) + sum(len(_compact(d)) for d in self.declarations)
        for content in self.contents:
            chars += sum(
                len(part["text"]) if "text" in part else len(_compact(part)) for part in content.get("parts") or ()
            )
        return estimate_tokens(chars)

    @cached_property
    def fingerprint(self) -> str:
        """The same for the same question asked again, by a retry or in another session; ids of calls are left out."""
        contents = [
            {"role": c.get("role"), "parts": [_without_id(p) for p in c.get("parts") or ()]} for c in self.contents
        ]
        return json.dumps([self.model, contents, self.system_text], sort_keys=True)


def estimate_tokens(chars: int) -> int:
    """Tokens of ``chars`` characters: a quarter, rounded up, the usual rule of thumb for English."""
    return -(-chars // 4)


def calls_of(content: Mapping[str, Any]) -> list[FunctionCall]:
    """The calls in a content of the model."""
    found = (part.get("functionCall") for part in content.get("parts") or ())
    return [FunctionCall(call["name"], call.get("args") or {}) for call in found if call]


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _without_id(part: JsonObject) -> JsonObject:
    return {k: {a: b for a, b in v.items() if a != "id"} if isinstance(v, dict) else v for k, v in part.items()}


def _texts(content: Mapping[str, Any]) -> list[str]:
    return [part["text"] for part in content.get("parts") or () if isinstance(part.get("text"), str)]


def _responses(content: Mapping[str, Any]) -> list[FunctionResponse]:
    found = (part.get("functionResponse") for part in content.get("parts") or ())
    return [FunctionResponse(r["name"], r.get("response") or {}, r.get("id")) for r in found if r]


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


# A request that Gemini would refuse.


class InvalidRequest(Exception):
    """Gemini would refuse this request; ``message`` is close to what it says."""

    def __init__(self, message: str, code: int = 400, status: str = "INVALID_ARGUMENT") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.status = status
