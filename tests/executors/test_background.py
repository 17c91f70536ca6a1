"""The permanent loop of the executors, and the task they are bound to."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from executing import gone, processes_with, run

from adk_skills_agent.executors import LocalSandboxCodeExecutor
from adk_skills_agent.executors.threads import BackgroundCall, bound_to_task

INTERRUPTED = """
import sys
from adk_skills_agent import SandboxPolicy
from adk_skills_agent.executors import CodeExecutionInput, LocalSandboxCodeExecutor
executor = LocalSandboxCodeExecutor(policy=SandboxPolicy(isolation="process", min_isolation="process"))
code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)', '%s'])"
try:
    executor.execute_code(None, CodeExecutionInput(code=code % sys.argv[1]))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_all_calls_share_one_thread_that_stays() -> None:
    async def where() -> str:
        return threading.current_thread().name

    names = {BackgroundCall(where).result() for _ in range(3)}
    assert names == {"adk-skills-executors"}
    assert [thread.name for thread in threading.enumerate()].count("adk-skills-executors") == 1


def test_what_the_coroutine_raises_comes_out() -> None:
    async def fail() -> None:
        raise LookupError("x")

    with pytest.raises(LookupError, match="x"):
        BackgroundCall(fail).result()


def test_a_cancelled_call_has_ended_when_result_raises() -> None:
    cleaned = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            cleaned.append(True)

    call = BackgroundCall(work)
    threading.Timer(0.1, call.cancel).start()
    with pytest.raises(asyncio.CancelledError):
        call.result()
    assert cleaned == [True]


def test_a_call_cancelled_before_it_began_never_begins() -> None:
    block = threading.Event()

    async def hold() -> None:
        block.wait(10)

    async def never() -> None:
        raise AssertionError

    holding = BackgroundCall(hold)
    call = BackgroundCall(never)
    call.cancel()
    block.set()
    holding.result()
    with pytest.raises(asyncio.CancelledError):
        call.result()


def test_a_callback_that_tries_to_end_the_program_does_not_end_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    def leave(_name: str, _chunk: bytes) -> None:
        sys.exit("no")

    assert run(LocalSandboxCodeExecutor(min_isolation="process", on_output=leave), "print(1)").stdout == "1\n"
    assert "tried to end the program" in caplog.text
    assert run(LocalSandboxCodeExecutor(min_isolation="process"), "print(2)").stdout == "2\n"


def test_ctrl_c_ends_the_code_before_it_comes_out() -> None:
    mark = f"interrupt-{os.getpid()}-{time.monotonic_ns()}"
    agent = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", INTERRUPTED, mark], stdout=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 20
    while len(processes_with(f"{mark}")) < 2 and time.monotonic() < deadline:  # the agent, and what the code started
        time.sleep(0.05)
    agent.send_signal(signal.SIGINT)
    assert agent.communicate(timeout=20)[0] == "interrupted\n"
    assert gone(mark)


def test_a_method_ends_with_the_task_that_calls_it() -> None:
    begun, ended = threading.Event(), threading.Event()

    async def wait() -> None:
        begun.set()
        await asyncio.sleep(60)

    class Thing:
        @bound_to_task
        def method(self) -> None:
            """What it says."""
            try:
                BackgroundCall(wait).result()
            except asyncio.CancelledError:
                ended.set()

    thing = Thing()
    assert Thing.method.__doc__ == thing.method.__doc__ == "What it says."

    async def inside() -> None:
        await asyncio.to_thread(thing.method)

    async def agent() -> bool:
        task = asyncio.create_task(inside())
        await asyncio.to_thread(begun.wait, 20)
        task.cancel()
        return await asyncio.to_thread(ended.wait, 20)

    assert asyncio.run(agent())
