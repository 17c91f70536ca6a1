"""The process level: a child process with a clean environment, limits and a sure end, but the host's files and network.

It is for trusted skills and for machines where nothing stronger works, and only ever by explicit choice.
"""

from __future__ import annotations

from adk_skills_agent.sandbox.contract import ExecutionRequest, IsolationLevel, SandboxPolicy
from adk_skills_agent.sandbox.local.levels import Enforcement
from adk_skills_agent.sandbox.local.report import process_report
from adk_skills_agent.sandbox.local.run import LocalRun


class ProcessLevel:
    """See :class:`~adk_skills_agent.sandbox.local.levels.Level`."""

    level = IsolationLevel.PROCESS

    def problem(self) -> str | None:
        """Nothing: it works wherever there are processes."""
        return None

    def remedy(self) -> str | None:
        """Nothing is missing."""
        return None

    def refusal(self, request: ExecutionRequest, policy: SandboxPolicy) -> str | None:  # noqa: ARG002
        """Nothing: what it cannot do is in its report."""
        return None

    def new_run(self, request: ExecutionRequest, policy: SandboxPolicy) -> LocalRun:
        """A run of its own; nothing happens before its ``start()``."""
        return LocalRun(request, policy)

    def report(self, policy: SandboxPolicy) -> Enforcement:
        """Who enforces what, and what is not enforced."""
        return process_report(policy)
