"""Python sessions live in a worker of the cluster until it is lost; then the next code is told and begins anew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from adk_skills_agent.sandbox.contract import ExecutionResult, SandboxPolicy
from adk_skills_agent.sandbox.ray.sandbox import RaySandbox
from adk_skills_agent.sandbox.sessions.session import SessionRequest
from adk_skills_agent.sandbox.sessions.sessions import Sessions
from ray_nodes import Nodes

pytestmark = pytest.mark.slow


@pytest.fixture
async def sessions(on_nodes: Callable[..., RaySandbox]) -> AsyncIterator[Sessions]:
    found = Sessions(on_nodes().session_host())
    yield found
    await found.close()


async def run(sessions: Sessions, code: str, name: str = "a") -> ExecutionResult:
    return await sessions.execute(name, SessionRequest(code, SandboxPolicy(wall_seconds=30.0)))


async def test_a_session_keeps_its_state_and_says_where_it_is(sessions: Sessions) -> None:
    first = await run(sessions, "kept = 41\nopen('made.txt', 'w').write('x')")
    assert first.isolation.node
    assert (await run(sessions, "kept + 1")).stdout == b"42\n"
    assert (await run(sessions, "'kept' in globals()", "b")).stdout == b"False\n"


async def test_a_session_whose_worker_is_lost_says_so_and_begins_anew(nodes: Nodes, sessions: Sessions) -> None:
    await run(sessions, "kept = 41")
    running = asyncio.ensure_future(run(sessions, "import time\nprint('begun', flush=True)\ntime.sleep(60)"))
    await asyncio.sleep(1.0)
    for worker in nodes.workers():
        worker.kill()
    during = await asyncio.wait_for(running, 30)
    assert during.status == "error"
    assert any("is lost: its sandbox ended. Nothing was run again" in note for note in during.notes), during.notes
    after = await asyncio.wait_for(run(sessions, "'kept' in globals()"), 60)
    assert (after.stdout, after.session_reset) == (b"False\n", True)


async def test_an_idle_session_whose_worker_is_lost_begins_anew(nodes: Nodes, sessions: Sessions) -> None:
    await run(sessions, "kept = 41")
    for worker in nodes.workers():
        worker.kill()
    await asyncio.sleep(2.0)
    after = await asyncio.wait_for(run(sessions, "'kept' in globals()"), 60)
    assert (after.stdout, after.session_reset) == (b"False\n", True)
