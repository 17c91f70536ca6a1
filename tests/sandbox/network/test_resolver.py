"""Lookups off the event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from adk_skills_agent.sandbox.network import resolver
from adk_skills_agent.sandbox.network.resolver import resolve
from adk_skills_agent.sandbox.threads import Semaphore


async def test_the_systems_resolver_answers_off_the_loop() -> None:
    assert set(await resolve("localhost", 443)) <= {"127.0.0.1", "::1"}
    for impossible in ("a..b", f"{'a' * 64}.example"):
        with pytest.raises(OSError, match="label"):
            await resolve(impossible, 443)


async def test_a_lookup_nobody_waits_for_any_more_disturbs_nothing() -> None:
    waiting = [asyncio.ensure_future(resolve("localhost", port)) for port in range(1, 20)]
    await asyncio.sleep(0)
    for each in waiting[::2]:
        each.cancel()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert sum(isinstance(answer, asyncio.CancelledError) for answer in answers) == 10


async def test_row_326_lookups_that_runs_leave_behind_take_no_place_of_other_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen: short runs of one skill, whose name server said nothing, and no granted host of any user resolved."""
    goes_on, hangs = threading.Event(), []

    def look_up(host: str, _port: int) -> list[str]:
        if host.endswith(".wild.example"):
            hangs.append(host)
            goes_on.wait(20)
        return ["192.0.2.1"]

    places = Semaphore(8, fair=True)
    monkeypatch.setattr(resolver, "look_up", look_up)
    monkeypatch.setattr(resolver, "_places", lambda: places)
    try:
        for number in range(20):
            left = asyncio.ensure_future(resolve(f"{number}.wild.example", 443, ("user", f"session {number % 4}")))
            await asyncio.sleep(0.01)
            left.cancel()  # the run is over
            await asyncio.gather(left, return_exceptions=True)
        async with asyncio.timeout(10):
            assert await resolve("allowed.example", 443, ("other", "session")) == ["192.0.2.1"]
            assert await resolve("allowed.example", 443) == ["192.0.2.1"]
        assert len(hangs) == places.held <= 6
    finally:
        goes_on.set()
    async with asyncio.timeout(10):
        while places.held:  # those whose lookup has ended are there again
            await asyncio.sleep(0.01)
