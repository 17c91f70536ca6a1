"""What confines one run at the landlock and seccomp levels: whose rights it has, its limits, rules and filter."""

from __future__ import annotations

import math
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from adk_skills_agent.sandbox.contract import SandboxPolicy
from adk_skills_agent.sandbox.local import landlock, seccomp
from adk_skills_agent.sandbox.local.limits import clamp, room_for_processes

NOBODY = 65534
"""The user id of a run when the agent is root; it owns nothing on a sane system."""

SUPERVISOR_PLACEHOLDER = 0x7FFF_FFF1
"""Stands in a filter for the supervisor's process id, which is known only inside."""

GUARDED_AT_MOST = 100
"""Process and thread ids a filter can look for in one call."""

_LOCKED_BYTES = 64 << 10
_CPU_SPARE_SECONDS = 1


@dataclass(frozen=True, slots=True)
class Confinement:
    """What the stub applies to the payload.

    Attributes:
        ruleset: Landlock's, or None at the seccomp level.
        program: The system call filter.
        uid: The user and group id to take on; None keeps the agent's.
        search: Keep the capability to pass and read what the run's user could not, within what Landlock permits: the
            interpreter or the skill may be below a private home (docs/decisions/0006-landlock-as-root.md).
        limits: Resource, soft and hard limit.
    """

    ruleset: landlock.Ruleset | None
    program: bytes
    uid: int | None
    search: bool
    limits: tuple[tuple[int, int, int], ...]


def run_uid(policy: SandboxPolicy) -> int | None:
    """The user id of a run; None when it is the agent's own."""
    if os.geteuid() != 0:
        return None
    return NOBODY if policy.run_as is None else policy.run_as


def pretends_metadata(policy: SandboxPolicy) -> bool:
    """Whether ``chmod`` and its like do nothing: the run may have the user id of files that are not its own.

    Only the default user of a root agent owns nothing; there they work, on the run's own files.
    """
    return run_uid(policy) is None or policy.run_as is not None


def confine_with_landlock(
    policy: SandboxPolicy, version: int, *, read_only: Sequence[str], read_write: Sequence[str]
) -> Confinement:
    """The landlock level.

    Args:
        policy: The limits that hold.
        version: Landlock's, see :func:`landlock.abi`.
        read_only: Host folders the run may read besides the system.
        read_write: Its workspace and folder for temporary files.
    """
    uid = run_uid(policy)
    readable = [*read_only, *policy.extra_ro]
    if policy.python is not None:
        prefix = os.path.dirname(os.path.dirname(policy.python))  # noqa: PTH120
        base = os.path.dirname(os.path.dirname(os.path.realpath(policy.python)))  # noqa: PTH120
        readable += landlock.python_folders((prefix, base))
    open_network = policy.network.mode == "host"
    program = seccomp.program(
        platform.machine(),
        seccomp.LANDLOCK,
        sockets=_families(policy),
        pretend_metadata=pretends_metadata(policy),
        guarded=_guarded(uid) if version < landlock.ABI_SCOPE else None,
        refuse_truncate=version < landlock.ABI_TRUNCATE,
    )
    rules = landlock.ruleset(version, read_only=readable, read_write=read_write, tcp=open_network)
    return Confinement(rules, program, uid, uid is not None, rlimits(policy, uid))


def confine_with_filter(policy: SandboxPolicy, *, needed: Sequence[str]) -> Confinement:
    """The seccomp level.

    Args:
        policy: The limits that hold.
        needed: Host folders the run must be able to read.
    """
    uid = run_uid(policy)
    program = seccomp.program(
        platform.machine(),
        seccomp.SECCOMP,
        sockets=_families(policy),
        pretend_metadata=pretends_metadata(policy),
        guarded=_guarded(uid),
    )
    search = uid is not None and not all(_open_to_all(path) for path in (*needed, sys.prefix, sys.base_prefix))
    return Confinement(None, program, uid, search, rlimits(policy, uid))


def rlimits(policy: SandboxPolicy, uid: int | None) -> tuple[tuple[int, int, int], ...]:
    """Resource limits of each process of the run, for a run that shares its user with others."""
    processes = None
    # Not enforced for root by the kernel, so a run as root would only be counted.
    if policy.pids is not None and (uid or os.geteuid()):
        processes = room_for_processes(os.geteuid() if uid is None else uid, policy.pids)
    return process_limits(policy, processes)


def process_limits(policy: SandboxPolicy, processes: int | None) -> tuple[tuple[int, int, int], ...]:
    """Resource limits of each process of a run: resource, soft, hard; never above the hard ones this process has.

    Args:
        policy: Its limits of a process.
        processes: Processes and threads the run's user may have; None for no limit.
    """
    import resource

    cpu = policy.cpu_seconds
    if cpu is None and policy.wall_seconds is not None:
        cpu = math.floor(policy.wall_seconds) + _CPU_SPARE_SECONDS
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: policy.file_bytes,
        # Not RLIMIT_AS: runtimes such as V8, Go and the JVM reserve far more address space than they ever use.
        resource.RLIMIT_DATA: policy.memory_bytes,
        resource.RLIMIT_NOFILE: policy.open_files,
        resource.RLIMIT_NPROC: processes,
        resource.RLIMIT_MEMLOCK: _LOCKED_BYTES,
    }
    limits = [(which, clamp(which, value)) for which, value in wanted.items()]
    both = [(which, value, value) for which, value in limits if value is not None]
    if cpu is not None:
        # First SIGXCPU, a second later SIGKILL.
        soft, hard = clamp(resource.RLIMIT_CPU, cpu), clamp(resource.RLIMIT_CPU, cpu + 1)
        both.append((resource.RLIMIT_CPU, soft or 0, hard or 0))
    return tuple(both)


def _families(policy: SandboxPolicy) -> tuple[int, ...]:
    """Sockets ``socket()`` may make: with the host's network all of the Internet's, never a path to a local service."""
    if policy.network.mode != "host":
        return ()
    return (seccomp.AF_INET, seccomp.AF_INET6, seccomp.AF_NETLINK)


def _guarded(uid: int | None) -> tuple[int, ...] | None:
    """Whom the filter protects from signals: a run of another user cannot signal the agent anyway."""
    if uid is not None:
        return None
    # The id of any thread stands for its whole process. Of what starts later a filter cannot know.
    try:
        threads = sorted(int(name) for name in os.listdir("/proc/self/task"))  # noqa: PTH208
    except OSError:
        threads = []
    agent = os.getpid()
    others = [number for number in (os.getpgrp(), *threads) if number != agent]
    return (agent, SUPERVISOR_PLACEHOLDER, *others)[:GUARDED_AT_MOST]


def _open_to_all(path: str) -> bool:
    """Whether every user may pass the folders above ``path`` and read it."""
    path = os.path.realpath(path)
    try:
        if not os.stat(path).st_mode & 0o004:  # noqa: PTH116
            return False
        while path != "/":
            path = os.path.dirname(path)  # noqa: PTH120
            if not os.stat(path).st_mode & 0o001:  # noqa: PTH116
                return False
    except OSError:
        return False
    return True
