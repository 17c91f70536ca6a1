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

import preloaded
from adk_skills_agent.executors import LocalSandboxCodeExecutor
from adk_skills_agent.executors.threads import BackgroundCall, bound_to_task

UNHEARD = """
import signal, threading, time
from concurrent.futures import Future
from adk_skills_agent.executors.threads import result_of
def interrupt():
    time.sleep(0.2)  # the main thread is in its lock by now
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    time.sleep(60)
threading.Thread(target=interrupt, daemon=True).start()
try:
    result_of(Future())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""

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
    block, holds = threading.Event(), threading.Event()

    async def hold() -> None:
        holds.set()
        block.wait(10)

    async def never() -> None:
        raise AssertionError

    holding = BackgroundCall(hold)
    assert holds.wait(10)
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
    agent = subprocess.Popen([preloaded.program("python"), "-c", INTERRUPTED, mark], stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while len(processes_with(f"{mark}")) < 2 and time.monotonic() < deadline:  # the agent, and what the code started
        time.sleep(0.05)
    agent.send_signal(signal.SIGINT)
    assert agent.communicate(timeout=60)[0] == "interrupted\n"
    assert gone(mark)


def test_ctrl_c_that_linux_hands_to_another_thread_is_heard() -> None:
    done = subprocess.run(
        [preloaded.program("python"), "-c", UNHEARD], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "interrupted\n", done.stderr


def test_a_time_limit_ends_the_call_and_a_timeout_of_its_own_comes_out() -> None:
    ended = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    async def late() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError):
        BackgroundCall(work).result(0.1)
    assert ended == [True]
    with pytest.raises(TimeoutError, match="its own"):
        BackgroundCall(late).result()


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
