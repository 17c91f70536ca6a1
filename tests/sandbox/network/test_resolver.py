"""Lookups off the event loop."""

from __future__ import annotations

import asyncio

import pytest

from adk_skills_agent.sandbox.network.resolver import resolve


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
