"""The executor for code nobody has read: contained on this machine, or refused."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from adk_skills_agent.executors.sandboxed_code import SandboxedCodeExecutor
from adk_skills_agent.sandbox.contract import SandboxPolicy


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
        return self._changed(
            policy,
            cpu_seconds=self._own("max_cpu_seconds", policy.cpu_seconds),
            min_isolation=policy.min_isolation if self.min_isolation is None else self.min_isolation,
        )

    def _default_seconds(self, policy: SandboxPolicy) -> float | None:
        return self._own("default_timeout_seconds", policy.wall_seconds)
