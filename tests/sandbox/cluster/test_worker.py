"""A worker without Ray: the order in which calls begin in it decides nothing."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import level_table
from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import ExecutionRequest, ReadOnlyMount, SandboxPolicy, Status
from adk_skills_agent.sandbox.ray.wire import Outcome, Shipment, pack, packed_folder
from adk_skills_agent.sandbox.ray.worker import RayWorker
from adk_skills_agent.sandbox.skill_store import materialise


def head(code: str, **settings: bool) -> bytes:
    request = ExecutionRequest((sys.executable, "-c", code), SandboxPolicy(wall_seconds=20.0))
    told = {"own_python": True, "kept": None, "spills": False, "hears": True, "looks": False, **settings}
    return pack(Shipment(request, **told))[0]  # type: ignore[arg-type]


async def test_events_that_are_asked_for_before_the_run_has_come_are_its_own() -> None:
    level_table.require("landlock")
    worker = RayWorker()
    first = asyncio.ensure_future(worker.events(1))
    await asyncio.sleep(0.05)
    run = asyncio.ensure_future(worker.run(1, head("print('hello')"), b"", {}))
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
    assert await worker.run(1, head("open('/work/x', 'w')"), b"", {}) == Outcome(cancelled=True)
    assert await heard is None
    await worker.close()


async def test_a_skill_is_fetched_once_and_nothing_is_started_with_another_than_was_asked_for(tmp_path: Path) -> None:
    level_table.require("landlock")
    worker = RayWorker()
    skill = tmp_path / "skill"
    skill.mkdir()
    (skill / "SKILL.md").write_text(f"fetched by {tmp_path}")
    copy = materialise(skill, tmp_path / "agent")
    asked: list[str] = []

    async def sent(which: str) -> bytes:
        asked.append(which)
        return packed_folder(copy.path)

    def shipment(digest: str) -> bytes:
        request = ExecutionRequest(("cat", "/skill/SKILL.md"), mounts=(ReadOnlyMount(Path(digest)),))
        return pack(Shipment(request, own_python=False, kept=None, spills=False, hears=False, looks=False))[0]

    for number in (1, 2):
        coming = sent("right")
        outcome = await worker.run(number, shipment(copy.digest), b"", {copy.digest: coming})
        coming.close()
        assert outcome.result is not None
        assert outcome.result.stdout.decode() == f"fetched by {tmp_path}"
    wrong = await worker.run(3, shipment("0" * 64), b"", {"0" * 64: sent("wrong")})
    assert isinstance(wrong.error, SandboxError)
    assert "not the one that was sent" in wrong.error.message
    assert asked == ["right", "wrong"]
    copy.release()
    await worker.close()
