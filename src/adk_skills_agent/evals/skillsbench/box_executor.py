"""google-adk's code executor over a task's box: skill scripts run where the task is (S0-130)."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from google.adk.agents.invocation_context import InvocationContext
from google.adk.code_executors import BaseCodeExecutor
from google.adk.code_executors.code_execution_utils import CodeExecutionInput, CodeExecutionResult
from pydantic import PrivateAttr

from adk_skills_agent.evals.skillsbench.bash_tool import COMMAND_SECONDS
from adk_skills_agent.evals.skillsbench.box import LOGS, Phase, Ran, TaskBox

_MAX_STDERR_BYTES = 256 << 10


class BoxExecutor(BaseCodeExecutor):
    """Runs Python code with the box's own Python. ``execute_code`` is called in a thread, as google-adk does.

    Args:
        box: The trial's box.
        phase: What is there while code runs.
    """

    _box: TaskBox = PrivateAttr()
    _phase: Phase = PrivateAttr()
    _loop: asyncio.AbstractEventLoop = PrivateAttr()
    _running: set[asyncio.Task[Any]] = PrivateAttr(default_factory=set)

    def __init__(self, box: TaskBox, phase: Phase, **data: Any) -> None:
        super().__init__(**data)
        self._box = box
        self._phase = phase
        self._loop = asyncio.get_running_loop()

    def execute_code(
        self, invocation_context: InvocationContext, code_execution_input: CodeExecutionInput
    ) -> CodeExecutionResult:
        """Run the code and wait for it."""
        del invocation_context
        seconds = getattr(code_execution_input, "timeout_seconds", None) or self.timeout_seconds or COMMAND_SECONDS
        work = self._run(code_execution_input.code, float(seconds))
        ran, problems = asyncio.run_coroutine_threadsafe(work, self._loop).result()
        if ran.timed_out:
            problems += f"\nTimed out after {seconds:g} seconds."
        return CodeExecutionResult(stdout=ran.text, stderr=problems, exit_code=ran.exit_code)

    async def end(self) -> None:
        """End what still runs; the trial is over."""
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _run(self, code: str, seconds: float) -> tuple[Ran, str]:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # run_coroutine_threadsafe makes one
        self._running.add(task)
        try:
            # On standard input, as code with a skill's files in it is longer than an argument may be.
            name = f"{LOGS}/agent/stderr-{uuid.uuid4().hex}"
            ran = await self._box.run(
                ("sh", "-c", f"mkdir -p {LOGS}/agent; python3 - 2>{name}"),
                seconds=seconds,
                phase=self._phase,
                stdin=code.encode("utf-8", "surrogatepass"),
            )
            problems = await self._box.read(name, _MAX_STDERR_BYTES)
            return ran, (problems or b"").decode("utf-8", "replace")
        finally:
            self._running.discard(task)
