"""Resource limits without ``preexec_fn``: a two-line shell prefix sets them on itself and becomes the command.

``/bin/sh -c 'ulimit ...; exec "$@"'`` costs about a millisecond, needs nothing installed, and there is no moment at
which the command runs without its limits. See docs/decisions/0004-limits-without-preexec.md.
"""

from __future__ import annotations

import functools
import math
import os
import time

from adk_skills_agent.sandbox.contract import SandboxPolicy
from adk_skills_agent.sandbox.local.turns import RUNNING

SHELL = "/bin/sh"
NOT_STARTED_CODES = (2, 125, 126, 127)
"""Exit codes the prefix itself can end with; only together with its marker file do they mean "not started"."""

_BLOCK = 512  # ulimit -f counts these (POSIX)
_KIBI = 1024
# A multi-threaded command uses more than one CPU second a second; RLIMIT_CPU also must not beat the wall clock to the
# deadline of a single-threaded one, so "the deadline, rounded up" is the next whole second after it.
_CPU_SPARE_SECONDS = 1
_COUNT_SECONDS = 2.0


def launcher(policy: SandboxPolicy, marker: str, argv: list[str]) -> list[str]:
    """The command line that applies the limits and then becomes ``argv``, whose elements stay literal.

    Args:
        policy: Its per-process limits.
        marker: Host path the shell creates when the command could not be started; the command never sees it.
        argv: The command, its first element an absolute path.
    """
    processes = None
    if policy.pids is not None and enforces_pids():
        processes = room_for_processes(os.getuid(), policy.pids)
    return [SHELL, "-c", _script(*_numbers(policy, processes)), marker, *argv]


def limit_steps(policy: SandboxPolicy, processes: int | None) -> str:
    """The limits as commands of a shell, joined by ``&&``.

    Args:
        policy: Its per-process limits.
        processes: Processes and threads the run's user may have; None for no limit.
    """
    return _steps(*_numbers(policy, processes))


def enforces_pids() -> bool:
    """Whether RLIMIT_NPROC holds for this user; the kernel does not apply it to root."""
    return os.geteuid() != 0 and os.path.isdir("/proc/self/task")  # noqa: PTH112


def enforces_memory() -> bool:
    """Whether RLIMIT_DATA counts private memory here (Linux since 4.7; elsewhere it is only the old heap)."""
    import sys

    return sys.platform == "linux"


def _numbers(
    policy: SandboxPolicy, processes: int | None
) -> tuple[int | None, int | None, int | None, int | None, int | None]:
    import resource

    cpu = policy.cpu_seconds
    if cpu is None and policy.wall_seconds is not None:
        cpu = math.floor(policy.wall_seconds) + _CPU_SPARE_SECONDS
    # RLIMIT_DATA and not RLIMIT_AS: it counts private writable memory, while runtimes such as V8, Go and the JVM
    # reserve far more address space than they ever use and would not even start.
    data = policy.memory_bytes if enforces_memory() else None
    return (
        clamp(resource.RLIMIT_CPU, cpu),
        clamp(resource.RLIMIT_FSIZE, policy.file_bytes),
        clamp(resource.RLIMIT_DATA, data),
        clamp(resource.RLIMIT_NOFILE, policy.open_files),
        clamp(getattr(resource, "RLIMIT_NPROC", resource.RLIMIT_CPU), processes),
    )


def clamp(which: int, value: int | None) -> int | None:
    """Never above the hard limit this process has: raising it would fail, and keeping it is stricter anyway."""
    import resource

    hard = resource.getrlimit(which)[1]
    return value if value is None or hard == resource.RLIM_INFINITY else min(value, hard)


@functools.lru_cache(maxsize=64)
def _steps(cpu: int | None, file: int | None, data: int | None, files: int | None, processes: int | None) -> str:
    steps = ["ulimit -c 0"]
    if cpu is not None:
        # First SIGXCPU, a second later SIGKILL; when that is not possible below a hard limit, both at once.
        steps.append(f"ulimit -S -t {cpu}")
        steps.append(f"{{ ulimit -H -t {cpu + 1} 2>/dev/null || ulimit -H -t {cpu}; }}")
    if file is not None:
        steps.append(f"ulimit -f {-(-file // _BLOCK)}")
    if data is not None:
        steps.append(f"ulimit -d {-(-data // _KIBI)}")
    if processes is not None:
        # bash calls it -u, dash -p.
        steps.append(f"{{ ulimit -u {processes} 2>/dev/null || ulimit -p {processes}; }}")
    if files is not None:
        steps.append(f"ulimit -n {files}")
    return " && ".join(steps)


@functools.lru_cache(maxsize=64)
def _script(cpu: int | None, file: int | None, data: int | None, files: int | None, processes: int | None) -> str:
    steps = _steps(cpu, file, data, files, processes)
    # $0 is the marker. dash leaves after a failed exec and runs the trap; bash runs it only with execfail.
    return (
        "trap ': > \"$0\"' EXIT; "
        f"{steps} || exit 125; "
        'if [ "${BASH_VERSION-}" ]; then shopt -s execfail; fi; '
        'exec "$@"; : > "$0"; exit 126'
    )


def room_for_processes(uid: int, pids: int) -> int:
    """RLIMIT_NPROC for a run that may have ``pids`` processes and shares its user with others.

    The kernel counts all processes of the user, so there is as much again for each other run of this agent that goes on
    or is about to: one must not be refused its first process because of the others.
    """
    return threads_of_user(uid) + pids * max(1, RUNNING.wanted)


_counted: tuple[float, int, int] = (-math.inf, -1, 0)


def threads_of_user(uid: int) -> int:
    """Threads the user has now: RLIMIT_NPROC counts all of them, not only the run's. Counted at most every 2 s."""
    global _counted  # noqa: PLW0603  # a cache of something the whole machine shares
    now = time.monotonic()
    when, counted_uid, count = _counted
    if counted_uid == uid and now - when < _COUNT_SECONDS:
        return count
    count = 0
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            if entry.stat().st_uid == uid:
                count += len(os.listdir(f"/proc/{entry.name}/task"))  # noqa: PTH208
        except OSError:  # it ended in the meantime
            continue
    _counted = (now, uid, count)
    return count
