"""The simulation behind docs/explanation/capacity.md agrees with what is known of queues by mathematics."""

from __future__ import annotations

import math
import random
import sys
from pathlib import Path

import pytest

pytest.importorskip("simpy")
sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from queueing import cores_for, rate_of, simulate


def erlang_wait(rate: float, cores: int) -> float:
    """The mean wait of M/M/c with services of one second on average (Erlang C)."""
    busy = rate / cores
    top = rate**cores / math.factorial(cores) / (1 - busy)
    waits = top / (sum(rate**k / math.factorial(k) for k in range(cores)) + top)
    return waits / (cores - rate)


@pytest.mark.parametrize(
    ("rate", "cores"), [(0.7, 1), *(pytest.param(*one, marks=pytest.mark.slow) for one in [(3.2, 4), (13.6, 16)])]
)
def test_the_mean_wait_is_erlangs(rate: float, cores: int) -> None:
    chance = random.Random(0)
    services = [chance.expovariate(1.0) for _ in range(20_000)]
    mean = sum(services) / len(services)
    found = simulate(rate, [one / mean for one in services], cores, runs=60_000)
    assert found.mean == pytest.approx(erlang_wait(rate, cores), rel=0.15)
    assert found.used == pytest.approx(rate / cores, rel=0.03)
    assert found.p50 <= found.p99


def test_one_core_less_is_not_enough() -> None:
    cores, found = cores_for(35.0, [0.1], 0.1)
    assert found.p99 <= 0.1
    assert cores > 3
    fewer = simulate(35.0, [0.1], cores - 1)
    assert fewer.p99 > 0.1 or fewer.used > 0.98


@pytest.mark.slow
def test_a_rate_keeps_the_wait_and_a_higher_one_does_not() -> None:
    rate, found = rate_of(4, [0.1], 0.05)
    assert found.p99 <= 0.05
    assert simulate(min(39.0, rate * 1.1), [0.1], 4).p99 > 0.05
