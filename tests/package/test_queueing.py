"""The simulation behind docs/explanation/capacity.md agrees with what is known of queues by mathematics."""

from __future__ import annotations

import math
import random
import sys
from pathlib import Path

import pytest

pytest.importorskip("simpy")
sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import capacity
from queueing import Waits, cores_for, rate_of, simulate


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


@pytest.mark.slow
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


def test_whole_machines_are_used_as_much_as_their_number_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page said how much one machine is used at most, 98%, beside one machine more than needed."""
    monkeypatch.setattr(capacity, "OWN_WORK", (0.0,))
    monkeypatch.setattr(capacity, "rate_of", lambda *_: (2_900.0, Waits(0.0, 0.0, 0.0, 0.98)))
    monkeypatch.setattr(capacity, "cores_for", lambda *_: (1, Waits(0.0, 0.0, 0.0, 0.4)))
    one = capacity.Measured("cold", "namespaces", 100.0, 10.8, 3.0, [10.8], 1, 0.0, 0.0)
    machines, used = capacity.what_a_day_needs([one], 0.04)[-1].split(" | ")[5:7]
    assert (machines, used) == ("12", "98%")
    monkeypatch.setattr(capacity, "rate_of", lambda *_: (2_800.0, Waits(0.0, 0.0, 0.0, 0.98)))
    machines, used = capacity.what_a_day_needs([one], 0.04)[-1].split(" | ")[5:7]
    assert (machines, used) == ("13", "93%")
