"""Thread-safe, as google-adk needs it: it calls executors from ``asyncio.to_thread`` (S0-19, S0-52)."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from adk_skills_agent.executors import (
    CodeExecutionInput,
    LocalSandboxCodeExecutor,
    SandboxEnvironment,
    UnsafeLocalCodeExecutor,
)

CODE = "import sys, time\nprint({0}); time.sleep(0.01)\nif {0} % 2: sys.exit({0} % 7 + 1)\nprint({0}, file=sys.stderr)"


@pytest.mark.slow
@pytest.mark.parametrize(
    "executor",
    [
        pytest.param(LocalSandboxCodeExecutor(min_isolation="process"), id="sandbox"),
        pytest.param(UnsafeLocalCodeExecutor(), id="unsafe"),
        pytest.param(UnsafeLocalCodeExecutor(in_process=True), id="in process"),
    ],
)
@pytest.mark.requirement("S1-18")
def test_one_executor_in_many_threads_mixes_nothing(executor: Any) -> None:
    """S1-18: all of them answer alike; stderr is there exactly when the code failed, and exit codes are its own."""

    def one(number: int) -> tuple[str, int, bool]:
        result = executor.execute_code(None, CodeExecutionInput(code=CODE.format(number)))
        return result.stdout, result.exit_code, bool(result.stderr)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(one, range(24)))
    assert answers == [(f"{n}\n", n % 7 + 1 if n % 2 else 0, n % 2 == 1) for n in range(24)]


def test_one_environment_in_many_event_loops_takes_turns() -> None:
    environment = SandboxEnvironment(min_isolation="process")
    add = "n=$(cat count 2>/dev/null || echo 0); sleep 0.02; echo $((n + 1)) > count"

    async def some() -> None:
        await asyncio.gather(*(environment.execute(add) for _ in range(4)))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: asyncio.run(some()), range(4)))

    async def end() -> bytes:
        counted = await environment.read_file("count")
        await environment.close()
        return counted

    assert asyncio.run(end()) == b"16\n"
