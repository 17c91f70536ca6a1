"""A container goes a moment after the result of its run, whether or not anybody closes anything or the loop goes on."""

from __future__ import annotations

import asyncio
import time

import pytest

from adk_skills_agent.executors import CodeExecutionInput, ContainerCodeExecutor
from adk_skills_agent.sandbox.container import ContainerSandbox
from adk_skills_agent.sandbox.contract import ExecutionRequest, ExecutionResult, SandboxPolicy
from container_engines import StartedEngine, owned

pytestmark = pytest.mark.slow
POLICY = SandboxPolicy(warm_slots=0)
HANG_SECONDS = 60.0


def run(box: ContainerSandbox) -> ExecutionResult:
    async def once() -> ExecutionResult:
        return await box.run(ExecutionRequest(("sh", "-c", "sleep 600 & echo done"), POLICY))

    return asyncio.run(once())


def wait_until_gone(engine: StartedEngine) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while owned(engine) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert owned(engine) == []


def test_a_container_goes_though_the_loop_of_its_run_is_closed(engine: StartedEngine) -> None:
    box = ContainerSandbox(engine.image, base_url=engine.url)
    result = run(box)
    assert (result.stdout, result.processes_killed) == (b"done\n", 1)
    wait_until_gone(engine)
    asyncio.run(box.close())


def test_closing_waits_for_containers_that_are_about_to_go(engine: StartedEngine) -> None:
    box = ContainerSandbox(engine.image, base_url=engine.url)
    for _ in range(3):
        run(box)
    asyncio.run(box.close())
    assert owned(engine) == []


async def test_many_that_end_at_once_are_all_removed(engine: StartedEngine, sandbox: ContainerSandbox) -> None:
    request = ExecutionRequest(("true",), POLICY)
    results = await asyncio.gather(*(sandbox.run(request) for _ in range(6)))
    assert {result.status.value for result in results} == {"ok"}
    await asyncio.to_thread(wait_until_gone, engine)
    assert sandbox.healthy


async def test_row_433_who_comes_and_leaves_has_no_more_containers_than_who_stays(
    engine: StartedEngine, sandbox: ContainerSandbox
) -> None:
    """Seen: 369 after 50 s, where sixteen may run; the engine makes them faster than it removes them."""
    most = 0

    async def come_and_leave(each: int) -> None:
        for _ in range(4):
            request = ExecutionRequest(("sleep", "60"), POLICY, share=("ann", str(each)))
            leaving = asyncio.create_task(sandbox.run(request))
            await asyncio.sleep(0.4)
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)

    coming = asyncio.gather(*(come_and_leave(each) for each in range(24)))
    while not coming.done():
        most = max(most, len(await asyncio.to_thread(owned, engine)))
        await asyncio.sleep(0.1)
    await coming
    assert most <= 16
    assert most > 1 or engine.name == "podman"  # which takes longer to make one than anybody stays
    await asyncio.to_thread(wait_until_gone, engine)
    assert sandbox.healthy


def test_code_without_a_session_is_run_by_a_fork_of_the_program_in_its_container(engine: StartedEngine) -> None:
    code = """
import os, sys
print(os.getppid(), sys.flags.isolated, "supervisor" in open("/proc/self/cmdline").read(), os.environ["LANG"])
print(sorted(name for name in os.listdir("/proc/self/fd")), open("/proc/self/oom_score_adj").read())
"""
    with ContainerCodeExecutor(base_url=engine.url, image=engine.image) as executor:
        context = type("Context", (), {"session": None})()
        result = executor.execute_code(context, CodeExecutionInput(code=code))
    first, second = result.stdout.splitlines()[:2]
    assert first == "1 1 True C.UTF-8", result
    assert second.startswith("['0', '1', '2', '3'] 1000")
