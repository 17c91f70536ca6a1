"""What the landlock and seccomp levels enforce here, said honestly."""

from __future__ import annotations

import os
from types import MappingProxyType

from adk_skills_agent.sandbox.contract import SandboxPolicy
from adk_skills_agent.sandbox.local import landlock, watchdog
from adk_skills_agent.sandbox.local.confinement import GUARDED_AT_MOST, pretends_metadata, run_uid
from adk_skills_agent.sandbox.local.levels import Enforcement
from adk_skills_agent.sandbox.local.memory_files import HIDDEN_MEMORY


def landlock_report(policy: SandboxPolicy, version: int) -> Enforcement:
    """The landlock level, with this version of Landlock."""
    scoped = version >= landlock.ABI_SCOPE
    enforced = _common(policy)
    enforced["files"] = f"landlock (ABI {version})" + "+seccomp" * pretends_metadata(policy)
    enforced["processes"] = "supervisor+" + ("landlock" if scoped else "seccomp")
    if policy.network.mode == "none" and version >= landlock.ABI_TCP:
        enforced["network"] = "seccomp+landlock"
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


def seccomp_report(policy: SandboxPolicy) -> Enforcement:
    """The seccomp level."""
    enforced = _common(policy)
    enforced["files"] = "none" if run_uid(policy) is None else "user id"
    enforced["processes"] = "supervisor+seccomp"
    if run_uid(policy) is None:
        files = "files: the script can read and write whatever the agent's user can, the skill's folder included."
    else:
        files = (
            "files: the script can read what this machine's files let others read, and, when the interpreter or the "
            "skill is in a private folder, every file; it can write what others may write."
        )
    return Enforcement(
        MappingProxyType(enforced), (files, _signals(policy), _memory_of_others(policy), *_degraded(policy))
    )


def refusal(policy: SandboxPolicy) -> str | None:
    """What the policy demands and neither level can do, as a clause; None when there is nothing."""
    if policy.network.mode in {"loopback", "allow"}:
        return f"network {policy.network.mode!r} needs a network namespace"
    if policy.run_as == 0:
        return "run_as=0 keeps root's rights, which Landlock and a filter do not contain"
    if policy.run_as is not None and os.geteuid() not in {0, policy.run_as}:
        return f"run_as={policy.run_as} needs an agent that runs as root"
    return None


def _common(policy: SandboxPolicy) -> dict[str, str]:
    watched = "+watchdog" * watchdog.works_here()
    return {
        "files": "none",
        "network": "none" if policy.network.mode == "host" else "seccomp",
        "processes": "supervisor",
        "memory": f"rlimit{watched}",
        "pids": f"rlimit{watched}",
        "disk": f"rlimit{watched}",
        "kernel": "seccomp",
    }


def _signals(policy: SandboxPolicy) -> str:
    if run_uid(policy) is None:
        return (
            "processes: the agent, its process group and the threads it has when a run begins (at most "
            f"{GUARDED_AT_MOST}) cannot be signalled; threads it starts later and other processes of its user can be, "
            "and through the id of a thread the whole agent."
        )
    return f"processes: other processes of user {run_uid(policy)} can be signalled, also those of another run."


def _memory_of_others(policy: SandboxPolicy) -> str:
    """No filter sees which file is opened, and below ``/proc`` are the memory and the environment of every process."""
    if run_uid(policy) is not None:
        return f"processes: memory and environment of other runs of user {run_uid(policy)} can be read and changed."
    writable = "reading is" if _yama_forbids_writing() else "reading and changing are"
    return (
        "processes: the agent's memory and environment are files of its own user in /proc, so a script can take over "
        f"the agent where the system lets it: here {writable} not prevented. The agent as root, or the level landlock, "
        "prevents both."
    )


def _yama_forbids_writing() -> bool:
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope", "rb") as stream:
            return int(stream.read()) > 0
    except (OSError, ValueError):
        return False


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
    return sentences
