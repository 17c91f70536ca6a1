"""What the namespaces level enforces here, said honestly."""

from __future__ import annotations

import os
from types import MappingProxyType

from adk_skills_agent.sandbox.contract import SandboxPolicy
from adk_skills_agent.sandbox.local.levels import Enforcement
from adk_skills_agent.sandbox.local.memory_files import HIDDEN_MEMORY


def namespaces_report(policy: SandboxPolicy) -> Enforcement:
    """Who enforces what for a run under ``policy``."""
    enforced = {
        "files": "mount namespace",
        "network": {"host": "none", "allow": "network namespace+proxy"}.get(policy.network.mode, "network namespace"),
        "processes": "pid namespace",
        "memory": "rlimit+watchdog",
        "pids": "rlimit+watchdog",
        "disk": "tmpfs size+watchdog",
        "kernel": "seccomp+user namespace",
    }
    return Enforcement(MappingProxyType(enforced), tuple(_degraded(policy)))


def _degraded(policy: SandboxPolicy) -> list[str]:
    sentences = []
    if policy.network.mode == "host":
        sentences.append("network: the script has the host's network, by choice; unix sockets are refused.")
    if policy.memory_bytes is not None:
        sentences += [
            "memory: memory_bytes holds at once for each process; all together are checked ten times a second.",
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
    return sentences
