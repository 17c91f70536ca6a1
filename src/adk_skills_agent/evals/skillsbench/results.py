"""What one trial of the benchmark gave: its row in ``results.jsonl``, and the small part that is kept in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adk_skills_agent.evals.row_file import RowFile, Stopped

NAME = "results.jsonl"
FIRST = ("task", "arm", "trial", "agent", "reward", "passed", "error", "seconds")
"""The first fields of a row, in this order; the others follow."""
NOT_MEASURED = ("build", "sandbox", "verifier", "model")
"""Kinds of errors that say nothing about the agent: there is no reward, and ``--resume`` tries the trial again."""
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
        reward = row["reward"]
        return BenchResult(
            task=str(row["task"]),
            arm=str(row["arm"]),
            trial=int(row["trial"]),
            agent=str(row["agent"]),
            reward=None if reward is None else float(reward),
            passed=row["passed"],
            error=row["error"],
            error_kind=row.get("error_kind"),
            seconds=float(row["seconds"]),
            category=str(row.get("category", "")),
            fingerprint=str(row.get("fingerprint", "")),
            skills_available=tuple(row.get("skills_available", ())),
            skills_used=(*row.get("skills_loaded", ()), *row.get("skills_read", ())),
            tokens=int((row.get("usage") or {}).get("total", 0)),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"this is no row of results ({error!r})") from error


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
