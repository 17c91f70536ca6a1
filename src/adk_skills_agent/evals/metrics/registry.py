"""Every metric by its name: what it takes, where it applies, how it scores. One table for all three ways of use."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.cases import ExpectedFile
from adk_skills_agent.evals.metrics import (
    instruction_adherence,
    output_files,
    reference_match,
    skill_discovery,
    skill_trigger,
    tool_args,
    tool_invocation,
)
from adk_skills_agent.evals.metrics.score import Expectation, Score
from adk_skills_agent.evals.metrics.tool_args import KeyArgs
from adk_skills_agent.evals.metrics.tool_invocation import Mode
from adk_skills_agent.evals.trace import Trace

if TYPE_CHECKING:
    from adk_skills_agent.evals.judge import Judge


# The options of a metric, as an eval config writes them: a threshold, or a mapping with it and the metric's own.
#
# The mapping is google-adk's criterion: what stands in its ``EvalConfig`` reaches us unchanged, in snake or camel
# case.

Reader = Callable[[Any], Any]
"""Turns a setting as it was written into what the metric takes; a ValueError says what it must be."""

_NO_SETTINGS: Mapping[str, Any] = MappingProxyType({})
_OTHERS = frozenset({"include_intermediate_responses_in_final"})  # google-adk writes it into every criterion


@dataclass(frozen=True, slots=True)
class Options:
    """How a metric is to score."""

    threshold: float
    settings: Mapping[str, Any] = field(default_factory=lambda: _NO_SETTINGS)


def read(
    metric: str, criterion: float | Mapping[str, Any] | None, default: float, known: Mapping[str, Reader]
) -> Options:
    """Check what was written.

    Raises ``ConfigError`` when a setting is unknown or has the wrong form; the message names metric and setting.
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


JUDGED = "instruction_adherence_score"
"""The one metric that asks a model."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric."""

    name: str
    about: str
    applies: Callable[[Expectation], bool]  # whether a case gives it something to compare with
    score: Callable[[Trace, Expectation, Options], Score] | None  # how a trace is scored; None for the judged one
    settings: Mapping[str, Reader] = field(default_factory=dict)
    threshold: float = 1.0
    # whether it looks at what came out and not at the way there, so that an agent without the skill can reach it too
    outcome: bool = False


def _against(function: Callable[..., Score]) -> Callable[[Trace, Expectation, Options], Score]:
    """A metric that compares with the expected trace."""
    return lambda actual, case, given: function(actual, case.trace, threshold=given.threshold, **given.settings)


def _discovery(actual: Trace, _: Expectation, given: Options) -> Score:
    return skill_discovery.score(actual, threshold=given.threshold, **given.settings)


def _trigger(actual: Trace, case: Expectation, given: Options) -> Score:
    expected = given.settings.get("skills", case.skills)
    return skill_trigger.score(actual, expected, watched=case.watched, threshold=given.threshold)


def _files(actual: Trace, case: Expectation, given: Options) -> Score:
    return output_files.score(actual, given.settings.get("files", case.files), threshold=given.threshold)


def _expects_calls(case: Expectation) -> bool:
    return case.trace is not None and bool(case.trace.calls)


def _has_reference(case: Expectation) -> bool:
    return case.trace is not None and any(turn.final_text for turn in case.trace.turns)


def _never(_: Expectation) -> bool:
    return False


_ALL = (
    Metric(
        "tool_invocation_score",
        "the share of expected tool calls that were made, by name",
        applies=_expects_calls,
        score=_against(tool_invocation.score),
        settings={"mode": mode},
    ),
    Metric(
        "tool_args_score",
        "the share of expected key arguments that calls were made with",
        applies=_expects_calls,
        score=_against(tool_args.score),
        settings={"key_args": key_args},
    ),
    Metric(
        "skill_discovery_score",
        "whether skills were listed or searched, and one was loaded",
        applies=_never,  # only when asked for: an agent that has the names in its instructions need not list them
        score=_discovery,
        settings={"listing": flag},
    ),
    Metric(
        "skill_trigger_score",
        "whether the expected skills were loaded, and no others (F1)",
        applies=lambda case: bool(case.skills or case.watched),
        score=_trigger,
        settings={"skills": names},
    ),
    Metric(
        "reference_match_score",
        "whether the answer holds every line of the reference",
        applies=_has_reference,
        score=_against(reference_match.score),
        outcome=True,
    ),
    Metric(
        "output_files_score",
        "the share of expected files that are there and hold what they should",
        applies=lambda case: bool(case.files),
        score=_files,
        settings={"files": files},
        outcome=True,
    ),
    Metric(
        JUDGED,
        "the share of rubrics that hold, as a judge model says",
        applies=lambda case: any(case.rubrics),
        score=None,
        settings={"judge_model_options": judge_model},
        threshold=instruction_adherence.THRESHOLD,
        outcome=True,
    ),
)
METRICS: Mapping[str, Metric] = MappingProxyType({metric.name: metric for metric in _ALL})
"""Every metric by its name."""


def applicable(expectation: Expectation) -> tuple[str, ...]:
    """The metrics that a case gives something to compare with: what is scored when nobody says which."""
    return tuple(name for name, metric in METRICS.items() if metric.applies(expectation))


def vacuous(name: str, criterion: Any, expectation: Expectation) -> bool:
    """Whether a metric has nothing to compare with: any answer would have the same score, or none."""
    if METRICS[name].applies(expectation) or name in ("skill_discovery_score", "skill_trigger_score"):
        return False  # to load no skill is something to expect, too
    return not read_options(name, criterion).settings.get("files")


def find_metric(name: str) -> Metric:
    """The metric of a name. Raises ``ConfigError`` when no metric has that name; the message lists all names."""
    if name not in METRICS:
        raise ConfigError(f"There is no metric {name!r}. The metrics: {', '.join(METRICS)}.")
    return METRICS[name]


def read_options(name: str, criterion: float | Mapping[str, Any] | None = None) -> Options:
    """The options of a metric, as a config writes them.

    ``criterion`` is a threshold or google-adk's mapping; None takes the defaults. Raises ``ConfigError`` when there is
    no such metric or option, or its form is wrong; the message says which.
    """
    metric = find_metric(name)
    return read(name, criterion, metric.threshold, metric.settings)


def score_trace(name: str, actual: Trace, expectation: Expectation, given: Options) -> Score:
    """Score with a metric that asks no model. Raises ``ConfigError`` when the metric needs a judge."""
    metric = find_metric(name)
    if metric.score is None:
        raise ConfigError(f"{name} needs a judge model.")
    return metric.score(actual, expectation, given)


async def score(
    name: str, actual: Trace, expectation: Expectation, given: Options, judge: Judge | None = None
) -> Score:
    """Score with any metric.

    Raises ``ConfigError`` when no metric has that name, or it needs a judge and none is given, or ``JudgeUnavailable``
    when the judge could not be asked.
    """
    if name != JUDGED:
        return score_trace(name, actual, expectation, given)
    if judge is None and any(expectation.rubrics):
        raise ConfigError(f"{name} needs a judge model. Name one, or leave the metric out.")
    return await instruction_adherence.score(actual, expectation.rubrics, judge, threshold=given.threshold)
