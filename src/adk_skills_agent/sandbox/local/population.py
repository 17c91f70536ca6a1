"""Who is in a sandbox, seen from outside, and what it has used."""

from __future__ import annotations

import os
import time

from adk_skills_agent.sandbox.local.exact_end import children_of
from adk_skills_agent.sandbox.local.processes import ProcessInfo, fields_of_stat, process_info, stat_fields

_EXITING = 0x4  # the kernel's PF_EXITING
_KILLED = 1 << 8  # SIGKILL, pending
_STAT_BYTES = 4096
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def alive_below(first: int) -> list[ProcessInfo]:
    """Live processes of a sandbox besides its process 1."""
    waiting = children_of(first)
    seen: set[int] = set()
    alive: list[ProcessInfo] = []
    while waiting:
        pid = waiting.pop()
        if pid in seen:
            continue
        seen.add(pid)
        waiting += children_of(pid)
        info = process_info(pid)
        if info is not None and info.alive:
            alive.append(info)
    return alive


def besides(alive: list[ProcessInfo], command: int) -> int:
    """How many of them are not the command."""
    return sum(info.pid != command for info in alive)


def is_ending(pid: int) -> bool:
    """Whether a process was killed, is on its way out or is gone, though it may not look dead yet."""
    fields = stat_fields(pid)
    return fields is None or _says_ending(fields)


def opened_stat(pid: int) -> int:
    """A descriptor for :func:`is_ending_now`.

    Raises:
        OSError: The process is gone, or no descriptor is left.
    """
    return os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)


def is_ending_now(stat: int) -> bool:
    """:func:`is_ending` for a process that was looked up before, in a third of the time."""
    try:
        return _says_ending(fields_of_stat(os.pread(stat, _STAT_BYTES, 0)))
    except OSError:
        return True


def _says_ending(fields: list[bytes]) -> bool:
    return fields[0] in b"ZXx" or bool(int(fields[6]) & _EXITING or int(fields[28]) & _KILLED)


def cpu_seconds(pid: int) -> float:
    """Processor time of another process until now, by its clock."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0
