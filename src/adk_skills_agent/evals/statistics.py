"""What a handful of runs says, and how sure it is: means, paired lift, the verdict in words, pass@k."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
_RESAMPLES = 4_000
_SAME = 1e-9
"""Shares nearer to each other than this differ by rounding only."""
_SEED = 20_251_121
"""Fixed: the same results give the same interval each time."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Numbers in short."""

    mean: float
    stddev: float  # their standard deviation (of a sample); 0 for one number
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Lift:
    """What one arm gains over another, by case."""

    pairs: int  # how many cases both arms have a result of
    mean: float
    low: float | None  # lower end of the interval; None where ``no_interval`` says why
    high: float | None
    p_value: float  # of the two-sided sign test; 1 when no case differs
    better: int  # cases in which the arm is ahead
    worse: int  # cases in which it is behind
    equal: int
    # Why there is no interval; empty where there is one. Drawing again from values that are all the same gives an
    # interval without width, which would look like certainty.
    no_interval: str = ""


def spread(values: Sequence[float]) -> Spread | None:
    """Mean and spread; None of no values."""
    if not values:
        return None
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return Spread(statistics.fmean(values), deviation, min(values), max(values))


def paired_lift(pairs: Sequence[tuple[float, float]]) -> Lift | None:
    """The lift of the first of each pair over the second.

    The interval is a percentile bootstrap over the cases: runs of one case are not independent of each other, so the
    cases are what is drawn again. A pair is a case's mean in the arm and in the baseline. Returns the lift; None of no
    pairs.
    """
    if not pairs:
        return None
    differences = [ours - theirs for ours, theirs in pairs]
    better = sum(one > 0 for one in differences)
    worse = sum(one < 0 for one in differences)
    low: float | None = None
    high: float | None = None
    no_interval = ""
    if len(differences) == 1:
        no_interval = "only one was measured"
    elif max(differences) - min(differences) < _SAME:
        no_interval = f"all {len(differences)} differ by the same amount" if better or worse else "none differs"
    else:
        low, high = bootstrap_interval(differences)
    return Lift(
        pairs=len(pairs),
        mean=statistics.fmean(differences),
        low=low,
        high=high,
        p_value=sign_test(better, worse),
        better=better,
        worse=worse,
        equal=len(differences) - better - worse,
        no_interval=no_interval,
    )


def bootstrap_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Percentile bootstrap interval of a mean."""
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


SIGNIFICANT = 0.05
"""Below this p-value a difference is called more than chance."""
_CLEARLY_OPEN = 0.5
"""From this p-value on, more cases of the same kind would not decide it either."""
BETTER_OR_WORSE = "is better", "is worse"
"""The verbs of a verdict on two runs; those of a verdict on a skill are ``helps`` and ``hurts``."""
_LEAST_TO_DECIDE = 6
"""Cases that differ, all in one direction, before the sign test can go below ``SIGNIFICANT``: 2 / 2**6 = 0.03."""


def verdict_text(
    better: int,
    worse: int,
    equal: int,
    *,
    words: tuple[str, str] = ("helps", "hurts"),
    unit: str = "case",
) -> str:
    """What a sign test says, in words: ``helps in 7 of 9 cases and hurts in 2; too few to be sure: p = 0.18``.

    ``words`` are the verbs for ahead and behind; ``unit`` is what is counted, in the singular. Returns the sentence
    without its subject and without a full stop.
    """
    count = better + worse + equal
    if not better and not worse:
        where = f"any of {count:,} {unit}s" if count != 1 else f"the only {unit}"
        return f"makes no difference in {where}"
    ahead, behind = words
    units = unit if count == 1 else f"{unit}s"
    if worse > better:
        said = f"{behind} in {worse:,} of {count:,} {units}" + (f" and {ahead} in {better:,}" if better else "")
    else:
        said = f"{ahead} in {better:,} of {count:,} {units}" + (f" and {behind} in {worse:,}" if worse else "")
    p_value = sign_test(better, worse)
    if p_value < SIGNIFICANT:
        sure = "more than chance"
    elif better + worse >= _LEAST_TO_DECIDE and p_value >= _CLEARLY_OPEN:
        sure = "may well be chance"
    else:
        sure = "too few to be sure"
    return f"{said}; {sure}: {p_text(p_value)}"


def interval_text(low: float | None, high: float | None, why_none: str, shown: Callable[[float], str]) -> str:
    """An interval to stand behind its mean: `` [+10%, +40%]``, or `` (no interval: ...)``."""
    if low is not None and high is not None:
        return f" [{shown(low)}, {shown(high)}]"
    return f" (no interval: {why_none})" if why_none else ""


def signed(share: float) -> str:
    """A difference of shares for a terminal: ``+12.5%``."""
    return f"{share:+.1%}"


def p_text(p_value: float) -> str:
    """A p-value as people write it: ``p = 0.18``, ``p = 0.004``, ``p < 0.001``."""
    if p_value < 0.001:
        return "p < 0.001"
    return f"p = {p_value:.3f}" if p_value < 0.01 else f"p = {p_value:.2f}"


def pass_at_k(runs: int, passed: int) -> list[float]:
    """The chance that at least one of k runs passes, for each k from 1 to ``runs``, estimated without bias from all.

    Each is made from the one before it, so thousands of runs take no longer than reading them. Raises ``ValueError``
    when the numbers do not fit each other.
    """
    if not 0 <= passed <= runs:
        raise ValueError(f"pass@k of {passed} passed in {runs} runs is not defined")
    found, missed = [], 1.0
    for drawn in range(runs):
        missed *= max(runs - passed - drawn, 0) / (runs - drawn)
        found.append(1.0 - missed)
    return found


def difference_interval(
    ours: Sequence[float], theirs: Sequence[float], confidence: float = CONFIDENCE
) -> tuple[float, float] | None:
    """Bootstrap interval of the difference of two means whose values are not paired: the runs of one case.

    Returns its ends; None when neither side varies, because no resample would differ from the sample.
    """
    if max(ours) - min(ours) < _SAME and max(theirs) - min(theirs) < _SAME:
        return None
    draw = random.Random(_SEED)  # noqa: S311 - statistics, no secret
    means = sorted(
        statistics.fmean(draw.choices(ours, k=len(ours))) - statistics.fmean(draw.choices(theirs, k=len(theirs)))
        for _ in range(_RESAMPLES // 10)
    )
    tail = (1 - confidence) / 2
    return means[int(tail * len(means))], means[min(int((1 - tail) * len(means)), len(means) - 1)]
