"""Sides of the measurements of containers: ours, the engine's own ``exec``, and google-adk's class on the same engine.

Options: ``url`` and ``image`` of the engine.
"""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

from answering import Sample, answer

CODE = "print('hello')"
_CONTEXT: Any = SimpleNamespace(session=SimpleNamespace(id="session"), app_name="app", user_id="user")
_MOST_WAIT_SECONDS = 60.0


def _timed(executor: Any, code: Any) -> tuple[float, Any]:
    start = time.perf_counter()
    result = executor.execute_code(_CONTEXT, code)
    seconds = time.perf_counter() - start
    assert result.stdout == "hello\n", result
    return seconds, result


def _ours(options: dict[str, object], **more: Any) -> Any:
    from adk_skills_agent.executors import ContainerCodeExecutor

    return ContainerCodeExecutor(base_url=str(options["url"]), image=str(options["image"]), **more)


async def session(options: dict[str, object]) -> Sample:
    """Code in a session that is there."""
    from adk_skills_agent.executors import CodeExecutionInput, SessionLimits

    executor = _ours(options, stateful=True, session_limits=SessionLimits(executions=1_000_000))
    code = CodeExecutionInput(code=CODE)

    async def sample() -> dict[str, object]:
        seconds, _ = _timed(executor, code)
        return {"seconds": seconds}

    return sample


async def fresh(options: dict[str, object]) -> Sample:
    """Code in a container that no other code has been in; two wait, and are waited for between the samples."""
    from adk_skills_agent.executors import CodeExecutionInput, ContainerCodeExecutor
    from adk_skills_agent.sandbox import ContainerSandbox

    box = ContainerSandbox(str(options["image"]), base_url=str(options["url"]))
    executor = ContainerCodeExecutor(sandbox=box)
    code = CodeExecutionInput(code=CODE)

    async def sample() -> dict[str, object]:
        seconds, result = _timed(executor, code)
        until = time.monotonic() + _MOST_WAIT_SECONDS
        while result.execution.warm and box.waiting < 2 and time.monotonic() < until:
            await asyncio.sleep(0.05)
        return {"seconds": seconds, "warm": result.execution.warm}

    return sample


async def engine_exec(options: dict[str, object]) -> Sample:
    """``docker exec CONTAINER true``, asked of the engine's API without a command line in between."""
    import docker

    client = docker.DockerClient(base_url=str(options["url"]))
    found = client.containers.create(
        str(options["image"]), entrypoint=["sleep", "3600"], command=[], network_mode="none", auto_remove=True
    )
    found.start()

    async def sample() -> dict[str, object]:
        start = time.perf_counter()
        client.api.exec_start(client.api.exec_create(found.id, ["true"])["Id"])
        return {"seconds": time.perf_counter() - start}

    return sample


async def google(options: dict[str, object]) -> Sample:
    """google-adk's ContainerCodeExecutor; its one container is there."""
    from google.adk.code_executors.code_execution_utils import CodeExecutionInput
    from google.adk.code_executors.container_code_executor import ContainerCodeExecutor

    executor = ContainerCodeExecutor(base_url=str(options["url"]), image=str(options["image"]))
    code = CodeExecutionInput(code=CODE)

    async def sample() -> dict[str, object]:
        seconds, _ = _timed(executor, code)
        return {"seconds": seconds}

    return sample


if __name__ == "__main__":
    answer({"session": session, "fresh": fresh, "engine-exec": engine_exec, "google": google})
