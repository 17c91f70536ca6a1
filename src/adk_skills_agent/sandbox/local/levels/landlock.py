"""The landlock level: no package, no privilege, no namespace needed; works in a container with Docker's defaults.

Files by Landlock, everything else by a system call filter, strays by a supervisor. What it lacks against namespaces:
a view of its own of processes, a quota on disk, networks other than none and the host's.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from types import MappingProxyType

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import ExecutionRequest, IsolationLevel, SandboxPolicy
from adk_skills_agent.sandbox.files.removal import temporary_prefix
from adk_skills_agent.sandbox.local.kernel import landlock
from adk_skills_agent.sandbox.local.landlock_run import (
    GUARDED_AT_MOST,
    ConfinedRun,
    pretends_metadata,
)
from adk_skills_agent.sandbox.local.levels.base import (
    TRIAL_SECONDS,
    Enforcement,
    answered_once,
    cpu_enforced,
    cpu_sentences,
    trial_run,
    unsupported,
)
from adk_skills_agent.sandbox.process import watchdog
from adk_skills_agent.sandbox.process.command import run_uid
from adk_skills_agent.sandbox.process.watchdog import HIDDEN_MEMORY


class LandlockLevel:
    """See :class:`~adk_skills_agent.sandbox.local.levels.base.Level`."""

    level = IsolationLevel.LANDLOCK

    def problem(self) -> str | None:
        """Why it does not work here, found by running it once per process; None when it does."""
        return answered_once(self.level, lambda: unsupported() or self._try())

    def remedy(self) -> str | None:
        """Nothing that could be installed makes it work."""
        return None

    def refusal(self, request: ExecutionRequest, policy: SandboxPolicy) -> str | None:  # noqa: ARG002
        """What the policy demands that this level cannot do; None when there is nothing."""
        if policy.network.mode in {"loopback", "allow"}:
            return f"network {policy.network.mode!r} needs a network namespace"
        if policy.run_as == 0:
            return "run_as=0 keeps root's rights, which Landlock and a filter do not contain"
        if policy.run_as is not None and os.geteuid() not in {0, policy.run_as}:
            return f"run_as={policy.run_as} needs an agent that runs as root"
        return None

    def new_run(self, request: ExecutionRequest, policy: SandboxPolicy) -> ConfinedRun:
        """A run of its own; nothing happens before its ``start()``."""
        return ConfinedRun(request, policy, landlock.abi())

    def report(self, policy: SandboxPolicy) -> Enforcement:
        """Who enforces what for a run under ``policy``, and what is not fully enforced."""
        return landlock_report(policy, landlock.abi())

    def _try(self) -> str | None:
        return trial(self.new_run) if landlock.abi() else landlock.absence()


# What the landlock level enforces here, said honestly.


def landlock_report(policy: SandboxPolicy, version: int) -> Enforcement:
    """Who enforces what for a run under ``policy``, with this version of Landlock."""
    scoped = version >= landlock.ABI_SCOPE
    watched = "+watchdog" * watchdog.works_here()
    network = "seccomp+landlock" if version >= landlock.ABI_TCP else "seccomp"
    enforced = {
        "files": f"landlock (ABI {version})" + "+seccomp" * pretends_metadata(policy),
        "network": "none" if policy.network.mode == "host" else network,
        "processes": "supervisor+" + ("landlock" if scoped else "seccomp"),
        "memory": f"rlimit{watched}",
        "pids": f"rlimit{watched}",
        "disk": f"rlimit{watched}",
        "cpu": cpu_enforced(policy),
        "syscalls": "seccomp",
    }
    sentences = [
        "files: whether a path outside of the sandbox exists, its size, its owner and where a link leads can be seen; "
        "no content can, nor extended attributes, which by path do not exist, not even for the run's own files.",
        "files: /tmp itself cannot be used, only TMPDIR; there is no /dev/shm and of /proc only cpuinfo and meminfo.",
    ]
    if version < landlock.ABI_REFER:
        sentences.append("files: this kernel lets a script rename and link only within one folder (Landlock ABI 1).")
    if version < landlock.ABI_TRUNCATE:
        sentences.append("files: truncate() is refused everywhere, because this kernel's Landlock does not cover it.")
    if not scoped:
        sentences.append(_signals(policy))
    return Enforcement(MappingProxyType(enforced), (*sentences, *_degraded(policy)))


def _signals(policy: SandboxPolicy) -> str:
    if run_uid(policy) is None:
        return (
            "processes: the agent, its process group and the threads it has when a run begins (at most "
            f"{GUARDED_AT_MOST}) cannot be signalled; threads it starts later and other processes of its user can be, "
            "and through the id of a thread the whole agent."
        )
    return f"processes: other processes of user {run_uid(policy)} can be signalled, also those of another run."


def _degraded(policy: SandboxPolicy) -> list[str]:
    sentences = []
    if policy.network.mode == "host":
        sentences.append("network: the script has the host's network, by choice; unix sockets are refused.")
    if pretends_metadata(policy):
        sentences.append(
            "files: chmod, chown, utime and setxattr report success and change nothing; start own programs by their "
            "interpreter."
        )
    if policy.memory_bytes is not None:
        sentences += [
            "memory: memory_bytes holds at once for each process; all together are checked ten times a second.",
            HIDDEN_MEMORY,
        ]
    if policy.pids is not None:
        sentences.append(
            "pids: the kernel counts all processes of the run's user together; a run's limit leaves room for the runs "
            "there are when it begins, so it is larger then, and runs that begin later can use it up."
        )
    if policy.workspace_bytes is not None or policy.workspace_inodes is not None or policy.tmp_bytes is not None:
        sentences.append(
            "disk: file_bytes holds at once for each file; workspace and TMPDIR are checked several times a second, "
            "with the deleted files that processes of the run have open, not those only a mapping or a socket holds."
        )
    return [*sentences, *cpu_sentences(policy)]


# Find out whether Landlock works here by running it once, with a program that tries what it must not be able to.

# Says in one sentence the first thing that is not as it must be; "outside" is a file to keep out of reach.
_PROGRAM = """
import _socket, sys
with open("trial.txt", "w") as file:
    file.write("written")
try:
    _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    sys.exit("a socket could be made")
except PermissionError:
    pass
try:
    open(outside).close()
    sys.exit("a file outside of the sandbox could be read")
except PermissionError:
    pass
"""


def trial(make: Callable[[ExecutionRequest, SandboxPolicy], ConfinedRun]) -> str | None:
    """Run the level once; why it does not work here, as a clause, or None.

    Args:
        make: The level's ``new_run``.
    """
    policy = SandboxPolicy(wall_seconds=TRIAL_SECONDS)
    try:
        with tempfile.NamedTemporaryFile(prefix=temporary_prefix("trial")) as secret:
            # In the program's text, because a path in an argument would be translated to the run's own /tmp.
            program = f"outside = {secret.name!r}\n{_PROGRAM}"
            report = trial_run(make(ExecutionRequest((sys.executable, "-I", "-c", program), policy), policy))
    except (SandboxError, OSError) as error:
        return str(getattr(error, "message", error)).rstrip(".")
    if report is None:
        return f"a trial run did not end in {TRIAL_SECONDS:.0f} seconds"
    if report.status is None:
        return "a trial run ended in an unknown way"
    code = os.waitstatus_to_exitcode(report.status)
    if code != 0:
        said = report.rest[1].decode("utf-8", "replace").strip().rpartition("\n")[2]
        return f"in a trial run, {said}" if code == 1 and said else f"a trial run ended with {code}: {said}"
    return None
