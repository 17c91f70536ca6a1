"""Memory that is in no process: files without a name (memfd), which a script can fill without mapping them (row 7)."""

from __future__ import annotations

import os
from collections.abc import Iterable

from adk_skills_agent.sandbox.local.processes import PROC

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
    sizes: dict[tuple[int, int], int] = {}
    for pid in pids:
        try:
            names = os.listdir(f"{PROC}/{pid}/fd")  # noqa: PTH208
        except OSError:  # it ended
            continue
        for name in names:
            path = f"{PROC}/{pid}/fd/{name}"
            try:
                if os.readlink(path).startswith("/memfd:"):  # noqa: PTH115
                    info = os.stat(path)  # noqa: PTH116
                    sizes[info.st_dev, info.st_ino] = info.st_blocks * _BLOCK
            except OSError:  # closed in the meantime
                continue
    return sum(sizes.values())


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
