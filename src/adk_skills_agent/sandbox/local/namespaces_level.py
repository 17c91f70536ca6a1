"""The namespaces level: bubblewrap gives a run a file system, processes and a network of its own.

Needs bubblewrap and user namespaces, and no privilege.
"""

from __future__ import annotations

import os
import platform
import select
import sys

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import ExecutionRequest, IsolationLevel, SandboxPolicy
from adk_skills_agent.sandbox.local import bubblewrap, seccomp
from adk_skills_agent.sandbox.local.level_answers import answered_once
from adk_skills_agent.sandbox.local.levels import Enforcement
from adk_skills_agent.sandbox.local.namespaces_report import namespaces_report
from adk_skills_agent.sandbox.local.namespaces_run import NamespacesRun
from adk_skills_agent.sandbox.local.user_namespaces import user_namespaces

_TRIAL_SECONDS = 20.0


class NamespacesLevel:
    """See :class:`~adk_skills_agent.sandbox.local.levels.Level`."""

    level = IsolationLevel.NAMESPACES

    def problem(self) -> str | None:
        """Why it does not work here, found by running it once per process; None when it does."""
        return answered_once(self.level, lambda: missing() or self._try())

    def remedy(self) -> str | None:
        """The command that installs what is missing, or that permits user namespaces."""
        if _unsupported() is not None:
            return None
        return bubblewrap.remedy() if bubblewrap.missing() is not None else user_namespaces().fix

    def refusal(self, request: ExecutionRequest, policy: SandboxPolicy) -> str | None:  # noqa: ARG002
        """What the policy demands that this level cannot do; None when there is nothing."""
        if policy.run_as == 0:
            return "run_as=0 keeps root's files in reach and the kernel limits no processes of root"
        if policy.run_as is not None and os.geteuid() not in {0, policy.run_as}:
            return f"run_as={policy.run_as} needs an agent that runs as root"
        return None

    def new_run(self, request: ExecutionRequest, policy: SandboxPolicy) -> NamespacesRun:
        """A run of its own; nothing happens before its ``start()``."""
        return NamespacesRun(request, policy)

    def report(self, policy: SandboxPolicy) -> Enforcement:
        """Who enforces what for a run under ``policy``, and what is not fully enforced."""
        return namespaces_report(policy)

    def _try(self) -> str | None:
        policy = SandboxPolicy(wall_seconds=_TRIAL_SECONDS)
        run = self.new_run(ExecutionRequest(("sh", "-c", "exit 7"), policy), policy)
        try:
            run.start()
            assert run.child.pidfd is not None  # noqa: S101  # the control socket's
            poll = select.poll()
            poll.register(run.child.pidfd, select.POLLIN)
            poll.poll(_TRIAL_SECONDS * 1000)
            aftermath = run.finish(wanted=False)
        except (SandboxError, OSError) as error:
            said = str(getattr(error, "message", error))
            notes = [note for note in getattr(error, "__notes__", ()) if note.rpartition(": ")[2] not in said]
            return " ".join(["a trial run failed:", said, *notes]).rstrip(".")
        if aftermath.status != 7 << 8:
            return f"a trial run ended in an unexpected way (status {aftermath.status})"
        return None


def missing() -> str | None:
    """What this system lacks for namespaces, without trying; None when nothing is known to be."""
    return _unsupported() or bubblewrap.missing()


def _unsupported() -> str | None:
    if sys.platform != "linux":
        return "namespaces are a feature of Linux"
    if not seccomp.supports(platform.machine()):
        return f"there is no system call filter for {platform.machine()}"
    return None
