"""What a box itself can see of limits nobody outside tells it about: memory that ran out, file systems that are full.

Part of the program in a box (:mod:`.box_program`); see :mod:`.supervisor`.
"""

from __future__ import annotations

import os
import time

INTERVAL_SECONDS = 0.1
_LOOK_SECONDS = 0.005
_READ_BYTES = 4096
_OOM_KILLS = (
    ("/sys/fs/cgroup/memory.events", b"oom_kill ", 1),
    ("/sys/fs/cgroup/memory/memory.oom_control", b"oom_kill ", 1),
)
_CPU_MICROSECONDS = (
    ("/sys/fs/cgroup/cpuacct/cpuacct.usage", b"", 1000),
    ("/sys/fs/cgroup/cpu.stat", b"usage_usec ", 1),
)


class _Counter:
    """A number the box's group counts, asked for at each execution: its file stays open.

    Args:
        places: Where it may be: path, what its line begins with, and by what to divide.
    """

    def __init__(self, places: tuple[tuple[str, bytes, int], ...]) -> None:
        self._places = places
        self._descriptor = -1

    def read(self) -> int | None:
        """It, now; None where nothing counts."""
        for path, name, unit in self._places:
            try:
                if self._descriptor < 0:
                    self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                for line in os.pread(self._descriptor, _READ_BYTES, 0).splitlines():
                    if line.startswith(name):
                        self._places = ((path, name, unit),)
                        return int(line[len(name) :]) // unit
            except (OSError, ValueError):
                pass
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1
        self._places = ()
        return None


class Watch:
    """The limits of one box.

    Attributes:
        inodes: Most files and folders of each of these file systems; a tmpfs does not limit them everywhere.
    """

    def __init__(self) -> None:
        self.inodes: dict[str, int] = {}
        self._oom_kills, self._cpu = _Counter(_OOM_KILLS), _Counter(_CPU_MICROSECONDS)
        self._oom_before = 0
        self._cpu_before: int | None = None
        self._reaped_before = 0.0
        self._next = self._next_memory = 0.0

    def begin(self, *, of_command: bool) -> None:
        """An execution begins; what code of a session uses is counted by its own process."""
        self._oom_before = self._oom_kills.read() or 0
        if of_command:
            self._cpu_before = self._cpu.read()
            self._reaped_before = _reaped()[0]
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
        return (self._oom_kills.read() or 0) > self._oom_before

    def cpu_ms(self) -> float | None:
        """What everything in the box has used since then, where it has a group of its own that tells."""
        now = self._cpu.read()
        return None if now is None or self._cpu_before is None else (now - self._cpu_before) / 1000

    def reaped(self) -> dict[str, float]:
        """What the processes that ended since then have used, where no group of the box's own tells: time and peak."""
        seconds, most = _reaped()
        return {"cpu_ms": round((seconds - self._reaped_before) * 1000, 3), "rss": most}

    def overfull(self, at_once: bool = False) -> str | None:
        """A file system with too many files, looked for now and then, or ``at_once``."""
        now = time.monotonic()
        if not self.inodes or (now < self._next and not at_once):
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
        descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    except OSError:
        return
    try:
        os.write(descriptor, b"1000")
    except OSError:
        pass
    os.close(descriptor)


def _reaped() -> tuple[float, int]:
    """Seconds of processor time of all children that have ended, and the largest peak of one in bytes."""
    import resource

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime, used.ru_maxrss << 10
