"""The results of a run in short: by case, by arm, what the skill adds, what it costs, and what to look at."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from adk_skills_agent.evals.cases import EvalCase
from adk_skills_agent.evals.metrics.confusion import Triggering, confusion
from adk_skills_agent.evals.run.plan import WITHOUT, Key, Trial
from adk_skills_agent.evals.run.result import TrialResult
from adk_skills_agent.evals.statistics import (
    CONFIDENCE,
    difference_interval,
    paired_lift,
    pass_at_k,
    spread,
    verdict_text,
)

TRIGGER_THRESHOLD = 0.5
"""A query that should trigger does when at least this share of its runs does; one that should not, when less (C47)."""
_ALWAYS, _NEVER = 1.0, 0.0
NO_VARIATION = "the runs of each arm all ended alike"
"""Why the difference of a case has no interval."""


@dataclass(frozen=True, slots=True)
class CaseInArm:
    """The runs of one case in one arm."""

    case: EvalCase
    arm: str
    planned: int
    results: tuple[TrialResult, ...]

    @property
    def measured(self) -> tuple[TrialResult, ...]:
        """The results in which something was measured."""
        return tuple(result for result in self.results if result.passed is not None)

    @property
    def passed(self) -> int:
        """How many passed."""
        return sum(bool(result.passed) for result in self.measured)

    @property
    def pass_rate(self) -> float | None:
        """Their share; None when nothing was measured."""
        return self.passed / len(self.measured) if self.measured else None

    @property
    def outcome_rate(self) -> float | None:
        """The share whose outcome was right, which is what arms are compared by; None without such criteria."""
        said = [bool(result.outcome_passed) for result in self.measured if result.outcome_passed is not None]
        return statistics.fmean(said) if said else None

    @property
    def succeeded(self) -> float | None:
        """What the case counts for the run: its pass rate, or for a trigger query 1 or 0 by the threshold."""
        rate = self.pass_rate
        if rate is None or self.case.kind == "task":
            return rate
        # The rate of not triggering must be above one half: at one half, half of the users got it.
        good = rate >= TRIGGER_THRESHOLD if self.case.should_trigger else rate > 1 - TRIGGER_THRESHOLD
        return 1.0 if good else 0.0

    @property
    def flaky(self) -> bool:
        """Whether it passed and failed."""
        return self.pass_rate is not None and _NEVER < self.pass_rate < _ALWAYS

    def to_json(self) -> dict[str, Any]:
        """As in ``benchmark.json``."""
        runs = self.measured
        count = len(runs)
        known = [result.cost_usd for result in runs if result.cost_usd is not None]
        return {
            "planned": self.planned,
            "runs": count,
            "passed": self.passed,
            "errors": len(self.results) - count,
            "pass_rate": self.pass_rate,
            "outcome_rate": self.outcome_rate,
            "score": _mean([result.score for result in runs]),
            "outcome": _mean([result.outcome for result in runs]),
            "seconds": _mean([result.seconds for result in runs]),
            "tokens": _mean([float(result.usage.total) for result in runs]),
            "cost_usd": sum(known) if known else None,
            "pass_at_k": {str(k): chance for k, chance in enumerate(pass_at_k(count, self.passed), 1)},
            "flaky": self.flaky,
        }


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in short."""

    cells: Mapping[tuple[str, str], CaseInArm]
    arms: tuple[str, ...]

    @property
    def main_arm(self) -> str:
        """The arm the run is about: the first that has the skill."""
        return next((name for name in self.arms if name != WITHOUT), self.arms[0])

    @property
    def baseline(self) -> str:
        """The arm without the skill, where others are measured against it; empty without such an arm.

        Its runs are expected not to pass, so they are not called failures.
        """
        return _baseline(self.arms)

    def of_arm(self, arm: str) -> list[CaseInArm]:
        """The cases of an arm."""
        return [cell for cell in self.cells.values() if cell.arm == arm]

    def pass_rate(self, arm: str) -> float | None:
        """Mean over the cases of an arm; None when nothing was measured."""
        return _mean([cell.succeeded for cell in self.of_arm(arm)])

    @property
    def cases(self) -> list[EvalCase]:
        """Each once, in order."""
        return list({cell.case.id: cell.case for cell in self.cells.values()}.values())

    def lifts(self) -> list[dict[str, Any]]:
        """What the first arm gains over each other arm, by outcome (tasks only)."""
        found = []
        for baseline in self.arms:
            if baseline == self.main_arm:
                continue
            pairs, cases = [], []
            for case in self.cases:
                ours, theirs = self.cells.get((case.id, self.main_arm)), self.cells.get((case.id, baseline))
                if ours is None or theirs is None or case.kind != "task":
                    continue
                one, other = ours.outcome_rate, theirs.outcome_rate
                if one is None or other is None:
                    continue
                interval = difference_interval(_outcomes(ours), _outcomes(theirs))
                low, high = interval or (None, None)
                pairs.append((one, other))
                cases.append(
                    {
                        "case": case.id,
                        "lift": one - other,
                        "low": low,
                        "high": high,
                        "no_interval": "" if interval else NO_VARIATION,
                    }
                )
            lift = paired_lift(pairs)
            if lift is not None:
                said = verdict_text(lift.better, lift.worse, lift.equal)
                found.append(
                    {
                        "arm": self.main_arm,
                        "baseline": baseline,
                        **asdict(lift),
                        "confidence": CONFIDENCE,
                        "verdict": f"Compared with {baseline}, {self.main_arm} {said}.",
                        "cases": cases,
                    }
                )
        return found

    def trigger(self) -> dict[str, Any]:
        """Precision, recall and confusion of the trigger queries, for each arm that has the skill."""
        found: dict[str, Any] = {}
        for arm in self.arms:
            if arm == WITHOUT:
                continue
            cells = [cell for cell in self.of_arm(arm) if cell.case.kind == "trigger"]
            if not cells:
                continue
            counts = confusion(
                Triggering(cell.case.skills if cell.case.should_trigger else (), result.skills_loaded)
                for cell in cells
                for result in cell.measured
            )
            splits = {
                split: {
                    "queries": len(queries),
                    "right": sum(cell.succeeded == 1.0 for cell in queries),
                    "measured": sum(cell.succeeded is not None for cell in queries),
                }
                for split in ("train", "validation")
                if (queries := [cell for cell in cells if cell.case.split == split])
            }
            found[arm] = {**counts.to_json(), "splits": splits, "threshold": TRIGGER_THRESHOLD}
        return found

    def notes(self) -> list[str]:
        """What an author should look at, one sentence each."""
        main = self.main_arm
        said = [
            f"Flaky: {cell.case.id} passed {cell.passed} of {len(cell.measured)} runs ({cell.arm})."
            for cell in self.cells.values()
            if cell.flaky
        ]
        for cell in self.cells.values():
            endless = sum(result.user_ended == "turn_limit_reached" for result in cell.results)
            if endless:
                said.append(
                    f"{cell.case.id} ended at the turn limit of the simulated user in {endless} of {len(cell.results)} "
                    f"runs ({cell.arm}): the conversation was cut off."
                )
        for case in self.cases:
            ours, theirs = self.cells.get((case.id, main)), self.cells.get((case.id, WITHOUT))
            if ours is None or theirs is None or main == WITHOUT:
                continue
            rates = ours.outcome_rate, theirs.outcome_rate
            if rates == (_ALWAYS, _ALWAYS):
                said.append(
                    f"{case.id} passes in every run with and without the skill: it does not show what the skill adds."
                )
            elif rates == (_NEVER, _NEVER):
                said.append(
                    f"{case.id} fails in every run with and without the skill: too hard, or its criteria are wrong."
                )
            elif rates[0] is not None and rates[1] is not None and rates[0] < rates[1]:
                said.append(f"{case.id} goes worse with the skill ({rates[0]:.0%}) than without ({rates[1]:.0%}).")
        return said


