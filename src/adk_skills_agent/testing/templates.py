"""``${...}`` in a rehearsed answer: a value out of an earlier tool result.

``${last.path}`` looks into the latest tool result, ``${use_skill.path}`` into the latest one of that tool; the path
goes by key and list index (``${last.files.0.name}``). An argument that is nothing but one template keeps the value's
type; anywhere else the value becomes text (JSON when it is not a string). ``$${`` is a plain ``${``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from adk_skills_agent.testing.request import ModelRequest

_TEMPLATE = re.compile(r"\$(\$\{)|\$\{([^{}]*)\}")
LAST = "last"


class TemplateError(ValueError):
    """A template names something that is not in the tool results; the message says what is there."""


def fill(value: Any, request: ModelRequest) -> Any:
    """``value`` with every template in its strings (keys excluded) replaced.

    Raises:
        TemplateError: No such tool result, or nothing at that path in it.
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

    Raises:
        TemplateError: As :func:`fill`.
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
