"""The executor for code nobody has read: contained on this machine, or refused."""

from __future__ import annotations

from dataclasses import replace
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
    max_memory_mb: int | None = Field(default=256, ge=1)
    max_cpu_seconds: int | None = Field(default=30, ge=0)
    min_isolation: str | None = None

    def effective_policy(self, timeout_seconds: float | None = None) -> SandboxPolicy:
        """The limits of one execution: the call's, then this executor's, then the policy's, then the defaults."""
        given = self.model_fields_set
        policy = SandboxPolicy() if self.policy is None else self.policy

        def own(name: str) -> bool:
            return self.policy is None or name in given

        wall = policy.wall_seconds
        if timeout_seconds is not None:
            wall = timeout_seconds
        elif self.timeout_seconds is not None:
            wall = float(self.timeout_seconds)
        elif own("default_timeout_seconds"):
            wall = self.default_timeout_seconds
        memory = policy.memory_bytes
        if own("max_memory_mb"):
            memory = None if self.max_memory_mb is None else self.max_memory_mb << 20
        return replace(
            policy,
            wall_seconds=wall,
            memory_bytes=memory,
            cpu_seconds=self.max_cpu_seconds if own("max_cpu_seconds") else policy.cpu_seconds,
            inherit_env=(*policy.inherit_env, *self.allowed_env_vars),
            min_isolation=policy.min_isolation if self.min_isolation is None else self.min_isolation,
        )
