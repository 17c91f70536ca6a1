"""What the tests of executors do again and again."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import psutil
from google.adk.tools.skill_toolset import SkillToolset

from adk_skills_agent.executors import CodeExecutionInput, CodeExecutionResult, LocalSandboxCodeExecutor


def run(executor: Any, code: str, **settings: Any) -> CodeExecutionResult:
    """Execute ``code`` as google-adk does, without an invocation."""
    result = executor.execute_code(None, CodeExecutionInput(code=code, **settings))
    assert isinstance(result, CodeExecutionResult)
    return result


def processes_with(text: str) -> list[int]:
    """Processes whose command line has ``text``."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(text in part for part in process.cmdline()):
                found.append(process.pid)
    return found


def gone(text: str, seconds: float = 30.0) -> bool:
    """Whether every process with ``text`` in its command line has ended within ``seconds``."""
    deadline = time.monotonic() + seconds
    while left := processes_with(text):
        if time.monotonic() > deadline:
            return not left
        time.sleep(0.02)
    return True


def sandboxed(**settings: Any) -> LocalSandboxCodeExecutor:
    return LocalSandboxCodeExecutor(min_isolation="process", **settings)


async def run_script(call: Any, toolset: SkillToolset, path: str, /, **args: Any) -> dict[str, Any]:
    turn = await call([toolset], "run_skill_script", skill_name="tools", file_path=path, **args)
    return turn.response


async def run_command(call: Any, toolset: SkillToolset, command: str, path: str = "scripts/run.py") -> dict[str, Any]:
    return await run_script(call, toolset, path, command=command)
