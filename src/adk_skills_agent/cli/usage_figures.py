"""What the events of a log add up to, for each skill."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from adk_skills_agent.cli.usage_log import MAX_NUMBER


@dataclass(slots=True)
class SkillFigures:
    """What happened with one skill.

    Attributes:
        name: The skill.
        activations: How often it came into force; loading it again while it is active does not count.
        drops: How often it was released, by reason.
        reads: How many of its files were read.
        runs: How many of its scripts were started.
        failures: What failed (runs, reads, activations), by reason.
        failed_runs: How many runs failed.
        seconds: Wall time of each run.
        tokens: Estimated tokens of its instructions at the last activation.
        tokens_total: Summed over its activations.
        approvals: Questions and decisions, by kind.
        guard: Misses that the retry guard counted.
        sessions: In how many sessions it was active.
    """

    name: str
    activations: int = 0
    drops: Counter[str] = field(default_factory=Counter)
    reads: int = 0
    runs: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    failed_runs: int = 0
    seconds: list[float] = field(default_factory=list)
    tokens: int = 0
    tokens_total: int = 0
    approvals: Counter[str] = field(default_factory=Counter)
    guard: int = 0
    sessions: set[tuple[str, str, str]] = field(default_factory=set)

    @property
    def median_seconds(self) -> float | None:
        """Of the runs' wall time; None without runs."""
        return statistics.median(self.seconds) if self.seconds else None

    @property
    def p95_seconds(self) -> float | None:
        """The wall time that 95 % of the runs stay within; None without runs."""
        if not self.seconds:
            return None
        return sorted(self.seconds)[math.ceil(0.95 * len(self.seconds)) - 1]

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "skill": self.name,
            "activations": self.activations,
            "sessions": len(self.sessions),
            "drops": dict(self.drops.most_common()),
            "reads": self.reads,
            "runs": self.runs,
            "failed_runs": self.failed_runs,
            "failures": dict(self.failures.most_common()),
            "median_seconds": _rounded(self.median_seconds),
            "p95_seconds": _rounded(self.p95_seconds),
            "tokens": self.tokens,
            "tokens_total": self.tokens_total,
            "approvals": dict(self.approvals.most_common()),
            "guard_trips": self.guard,
        }


UNKNOWN = "(unknown)"
"""Where calls go that name no skill there is: a model may invent any number of names."""


def figures_of(events: Iterable[Mapping[str, Any]], kinds: Counter[str] | None = None) -> list[SkillFigures]:
    """One row for each skill, the most used first; what was asked of skills that do not exist is one row, the last.

    Args:
        events: As :func:`~adk_skills_agent.cli.usage_log.read_events` gives them.
        kinds: Counts the events by their names, also those that are about no skill.
    """
    skills: dict[str, SkillFigures] = {}
    for event in events:
        name = event.get("skill")
        if kinds is not None:
            kinds[event["event"]] += 1
        if event["event"] == "SkillDiscovered" or not isinstance(name, str):
            continue
        missed_name = False
        if event["event"] == "GuardTripped":
            if not name:
                continue  # a call that names no skill
            missed_name = event.get("kind") in {"skill", "registry"}
        if not name or missed_name or event.get("error_code") == "SKILL_NOT_FOUND":
            name = UNKNOWN
        figures = skills.get(name)
        if figures is None:
            figures = skills[name] = SkillFigures(name)
        _add(figures, event)
    return sorted(skills.values(), key=lambda one: (one.name == UNKNOWN, -one.activations, -one.runs, one.name))


def duration(seconds: float | None) -> str:
    """Seconds for a person, such as ``85 ms`` or ``2.4 s``; a dash for None."""
    if seconds is None:
        return "-"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 99.95 else f"{seconds:,.0f} s"


def _add(figures: SkillFigures, event: Mapping[str, Any]) -> None:
    error = _text(event.get("error_code"))
    match event["event"]:
        case "SkillActivated":
            if error:
                figures.failures[error] += 1
                return
            figures.tokens = _count(event.get("tokens"))
            where = (_text(event.get("app")), _text(event.get("user")), _text(event.get("session")))
            figures.sessions.add(where)
            if not event.get("again"):
                figures.activations += 1
                figures.tokens_total += figures.tokens
        case "SkillDropped":
            figures.drops[_text(event.get("reason")) or "other"] += 1
        case "ResourceRead":
            if error:
                figures.failures[error] += 1
            else:
                figures.reads += 1
        case "ScriptFinished":
            _add_run(figures, event, error)
        case "ApprovalRequested":
            figures.approvals["requested"] += 1
        case "ApprovalDecided":
            figures.approvals[_text(event.get("decision")) or "other"] += 1
        case "GuardTripped":
            figures.guard += 1


def _add_run(figures: SkillFigures, event: Mapping[str, Any], error: str) -> None:
    started = bool(event.get("run"))
    reason = _text(event.get("reason"))
    if event.get("status") == "error":
        # "exit_code" says more than EXECUTION_ERROR, and SCRIPT_NOT_FOUND more than "not_started"
        figures.failures[(reason if started else "") or error or reason or "other"] += 1
        figures.failed_runs += started
    if started:
        figures.runs += 1
        seconds = event.get("seconds")
        if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds <= MAX_NUMBER:
            figures.seconds.append(float(seconds))


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_NUMBER else 0


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
