"""Services of others for tests: google-adk's own interfaces over real processes of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from google.adk.code_executors import BaseCodeExecutor
from google.adk.code_executors.code_execution_utils import CodeExecutionInput, CodeExecutionResult, File
from google.adk.environment import BaseEnvironment, ExecutionResult
from pydantic import Field


class ElsewhereEnvironment(BaseEnvironment):
    """As E2B's and Daytona's: shell commands, files, a folder.

    ``deaf`` has a service that never ends a command, ``starts`` is set when a slow service has made the machine.
    """

    def __init__(
        self, folder: Path, *, deaf: bool = False, path: str | None = None, starts: asyncio.Event | None = None
    ) -> None:
        self.folder = folder
        self.deaf = deaf
        self.starts = starts
        self.is_initialized = False
        self.path = path
        self.commands: list[str] = []
        self.closed = 0
        self.read_bytes = 0
        self.started: list[asyncio.subprocess.Process] = []

    @property
    def working_dir(self) -> Path:
        return self.folder

    async def initialize(self) -> None:
        if self.starts is not None:
            await self.starts.wait()
        self.folder.mkdir(exist_ok=True)
        self.is_initialized = True

    async def close(self) -> None:
        self.closed += self.is_initialized  # one that is not there yet cannot be closed
        self.is_initialized = False
        for process in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.communicate()

    async def execute(self, command: str, *, timeout: float | None = None) -> ExecutionResult:
        self.commands.append(command)
        env = {"PATH": os.environ["PATH"] if self.path is None else self.path, "SERVICE": "yes"}
        process = await asyncio.create_subprocess_shell(
            command, stdout=-1, stderr=-1, cwd=self.folder, env=env, start_new_session=True
        )
        self.started.append(process)
        try:
            async with asyncio.timeout(None if self.deaf else timeout):
                out, err = await process.communicate()
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            await process.communicate()
            return ExecutionResult(exit_code=-1, timed_out=True)
        return ExecutionResult(exit_code=process.returncode or 0, stdout=out.decode(), stderr=err.decode())

    async def read_file(self, path: Path) -> bytes:
        parts = []  # as clients of services read an answer: in pieces, to its end
        with (self.folder / path).open("rb") as file:
            while part := file.read(1 << 20):
                parts.append(part)
                self.read_bytes += len(part)
                await asyncio.sleep(0.001)
        return b"".join(parts)

    async def write_file(self, path: Path, content: str | bytes) -> None:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)


class ElsewhereExecutor(BaseCodeExecutor):
    """As google-adk's executors for other machines: code goes in, text comes out, no time limit but its own field."""

    says_exit_code: bool = True
    honours_timeout: bool = False
    seen: list[Any] = Field(default_factory=list)

    def execute_code(self, invocation_context: Any, code_execution_input: CodeExecutionInput) -> CodeExecutionResult:
        self.seen.append((invocation_context, self.timeout_seconds))
        timeout = self.timeout_seconds if self.honours_timeout else None
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-"],
                input=code_execution_input.code.encode(),
                capture_output=True,
                timeout=timeout,
                env={"SERVICE": "yes"},
            )
        except subprocess.TimeoutExpired:
            return CodeExecutionResult(stderr="Sandbox timed out", exit_code=-9)
        files = [File(name="plot.png", content=b"png", mime_type="image/png")] if done.returncode == 0 else []
        return CodeExecutionResult(
            stdout=done.stdout.decode(),
            stderr=done.stderr.decode(),
            output_files=files,
            exit_code=done.returncode if self.says_exit_code else None,
        )
