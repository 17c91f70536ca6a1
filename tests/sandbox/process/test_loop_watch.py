"""A run ends although its event loop cannot end it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

import level_table
from adk_skills_agent.sandbox import threads
from adk_skills_agent.sandbox.contract import ExecutionRequest, ExecutionResult, SandboxPolicy, Status
from adk_skills_agent.sandbox.local import local_sandbox
from adk_skills_agent.sandbox.process.watchdog import Watchdog, Watched, watchdog
from adk_skills_agent.sandbox.threads import RUNNING

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="looks for processes in /proc"),
    pytest.mark.filterwarnings("ignore::adk_skills_agent.errors.SecurityWarning"),
]
LEVELS = ["namespaces", "landlock", "process"]
SECONDS = 30.0


@pytest.fixture(autouse=True)
def places_given_back() -> Iterator[None]:
    """What this test threw away is garbage here and not in tests after it, which would count a place less.

    The watchdog knows the last run that it has looked at until it looks at another one.
    """
    yield
    other, deadline = Watched(lambda: False, lambda: None), time.monotonic() + SECONDS
    watchdog().add(other)
    while RUNNING.held and time.monotonic() < deadline:
        time.sleep(0.02)
        gc.collect()
    watchdog().remove(other)
    assert RUNNING.held == 0


def alive(mark: str) -> list[str]:
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit() and mark.encode() in Path(f"/proc/{entry}/cmdline").read_bytes():
                found.append(entry)
    return found


def wait_until(ended: bool, mark: str) -> bool:
    deadline = time.monotonic() + SECONDS
    while bool(alive(mark)) is ended and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(alive(mark)) is not ended


def request(level: str, mark: str, wall_seconds: float) -> ExecutionRequest:
    level_table.require(level)
    policy = SandboxPolicy(
        isolation=level, min_isolation="process", wall_seconds=wall_seconds, term_grace_seconds=0.1, warm_slots=0
    )
    return ExecutionRequest(("sh", "-c", "sleep 200; echo $0", mark), policy)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("moment", ["at once", "later"])
def test_a_loop_that_is_closed_without_cancelling_ends_its_runs(level, moment, nothing_left):
    """Also while somebody still holds the task, so that nothing is collected as garbage."""
    close_a_loop_during_a_run(level, moment)


@pytest.mark.parametrize("level", ["namespaces", "landlock"])
def test_it_does_so_where_no_thread_can_be_started(level, monkeypatch, nothing_left):
    refused = []
    later = threads.later

    def refuse(work: Callable[[], object]) -> None:
        def pool() -> NoReturn:
            refused.append(work)
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patched:
            patched.setattr(threads, "_pool", pool)
            later(work)

    monkeypatch.setattr(threads, "later", refuse)
    close_a_loop_during_a_run(level, "at once")
    assert refused
    refused.clear()  # each leads to the run


def close_a_loop_during_a_run(level: str, moment: str) -> None:
    mark = f"closed-{level}-{time.monotonic_ns()}"
    asked = request(level, mark, 100)
    loop = asyncio.new_event_loop()
    task = loop.create_task(local_sandbox().run(asked))

    async def begun() -> None:
        while not alive(mark):
            await asyncio.sleep(0.005)
        if moment == "later":
            await asyncio.sleep(0.5)

    loop.run_until_complete(asyncio.wait_for(begun(), SECONDS))
    loop.close()
    assert wait_until(True, mark)
    deadline = time.monotonic() + SECONDS
    while os.listdir(tempfile.gettempdir()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not task.done()
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio's complaint is what this test provokes


@pytest.mark.parametrize("level", LEVELS)
def test_a_blocked_loop_does_not_prolong_a_run_beyond_its_deadline(level, nothing_left):
    mark = f"blocked-{level}-{time.monotonic_ns()}"
    asked = request(level, mark, 1.5)

    async def main() -> ExecutionResult:
        task = asyncio.ensure_future(local_sandbox().run(asked))
        while not alive(mark) and not task.done():
            await asyncio.sleep(0.005)
        assert wait_until(True, mark)  # blocks the loop
        return await task

    result = asyncio.run(main())
    assert (result.status, result.timed_out) == (Status.TIMEOUT, True)


async def test_a_command_that_ended_in_time_is_no_timeout_although_its_loop_was_blocked_for_long(nothing_left):
    policy = SandboxPolicy(min_isolation="process", wall_seconds=2.0, term_grace_seconds=0, warm_slots=0)
    started = asyncio.Event()
    request = ExecutionRequest(
        ("sh", "-c", "echo started; sleep 0.05; exit 3"), policy, on_output=lambda *_: started.set()
    )
    task = asyncio.ensure_future(local_sandbox().run(request))
    await asyncio.wait_for(started.wait(), SECONDS)
    time.sleep(3.0)  # the watchdog looks meanwhile
    result = await task
    assert (result.exit_code, result.timed_out) == (3, False)


def test_a_run_that_cannot_be_killed_does_not_stop_the_watch_over_the_others():
    heard = threading.Event()

    def fail() -> bool:
        raise ValueError("not foreseen")

    watchdog = Watchdog()
    watchdog.add(Watched(lambda: False, lambda: None, fail, deadline=0.0))
    watchdog.add(Watched(lambda: True, lambda: fail()))
    watchdog.add(Watched(lambda: False, lambda: None, lambda: not heard.set(), deadline=0.0))
    assert heard.wait(SECONDS)
