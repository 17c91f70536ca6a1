"""A worker without Ray: the order in which calls begin in it decides nothing."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

import level_table
from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import ExecutionRequest, ReadOnlyMount, SandboxPolicy, Status
from adk_skills_agent.sandbox.process.tree import machine_memory
from adk_skills_agent.sandbox.ray import sandbox as ray_sandbox
from adk_skills_agent.sandbox.ray.wire import Outcome, Shipment, pack, packed_folder
from adk_skills_agent.sandbox.ray.worker import RayWorker
from adk_skills_agent.sandbox.remote import remote
from adk_skills_agent.sandbox.skill_store import materialise


def head(code: str, *, network: str = "none", **settings: bool) -> bytes:
    policy = SandboxPolicy(wall_seconds=20.0, network=network)  # type: ignore[arg-type]  # made one there
    request = ExecutionRequest((sys.executable, "-c", code), policy)
    told = {"own_python": True, "kept": None, "spills": False, "hears": True, "looks": False, **settings}
    return pack(Shipment(request, **told))[0]  # type: ignore[arg-type]


async def outcome_of(answers: AsyncIterator[object]) -> Outcome:
    *_, last = [answer async for answer in answers]
    assert isinstance(last, Outcome)
    return last


async def test_what_happens_comes_before_the_outcome_and_nothing_of_it_is_lost() -> None:
    level_table.require("landlock")
    worker = RayWorker()
    *told, outcome = [answer async for answer in worker.run(1, head("print('hello')"), b"", {})]
    events = [event for some in told if isinstance(some, tuple) for event in some]
    assert b"".join(event[1] for event in events if isinstance(event, tuple)) == b"hello\n"
    assert isinstance(outcome, Outcome)
    assert outcome.result is not None
    assert outcome.result.status is Status.OK
    await worker.close()


async def test_row_444_files_of_runs_are_gathered_and_taken_as_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: eight runs with 60 MiB each took 990 MiB of the agent's memory; there may be 64 with 256 MiB."""
    monkeypatch.setattr(
        remote, "machine_memory", lambda: replace(machine_memory(), available=160 << 20)
    )  # twenty of it
    way = remote.OnTheWay()
    monkeypatch.setattr(ray_sandbox, "on_the_way", lambda: way)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "large").write_bytes(bytes(9 << 20))
    request = ExecutionRequest(("true",), workspace=tmp_path / "work")
    first, second = (ray_sandbox._Sender(("ann",)) for _ in range(2))
    folders = [ray_sandbox._folder(request, SandboxPolicy()) for _ in range(2)]
    try:
        files = [asyncio.ensure_future(ray_sandbox._filled(folders[0], first))]  # type: ignore[arg-type]  # there is one
        assert len(await files[0]) > 9 << 20
        files.append(asyncio.ensure_future(ray_sandbox._filled(folders[1], second)))  # type: ignore[arg-type]
        await asyncio.sleep(0.5)
        assert not files[1].done()
        way.release(first)
        assert await files[1] == files[0].result()
    finally:
        for folder in folders:
            assert folder is not None
            folder.discard()

    async def answers(outcome: Outcome) -> AsyncIterator[asyncio.Future[object]]:
        for answer in (outcome.size, outcome):
            future = asyncio.get_running_loop().create_future()
            future.set_result(answer)
            yield future

    outcome = Outcome(changes=bytes(9 << 20), spilled=(b"x", None))
    assert outcome.size == (9 << 20) + 1
    async with asyncio.timeout(0.2) as deadline:  # for the worker to answer, which it did
        heard = asyncio.ensure_future(ray_sandbox._heard(answers(outcome), request, first, deadline))
        await asyncio.sleep(0.3)
        assert not heard.done()
        way.release(second)
        assert await heard is outcome
        assert asyncio.get_running_loop().time() < (deadline.when() or 0) < asyncio.get_running_loop().time() + 0.2
    async with asyncio.timeout(None) as deadline:
        assert await ray_sandbox._heard(answers(outcome), request, first, deadline) is outcome
        assert deadline.when() is None


async def test_a_run_that_was_cancelled_before_it_came_does_not_begin() -> None:
    worker = RayWorker()
    await worker.cancel(1)
    assert await outcome_of(worker.run(1, head("open('/work/x', 'w')"), b"", {})) == Outcome(cancelled=True)
    await worker.close()


async def test_row_303_a_session_that_nobody_waits_for_while_it_starts_is_ended() -> None:
    """Seen: of sixty that were cancelled at once, sixty sandboxes stayed for as long as their worker, with nothing."""
    level_table.require("landlock")
    worker = RayWorker()
    opening = asyncio.ensure_future(worker.open_session(1, pack((SandboxPolicy(), ()))[0]))
    await asyncio.sleep(0)
    await worker.close_session(1)
    await worker.close_session(2)
    assert isinstance(await opening, SandboxError)
    assert isinstance(await worker.open_session(2, pack((SandboxPolicy(), ()))[0]), SandboxError)
    assert not worker._sessions
    await worker.close()


@pytest.mark.parametrize(("network", "mode", "told"), [("none", None, 0), ("host", None, 1), ("host", "token", 0)])
async def test_row_305_the_report_says_that_a_script_on_the_nodes_network_reaches_an_open_cluster(
    network: str, mode: str | None, told: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: a script wrote into the table of functions that the nodes unpickle."""
    level_table.require("landlock")
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    if mode is not None:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    worker = RayWorker()
    outcome = await outcome_of(worker.run(1, head("1", network=network), b"", {}))
    assert outcome.result is not None
    assert len([said for said in outcome.result.isolation.degraded if "the cluster's own ports" in said]) == told
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
        outcome = await outcome_of(worker.run(number, shipment(copy.digest), b"", {copy.digest: coming}))
        coming.close()
        assert outcome.result is not None
        assert outcome.result.stdout.decode() == f"fetched by {tmp_path}"
    wrong = await outcome_of(worker.run(3, shipment("0" * 64), b"", {"0" * 64: sent("wrong")}))
    assert isinstance(wrong.error, SandboxError)
    assert "not the one that was sent" in wrong.error.message
    assert asked == ["right", "wrong"]
    copy.release()
    await worker.close()
