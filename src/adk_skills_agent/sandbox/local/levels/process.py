"""The process level: a child process with a clean environment, limits and a sure end, but the host's files and network.

It is for trusted skills and for machines where nothing stronger works, and only ever by explicit choice.
"""

from __future__ import annotations

from adk_skills_agent.sandbox.contract import IsolationLevel, SandboxPolicy
from adk_skills_agent.sandbox.local.levels.base import Enforcement, LocalLevel, cpu_enforced, cpu_sentences
from adk_skills_agent.sandbox.process import command, watchdog
from adk_skills_agent.sandbox.secrets import FrozenMapping


class ProcessLevel(LocalLevel):
    """Works wherever there are processes; what it cannot do is in its report."""

    level = IsolationLevel.PROCESS

    def report(self, policy: SandboxPolicy) -> Enforcement:
        """Who enforces what, and what is not enforced."""
        return process_report(policy)


def process_report(policy: SandboxPolicy) -> Enforcement:
    """Who enforces what for a run under ``policy`` at the process level."""
    watched = watchdog.works_here()
    memory = "+".join(["rlimit"] * command.enforces_memory() + ["watchdog"] * watched) or "none"
    enforced = {
        "files": "none",
        "network": "none",
        "processes": "session+group-kill",
        "memory": memory,
        "pids": "rlimit" if command.enforces_pids() else "watchdog" if watched else "none",
        "disk": "+".join(["rlimit"] * (command.without_limits() is None) + ["watchdog"] * watched) or "none",
        "cpu": cpu_enforced(policy),
        "syscalls": "none",
    }
    return Enforcement(FrozenMapping(enforced), tuple(_degraded(policy, watched)))


def _degraded(policy: SandboxPolicy, watched: bool) -> list[str]:
    sentences = ["files: the script can read and write whatever the agent's user can, the skill's folder included."]
    if (reason := command.without_limits()) is not None:
        sentences.append(f"limits: only the deadline and what the watchdog sees holds, because {reason}.")
    if policy.network.mode != "host":
        sentences.append(f"network: {policy.network.mode!r} cannot be enforced; the script has the host's network.")
    sentences.append(
        "processes: the script can signal the agent's processes; one that leaves its session is looked for and killed, "
        "best effort."
        if watched
        else "processes: a process that leaves its session is not found and survives."
    )
    if policy.memory_bytes is not None:
        if not watched:
            sentences.append("memory: memory_bytes holds for no process here.")
        else:
            sentences += [
                "memory: memory_bytes holds at once for what a process can write; the sum is checked ten times a "
                "second.",
                watchdog.HIDDEN_MEMORY,
            ]
    if policy.pids is not None and not command.enforces_pids():
        sentences.append(
            f"pids: not limited for root; a run with more than {watchdog.PIDS_FACTOR} x pids processes is stopped."
            if watched
            else "pids: the number of processes is not limited."
        )
    elif policy.pids is not None:
        sentences.append(
            "pids: the kernel counts all processes of the agent's user together; a run's limit leaves room for the "
            "runs there are when it begins, so it is larger then, and runs that begin later can use it up."
        )
    if policy.workspace_bytes is not None or policy.workspace_inodes is not None:
        sentences.append(
            "disk: file_bytes holds at once for each file; the whole workspace is checked several times a second, "
            "before which a script took 96 times the limit (posix_fallocate), and at the end; other folders are not."
            if watched
            else "disk: only file_bytes holds; the size of the workspace is not limited."
        )
    if policy.shm_bytes is not None:
        sentences.append("disk: there is no private /dev/shm, so shm_bytes does not hold.")
    if policy.run_as is not None:
        sentences.append(f"run_as: the script runs as the agent's user, not as {policy.run_as}.")
    return [*sentences, *cpu_sentences(policy)]
