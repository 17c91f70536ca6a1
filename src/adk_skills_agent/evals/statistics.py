"""What a handful of runs says, and how sure it is: means, paired lift, pass@k."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
_RESAMPLES = 4_000
_SEED = 20_251_121
"""Fixed: the same results give the same interval each time."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Numbers in short.

    Attributes:
        mean: Their mean.
        stddev: Their standard deviation (of a sample); 0 for one number.
        low: The least.
        high: The greatest.
    """

    mean: float
    stddev: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Lift:
    """What one arm gains over another, by case.

    Attributes:
        pairs: How many cases both arms have a result of.
        mean: Mean of the cases' differences.
        low: Lower end of the interval; None below two cases.
        high: Its upper end.
        p_value: Of the two-sided sign test; 1 when no case differs.
        better: Cases in which the arm is ahead.
        worse: Cases in which it is behind.
        equal: The other cases.
    """

    pairs: int
    mean: float
    low: float | None
    high: float | None
    p_value: float
    better: int
    worse: int
    equal: int


def spread(values: Sequence[float]) -> Spread | None:
    """Mean and spread; None of no values."""
    if not values:
        return None
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return Spread(statistics.fmean(values), deviation, min(values), max(values))


def paired_lift(pairs: Sequence[tuple[float, float]]) -> Lift | None:
    """The lift of the first of each pair over the second.

    The interval is a percentile bootstrap over the cases: runs of one case are not independent of each other, so the
    cases are what is drawn again.

    Args:
        pairs: For each case, the mean of the arm and that of the baseline.

    Returns:
        The lift; None of no pairs.
    """
    if not pairs:
        return None
    differences = [ours - theirs for ours, theirs in pairs]
    better = sum(one > 0 for one in differences)
    worse = sum(one < 0 for one in differences)
    low, high = bootstrap_interval(differences) if len(differences) > 1 else (None, None)
    return Lift(
        pairs=len(pairs),
        mean=statistics.fmean(differences),
        low=low,
        high=high,
        p_value=sign_test(better, worse),
        better=better,
        worse=worse,
        equal=len(differences) - better - worse,
    )


def bootstrap_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Percentile bootstrap interval of a mean.

    Args:
        values: At least one.
        confidence: The share of resamples inside, 0 to 1.
    """
    draw = random.Random(_SEED)  # noqa: S311 - statistics, no secret
    count = len(values)
    means = sorted(math.fsum(draw.choices(values, k=count)) / count for _ in range(_RESAMPLES))
    tail = (1 - confidence) / 2
    return means[int(tail * _RESAMPLES)], means[min(int((1 - tail) * _RESAMPLES), _RESAMPLES - 1)]


def sign_test(better: int, worse: int) -> float:
    """Two-sided p-value of the exact sign test; ties count for neither side."""
    count = better + worse
    if not count:
        return 1.0
    tail: float = sum(math.comb(count, k) for k in range(min(better, worse) + 1)) / 2**count
    return min(1.0, 2.0 * float(tail))


def pass_at_k(runs: int, passed: int, k: int) -> float:
    """The chance that at least one of ``k`` runs passes, estimated without bias from ``runs`` runs.

    Args:
        runs: How many there were; at least ``k``.
        passed: How many of them passed.
        k: How many are drawn; at least 1.

    Raises:
        ValueError: The numbers do not fit each other.
    """
    if not 0 <= passed <= runs or not 1 <= k <= runs:
        raise ValueError(f"pass@{k} of {passed} passed in {runs} runs is not defined")
    missed: float = math.comb(runs - passed, k) / math.comb(runs, k)
    return 1.0 - missed


def difference_interval(
    ours: Sequence[float], theirs: Sequence[float], confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Bootstrap interval of the difference of two means whose values are not paired: the runs of one case.

    Args:
        ours: At least one value.
        theirs: At least one value.
        confidence: The share of resamples inside, 0 to 1.
    """
    draw = random.Random(_SEED)  # noqa: S311 - statistics, no secret
    means = sorted(
        statistics.fmean(draw.choices(ours, k=len(ours))) - statistics.fmean(draw.choices(theirs, k=len(theirs)))
        for _ in range(_RESAMPLES // 10)
    )
    tail = (1 - confidence) / 2
    return means[int(tail * len(means))], means[min(int((1 - tail) * len(means)), len(means) - 1)]
