"""The options of a metric, as an eval config writes them: a threshold, or a mapping with it and the metric's own.

The mapping is google-adk's criterion: what stands in its ``EvalConfig`` reaches us unchanged, in snake or camel case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.cases import ExpectedFile
from adk_skills_agent.evals.metrics.tool_args import KeyArgs
from adk_skills_agent.evals.metrics.tool_invocation import Mode

Reader = Callable[[Any], Any]
"""Turns a setting as it was written into what the metric takes; a ValueError says what it must be."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_OTHERS = frozenset({"include_intermediate_responses_in_final"})  # google-adk writes it into every criterion


@dataclass(frozen=True, slots=True)
class Options:
    """How a metric is to score.

    Attributes:
        threshold: The value from which it passes, 0 to 1.
        settings: The metric's own, checked.
    """

    threshold: float
    settings: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)


def read(
    metric: str, criterion: float | Mapping[str, Any] | None, default: float, known: Mapping[str, Reader]
) -> Options:
    """Check what was written.

    Args:
        metric: Its name, for messages.
        criterion: A threshold, or a mapping; None takes the defaults.
        default: The threshold when none is given.
        known: The metric's own settings.

    Raises:
        ConfigError: A setting is unknown or has the wrong form; the message names metric and setting.
    """
    given = {"threshold": criterion} if not isinstance(criterion, Mapping) else criterion
    threshold, settings = default, {}
    for written, value in given.items():
        name = _snake(str(written))
        if value is None or name in _OTHERS:
            continue
        if name != "threshold" and name not in known:
            there = ", ".join(["threshold", *sorted(known)])
            raise ConfigError(f"{metric} has no option {written!r}. Its options: {there}.")
        try:
            if name == "threshold":
                threshold = _share(value)
            else:
                settings[name] = known[name](value)
        except ValueError as error:
            raise ConfigError(f"{metric}: {written!r} must be {error}, got {_shown(value)}.") from None
    return Options(threshold, settings)


def flag(value: Any) -> bool:
    """A yes or no."""
    if not isinstance(value, bool):
        raise ValueError("true or false")  # noqa: TRY004  # the value, not a caller's argument
    return value


def names(value: Any) -> tuple[str, ...]:
    """A list of names, perhaps empty."""
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) and one for one in value):
        raise ValueError("a list of names")
    return tuple(value)


def mode(value: Any) -> Mode:
    """How tool names are compared."""
    if value not in list(Mode):
        raise ValueError(f"one of {', '.join(Mode)}")
    return Mode(value)


def key_args(value: Any) -> KeyArgs:
    """Names of arguments, or a mapping of a tool's name (or ``*``) to them."""
    if isinstance(value, Mapping):
        try:
            return {str(tool): names(keys) for tool, keys in value.items()}
        except ValueError:
            raise ValueError("a list of arguments, or a mapping of a tool (or '*') to one") from None
    return names(value)


def files(value: Any) -> tuple[ExpectedFile, ...]:
    """A list of names of files; ``*`` stands for any characters."""
    return tuple(ExpectedFile(name) for name in names(value))


def judge_model(value: Any) -> dict[str, Any]:
    """google-adk's ``judge_model_options``: ``judge_model`` and ``num_samples``."""
    if not isinstance(value, Mapping):
        raise ValueError("a mapping with judge_model and num_samples")  # noqa: TRY004
    found = {_snake(str(name)): setting for name, setting in value.items() if setting is not None}
    unknown = sorted(set(found) - {"judge_model", "num_samples"})
    model, samples = found.get("judge_model", ""), found.get("num_samples", 1)
    if (
        unknown
        or not isinstance(model, str)
        or isinstance(samples, bool)
        or not isinstance(samples, int)
        or samples < 1
    ):
        raise ValueError("a mapping with judge_model (a model's name) and num_samples (a whole number from 1)")
    return found


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError("a number from 0 to 1")
    return float(value)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda match: f"_{match[1].lower()}", name)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