def baseline_of(trials: Sequence[Trial]) -> str:
    """The arm without the skill, as :attr:`Summary.baseline`, before anything has run."""
    return _baseline(tuple(dict.fromkeys(trial.arm.name for trial in trials)))


def _baseline(arms: Sequence[str]) -> str:
    return WITHOUT if WITHOUT in arms and len(arms) > 1 else ""


def summarise(trials: Sequence[Trial], results: Mapping[Key, TrialResult]) -> Summary:
    """Put results together."""
    planned: dict[tuple[str, str], list[Trial]] = {}
    for trial in trials:
        planned.setdefault((trial.case.id, trial.arm.name), []).append(trial)
    arms = dict.fromkeys(trial.arm.name for trial in trials)
    cells = {
        place: CaseInArm(
            of_place[0].case,
            place[1],
            len(of_place),
            tuple(results[trial.key] for trial in of_place if trial.key in results),
        )
        for place, of_place in planned.items()
    }
    return Summary(cells, tuple(arms))


def run_summary(summary: Summary, kind: str) -> dict[str, Any]:
    """The ``run_summary`` of agentskills for cases of one kind: figures of each arm, and what the first arm adds (C46).

    A task counts by its outcome, which is what arms are compared by; a trigger query by the threshold. The difference
    is taken over the cases that both arms measured.
    """
    of_arm = {
        arm: {cell.case.id: cell for cell in summary.of_arm(arm) if cell.measured and cell.case.kind == kind}
        for arm in summary.arms
    }
    found: dict[str, Any] = {}
    for arm, cells in of_arm.items():
        found[arm] = {}
        for name, values in _figures(cells.values()).items():
            short = spread(values)
            found[arm][name] = (
                {"mean": short.mean, "stddev": short.stddev, "min": short.low, "max": short.high} if short else None
            )
    if WITHOUT in summary.arms and summary.main_arm != WITHOUT:
        ours, theirs = of_arm[summary.main_arm], of_arm[WITHOUT]
        both = [(_figures([ours[case]]), _figures([theirs[case]])) for case in ours if case in theirs]
        found["delta"] = {
            name: statistics.fmean(differences)
            for name in ("pass_rate", "time_seconds", "tokens")
            if (
                differences := [
                    statistics.fmean(one[name]) - statistics.fmean(other[name])
                    for one, other in both
                    if one[name] and other[name]
                ]
            )
        }
    return found


def _figures(cells: Iterable[CaseInArm]) -> dict[str, list[float]]:
    cells = list(cells)
    rates = [cell.outcome_rate if cell.outcome_rate is not None else cell.succeeded for cell in cells]
    runs = [result for cell in cells for result in cell.measured]
    return {
        "pass_rate": [rate for rate in rates if rate is not None],
        "time_seconds": [result.seconds for result in runs],
        "tokens": [float(result.usage.total) for result in runs],
    }


def _outcomes(cell: CaseInArm) -> list[float]:
    return [float(bool(result.outcome_passed)) for result in cell.measured if result.outcome_passed is not None]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
