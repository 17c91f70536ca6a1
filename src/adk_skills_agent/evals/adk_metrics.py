"""Our metrics as google-adk's custom metric functions, for an eval config's ``custom_metrics`` (S0-142).

A config names them by ``adk_skills_agent.evals.metrics.<name>``; options stand in the criterion. google-adk takes a
metric that raises for one that was not evaluated, and lets the case pass. Ours do not raise: what could not be
measured, for a wrong option or an absent judge, is FAILED without a score, and the reason is logged.

google-adk's results have no place for a reason. It stands where its own metrics put theirs, among the rubric scores: as
``why`` of a turn, and figures such as ``precision`` of the whole.
"""
# ruff: noqa: ARG001  # google-adk passes four arguments to each

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from google.adk.evaluation.eval_case import ConversationScenario, Invocation
from google.adk.evaluation.eval_metrics import EvalMetric
from google.adk.evaluation.eval_rubrics import RubricScore as GoogleRubricScore
from google.adk.evaluation.evaluator import EvalStatus, EvaluationResult, PerInvocationResult

from adk_skills_agent.errors import ConfigError, SkillsError
from adk_skills_agent.evals.judge import Judge, Rubric
from adk_skills_agent.evals.judge_model import DEFAULT_JUDGE, JudgeModel
from adk_skills_agent.evals.metrics.registry import JUDGED, Options, read_options, score, score_trace
from adk_skills_agent.evals.metrics.score import Expectation, Score, TurnScore
from adk_skills_agent.evals.trace import from_invocations

Invocations = list[Invocation]

logger = logging.getLogger(__name__)

RUBRIC_TYPE = "INSTRUCTION_ADHERENCE"
"""google-adk's name for our kind of rubric; a rubric without a type is taken, too, one of another type is not ours."""

WHY = "why"
"""Among the rubric scores of a turn: the reason for its score."""


class MetricFunction(Protocol):
    """As google-adk calls a custom metric."""

    def __call__(
        self,
        eval_metric: EvalMetric,
        actual_invocations: Invocations,
        expected_invocations: Invocations | None = None,
        conversation_scenario: ConversationScenario | None = None,
    ) -> EvaluationResult:
        """Score what google-adk recorded."""


def _metric(name: str, about: str) -> MetricFunction:
    def function(
        eval_metric: EvalMetric,
        actual_invocations: Invocations,
        expected_invocations: Invocations | None = None,
        conversation_scenario: ConversationScenario | None = None,
    ) -> EvaluationResult:
        return score_invocations(name, eval_metric, actual_invocations, expected_invocations)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = about
    return function


tool_invocation_score = _metric(
    "tool_invocation_score",
    "The share of expected tool calls that were made (S0-146). Option ``mode``: multiset, ordered or set.",
)
tool_args_score = _metric(
    "tool_args_score", "The share of expected key arguments that calls were made with (S0-147). Option ``key_args``."
)
skill_discovery_score = _metric(
    "skill_discovery_score", "Whether skills were listed or searched, and one was loaded (S0-141). Option ``listing``."
)
skill_trigger_score = _metric(
    "skill_trigger_score",
    "Whether the skills that the expected calls load were loaded, and no others. Option ``skills`` names them.",
)
reference_match_score = _metric(
    "reference_match_score", "Whether the answer holds every line of the expected final response (S0-141)."
)
output_files_score = _metric(
    "output_files_score", "The share of expected files that scripts left. Option ``files`` names them."
)


async def instruction_adherence_score(
    eval_metric: EvalMetric,
    actual_invocations: Invocations,
    expected_invocations: Invocations | None = None,
    conversation_scenario: ConversationScenario | None = None,
) -> EvaluationResult:
    """The share of rubrics that hold, as a judge model says (S0-148). Option ``judge_model_options``."""
    try:
        given = read_options(JUDGED, _criterion(eval_metric))
        rubrics = tuple(_rubrics(invocation) for invocation in actual_invocations)
        expectation = Expectation(rubrics=rubrics)
        # In a thread: making a client reads certificates.
        judge = await asyncio.to_thread(_judge, given) if any(rubrics) else None
        found = await score(JUDGED, from_invocations(actual_invocations), expectation, given, judge)
    except SkillsError as error:
        return _unmeasured(JUDGED, error, actual_invocations, expected_invocations)
    return _result(found, given, actual_invocations, expected_invocations)


