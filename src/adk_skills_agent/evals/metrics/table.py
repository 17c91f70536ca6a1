"""Every metric by its name: what it takes, where it applies, how it scores. One table for all three ways of use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.metrics import (
    instruction_adherence,
    options,
    output_files,
    reference_match,
    skill_discovery,
    skill_trigger,
    tool_args,
    tool_invocation,
)
from adk_skills_agent.evals.metrics.expectation import Expectation
from adk_skills_agent.evals.metrics.options import Options, Reader
from adk_skills_agent.evals.metrics.score import Score
from adk_skills_agent.evals.trace import Trace

if TYPE_CHECKING:
    from adk_skills_agent.evals.judge import Judge

JUDGED = "instruction_adherence_score"
"""The one metric that asks a model."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric.

    Attributes:
        name: As a config writes it.
        about: What it measures, as a phrase.
        applies: Whether a case gives it something to compare with.
        score: How a trace is scored; None for the judged one.
        settings: Its own options and how they are read.
        threshold: The value from which it passes when the config does not say.
        outcome: Whether it looks at what came out and not at the way there, so that an agent without the skill can
            reach it too.
    """

    name: str
    about: str
    applies: Callable[[Expectation], bool]
    score: Callable[[Trace, Expectation, Options], Score] | None
    settings: Mapping[str, Reader] = field(default_factory=dict)
    threshold: float = 1.0
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
        settings={"mode": options.mode},
    ),
    Metric(
        "tool_args_score",
        "the share of expected key arguments that calls were made with",
        applies=_expects_calls,
        score=_against(tool_args.score),
        settings={"key_args": options.key_args},
    ),
    Metric(
        "skill_discovery_score",
        "whether skills were listed or searched, and one was loaded",
        applies=_never,  # only when asked for: an agent that has the names in its instructions need not list them
        score=_discovery,
        settings={"listing": options.flag},
    ),
    Metric(
        "skill_trigger_score",
        "whether the expected skills were loaded, and no others (F1)",
        applies=lambda case: bool(case.skills or case.watched),
        score=_trigger,
        settings={"skills": options.names},
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
        settings={"files": options.files},
        outcome=True,
    ),
    Metric(
        JUDGED,
        "the share of rubrics that hold, as a judge model says",
        applies=lambda case: any(case.rubrics),
        score=None,
        settings={"judge_model_options": options.judge_model},
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
    """The metric of a name.

    Raises:
        ConfigError: There is none; the message lists them.
    """
    if name not in METRICS:
        raise ConfigError(f"There is no metric {name!r}. The metrics: {', '.join(METRICS)}.")
    return METRICS[name]


def read_options(name: str, criterion: float | Mapping[str, Any] | None = None) -> Options:
    """The options of a metric, as a config writes them.

    Args:
        name: The metric's.
        criterion: A threshold, or google-adk's criterion as a mapping; None takes the defaults.

    Raises:
        ConfigError: There is no such metric or option, or its form is wrong; the message says which.
    """
    metric = find_metric(name)
    return options.read(name, criterion, metric.threshold, metric.settings)


def score_trace(name: str, actual: Trace, expectation: Expectation, given: Options) -> Score:
    """Score with a metric that asks no model.

    Args:
        name: The metric's.
        actual: What happened.
        expectation: What the case expects.
        given: The metric's options.

    Raises:
        ConfigError: There is no such metric, or it needs a judge.
    """
    metric = find_metric(name)
    if metric.score is None:
        raise ConfigError(f"{name} needs a judge model.")
    return metric.score(actual, expectation, given)


async def score(
    name: str, actual: Trace, expectation: Expectation, given: Options, judge: Judge | None = None
) -> Score:
    """Score with any metric.

    Args:
        name: The metric's.
        actual: What happened.
        expectation: What the case expects.
        given: The metric's options.
        judge: Who judges rubrics; a case without rubrics needs none.

    Raises:
        ConfigError: There is no such metric, or it needs a judge and there is none.
        JudgeUnavailable: The judge could not be asked.
    """
    if name != JUDGED:
        return score_trace(name, actual, expectation, given)
    if judge is None and any(expectation.rubrics):
        raise ConfigError(f"{name} needs a judge model. Name one, or leave the metric out.")
    return await instruction_adherence.score(actual, expectation.rubrics, judge, threshold=given.threshold)
