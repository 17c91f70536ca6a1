"""Two runs of the same cases: what changed since the baseline, and whether that is more than chance."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from adk_skills_agent.evals.statistics import Lift, difference_interval, paired_lift
from adk_skills_agent.evals.summary import CaseInArm, Summary


@dataclass(frozen=True, slots=True)
class Change:
    """A case in one arm, then and now."""

    case: str
    arm: str
    before: float
    after: float
    # lower end of the 95 % interval of the difference; None when the runs of each side all ended alike
    low: float | None
    high: float | None
    tokens: tuple[float, float]  # mean tokens then and now
    seconds: tuple[float, float]  # mean seconds then and now


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs beside each other."""

    changes: tuple[Change, ...]
    arms: dict[str, Lift]  # the paired difference of each arm over its cases
    only_now: tuple[str, ...]  # ``case (arm)`` that only this run measured
    only_before: tuple[str, ...]  # those that only the baseline measured

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "changes": [asdict(change) for change in self.changes],
            "arms": {name: asdict(lift) for name, lift in self.arms.items()},
            "only_now": list(self.only_now),
            "only_before": list(self.only_before),
        }


def compare(now: Summary, before: Summary) -> Comparison:
    """Put a run beside an earlier one: cases are found by id and arm.

    Runs that could not be measured count on neither side.
    """
    ours = {place: cell for place, cell in now.cells.items() if cell.measured}
    theirs = {place: cell for place, cell in before.cells.items() if cell.measured}
    changes = tuple(_change(cell, theirs[place]) for place, cell in ours.items() if place in theirs)
    arms = {}
    for arm in now.arms:
        lift = paired_lift([(change.after, change.before) for change in changes if change.arm == arm])
        if lift is not None:
            arms[arm] = lift
    return Comparison(changes, arms, _names(ours.keys() - theirs.keys()), _names(theirs.keys() - ours.keys()))


def _change(now: CaseInArm, before: CaseInArm) -> Change:
    ours, theirs = _passed(now), _passed(before)
    low, high = difference_interval(ours, theirs) or (None, None)

    def means(value: Callable[[Any], float]) -> tuple[float, float]:
        return _mean(before, value), _mean(now, value)

    return Change(
        now.case.id,
        now.arm,
        statistics.fmean(theirs),
        statistics.fmean(ours),
        low,
        high,
        means(lambda result: result.usage.total),
        means(lambda result: result.seconds),
    )


def _passed(cell: CaseInArm) -> list[float]:
    return [float(bool(result.passed)) for result in cell.measured]


def _mean(cell: CaseInArm, value: Callable[[Any], float]) -> float:
    return statistics.fmean(value(result) for result in cell.measured)


def _names(places: Sequence[tuple[str, str]] | set[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(f"{case} ({arm})" for case, arm in sorted(places))
