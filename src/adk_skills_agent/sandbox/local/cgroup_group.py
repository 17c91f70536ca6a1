"""The control group of one run: made before it, limited when it is ready, read and removed after it; not used again."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.local import cgroup_files
from adk_skills_agent.sandbox.local.cgroup_hierarchy import Hierarchy

_ROUNDS = 50
_MYSELF = b"0"


@dataclass(frozen=True, slots=True)
class Counts:
    """What a group used.

    Attributes:
        cpu_seconds: See :meth:`Group.cpu_seconds`.
        peak_bytes: See :meth:`Group.peak_bytes`.
        ended: See :meth:`Group.ended`.
    """

    cpu_seconds: float | None
    peak_bytes: int | None
    ended: int


class Group(ABC):
    """A group in each tree of a hierarchy, all of the same name.

    Args:
        hierarchy: In whose folders it is made.
        name: Of its own folders; nobody else uses it.

    Raises:
        OSError: It cannot be made; then nothing is left of it.
    """

    def __init__(self, hierarchy: Hierarchy, name: str) -> None:
        self.name = name
        self.memory = f"{hierarchy.memory}/{name}"
        self.pids = f"{hierarchy.pids}/{name}"
        self.cpu = None if hierarchy.cpu is None else f"{hierarchy.cpu}/{name}"
        self._parents = hierarchy.folders
        self._counts: tuple[int | None, int | None, int] | None = None
        with contextlib.ExitStack() as undo:
            for folder in self._folders:
                os.mkdir(folder, 0o755)  # noqa: PTH102
                undo.callback(os.rmdir, folder)
            self._set_up()
            undo.pop_all()

    @contextlib.contextmanager
    def birthplace(self) -> Iterator[None]:
        """While it is held, processes started by this thread are born in the group, where the kernel can do that."""
        yield

    def doors(self) -> tuple[tuple[str, str], ...]:
        """Files a process writes "0" to in order to be in the group, and outside again; none where that is slow."""
        return ()

    def take_in(self, first: int) -> None:
        """Move a process and all below it into the group; nothing is done for those that were born there.

        A new child is born in its parent's group, so what is moved early brings the rest along; all are looked at
        again until none is outside.

        Raises:
            SandboxError: It is not possible, or they fork faster than they can be moved.
        """
        try:
            if self._contains(first):
                return
            for _ in range(_ROUNDS):
                outside = set(_tree(first)).difference(cgroup_files.processes(self.memory))
                if not outside:
                    return
                for pid in outside:
                    for folder in self._folders:
                        _move(pid, folder)
        except OSError as error:
            raise SandboxError(f"The sandbox could not be put into its control group: {error.strerror}.") from error
        raise SandboxError("The sandbox could not be put into its control group: its processes never stay the same.")

    def _contains(self, pid: int) -> bool:
        """Whether a process is in all of its folders, and with it, because nothing ever leaves, all below it."""
        where = f"/{self.name}\n"
        return cgroup_files.get(f"/proc/{pid}/cgroup").count(where) >= len(self._parents)

    def tasks(self) -> int:
        """Processes and threads in it."""
        return cgroup_files.number(f"{self.pids}/pids.current")

    def limit(self, memory_bytes: int | None, pids: int | None) -> None:
        """Bound memory (without swap) and the number of processes and threads; None leaves one unbounded.

        Raises:
            OSError: The kernel refused it.
        """
        if pids is not None:
            cgroup_files.put(f"{self.pids}/pids.max", str(pids))
        if memory_bytes is not None:
            self._limit_memory(memory_bytes)

    @abstractmethod
    def used_memory(self) -> int:
        """Bytes in use now."""

    @abstractmethod
    def cpu_seconds(self) -> float | None:
        """Processor time used until now; None where nothing counts it."""

    @abstractmethod
    def peak_bytes(self) -> int | None:
        """Most memory used at a time, files in memory and the kernel's share included; None where it is not kept."""

    @abstractmethod
    def ended(self) -> int:
        """How many processes the kernel ended for lack of memory."""

    def open_counts(self) -> None:
        """Open what :meth:`counts` reads, while nobody waits for it; undone by :meth:`close_counts`.

        Raises:
            OSError: The group is gone, or no descriptor is left.
        """
        with contextlib.ExitStack() as undo:
            found = []
            for path in self._counted:
                try:
                    found.append(None if path is None else cgroup_files.opened(path))
                except FileNotFoundError:  # an older kernel
                    found.append(None)
                if found[-1] is not None:
                    undo.callback(os.close, found[-1])
            cpu, peak, ended = found
            if ended is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            undo.pop_all()
        self._counts = cpu, peak, ended

    def counts(self) -> Counts:
        """All counts at once, for the one who may close them.

        Raises:
            OSError: The group is gone.
        """
        if self._counts is None:
            return Counts(self.cpu_seconds(), self.peak_bytes(), self.ended())
        cpu, peak, ended = self._counts
        return Counts(
            None if cpu is None else self._cpu_seconds_in(cgroup_files.now(cpu)),
            None if peak is None else int(cgroup_files.now(peak)),
            cgroup_files.value_in(cgroup_files.now(ended), "oom_kill"),
        )

    def close_counts(self) -> None:
        """Nobody asks for them any more; safe to call twice."""
        counts, self._counts = self._counts, None
        for descriptor in counts or ():
            if descriptor is not None:
                os.close(descriptor)

    @property
    @abstractmethod
    def _counted(self) -> tuple[str | None, str | None, str]:
        """The files of the processor time, the most memory and the processes that were ended."""

    @abstractmethod
    def _cpu_seconds_in(self, text: str) -> float:
        """From what the first of them holds."""

    def end_all(self) -> int:
        """Kill what is left in it without waiting; how many there were."""
        left = cgroup_files.processes(self.memory)
        for pid in left:
            _kill(pid, self.memory)
        return len(left)

    def remove(self) -> bool:
        """Remove it; False while something in it is still on its way out."""
        return all([remove_folder(folder) for folder in self._folders])  # noqa: C419  # each is tried

    @property
    def _folders(self) -> tuple[str, ...]:
        return tuple(f"{parent}/{self.name}" for parent in self._parents)

    @abstractmethod
    def _set_up(self) -> None:
        """Make the settings that never change."""

    @abstractmethod
    def _limit_memory(self, most: int) -> None:
        """Bound memory and leave no swap."""


