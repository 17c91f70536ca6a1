"""What trials of the benchmark gave: rows in ``results.jsonl``, the part kept in memory, and the table of it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from adk_skills_agent.evals.row_file import RowFile, Stopped
from adk_skills_agent.evals.statistics import paired_lift

NAME = "results.jsonl"
FIRST = ("task", "arm", "trial", "agent", "reward", "passed", "error", "seconds")
"""The first fields of a row, in this order; the others follow."""
NOT_MEASURED = ("build", "sandbox", "verifier", "model")
"""Kinds of errors that say nothing about the agent: there is no reward, and ``--resume`` tries the trial again."""
NO_SKILL, WITH_SKILL, SELF_GEN = "no-skill", "with-skill", "self-gen"
Key = tuple[str, str, int, str]


@dataclass(frozen=True, slots=True)
class BenchResult:
    """A row without what only a reader of the file wants."""

    task: str
    arm: str  # ``no-skill``, ``with-skill`` or ``self-gen``
    trial: int
    agent: str  # ``adk``, ``oracle`` or ``nop``
    reward: float | None  # 0 to 1; None when the trial was not measured
    passed: bool | None  # whether the reward is 1; None when the trial was not measured
    error: str | None  # What went wrong, one sentence; None when nothing did. A trial with a reward may have one.
    error_kind: str | None  # ``build``, ``sandbox``, ``verifier``, ``model``, ``timeout``, ``agent``, or None
    seconds: float
    category: str
    fingerprint: str
    skills_available: tuple[str, ...] = ()  # skills the agent could discover
    skills_used: tuple[str, ...] = ()  # skills it loaded or read
    tokens: int = 0

    @property
    def key(self) -> Key:
        """What identifies the trial."""
        return self.task, self.arm, self.trial, self.agent

    @property
    def measured(self) -> bool:
        """Whether it has a reward."""
        return self.reward is not None


def result_of(row: Mapping[str, Any]) -> BenchResult:
    """The result in a row. Raises ``ValueError`` when it is no row of results."""
    try:
        result = BenchResult(
            task=str(row["task"]),
            arm=str(row["arm"]),
            trial=int(row["trial"]),
            agent=str(row["agent"]),
            reward=None if row["reward"] is None else float(row["reward"]),
            passed=row["passed"],
            error=row["error"],
            error_kind=row.get("error_kind"),
            seconds=float(row["seconds"]),
            category=str(row.get("category", "")),
            fingerprint=str(row.get("fingerprint", "")),
            skills_available=tuple(map(str, row.get("skills_available", ()))),
            skills_used=tuple(map(str, (*row.get("skills_loaded", ()), *row.get("skills_read", ())))),
            tokens=int((row.get("usage") or {}).get("total", 0)),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ValueError(f"this is no row of results ({error!r})") from error
    texts, numbers = (result.error, result.error_kind), (result.reward or 0.0, result.seconds)
    is_sound = all(text is None or isinstance(text, str) for text in texts) and all(map(math.isfinite, numbers))
    if not is_sound or not (result.passed is None or isinstance(result.passed, bool)):
        raise ValueError("this is no row of results (a value of another kind)")
    return result


@dataclass(slots=True)
class BuildCounts:
    """What became of the builds (S0-129)."""

    built: int = 0
    cached: int = 0
    failed: dict[str, str] = field(default_factory=dict)  # task to reason
    retried: int = 0
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "built": self.built,
            "cached": self.cached,
            "failed": dict(self.failed),
            "retried": self.retried,
            "seconds": round(self.seconds, 3),
        }


@dataclass(slots=True)
class RunState:
    """A run as it goes on."""

    planned: int
    # what is finished, by trial; those of an earlier run too
    results: dict[Key, BenchResult] = field(default_factory=dict)
    resumed: int = 0  # how many of them are of an earlier run
    builds: BuildCounts = field(default_factory=BuildCounts)
    stopped: Stopped | None = None

    @property
    def unmeasured(self) -> list[BenchResult]:
        """Finished trials without a reward."""
        return [result for result in self.results.values() if not result.measured]


def finished(rows: RowFile, fingerprints: Mapping[Key, str]) -> dict[Key, BenchResult]:
    """The results there are already, of the trials asked for; the last row of a trial counts.

    Rows of trials that were not measured are not results: the trial is run again. Raises ``ConfigError`` when a row is
    no result, or was measured with other settings or another version of the task.
    """
    settings = "other settings (model, sandbox, network, time) or another version of the task"
    return {key: row for key, (_, row) in rows.latest(result_of, fingerprints, settings).items() if row.measured}


def row_file(folder: Path, *, resume: bool) -> RowFile:
    """The file of a run's results. Raises ``ConfigError`` as :class:`RowFile` does."""
    return RowFile(folder, NAME, resume=resume)


