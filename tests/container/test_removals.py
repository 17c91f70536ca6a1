"""Containers are removed in the background; what is waited for, and for how long, and when that has failed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from adk_skills_agent.errors import CleanupFailed
from adk_skills_agent.sandbox.container import ContainerSandbox
from adk_skills_agent.sandbox.container import removals as removing
from adk_skills_agent.sandbox.container.container import _BYE, MAX_RUNNING, ContainerChannel
from adk_skills_agent.sandbox.container.engine import REMOVERS, THREADS, submit
from adk_skills_agent.sandbox.container.removals import Removals
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy


class Making:
    """An engine that makes a container when it is let go, for a loop that is closed by then."""

    def __init__(self) -> None:
        self.removed: list[str] = []
        self.turns = threading.Semaphore(100)

    def ask_now(self, question: Callable[[Any], Any], _doing: str) -> Any:
        return question(self)

    @property
    def api(self) -> Making:
        return self

    def remove_container(self, name: str, **_: object) -> None:
        assert self.turns.acquire(timeout=20)
        self.removed.append(name)


async def test_what_the_engine_does_not_remove_in_time_has_failed_until_it_does() -> None:
    removals, engine = Removals(), Making()
    engine.turns = threading.Semaphore(0)
    removals.begin(engine, "slow")  # type: ignore[arg-type]
    await removals.wait(0.05)
    assert removals.failed == {"slow": "the engine did not answer within 0.05 s"}
    engine.turns.release()
    await removals.wait(20)
    assert removals.failed == {}


@pytest.mark.requirement("S0-79")
async def test_a_container_that_stays_keeps_its_sandbox_from_running_until_it_is_gone() -> None:
    box, engine = ContainerSandbox(base_url="unix:///nowhere/engine.sock"), Making()
    engine.turns = threading.Semaphore(0)
    box._removals.begin(engine, "stays")  # type: ignore[arg-type]
    await box._removals.wait(0.05)
    assert not box.healthy
    for kind in (CleanupFailed, RuntimeError):
        with pytest.raises(
            kind, match=r"Cleanup failed: container stays could not be removed .*reinitialize\(\)"
        ) as said:
            await box.run(ExecutionRequest(("true",), SandboxPolicy()))
        assert said.value.left_behind == ("stays",)  # type: ignore[attr-defined]
    engine.turns.release()
    await box._removals.wait(20)
    assert box.healthy


async def test_waiting_for_a_turn_is_no_failure_as_long_as_the_engine_removes_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(removing, "time", SimpleNamespace(monotonic=lambda: now, sleep=time.sleep))
    removals, engine = Removals(), Making()
    engine.turns = threading.Semaphore(0)
    for number in range(REMOVERS + 2):
        removals.begin(engine, f"{number}")  # type: ignore[arg-type]
    await until(lambda: len(removals._asked) == REMOVERS)
    now = 29.0
    assert not removals._is_over(30.0, None, 0.0)
    engine.turns.release()
    await until(lambda: len(engine.removed) == 1 and len(removals._asked) == REMOVERS)
    now = 31.0
    assert not removals._is_over(30.0, None, 0.0)
    assert len(removals.failed) == REMOVERS - 1  # those that were asked for at 0; one was at 29, one was not yet
    now = 60.0
    assert removals._is_over(30.0, None, 0.0)
    assert len(removals.failed) == REMOVERS + 1
    for _ in range(REMOVERS + 1):
        engine.turns.release()
    await until(lambda: not removals.known())
    assert removals.failed == {}


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while True:
            if holds():
                return
            await asyncio.sleep(0.01)


async def test_a_removal_does_not_wait_for_what_is_being_made() -> None:
    removals, engine, made = Removals(), Making(), threading.Event()
    making = [submit(lambda: made.wait(20)) for _ in range(THREADS)]
    removals.begin(engine, "over")  # type: ignore[arg-type]
    await removals.wait(20)
    assert engine.removed == ["over"]
    made.set()
    await asyncio.gather(*making)


async def test_what_has_failed_is_waited_for_when_it_is_tried_again() -> None:
    removals, engine = Removals(), Making()
    removals.failed["again"] = "the engine did not answer"
    engine.turns = threading.Semaphore(0)
    removals.begin(engine, "again")  # type: ignore[arg-type]
    waiting = asyncio.create_task(removals.wait(20))
    await asyncio.wait([waiting], timeout=0.1)
    assert not waiting.done()
    engine.turns.release()
    await waiting
    assert removals.failed == {}


async def test_a_container_that_came_when_its_loop_was_closed_already_is_removed() -> None:
    """close() has looked for those of closed loops before the engine had made it."""
    removals, engine = Removals(), Making()
    creation = object()
    removals.expect(creation)
    loop = asyncio.new_event_loop()
    loop.close()
    removals.begin_of_closed_loops()
    removals.made(engine, "late", loop)  # type: ignore[arg-type]
    removals.settle(creation)
    await removals.wait(20)
    assert engine.removed == ["late"]
    assert removals.known() == set()


async def test_row_433_a_run_waits_for_its_removal_where_the_engine_is_behind() -> None:
    """Seen: containers are made faster than they are removed, and those that are left grow without end."""
    removals, engine = Removals(), Making()
    engine.turns = threading.Semaphore(0)
    stream = SimpleNamespace(close=lambda: None)

    def ending() -> asyncio.Task[Any]:
        name = f"container-{len(removals.known())}"
        channel = ContainerChannel(engine, name, stream, None, removals)  # type: ignore[arg-type]
        channel._tail = _BYE  # its program has said that it ends
        return asyncio.create_task(channel.close())

    for _ in range(2 * MAX_RUNNING):
        await asyncio.wait_for(ending(), 20)
    late = ending()
    await asyncio.sleep(0.1)
    assert not late.done()
    engine.turns.release(100)
    await asyncio.wait_for(late, 20)
    await removals.wait(20)
    assert removals.failed == {}
