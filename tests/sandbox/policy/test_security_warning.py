"""A warning about missing isolation points at the code that runs something, however many frames lie between."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import preloaded

SANDBOX = """
import asyncio
from adk_skills_agent import ExecutionRequest, SandboxPolicy, local_sandbox
async def main():
    policy = SandboxPolicy(isolation="process", min_isolation="process")
    await local_sandbox().run(ExecutionRequest(("true",), policy))  # here
asyncio.run(main())
"""
EXECUTOR = """
from adk_skills_agent.executors import CodeExecutionInput, UnsafeLocalCodeExecutor
executor = UnsafeLocalCodeExecutor({})
executor.execute_code(None, CodeExecutionInput(code="1"))  # here
"""


@pytest.mark.parametrize("source", [SANDBOX, EXECUTOR.format("in_process=True"), EXECUTOR.format("")])
def test_the_place_of_the_warning_is_the_callers_line(source: str, tmp_path: Path) -> None:
    program = tmp_path / "agent.py"
    program.write_text(source)
    run = subprocess.run(
        [preloaded.program("python"), program], capture_output=True, text=True, check=False, timeout=60
    )
    assert run.returncode == 0, run.stderr
    line = next(line for line in run.stderr.splitlines() if "SecurityWarning" in line)
    number = next(number for number, text in enumerate(source.splitlines(), 1) if text.endswith("# here"))
    assert line.startswith(f"{program}:{number}: ")
