"""A queue in front of cores, simulated: how long runs wait, and how many cores are enough.

simpy is the simulation; the arrivals are Poisson, a run holds one core for as long as its service takes, and who came
first is served first. What is measured on a machine goes in as service times; nothing else is made up here.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import simpy

RUNS = 20_000
"""Simulated for one number: the 99th percentile then rests on 200 runs."""
_WARM_UP = 0.1  # of the runs, before the queue has its usual length


@dataclass(frozen=True)
class Waits:
    """How long runs waited for a core, in seconds, and how much of the cores was used."""

    mean: float
    p50: float
    p99: float
    used: float


def simulate(rate: float, services: Sequence[float], cores: int, *, runs: int = RUNS, seed: int = 1) -> Waits:
    """Let runs arrive and be served.

    Args:
        rate: Arrivals a second.
        services: Seconds that runs hold a core; each run takes one of them by chance.
        cores: How many there are.
        runs: How many arrive.
        seed: Of the chance; the same gives the same answer.
    """
    chance = random.Random(seed)  # no secret hangs on it
    environment = simpy.Environment()
    places = simpy.Resource(environment, capacity=cores)
    waited: list[float] = []
    busy = 0.0

    def run(service: float) -> Iterator[Any]:
        nonlocal busy
        asked = environment.now
        with places.request() as place:
            yield place
            waited.append(environment.now - asked)
            yield environment.timeout(service)
            busy += service

    def arrivals() -> Iterator[Any]:
        for _ in range(runs):
            yield environment.timeout(chance.expovariate(rate))
            environment.process(run(chance.choice(services)))

    environment.process(arrivals())
    environment.run()
    counted = sorted(waited[int(_WARM_UP * runs) :])
    return Waits(
        sum(counted) / len(counted),
        counted[len(counted) // 2],
        counted[int(0.99 * len(counted))],
        busy / (cores * environment.now),
    )


def cores_for(rate: float, services: Sequence[float], most_wait: float) -> tuple[int, Waits]:
    """The fewest cores with which 99 of 100 runs wait no longer than ``most_wait`` seconds, and the waits then."""
    cores = max(1, int(rate * sum(services) / len(services)))
    while (found := simulate(rate, services, cores)).p99 > most_wait or found.used > 0.98:
        cores += 1
    return cores, found


def rate_of(cores: int, services: Sequence[float], most_wait: float) -> tuple[float, Waits]:
    """The most runs a second that so many cores serve within that wait, to about one percent, and the waits then."""
    most = cores * len(services) / sum(services)
    low, high = 0.0, most * 0.98
    found = simulate(high, services, cores)
    if found.p99 <= most_wait:
        return high, found
    while high - low > 0.01 * most:
        middle = (low + high) / 2
        tried = simulate(middle, services, cores)
        low, high, found = (middle, high, tried) if tried.p99 <= most_wait else (low, middle, found)
    return low, simulate(low, services, cores) if low else found
