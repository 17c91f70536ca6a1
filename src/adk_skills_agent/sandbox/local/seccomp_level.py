"""The seccomp level: no network, no new namespaces, no look into other processes, but the host's files.

For where there is no Landlock: inside gVisor, whose own boundary is the container, and on kernels before 5.13.
"""

from __future__ import annotations

import os

from adk_skills_agent.sandbox.contract import ExecutionRequest, IsolationLevel, SandboxPolicy
from adk_skills_agent.sandbox.local.confined_report import refusal, seccomp_report
from adk_skills_agent.sandbox.local.confined_run import ConfinedRun
from adk_skills_agent.sandbox.local.confined_trial import trial
from adk_skills_agent.sandbox.local.confinement import confine_with_filter
from adk_skills_agent.sandbox.local.level_answers import answered_once
from adk_skills_agent.sandbox.local.levels import Enforcement
from adk_skills_agent.sandbox.local.platforms import unsupported


class SeccompLevel:
    """See :class:`~adk_skills_agent.sandbox.local.levels.Level`."""

    level = IsolationLevel.SECCOMP

    def problem(self) -> str | None:
        """Why it does not work here, found by running it once per process; None when it does."""
        return answered_once(self.level, lambda: unsupported() or trial(self.new_run, files=False))

    def remedy(self) -> str | None:
        """Nothing that could be installed makes it work."""
        return None

    def refusal(self, request: ExecutionRequest, policy: SandboxPolicy) -> str | None:  # noqa: ARG002
        """What the policy demands that this level cannot do; None when there is nothing."""
        return refusal(policy)

    def new_run(self, request: ExecutionRequest, policy: SandboxPolicy) -> ConfinedRun:
        """A run of its own; nothing happens before its ``start()``."""
        return ConfinedRun(
            request, policy, lambda read, write: confine_with_filter(policy, needed=(*read, *map(_parent, write)))
        )

    def report(self, policy: SandboxPolicy) -> Enforcement:
        """Who enforces what for a run under ``policy``, and what is not fully enforced."""
        return seccomp_report(policy)


def _parent(folder: str) -> str:
    """The folder for temporary files the run's own are in; theirs are passable to the run."""
    return os.path.dirname(os.path.dirname(folder))  # noqa: PTH120
