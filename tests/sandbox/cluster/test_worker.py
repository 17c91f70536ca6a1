"""A worker without Ray: the order in which calls begin in it decides nothing."""

from __future__ import annotations

import asyncio
import sys

import level_table
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy, Status
from adk_skills_agent.sandbox.ray.wire import Outcome, Shipment, pack
from adk_skills_agent.sandbox.ray.worker import RayWorker


def head(code: str, **settings: bool) -> bytes:
    request = ExecutionRequest((sys.executable, "-c", code), SandboxPolicy(wall_seconds=20.0))
    told = {"own_python": True, "kept": None, "spills": False, "hears": True, "looks": False, **settings}
    return pack(Shipment(request, **told))[0]  # type: ignore[arg-type]


async def test_events_that_are_asked_for_before_the_run_has_come_are_its_own() -> None:
    level_table.require("landlock")
    worker = RayWorker()
    first = asyncio.ensure_future(worker.events(1))
    await asyncio.sleep(0.05)
    run = asyncio.ensure_future(worker.run(1, head("print('hello')"), b""))
    found = list(await first or ())
    while (more := await worker.events(1)) is not None:
        found += more
    outcome = await run
    found += outcome.events
    assert b"".join(event[1] for event in found if isinstance(event, tuple)) == b"hello\n"
    assert outcome.result is not None
    assert outcome.result.status is Status.OK
    assert await worker.events(1) is None
    await worker.close()


async def test_a_run_that_was_cancelled_before_it_came_does_not_begin() -> None:
    worker = RayWorker()
    heard = asyncio.ensure_future(worker.events(1))
    await worker.cancel(1)
    assert await worker.run(1, head("open('/work/x', 'w')"), b"") == Outcome(cancelled=True)
    assert await heard is None
    await worker.close()


async def test_a_skill_that_is_not_on_the_node_is_told_and_nothing_is_started() -> None:
    from dataclasses import replace
    from pathlib import Path

    from adk_skills_agent.sandbox.contract import ReadOnlyMount

    worker = RayWorker()
    request = ExecutionRequest(("true",), mounts=(ReadOnlyMount(Path("0" * 64)),))
    shipment = Shipment(request, own_python=False, kept=None, spills=False, hears=False, looks=False)
    assert (await worker.run(1, pack(shipment)[0], b"")).lacks == ("0" * 64,)
    started = await worker.run(2, pack(replace(shipment, request=replace(request, mounts=())))[0], b"")
    assert started.result is not None
    await worker.close()
