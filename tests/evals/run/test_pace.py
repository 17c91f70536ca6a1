"""Limits of requests and tokens a minute hold over everybody who asks, and so does a back-off."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from pathlib import Path

import pytest
from google.adk.models.llm_request import LlmRequest
from google.genai import types

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.pace import Here, Limits, Pace, keep_pace
from adk_skills_agent.evals.run.settings import ModelNames, settings_of
from adk_skills_agent.testing import Answer, GeminiServer, Refusal, Rule, RuleModel
from adk_skills_agent.testing.request import ModelRequest
from evals.run.running import a_plan


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("seed", range(5))
def test_no_minute_has_more_requests_or_tokens_than_the_limits_whenever_the_service_saw_them(seed: int) -> None:
    rng, clock = random.Random(seed), Clock()
    pace = Pace(Limits(requests=20, tokens=3_000), clock)
    seen: list[tuple[float, int]] = []
    running: list[tuple[float, float, int]] = []
    while len(seen) < 400:
        for one in sorted(one for one in running if one[0] <= clock.now):
            running.remove(one)
            pace.told(int(one[1]), one[2])
        ticket, wait = pace.ask()
        assert (ticket > 0) == (wait == 0.0)
        if ticket:
            ends, tokens = clock.now + rng.uniform(0.1, 20.0), 150
            seen.append((rng.uniform(clock.now, ends), tokens))
            running.append((ends, ticket, tokens))
        clock.now += rng.uniform(0.0, 0.5) if ticket else min(wait, rng.uniform(0.0, 2.0))
    seen.sort()
    for start, _ in seen:
        window = [tokens for at, tokens in seen if start <= at < start + 60]
        assert len(window) <= 20
        assert sum(window) <= 3_000 + 150 * 20  # what was under way before the first answer is not known
    assert len([at for at, _ in seen if seen[0][0] + 300 <= at < seen[0][0] + 360]) >= 10  # and it goes on


def test_a_busy_service_is_left_alone_by_everybody_and_longer_each_time() -> None:
    clock = Clock()
    pace = Pace(Limits(requests=100), clock)
    first, second = pace.ask()[0], pace.ask()[0]
    pace.told(first, 0, busy=True)
    pace.told(second, 0, busy=True)  # says nothing new
    assert pace.ask() == (0, 2.0)
    clock.now = 2.0
    pace.told(pace.ask()[0], 0, busy=True)
    assert pace.ask() == (0, 4.0)
    clock.now = 6.0
    pace.told(pace.ask()[0], 10)
    assert pace.ask()[1] == 0.0


def test_what_a_lost_node_asked_for_is_over_some_day() -> None:
    clock = Clock()
    pace = Pace(Limits(requests=1), clock)
    assert pace.ask()[0]
    clock.now = 599.0
    assert not pace.ask()[0]
    clock.now = 600.0
    assert not pace.ask()[0]
    clock.now = 661.0
    assert pace.ask()[0]


async def test_a_model_waits_its_turn_and_asks_again_when_its_service_was_busy() -> None:
    busy = [True]

    def answer(request: ModelRequest) -> Answer | Refusal:  # a rule is told of it
        return Refusal(429, "RESOURCE_EXHAUSTED", "Too many.") if busy and busy.pop() else Answer("Hello.")

    with GeminiServer(RuleModel([Rule(answer)])) as server:
        model = keep_pace(server.model(), Here(Pace(Limits(requests=3))))
        request = LlmRequest(model=model.model, contents=[types.Content(role="user", parts=[types.Part(text="Hi")])])

        async def ask() -> None:
            async for _ in model.generate_content_async(request):
                pass

        begun = time.monotonic()
        await ask()
        assert time.monotonic() - begun >= 2.0  # the first try was refused
        await ask()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ask(), 0.5)
        assert len(server.requests) == 3


def test_limits_without_a_model_that_can_be_told_are_refused(tmp_path: Path) -> None:
    names = ModelNames("", limits=Limits(requests=5))
    with contextlib.ExitStack() as stack, pytest.raises(ConfigError, match="name it with --model"):
        settings_of(stack, a_plan(tmp_path), names, tmp_path)