# The table: by arm and by domain, and what the skills are worth.


def summarise(results: Sequence[BenchResult], arms: Sequence[str], agents: Sequence[str]) -> dict[str, Any]:
    """Everything that is printed of a run, as JSON values.

    A rate is the mean over tasks of each task's mean over its trials, so that a task counts once however often it was
    measured; trials without a reward count in no rate and are told as ``errors``.
    """
    sides = [(agent, arm) for agent in agents for arm in arms]
    return {
        "arms": [_side(agent, arm, _of(results, agent, arm)) for agent, arm in sides],
        "domains": [
            {"domain": domain, **_side(agent, arm, found)}
            for domain in sorted({result.category for result in results})
            for agent, arm in sides
            if (found := [result for result in _of(results, agent, arm) if result.category == domain])
        ],
        "lift": [
            lift
            for agent in agents
            for arm in arms
            if arm != NO_SKILL and NO_SKILL in arms and (lift := _lift(results, agent, arm)) is not None
        ],
    }


def self_test_problems(results: Sequence[BenchResult]) -> list[str]:
    """Tasks whose oracle does not get 1 or whose nop does not get 0, one sentence each; empty when all is well."""
    problems = []
    for result in results:
        wanted = {"oracle": 1.0, "nop": 0.0}.get(result.agent)
        if wanted is not None and result.reward != wanted:
            got = "no reward" if result.reward is None else f"{result.reward:g}"
            why = f" ({result.error})" if result.error else ""
            problems.append(f"{result.task}: {result.agent} got {got} instead of {wanted:g}{why}")
    return problems


def _of(results: Sequence[BenchResult], agent: str, arm: str) -> list[BenchResult]:
    return [result for result in results if result.agent == agent and result.arm == arm]


def _side(agent: str, arm: str, results: Sequence[BenchResult]) -> dict[str, Any]:
    rewards = _by_task(results)
    passes = {task: statistics.fmean(value >= 1.0 for value in values) for task, values in rewards.items()}
    measured = [result for result in results if result.measured]
    return {
        "agent": agent,
        "arm": arm,
        "tasks": len({result.task for result in results}),
        "trials": len(results),
        "errors": len(results) - len(measured),
        "timeouts": sum(result.error_kind == "timeout" for result in results),
        "pass_rate": statistics.fmean(passes.values()) if passes else None,
        "mean_reward": statistics.fmean(statistics.fmean(values) for values in rewards.values()) if rewards else None,
        "mean_seconds": statistics.fmean(result.seconds for result in measured) if measured else None,
        "skill_used": statistics.fmean(bool(result.skills_used) for result in measured) if measured else None,
        "tasks_with_skills": len({result.task for result in results if result.skills_available}),
        "tokens": sum(result.tokens for result in results),
    }


def _by_task(results: Sequence[BenchResult]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for result in results:
        if result.reward is not None:
            found.setdefault(result.task, []).append(result.reward)
    return found


def _lift(results: Sequence[BenchResult], agent: str, arm: str) -> dict[str, Any] | None:
    ours, theirs = _by_task(_of(results, agent, arm)), _by_task(_of(results, agent, NO_SKILL))
    both = [task for task in ours if task in theirs]
    lift = paired_lift([(statistics.fmean(ours[task]), statistics.fmean(theirs[task])) for task in both])
    if lift is None:
        return None
    figures = asdict(lift)
    return {
        "agent": agent,
        "arm": arm,
        "baseline": NO_SKILL,
        "tasks": figures.pop("pairs"),
        **figures,
        "by_task": {task: statistics.fmean(ours[task]) - statistics.fmean(theirs[task]) for task in both},
    }