class GroupOfVersion1(Group):
    """One folder for each controller.

    Moving a process costs 6 to 7 ms, because the kernel waits for all processors; a thread that moves itself costs a
    fortieth of that. So what starts a sandbox goes into the group for the moment of the start.
    """

    @contextlib.contextmanager
    def birthplace(self) -> Iterator[None]:
        """See :meth:`Group.birthplace`. Only this thread is moved, and back again.

        Raises:
            OSError: It could not be moved, or not back.
        """
        with contextlib.ExitStack() as opened:
            descriptors = []
            for path in itertools.chain.from_iterable(self.doors()):
                descriptors.append(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
                opened.callback(os.close, descriptors[-1])
            with contextlib.ExitStack() as moved:
                for way_in, way_out in zip(descriptors[::2], descriptors[1::2], strict=True):
                    moved.callback(os.write, way_out, _MYSELF)
                    os.write(way_in, _MYSELF)
                yield

    def doors(self) -> tuple[tuple[str, str], ...]:
        """See :meth:`Group.doors`."""
        pairs = zip(self._parents, self._folders, strict=True)
        return tuple((f"{folder}/tasks", f"{parent}/tasks") for parent, folder in pairs)

    def used_memory(self) -> int:
        """Bytes in use now."""
        return cgroup_files.number(f"{self.memory}/memory.usage_in_bytes")

    def cpu_seconds(self) -> float | None:
        """See :meth:`Group.cpu_seconds`."""
        path = self._counted[0]
        return None if path is None else self._cpu_seconds_in(cgroup_files.get(path))

    def peak_bytes(self) -> int | None:
        """See :meth:`Group.peak_bytes`."""
        return cgroup_files.number(self._counted[1])

    def ended(self) -> int:
        """See :meth:`Group.ended`."""
        return cgroup_files.value(self._counted[2], "oom_kill")

    @property
    def _counted(self) -> tuple[str | None, str, str]:
        cpu = None if self.cpu is None else f"{self.cpu}/cpuacct.usage"
        return cpu, f"{self.memory}/memory.max_usage_in_bytes", f"{self.memory}/memory.oom_control"

    def _cpu_seconds_in(self, text: str) -> float:
        return int(text) / 1e9

    def _set_up(self) -> None:
        """There are none."""

    def _limit_memory(self, most: int) -> None:
        cgroup_files.put(f"{self.memory}/memory.limit_in_bytes", str(most))
        try:
            cgroup_files.put(f"{self.memory}/memory.memsw.limit_in_bytes", str(most))  # memory and swap together
        except FileNotFoundError:  # a kernel without that count
            cgroup_files.put(f"{self.memory}/memory.swappiness", "0")


class GroupOfVersion2(Group):
    """One folder for all controllers."""

    def used_memory(self) -> int:
        """Bytes in use now."""
        return cgroup_files.number(f"{self.memory}/memory.current")

    def cpu_seconds(self) -> float | None:
        """See :meth:`Group.cpu_seconds`."""
        return self._cpu_seconds_in(cgroup_files.get(self._counted[0]))

    def peak_bytes(self) -> int | None:
        """See :meth:`Group.peak_bytes`; kept since Linux 5.19."""
        try:
            return cgroup_files.number(self._counted[1])
        except FileNotFoundError:
            return None

    def ended(self) -> int:
        """See :meth:`Group.ended`."""
        return cgroup_files.value(self._counted[2], "oom_kill")

    @property
    def _counted(self) -> tuple[str, str, str]:
        return f"{self.cpu}/cpu.stat", f"{self.memory}/memory.peak", f"{self.memory}/memory.events"

    def _cpu_seconds_in(self, text: str) -> float:
        return cgroup_files.value_in(text, "usage_usec") / 1e6

    def end_all(self) -> int:
        """Kill what is left in it without waiting, as one where the kernel can (Linux 5.14); how many there were."""
        left = len(cgroup_files.processes(self.memory))
        if left == 0:
            return 0
        try:
            cgroup_files.put(f"{self.memory}/cgroup.kill", "1")
        except FileNotFoundError:
            return super().end_all()
        return left

    def _set_up(self) -> None:
        cgroup_files.put(f"{self.memory}/memory.oom.group", "1")  # a run ends as a whole

    def _limit_memory(self, most: int) -> None:
        cgroup_files.put(f"{self.memory}/memory.max", str(most))
        with contextlib.suppress(FileNotFoundError):  # a kernel without swap
            cgroup_files.put(f"{self.memory}/memory.swap.max", "0")


def make_group(hierarchy: Hierarchy, name: str) -> Group:
    """A new group in a hierarchy of either version.

    Raises:
        OSError: It cannot be made.
    """
    return (GroupOfVersion1 if hierarchy.version == 1 else GroupOfVersion2)(hierarchy, name)


def remove_folder(folder: str) -> bool:
    """Remove a group's folder; False while something in it is still on its way out."""
    try:
        os.rmdir(folder)  # noqa: PTH106
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


def end_members(folder: str) -> None:
    """Kill the processes in a group's folder."""
    with contextlib.suppress(OSError):
        for pid in cgroup_files.processes(folder):
            _kill(pid, folder)


def _kill(pid: int, folder: str) -> None:
    """Kill a process if it is still in this group: its number may be another's by now."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if pid in cgroup_files.processes(folder):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except OSError:  # it ended, or the group did
        pass
    finally:
        os.close(pidfd)


def _move(pid: int, folder: str) -> None:
    try:
        cgroup_files.put(f"{folder}/cgroup.procs", str(pid))
    except ProcessLookupError:  # it ended
        pass


def _tree(first: int) -> Iterator[int]:
    """A process and all below it."""
    yield first
    try:
        threads = os.listdir(f"/proc/{first}/task")  # noqa: PTH208
    except OSError:
        return
    for thread in threads:
        with contextlib.suppress(OSError):
            for child in cgroup_files.get(f"/proc/{first}/task/{thread}/children").split():
                yield from _tree(int(child))
