"""Containers that wait for the next run: two of a kind from its second run on, gone with their event loop."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from adk_skills_agent.sandbox.container import ContainerSandbox
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy
from container_engines import StartedEngine, owned

pytestmark = pytest.mark.slow
HELLO = ExecutionRequest(("echo", "hello"), SandboxPolicy(wall_seconds=30.0))
HANG_SECONDS = 60.0


async def two_wait(sandbox: ContainerSandbox) -> bool:
    deadline = time.monotonic() + HANG_SECONDS
    while sandbox.waiting < 2 and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    return sandbox.waiting == 2


def test_the_third_run_takes_a_container_that_waits_and_each_event_loop_has_its_own(engine: StartedEngine) -> None:
    sandbox = ContainerSandbox(engine.image, base_url=engine.url)

    async def three_runs() -> list[bool]:
        warm = [(await sandbox.run(HELLO)).warm for _ in range(2)]
        assert await two_wait(sandbox)
        third = await sandbox.run(HELLO)
        assert third.stdout == b"hello\n"
        assert await two_wait(sandbox)
        return [*warm, third.warm]

    assert asyncio.run(three_runs()) == [False, False, True]
    deadline = time.monotonic() + HANG_SECONDS
    while sandbox.waiting and time.monotonic() < deadline:  # their loop is closed
        time.sleep(0.1)
    assert sandbox.waiting == 0

    async def again_and_close() -> None:
        assert [(await sandbox.run(HELLO)).warm for _ in range(2)] == [False, False]
        assert await two_wait(sandbox)
        await sandbox.close()

    asyncio.run(again_and_close())
    assert (sandbox.waiting, owned(engine)) == (0, [])
    deadline = time.monotonic() + HANG_SECONDS
    while any("adk-skills-pool" in thread.name for thread in threading.enumerate()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [thread.name for thread in threading.enumerate() if "adk-skills-pool" in thread.name]
