"""The executor for code nobody has read: contained on this machine, or refused."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any, ClassVar

from google.adk.code_executors import code_execution_utils as google
from pydantic import Field, PrivateAttr

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.executors.code_values import CodeExecutionResult, SkillWrapper, call_timeout
from adk_skills_agent.executors.sandboxed_code import SandboxedCodeExecutor
from adk_skills_agent.sandbox import (
    CONCERNS,
    PROCESS_WARNING,
    ExecutionResult,
    InProcessPython,
    InProcessResult,
    IsolationLevel,
    IsolationReport,
    SandboxPolicy,
    Status,
    check_policy,
    warn_insecure_once,
)
from adk_skills_agent.scripts.outcome import cut


class LocalSandboxCodeExecutor(SandboxedCodeExecutor):
    """Runs Python code in this machine's sandbox; a drop-in for any ``code_executor=`` (S0-86, S0-92, S0-93).

    The code gets a private working directory with the input files in it, a small fixed environment, no network and no
    host files beyond the system's and the interpreter's. New and changed files of the working directory come back as
    ``output_files``, which an ``LlmAgent`` saves as artifacts. Nothing is kept from one execution to the next, unless
    ``stateful=True`` asks for it.

    Attributes:
        default_timeout_seconds: Seconds of wall time when neither the call nor ``timeout_seconds`` says otherwise;
            None means no limit, 0 is legal.
        max_memory_mb: Memory of the whole run, in MiB; None means no limit.
        max_cpu_seconds: CPU seconds of each process; None takes the deadline.
        min_isolation: Below this level code is refused with the reasons. None takes the policy's, else ``landlock``.
    """

    _can_be_stateful: ClassVar[bool] = True

    stateful: bool = Field(default=False, frozen=True)
    default_timeout_seconds: float | None = Field(default=30, ge=0, allow_inf_nan=False)
    max_cpu_seconds: int | None = Field(default=30, ge=0)
    min_isolation: str | None = None

    def effective_policy(self, timeout_seconds: float | None = None) -> SandboxPolicy:
        """See :meth:`SandboxedCodeExecutor.effective_policy`."""
        policy = super().effective_policy(timeout_seconds)
        return replace(
            policy,
            cpu_seconds=self._own("max_cpu_seconds", policy.cpu_seconds),
            min_isolation=policy.min_isolation if self.min_isolation is None else self.min_isolation,
        )

    def _default_seconds(self, policy: SandboxPolicy) -> float | None:
        return self._own("default_timeout_seconds", policy.wall_seconds)


# google-adk's ``UnsafeLocalCodeExecutor`` under the same name, with limits: for code you have read (S0-97, S1-7).

STILL_RUNS = "The code could not be stopped: it goes on in a thread of the agent."
_IN_THIS_PROCESS = IsolationReport(
    IsolationLevel.PROCESS,
    dict.fromkeys(CONCERNS, "none"),
    ("everything: the code runs in the agent's own process, and nothing but the wall clock is watched.",),
)
_NOT_IN_PROCESS = ("allowed_env_vars", "env", "max_cpu_seconds", "max_memory_mb", "on_output", "sandbox")

_NOT_ISOLATED = (
    "UnsafeLocalCodeExecutor does not isolate: code can read and write the files of this user and use the network, and "
    "for root the number of its processes is watched and not limited. Use LocalSandboxCodeExecutor for code you have "
    "not read."
)


class UnsafeLocalCodeExecutor(SandboxedCodeExecutor):
    """Runs Python code in a child process of this user, or in this very process. Not a sandbox.

    The child has a clean environment, a private working directory, limits and a sure end, but reads and writes every
    file this user can, and uses the network. Modules of the application can be imported, as with google-adk's own.

    Attributes:
        timeout_seconds: Seconds of wall time; google-adk's default of 300. None means no limit, 0 is legal.
        max_memory_mb: Memory of the child, in MiB; None means no limit.
        max_cpu_seconds: CPU seconds of each process; None takes the deadline.
        in_process: Run the code in a thread of the agent, for debugging. Nothing can stop it there: after a timeout
            further executions are refused until :meth:`reinitialize` finds it ended.
    """

    timeout_seconds: int | None = Field(default=300, ge=0)
    optimize_data_file: bool = Field(default=False, frozen=True, exclude=True)
    max_memory_mb: int | None = Field(default=512, ge=1)
    max_cpu_seconds: int | None = Field(default=None, ge=0)
    in_process: bool = False

    _interpreter: InProcessPython = PrivateAttr(default_factory=InProcessPython)

    def __init__(self, **data: Any) -> None:
        if data.get("optimize_data_file"):
            raise ValueError("Cannot set `optimize_data_file=True` in UnsafeLocalCodeExecutor.")
        super().__init__(**data)
        if self.in_process:
            self._refuse_without_effect()

    @property
    def healthy(self) -> bool:
        """False after an in-process execution did not end in time."""
        return self._interpreter.healthy

    def reinitialize(self) -> None:
        """Accept in-process executions again after a timeout.

        Raises ``RuntimeError`` when the code that did not end in time still runs.
        """
        self._interpreter.reinitialize()

    def effective_policy(self, timeout_seconds: float | None = None) -> SandboxPolicy:
        """The limits of one execution; the level is ``process``, whatever the policy says."""
        policy = super().effective_policy(timeout_seconds)
        return replace(
            policy,
            isolation=IsolationLevel.PROCESS.value,
            min_isolation=IsolationLevel.PROCESS.value,
            cpu_seconds=self._own("max_cpu_seconds", policy.cpu_seconds),
        )

    def _default_seconds(self, policy: SandboxPolicy) -> float | None:
        return self._own("timeout_seconds", policy.wall_seconds)

    def _execute(self, code_input: google.CodeExecutionInput, wrapper: SkillWrapper | None) -> CodeExecutionResult:
        if not self.in_process:
            warn_insecure_once(_NOT_ISOLATED, also_of=PROCESS_WARNING)
            return super()._execute(code_input, wrapper)
        if code_input.input_files or getattr(code_input, "working_dir", None) is not None:
            raise ValueError(
                "in_process=True has no working directory of its own, so it takes no input files and no working_dir. "
                "Use in_process=False."
            )
        return self._execute_here(code_input)

    def _execute_here(self, code_input: google.CodeExecutionInput) -> CodeExecutionResult:
        seconds = check_policy(self.effective_policy(call_timeout(code_input))).wall_seconds
        result = self._interpreter.run(
            code_input.code, timeout_seconds=seconds, restrict_builtins=self.restrict_builtins
        )
        lines = [self._cut(result.stderr).rstrip()] if result.stderr.strip() else []
        if result.timed_out:
            lines.append(f"timed out after {seconds or 0:g} s")
        elif result.exit_code == 0:
            lines = []  # a warning, not a failure
        elif not lines:
            lines = [f"Exit code {result.exit_code}"]
        if lines and result.truncated:
            lines.append("output truncated")
        code = -1 if result.exit_code is None else result.exit_code
        return CodeExecutionResult(
            stdout=self._cut(result.stdout),
            stderr="\n".join(lines),
            exit_code=code,
            execution=_execution(result),
        )

    def _refuse_without_effect(self) -> None:
        given = {name for name in _NOT_IN_PROCESS if name in self.model_fields_set and getattr(self, name)}
        if given:
            raise ConfigError(
                f"in_process=True runs code in the agent itself, where {', '.join(sorted(given))} can have no effect. "
                "Leave it out, or use in_process=False."
            )

    def _cut(self, text: str) -> str:
        return text if self.max_output_chars is None else cut(text, self.max_output_chars)

    def _import_folders(self) -> tuple[str, ...]:
        """The agent's import path, behind the child's own, so that nothing of it hides a standard module."""
        # An empty entry means the agent's working directory, where a file of any name may lie.
        return tuple(folder for folder in sys.path if folder.startswith("/"))


def _execution(result: InProcessResult) -> ExecutionResult:
    """The result of a run in this process, in the form of every sandbox."""
    stdout, stderr = (text.encode("utf-8", "replace") for text in (result.stdout, result.stderr))
    ended = Status.OK if result.exit_code == 0 else Status.ERROR
    return ExecutionResult(
        status=Status.TIMEOUT if result.timed_out else ended,
        exit_code=result.exit_code,
        isolation=_IN_THIS_PROCESS,
        timed_out=result.timed_out,
        stdout=stdout,
        stderr=stderr,
        stdout_total=len(stdout),
        stderr_total=len(stderr),
        notes=(STILL_RUNS,) if result.timed_out else (),
    )
