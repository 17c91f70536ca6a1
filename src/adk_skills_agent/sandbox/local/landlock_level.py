"""The landlock level: no package, no privilege, no namespace needed; works in a container with Docker's defaults.

Files by Landlock, everything else by a system call filter, strays by a supervisor. What it lacks against namespaces:
a view of its own of processes, a quota on disk, networks other than none and the host's.
"""

from __future__ import annotations

from adk_skills_agent.sandbox.contract import ExecutionRequest, IsolationLevel, SandboxPolicy
from adk_skills_agent.sandbox.local import landlock
from adk_skills_agent.sandbox.local.confined_report import landlock_report, refusal
from adk_skills_agent.sandbox.local.confined_run import ConfinedRun
from adk_skills_agent.sandbox.local.confined_trial import trial
from adk_skills_agent.sandbox.local.confinement import confine_with_landlock
from adk_skills_agent.sandbox.local.level_answers import answered_once
from adk_skills_agent.sandbox.local.levels import Enforcement
from adk_skills_agent.sandbox.local.platforms import unsupported


class LandlockLevel:
    """See :class:`~adk_skills_agent.sandbox.local.levels.Level`."""

    level = IsolationLevel.LANDLOCK

    def problem(self) -> str | None:
        """Why it does not work here, found by running it once per process; None when it does."""
        return answered_once(self.level, lambda: unsupported() or self._try())

    def remedy(self) -> str | None:
        """Nothing that could be installed makes it work."""
        return None

    def refusal(self, request: ExecutionRequest, policy: SandboxPolicy) -> str | None:  # noqa: ARG002
        """What the policy demands that this level cannot do; None when there is nothing."""
        return refusal(policy)

    def new_run(self, request: ExecutionRequest, policy: SandboxPolicy) -> ConfinedRun:
        """A run of its own; nothing happens before its ``start()``."""
        return ConfinedRun(
            request,
            policy,
            lambda read, write: confine_with_landlock(policy, landlock.abi(), read_only=read, read_write=write),
        )

    def report(self, policy: SandboxPolicy) -> Enforcement:
        """Who enforces what for a run under ``policy``, and what is not fully enforced."""
        return landlock_report(policy, landlock.abi())

    def _try(self) -> str | None:
        return trial(self.new_run, files=True) if landlock.abi() else landlock.absence()
