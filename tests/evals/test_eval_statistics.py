"""Lift, intervals and pass@k: against scipy and by hand."""

from __future__ import annotations

import itertools
import random

import pytest

from adk_skills_agent.evals.statistics import (
    bootstrap_interval,
    difference_interval,
    paired_lift,
    pass_at_k,
    sign_test,
    spread,
    verdict_text,
)


def test_the_sign_test_is_scipys_exact_binomial_test() -> None:
    stats = pytest.importorskip("scipy.stats")
    for better, worse in itertools.product(range(8), repeat=2):
        if better + worse:
            assert sign_test(better, worse) == pytest.approx(stats.binomtest(better, better + worse).pvalue)
    assert sign_test(0, 0) == 1.0


def test_the_bootstrap_interval_is_near_scipys() -> None:
    stats = pytest.importorskip("scipy.stats")
    numpy = pytest.importorskip("numpy")
    values = [random.Random(4).gauss(0.2, 0.5) for _ in range(40)]
    low, high = bootstrap_interval(values)
    theirs = stats.bootstrap(
        (values,), numpy.mean, method="percentile", n_resamples=4_000, random_state=1
    ).confidence_interval
    assert low == pytest.approx(theirs.low, abs=0.03)
    assert high == pytest.approx(theirs.high, abs=0.03)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    draw = random.Random(7)
    covered = 0
    for _ in range(30):
        low, high = bootstrap_interval([draw.gauss(0.3, 1.0) for _ in range(20)])
        covered += low <= 0.3 <= high
    assert 24 <= covered <= 30


def test_pass_at_k_is_the_share_of_draws_that_hold_a_pass() -> None:
    for passed in range(6):
        runs = [True] * passed + [False] * (5 - passed)
        for k in range(1, 6):
            draws = list(itertools.combinations(runs, k))
            assert pass_at_k(5, passed)[k - 1] == pytest.approx(sum(any(draw) for draw in draws) / len(draws))
    for wrong in ((3, 4), (3, -1)):
        with pytest.raises(ValueError, match="not defined"):
            pass_at_k(*wrong)


def test_lift_is_paired_by_case_and_the_same_each_time() -> None:
    pairs = [(1.0, 0.0), (1.0, 1.0), (0.5, 0.0), (0.0, 0.5)]
    lift = paired_lift(pairs)
    assert lift is not None
    assert (lift.mean, lift.better, lift.worse, lift.equal, lift.pairs) == (0.25, 2, 1, 1, 4)
    assert lift.low is not None
    assert lift.high is not None
    assert lift.low <= lift.mean <= lift.high
    assert lift == paired_lift(pairs)
    alone = paired_lift([(1.0, 0.0)])
    assert alone is not None
    assert (alone.low, alone.high, alone.p_value) == (None, None, 1.0)
    assert paired_lift([]) is None


def test_values_that_are_all_the_same_have_no_interval_and_the_reason_is_said() -> None:
    for pairs, reason in (
        ([(1.0, 0.0)], "only one was measured"),
        ([(1.0, 0.0)] * 3, "all 3 differ by the same amount"),
        ([(2 / 3, 1 / 3), (1 / 3, 0.0)], "all 2 differ by the same amount"),
        ([(0.5, 0.5)] * 4, "none differs"),
    ):
        lift = paired_lift(pairs)
        assert lift is not None
        assert (lift.low, lift.high, lift.no_interval) == (None, None, reason)
    varied = paired_lift([(1.0, 0.0), (1.0, 1.0)])
    assert varied is not None
    assert varied.no_interval == ""
    assert difference_interval([1.0, 1.0, 1.0], [0.0, 0.0]) is None
    assert difference_interval([1.0, 0.0, 1.0], [0.0, 0.0]) is not None


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ((7, 2, 0), "helps in 7 of 9 cases and hurts in 2; too few to be sure: p = 0.18"),
        ((2, 0, 0), "helps in 2 of 2 cases; too few to be sure: p = 0.50"),
        ((9, 0, 1), "helps in 9 of 10 cases; more than chance: p = 0.004"),
        ((1, 12, 0), "hurts in 12 of 13 cases and helps in 1; more than chance: p = 0.003"),
        ((30, 28, 2), "helps in 30 of 60 cases and hurts in 28; may well be chance: p = 0.90"),
        ((20, 0, 0), "helps in 20 of 20 cases; more than chance: p < 0.001"),
        ((0, 0, 4), "makes no difference in any of 4 cases"),
        ((0, 0, 1), "makes no difference in the only case"),
    ],
)
def test_the_verdict_is_a_sentence_that_says_how_sure_it_is(counts: tuple[int, int, int], said: str) -> None:
    assert verdict_text(*counts) == said


def test_spread_of_one_number_is_that_number() -> None:
    assert spread([]) is None
    one = spread([2.0])
    assert one is not None
    assert (one.mean, one.stddev, one.low, one.high) == (2.0, 0.0, 2.0, 2.0)
