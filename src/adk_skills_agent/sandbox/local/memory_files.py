"""What a run holds and no walk and no process shows: files in memory without a name (memfd), which a script can fill
without mapping them (row 7), and files it deleted and still has open (row 11).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator

from adk_skills_agent.sandbox.local.processes import PROC

HIDDEN_MEMORY = (
    "memory: shared memory that no process has mapped or open is counted only while the agent has no other run, and "
    "only far above the limit; the level cgroup counts all of it."
)
"""What a watchdog cannot do about memory; for the reports of the levels that have nothing better."""

_BLOCK = 512


def shared_memory() -> int:
    """Bytes in files in memory and shared mappings on the whole machine: cheap to read, and a reason to look closer."""
    try:
        with open(f"{PROC}/meminfo", "rb") as stream:
            for line in stream:
                if line.startswith(b"Shmem:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return 0
    return 0


def memory_in_files(pids: Iterable[int]) -> int:
    """Bytes in nameless files these processes hold open, each file once."""
    return _bytes_open(pids, lambda where: where.startswith("/memfd:"))


def deleted_files(pids: Iterable[int], folder: str) -> int:
    """Bytes in files without a name any more that were below a host folder and that these processes hold open."""
    return _bytes_open(pids, lambda where: where.startswith(f"{folder}/") and where.endswith(" (deleted)"))


def may_hide_memory(pids: Iterable[int]) -> bool:
    """Whether these processes have what can hold shared memory that nothing shows.

    Sockets carry descriptors on their way from one process to another, and the pages of a shared mapping stay when the
    process gives them back.
    """
    for pid in pids:
        if any(where.startswith("socket:") for _, where in _open_files(pid)):
            return True
        try:
            with open(f"{PROC}/{pid}/maps", "rb") as stream:
                if any(b"s" in line.split(None, 2)[1] and b" (deleted)" in line for line in stream):
                    return True
        except (OSError, IndexError):  # it ended
            continue
    return False


def _bytes_open(pids: Iterable[int], counts: Callable[[str], bool]) -> int:
    """Bytes of those nameless files these processes hold open, each file once."""
    sizes: dict[tuple[int, int], int] = {}
    for pid in pids:
        for path, where in _open_files(pid):
            if not counts(where):
                continue
            try:
                info = os.stat(path)  # noqa: PTH116
            except OSError:  # closed in the meantime
                continue
            if stat.S_ISREG(info.st_mode) and info.st_nlink == 0:
                sizes[info.st_dev, info.st_ino] = info.st_blocks * _BLOCK
    return sum(sizes.values())


def _open_files(pid: int) -> Iterator[tuple[str, str]]:
    """The path of each open descriptor below ``/proc``, and where it leads."""
    try:
        names = os.listdir(f"{PROC}/{pid}/fd")  # noqa: PTH208
    except OSError:  # it ended
        return
    for name in names:
        path = f"{PROC}/{pid}/fd/{name}"
        try:
            where = os.readlink(path)  # noqa: PTH115
        except OSError:  # closed in the meantime
            continue
        yield path, where


def private_memory(pids: Iterable[int]) -> int:
    """Resident bytes of these processes that are in no file and not shared."""
    pages = 0
    for pid in pids:
        try:
            with open(f"{PROC}/{pid}/statm", "rb") as stream:
                fields = stream.read().split()
        except OSError:
            continue
        if len(fields) > 2:
            pages += int(fields[1]) - int(fields[2])
    return pages * os.sysconf("SC_PAGE_SIZE")
