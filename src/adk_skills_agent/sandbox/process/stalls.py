"""What keeps a thread of the agent waiting in the kernel, and whose lock it is.

Whoever reads a pipe or lists a folder takes its lock, and whoever reads /proc/PID/smaps_rollup that of the process's
memory. A script decides how long it holds these: while it writes from a page that is not there, while another thread of
it changes the protection of gigabytes, while its other processes take all processors (rows 309 and 311). Such a wait
heeds no signal; it ends when the run is killed. What is looked at here takes none of these locks.

With the lock of its memory a script holds any other lock as long: of a folder that all programs of the machine list, of
renaming in a file system. What waits for those is not the agent, so :func:`touch` waits for the first (row 349).
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass

from adk_skills_agent.sandbox.process.system_calls import NUMBERS
from adk_skills_agent.sandbox.process.tree import PROC, ProcessInfo, process_info

_BY_DESCRIPTOR = "read pread64 readv getdents64 fstat"
_BY_FOLDER_AND_PATH = "openat openat2 readlinkat newfstatat statx"
_PROCESS = re.compile(rf"{PROC}/(\d+)/")
_PATH_BYTES = 4096
_MOST_PARENTS = 100


@dataclass(frozen=True, slots=True)
class Wait:
    """What a thread waits for: a descriptor of the agent, or None, and the path of what it reads or opens."""

    descriptor: int | None
    path: str

    def processes(self) -> Iterator[ProcessInfo]:
        """The process whose lock it is and those it descends from, the nearest first; none for another lock."""
        found = _PROCESS.match(self.path)
        return iter(()) if found is None else _ancestors(int(found[1]))


def wait_of(thread: int) -> Wait | None:
    """What a thread of this process, by its id in the kernel, waits for and cannot be woken from; None for nothing."""
    try:
        with open(f"{PROC}/self/task/{thread}/stat", "rb") as stream:
            if not stream.read().rpartition(b") ")[2].startswith(b"D"):
                return None
        with open(f"{PROC}/self/task/{thread}/syscall", "rb") as stream:
            told = stream.read().split()
        number, first, second = int(told[0]), int(told[1], 16), int(told[2], 16)
        if number in _numbers(_BY_DESCRIPTOR):
            return Wait(first, os.readlink(f"{PROC}/self/fd/{first}"))  # noqa: PTH115
        if number in _numbers(_BY_FOLDER_AND_PATH):
            with open(f"{PROC}/self/mem", "rb", buffering=0) as memory:
                memory.seek(second)
                path = os.fsdecode(memory.read(_PATH_BYTES).partition(b"\0")[0])
            return Wait(None, path if path.startswith("/") else os.readlink(f"{PROC}/self/fd/{first}"))  # noqa: PTH115
        if number in _numbers("kcmp"):  # of two processes, which may be beginning another program
            return Wait(None, f"{PROC}/{first}/")
    except (OSError, ValueError, IndexError, OverflowError):  # it goes on, or the system does not say
        pass
    return None


@functools.lru_cache
def _numbers(names: str) -> frozenset[int]:
    known = NUMBERS.get(platform.machine(), {})
    return frozenset(known[name] for name in names.split() if name in known)


def _ancestors(pid: int) -> Iterator[ProcessInfo]:
    """A process and those it descends from, the nearest first."""
    for _ in range(_MOST_PARENTS):
        info = process_info(pid)
        if info is None or info.pid <= 1:
            return
        yield info
        pid = info.parent


def touch(pid: int) -> None:
    """Take the lock of a process's memory for a moment, to read a byte of it."""
    with contextlib.suppress(OSError), open(f"{PROC}/{pid}/cmdline", "rb", buffering=0) as stream:
        stream.read(1)
