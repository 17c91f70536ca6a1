"""The namespaces level: a run has a file system, processes and a network of its own.

Needs bubblewrap and user namespaces, and no privilege. Where the agent may make control groups (version 2 where its
group was delegated to it, version 1 where it is root) each run gets one, and the kernel bounds its memory and processes
as a whole; elsewhere a watchdog does, and the report says so.
"""

from __future__ import annotations

import os
import platform
import sys
from types import MappingProxyType

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import ExecutionRequest, IsolationLevel, SandboxPolicy
from adk_skills_agent.sandbox.local.cgroup import NoControlGroups, group_pool
from adk_skills_agent.sandbox.local.kernel.user_namespaces import user_namespaces
from adk_skills_agent.sandbox.local.levels.base import (
    TRIAL_SECONDS,
    Enforcement,
    answered_once,
    cpu_enforced,
    cpu_sentences,
    trial_run,
)
from adk_skills_agent.sandbox.local.namespaces import bubblewrap
from adk_skills_agent.sandbox.local.namespaces.run import NamespacesRun
from adk_skills_agent.sandbox.process import seccomp
from adk_skills_agent.sandbox.process.watchdog import HIDDEN_MEMORY


class NamespacesLevel:
    """See :class:`~adk_skills_agent.sandbox.local.levels.base.Level`."""

    level = IsolationLevel.NAMESPACES

    def problem(self) -> str | None:
        """Why it does not work here, found by running it once per process; None when it does."""
        return answered_once(self.level, self._try_all)

    def no_groups(self) -> str | None:
        """Why runs have no control group here, found like :meth:`problem`; None when they have."""
        return answered_once("control groups", lambda: _no_groups()[0] or missing() or self._try(grouped=True))

    def remedy(self) -> str | None:
        """The command that installs what is missing, or that permits user namespaces or else control groups."""
        if _unsupported() is not None:
            return None
        if self.problem() is None:
            return _no_groups()[1]
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
        return NamespacesRun(request, policy, grouped=self.no_groups() is None)

    def report(self, policy: SandboxPolicy) -> Enforcement:
        """Who enforces what for a run under ``policy``, and what is not fully enforced."""
        without = self.no_groups()
        return namespaces_report(policy, without if without is not None else group_pool().version)

    def _try_all(self) -> str | None:
        lacking = missing()
        if lacking is None and self.no_groups() is not None:
            return self._try(grouped=False)
        return lacking

    def _try(self, *, grouped: bool) -> str | None:
        policy = SandboxPolicy(wall_seconds=TRIAL_SECONDS, warm_slots=0)
        run = NamespacesRun(ExecutionRequest(("sh", "-c", "exit 7"), policy), policy, grouped=grouped)
        try:
            report = trial_run(run)
        except (SandboxError, OSError) as error:
            said = str(getattr(error, "message", error))
            notes = [note for note in getattr(error, "__notes__", ()) if note.rpartition(": ")[2] not in said]
            return " ".join(["a trial run failed:", said, *notes]).rstrip(".")
        if report is None or report.status != 7 << 8:
            return f"a trial run ended in an unexpected way (status {report and report.status})"
        return None


def _no_groups() -> tuple[str | None, str | None]:
    """Why no control group can be made, and the command that would change it."""
    try:
        group_pool()
    except NoControlGroups as error:
        return str(error), error.fix
    except SandboxError as error:
        return error.message.rstrip("."), None
    return None, None


def missing() -> str | None:
    """What this system lacks for namespaces, without trying; None when nothing is known to be."""
    return _unsupported() or bubblewrap.missing()


def _unsupported() -> str | None:
    if sys.platform != "linux":
        return "namespaces are a feature of Linux"
    if not seccomp.supports(platform.machine()):
        return f"there is no system call filter for {platform.machine()}"
    return None


# What the namespaces level enforces here, said honestly.


def namespaces_report(policy: SandboxPolicy, groups: int | str) -> Enforcement:
    """Who enforces what for a run under ``policy``.

    Args:
        policy: The limits that hold.
        groups: The version of the control groups that runs get, or why they get none, as a clause.
    """
    together = f"cgroup v{groups}" if isinstance(groups, int) else "rlimit+watchdog"
    enforced = {
        "files": "mount namespace",
        "network": {"host": "none", "allow": "network namespace+proxy"}.get(policy.network.mode, "network namespace"),
        "processes": "pid namespace",
        "memory": together,
        "pids": together,
        "disk": "tmpfs size+watchdog",
        "cpu": cpu_enforced(policy),
        "syscalls": "seccomp+user namespace",
    }
    hard = frozenset({"memory", "pids"}) if isinstance(groups, int) else frozenset()
    return Enforcement(MappingProxyType(enforced), tuple(_degraded(policy, groups)), hard)


def _degraded(policy: SandboxPolicy, groups: int | str) -> list[str]:
    sentences = []
    if policy.network.mode == "host":
        sentences.append("network: the script has the host's network, by choice; unix sockets are refused.")
    if policy.memory_bytes is not None and isinstance(groups, str):
        sentences += [
            "memory: memory_bytes holds at once for each process; all together are checked ten times a second, because "
            f"there is no control group for the run ({groups}).",
            HIDDEN_MEMORY,
        ]
    if policy.workspace_inodes is not None:
        sentences.append("disk: sizes hold at once; the number of files is checked several times a second.")
    unbounded = [name for name in ("workspace_bytes", "tmp_bytes", "shm_bytes") if getattr(policy, name) is None]
    if unbounded:
        sentences.append(f"disk: {', '.join(unbounded)} unlimited means half of this machine's memory.")
    if os.geteuid() == 0 and policy.run_as is None:
        sentences.append(
            "processes: all runs of an agent that is root have the same user id, 65534, each in its own namespaces."
        )
    return [*sentences, *cpu_sentences(policy)]