def score_invocations(
    name: str, eval_metric: EvalMetric, actual: Invocations, expected: Invocations | None
) -> EvaluationResult:
    """Score what google-adk recorded with one of our metrics that asks no model."""
    try:
        given = read_options(name, _criterion(eval_metric))
        wanted = None if expected is None else from_invocations(expected)
        expectation = Expectation(wanted, None if wanted is None else wanted.skills_loaded)
        found = score_trace(name, from_invocations(actual), expectation, given)
    except SkillsError as error:
        return _unmeasured(name, error, actual, expected)
    return _result(found, given, actual, expected)


def _criterion(eval_metric: EvalMetric) -> Mapping[str, Any] | float | None:
    # google-adk empties the metric's own threshold before it calls a function.
    if eval_metric.criterion is not None:
        return eval_metric.criterion.model_dump()
    return eval_metric.threshold


def _judge(given: Options) -> Judge:
    """A judge of its own for every call: a model's connections belong to one event loop."""
    asked = given.settings.get("judge_model_options", {})
    return Judge(JudgeModel(asked.get("judge_model") or DEFAULT_JUDGE, samples=asked.get("num_samples", 3)))


def _rubrics(invocation: Invocation) -> tuple[Rubric, ...]:
    ours = (rubric for rubric in invocation.rubrics or () if rubric.type in {None, "", RUBRIC_TYPE})
    found = []
    for rubric in ours:
        text = rubric.rubric_content.text_property or ""
        if not text.strip():
            raise ConfigError(f"Rubric {rubric.rubric_id!r} has no text_property, so there is nothing to judge.")
        found.append(Rubric(rubric.rubric_id, text, rubric.description or ""))
    return tuple(found)


def _result(found: Score, given: Options, actual: Invocations, expected: Invocations | None) -> EvaluationResult:
    turns = found.per_turn[: len(actual)]
    return EvaluationResult(
        overall_score=found.value,
        overall_eval_status=_status(found.value, given.threshold),
        per_invocation_results=[
            _per_invocation(turn, given.threshold, happened, wanted)
            for turn, happened, wanted in zip(turns, actual, _beside(actual, expected), strict=True)
        ],
        overall_rubric_scores=[*_overall_rubrics(turns), *_figures(found)] or None,
    )


def _per_invocation(
    turn: TurnScore, threshold: float, actual: Invocation, expected: Invocation | None
) -> PerInvocationResult:
    return PerInvocationResult(
        actual_invocation=actual,
        expected_invocation=expected,
        score=turn.value,
        eval_status=_status(turn.value, threshold),
        rubric_scores=_rubric_scores(turn) or None,
    )


def _rubric_scores(turn: TurnScore) -> list[GoogleRubricScore]:
    if turn.rubrics or not turn.detail:
        return [GoogleRubricScore(rubric_id=r.id, rationale=r.rationale, score=float(r.met)) for r in turn.rubrics]
    return [GoogleRubricScore(rubric_id=WHY, rationale=turn.detail, score=turn.value)]


def _figures(found: Score) -> list[GoogleRubricScore]:
    return [GoogleRubricScore(rubric_id=name, score=value) for name, value in found.figures.items()]


def _overall_rubrics(turns: Sequence[TurnScore]) -> list[GoogleRubricScore]:
    """Each rubric once: the mean over the turns it was judged in."""
    by_id: dict[str, list[float]] = {}
    for turn in turns:
        for rubric in turn.rubrics:
            by_id.setdefault(rubric.id, []).append(float(rubric.met))
    return [GoogleRubricScore(rubric_id=name, score=sum(met) / len(met)) for name, met in by_id.items()]


def _unmeasured(name: str, error: SkillsError, actual: Invocations, expected: Invocations | None) -> EvaluationResult:
    logger.error("%s could not be measured: %s", name, error)
    failed = [
        PerInvocationResult(
            actual_invocation=happened,
            expected_invocation=wanted,
            eval_status=EvalStatus.FAILED,
            rubric_scores=[GoogleRubricScore(rubric_id=WHY, rationale=str(error))],
        )
        for happened, wanted in zip(actual, _beside(actual, expected), strict=True)
    ]
    return EvaluationResult(overall_eval_status=EvalStatus.FAILED, per_invocation_results=failed)


def _beside(actual: Invocations, expected: Invocations | None) -> list[Invocation | None]:
    given = (expected or [])[: len(actual)]
    return [*given, *[None] * (len(actual) - len(given))]


def _status(value: float | None, threshold: float) -> EvalStatus:
    if value is None:
        return EvalStatus.NOT_EVALUATED
    return EvalStatus.PASSED if value >= threshold else EvalStatus.FAILED
