"""What one trial gave: the row of ``trials.jsonl``, and the small part of it that is kept in memory."""

from __future__ import annotations

import functools
import sys
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, cast

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.row_file import RowFile, read_rows, row_at
from adk_skills_agent.evals.run.plan import Key, Trial
from adk_skills_agent.evals.trace import Trace, Usage

SCHEMA = 1
NOT_MEASURED = ("model", "judge", "sandbox", "user model", "cluster")
"""Kinds of errors that say nothing about the agent: the trial has no result, and ``--resume`` tries it again."""
_MOST_NUMBER = 1e15
"""Rows have seconds, tokens, dollars and scores."""
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The result of a trial, without its trace."""

    case: str
    arm: str
    run: int
    kind: str  # ``task`` or ``trigger``
    fingerprint: str
    passed: bool | None  # whether every criterion was met; None when nothing was measured
    outcome_passed: bool | None  # the same of the criteria that every arm can meet; None without any
    score: float | None
    outcome: float | None  # mean of the scores that every arm can reach
    scores: Mapping[str, float | None]
    verdicts: tuple[Mapping[str, Any], ...]
    skills_loaded: tuple[str, ...]
    seconds: float  # the agent's
    overhead_seconds: float  # ours: preparing, scoring, writing; without waiting for a judge
    usage: Usage
    judge_usage: Usage
    cost_usd: float | None  # the agent's; None when the price is not known
    judge_cost_usd: float | None
    tool_calls: int
    # of the model that played the user; None when there was none, or its price is not known
    user_cost_usd: float | None = None
    # why a simulated user said no more: ``stop_signal_detected`` or ``turn_limit_reached``; else empty
    user_ended: str = ""
    # ``kind`` and ``message``; empty when there was none
    error: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    # what it is found by: one tuple, whoever keeps it
    key: Key = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", (self.case, self.arm, self.run))

    @property
    def measured(self) -> bool:
        """Whether it says something about the agent."""
        return self.error.get("kind") not in NOT_MEASURED

    @property
    def spent(self) -> float:
        """US dollars, as far as prices are known."""
        return (self.cost_usd or 0.0) + (self.judge_cost_usd or 0.0) + (self.user_cost_usd or 0.0)


def result_of(row: Mapping[str, Any]) -> TrialResult:
    """The small part of a row. Raises ``ValueError`` when it is no row of this schema."""
    try:
        if row["schema"] != SCHEMA:
            raise ValueError(f"it has schema {row['schema']!r}, not {SCHEMA}")
        turns = (row.get("trace") or {}).get("turns") or ()
        return TrialResult(
            case=sys.intern(str(row["case"])),
            arm=sys.intern(str(row["arm"])),
            run=int(row["run"]),
            kind=sys.intern(str(row["kind"])),
            fingerprint=sys.intern(str(row["fingerprint"])),
            passed=_flag(row["passed"]),
            outcome_passed=_flag(row["outcome_passed"]),
            score=_number(row["score"]),
            outcome=_number(row["outcome"]),
            scores=_scores(tuple((sys.intern(score["metric"]), _number(score["value"])) for score in row["scores"])),
            verdicts=tuple(_with(verdict, "text", "met", "rationale") for verdict in row["verdicts"]),
            skills_loaded=_shared(tuple(map(str, row["skills_loaded"]))),
            seconds=float(_number(row["seconds"])),
            overhead_seconds=float(_number(row["overhead_seconds"])),
            usage=_usage(row["usage"]),
            judge_usage=_usage(row["judge_usage"]),
            cost_usd=_number(row["cost_usd"]),
            judge_cost_usd=_number(row["judge_cost_usd"]),
            tool_calls=sum(len(turn.get("calls") or ()) for turn in turns),
            user_cost_usd=_number((row.get("simulated_user") or {}).get("cost_usd")),
            user_ended=(row.get("simulated_user") or {}).get("ended") or "",
            error=dict(_with(row["error"], "kind", "message")) if row["error"] else _NOTHING,
        )
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"it is no result of a trial ({type(error).__name__}: {error})") from error


# A row may have been repaired by hand, or come from elsewhere: what is computed with is looked at first.


def _number(value: Any) -> Any:
    if value is None or (isinstance(value, (int, float)) and type(value) is not bool and abs(value) < _MOST_NUMBER):
        return value
    raise TypeError(f"a number cannot be {value!r:.40}")


def _flag(value: Any) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise TypeError(f"true, false or null cannot be {value!r:.40}")


def _with(value: Any, *names: str) -> Mapping[str, Any]:
    for name in names:
        value[name]
    return cast("Mapping[str, Any]", value)


def _usage(value: Any) -> Usage:
    counts = Usage.from_json(value)
    for count in (counts.prompt, counts.output, counts.total, counts.cached):
        int(_number(count))
    return _shared(counts)


# A driver keeps the results of 100,000 trials, most of which say the same of most things: equal values are one object.

_Value = TypeVar("_Value", bound=Hashable)
_SHARED = 4096


@functools.lru_cache(maxsize=_SHARED)
def _first_of(value: Hashable) -> Hashable:
    return value


def _shared(value: _Value) -> _Value:
    """The value, or an equal one that was there before."""
    return cast("_Value", _first_of(value))


@functools.lru_cache(maxsize=_SHARED)
def _scores(pairs: tuple[tuple[str, float | None], ...]) -> Mapping[str, float | None]:
    return MappingProxyType(dict(pairs))


def trace_of(row: Mapping[str, Any], place: str) -> Trace:
    """The trace in a row. Raises ``ConfigError`` when the row has no usable trace."""
    try:
        return Trace.from_json(row["trace"])
    except (ValueError, KeyError) as error:
        said = "it has no trace" if row.get("trace") is None else str(error).removesuffix(".")
        raise ConfigError(
            f"{place}: the row of {row.get('case')!r} ({row.get('arm')}, run {row.get('run')}) cannot be used: {said}. "
            "Remove the line; --resume runs the trial again."
        ) from error


# ``trials.jsonl``: a row for each finished trial, written whole or not at all, read again by ``--resume``.

__all__ = ["NAME", "Ledger", "read_rows"]

NAME = "trials.jsonl"


class Ledger(RowFile):
    """The trials of one output folder; see :class:`RowFile`."""

    def __init__(self, folder: Path, *, resume: bool = False) -> None:
        super().__init__(folder, NAME, resume=resume)
        self._unjudged: dict[Key, int] = {}

    def finished(self, trials: Mapping[Key, Trial]) -> dict[Key, TrialResult]:
        """The results there are already, of the trials asked for; the last row of a trial counts.

        A torn row at the end (the process was killed while it wrote) is cut off. Rows of trials that were not measured
        are not results: the trial is run again, or only judged again (:meth:`unjudged`). Raises ``ConfigError`` when a
        row is no result, or was measured with another version of the case, the skill or the model.
        """
        fingerprints = {key: trial.fingerprint for key, trial in trials.items()}
        rows = self.latest(result_of, fingerprints, "another version of the case, the skill, the model or the judge")
        self._unjudged = {key: start for key, (start, row) in rows.items() if row.error.get("kind") == "judge"}
        return {key: row for key, (_, row) in rows.items() if row.measured}

    def unjudged(self, key: Key) -> dict[str, Any] | None:
        """The row of a trial that only its judge failed, so that its conversation need not be held again."""
        start = self._unjudged.get(key)
        if start is None:
            return None
        row = row_at(self.path, start)
        return row if isinstance(row, dict) else None
