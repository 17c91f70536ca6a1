"""What a box itself can see of limits nobody outside tells it about: memory that ran out, file systems that are full.

Part of the program in a box (:mod:`.box_program`); see :mod:`.supervisor`.
"""

from __future__ import annotations

import os
import time

INTERVAL_SECONDS = 0.1
_LOOK_SECONDS = 0.005
_EVENTS = (
    ("/sys/fs/cgroup/memory.events", "oom_kill "),
    ("/sys/fs/cgroup/memory/memory.oom_control", "oom_kill "),
)


class Watch:
    """The limits of one box.

    Attributes:
        inodes: Most files and folders of each of these file systems; a tmpfs does not limit them everywhere.
    """

    def __init__(self) -> None:
        self.inodes: dict[str, int] = {}
        self._oom_before = 0
        self._cpu_before: float | None = None
        self._next = self._next_memory = 0.0

    def begin(self) -> None:
        """An execution begins."""
        self._oom_before = _oom_kills()
        self._cpu_before = _cpu_seconds()
        self._next = self._next_memory = time.monotonic() + INTERVAL_SECONDS

    def has_lost_to_memory(self) -> bool:
        """The same as :meth:`ran_out_of_memory`, looked for now and then."""
        now = time.monotonic()
        if now < self._next_memory:
            return False
        self._next_memory = now + INTERVAL_SECONDS
        return self.ran_out_of_memory()

    def ran_out_of_memory(self) -> bool:
        """Whether the kernel ended a process of this box since then because its memory ran out."""
        return _oom_kills() > self._oom_before

    def cpu_ms(self) -> float | None:
        """What everything in the box has used since then, where it has a group of its own that tells."""
        now = _cpu_seconds()
        return None if now is None or self._cpu_before is None else round((now - self._cpu_before) * 1000, 3)

    def overfull(self) -> str | None:
        """A file system with too many files, looked for now and then."""
        now = time.monotonic()
        if not self.inodes or now < self._next:
            return None
        self._next = now + INTERVAL_SECONDS
        for path, most in self.inodes.items():
            try:
                found = os.statvfs(path)
            except OSError:
                continue
            if found.f_files - found.f_ffree > most:
                return path
        return None


def others(gone_within: float = 0.0) -> int:
    """Processes in the box besides this one and process 1 that have not ended.

    Args:
        gone_within: Seconds; what ends in them is not counted.
    """
    until = time.monotonic() + gone_within
    while (found := _living()) and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
    return found


def _living() -> int:
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit() and int(name) not in {1, os.getpid()}]
    except OSError:
        return 0
    count = 0
    for name in names:
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                count += file.read().rpartition(b") ")[2][:1] not in b"ZX"
        except OSError:
            continue  # ended meanwhile
    return count


def first_to_end() -> None:
    """When memory runs out the kernel takes this process, and not its supervisor."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass


def _cpu_seconds() -> float | None:
    try:
        with open("/sys/fs/cgroup/cpuacct/cpuacct.usage") as file:
            return int(file.read()) / 1e9
    except (OSError, ValueError):
        pass
    try:
        with open("/sys/fs/cgroup/cpu.stat") as file:
            for line in file:
                if line.startswith("usage_usec "):
                    return int(line.split()[1]) / 1e6
    except (OSError, ValueError):
        pass
    return None


def _oom_kills() -> int:
    for path, name in _EVENTS:
        try:
            with open(path) as file:
                lines = file.readlines()
        except OSError:
            continue
        for line in lines:
            if line.startswith(name):
                return int(line[len(name) :])
    return 0
