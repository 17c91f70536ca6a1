"""Scoring a trace by the criteria of its trial."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adk_skills_agent.errors import JudgeUnavailable
from adk_skills_agent.evals.cases import files_shown
from adk_skills_agent.evals.judge import Judge, Rubric, Verdict
from adk_skills_agent.evals.metrics.registry import METRICS, read_options, score
from adk_skills_agent.evals.metrics.score import Expectation
from adk_skills_agent.evals.run.plan import Trial
from adk_skills_agent.evals.trace import Trace, Usage


@dataclass(slots=True)
class Grade:
    """The scores of a trace."""

    # as in the row: metric, value, passed, threshold, outcome, per_turn, detail
    scores: list[dict[str, Any]] = field(default_factory=list)
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    judge_usage: Usage = field(default_factory=Usage)
    error: str = ""

    @property
    def passed(self) -> bool | None:
        """Whether every criterion is met; None when the judge gave no verdict, or nothing has a value."""
        return _all(self.scores) if not self.error else None

    @property
    def outcome_passed(self) -> bool | None:
        """The same of what every arm can reach."""
        return _all([one for one in self.scores if one["outcome"]]) if not self.error else None

    @property
    def score(self) -> float | None:
        """The mean."""
        return _mean(self.scores) if not self.error else None

    @property
    def outcome(self) -> float | None:
        """The mean of what every arm can reach."""
        return _mean([one for one in self.scores if one["outcome"]]) if not self.error else None


async def grade(trial: Trial, trace: Trace, judge: Judge | None) -> Grade:
    """Score a trace. Raises ``ConfigError`` when the judged criterion is there and no judge."""
    result = Grade()
    expectation = Expectation.of(trial.case, len(trace.turns))
    asked = judge.about(judge_context(trial, trace)) if judge is not None else None
    for name, criterion in trial.criteria.items():
        options = read_options(name, criterion)
        try:
            value = await score(name, trace, expectation, options, asked)
        except JudgeUnavailable as error:
            result.error = error.message
            continue
        result.scores.append(
            {
                "metric": name,
                "value": value.value,
                "passed": value.passed,
                "threshold": options.threshold,
                "outcome": METRICS[name].outcome,
                "per_turn": [turn.to_json() for turn in value.per_turn],
                "detail": value.detail,
            }
        )
    if asked is not None:
        result.judge_usage = asked.spent
        result.verdicts = [_row(*one) for one in sorted(asked.given, key=lambda one: one[0])]
    return result


def _row(turn: int, rubric: Rubric, verdict: Verdict) -> dict[str, Any]:
    return {
        "turn": turn,
        "rubric": rubric.id,
        "text": rubric.text,
        "met": verdict.met,
        "agreement": round(verdict.agreement, 4),
        "samples": len(verdict.votes),
        "rationale": verdict.rationale,
    }


def judge_context(trial: Trial, trace: Trace) -> str:
    """What the judge is told besides the turns: the files that were left, and the outcome in words."""
    parts = files_shown(trace)
    if trial.case.expected_output:
        parts.append(f"The author of the case describes a good outcome so: {trial.case.expected_output}")
    return "\n\n".join(parts)


def _all(scores: Sequence[Mapping[str, Any]]) -> bool | None:
    said = [one["passed"] for one in scores if one["passed"] is not None]
    return all(said) if said else None


def _mean(scores: Sequence[Mapping[str, Any]]) -> float | None:
    values = [one["value"] for one in scores if one["value"] is not None]
    return statistics.fmean(values) if values else None
