"""Who is in a sandbox, seen from outside, and what it has used."""

from __future__ import annotations

import os
import time

from adk_skills_agent.sandbox.local.exact_end import children_of
from adk_skills_agent.sandbox.local.processes import ProcessInfo, process_info, stat_fields

_EXITING = 0x4  # the kernel's PF_EXITING
_KILLED = 1 << 8  # SIGKILL, pending
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
    return fields is None or fields[0] in b"ZXx" or bool(int(fields[6]) & _EXITING or int(fields[28]) & _KILLED)


def cpu_seconds(pid: int) -> float:
    """Processor time of another process until now, by its clock."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0
