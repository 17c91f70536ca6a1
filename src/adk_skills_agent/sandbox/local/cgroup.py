"""The control group of one run: made before it, limited when it is ready, read and removed after it; not used again."""

from __future__ import annotations

import atexit
import contextlib
import errno
import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.platforms import PAGE_BYTES, own_groups
from adk_skills_agent.sandbox import threads
from adk_skills_agent.sandbox.contract import Status
from adk_skills_agent.sandbox.files.removal import is_gone, owner_name
from adk_skills_agent.sandbox.process.supervise import EndReport
from adk_skills_agent.sandbox.process.tree import children_of, kernel_setting, stat_fields
from adk_skills_agent.sandbox.threads import OnePerProcess

_ROUNDS = 50
_MYSELF = b"0"
_FIRST_TO_END = "1000"  # the highest oom_score_adj


@dataclass(frozen=True, slots=True)
class _Names:
    """Files of one version.

    ``swap`` says whether its limit is of memory and swap together, ``cpu`` has the key of its line and the units in a
    second.
    """

    used: str
    most: str
    swap: tuple[str, bool]
    peak: str
    ended: str
    cpu: tuple[str, str, float]


_VERSIONS = {
    1: _Names(
        "memory.usage_in_bytes",
        "memory.limit_in_bytes",
        ("memory.memsw.limit_in_bytes", True),
        "memory.max_usage_in_bytes",
        "memory.oom_control",
        ("cpuacct.usage", "", 1e9),
    ),
    2: _Names(
        "memory.current",
        "memory.max",
        ("memory.swap.max", False),
        "memory.peak",
        "memory.events",
        ("cpu.stat", "usage_usec", 1e6),
    ),
}


class ControlGroup:
    """A group in each tree of a hierarchy, all of the same name: one of version 2, or one a controller of version 1.

    Version 1 takes 6 to 7 ms to move a process, because the kernel waits for all processors; a thread that moves itself
    costs a fortieth of that. So there, what starts a sandbox goes into the group for the moment of the start.
    """

    def __init__(self, hierarchy: Hierarchy, name: str) -> None:
        self.name = name
        self.memory = f"{hierarchy.memory}/{name}"
        self.pids = f"{hierarchy.pids}/{name}"
        self.cpu = None if hierarchy.cpu is None else f"{hierarchy.cpu}/{name}"
        self._version = hierarchy.version
        self._names = _VERSIONS[hierarchy.version]
        self._memory_bytes: int | None = None
        self._cpu_before = 0.0
        self._pids: int | None = None
        self._refused_before = 0
        self._parents = hierarchy.folders
        self._folders = tuple(f"{parent}/{name}" for parent in self._parents)
        with contextlib.ExitStack() as undo:
            for folder in self._folders:
                os.mkdir(folder, 0o755)  # noqa: PTH102
                undo.callback(os.rmdir, folder)
            if self._version == 2:
                put(f"{self.memory}/memory.oom.group", "1")  # a run ends as a whole
            undo.pop_all()

    @contextlib.contextmanager
    def membership(self) -> Iterator[None]:
        """While it is held, processes started by this thread are in the group, where that is faster than a move."""
        with contextlib.ExitStack() as opened:
            descriptors = []
            for path in itertools.chain.from_iterable(self.task_files()):
                descriptors.append(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
                opened.callback(os.close, descriptors[-1])
            with contextlib.ExitStack() as moved:
                for way_in, way_out in zip(descriptors[::2], descriptors[1::2], strict=True):
                    moved.callback(os.write, way_out, _MYSELF)
                    os.write(way_in, _MYSELF)
                yield

    def task_files(self) -> tuple[tuple[str, str], ...]:
        """Files a thread writes "0" to in order to be in the group, and outside again; none for version 2."""
        if self._version == 2:
            return ()
        pairs = zip(self._parents, self._folders, strict=True)
        return tuple((f"{folder}/tasks", f"{parent}/tasks") for parent, folder in pairs)

    def take_in(self, first: int) -> None:
        """Move a process and all below it into the group; nothing is done for those that started there.

        A new child is in its parent's group, so what is moved early brings the rest along; all are looked at
        again until none is outside.
        """
        try:
            if self._contains(first):
                return
            for _ in range(_ROUNDS):
                outside = set(_tree(first)).difference(processes(self.memory))
                if not outside:
                    return
                for pid in outside:
                    for folder in self._folders:
                        _move_process(pid, folder)
        except OSError as error:
            raise SandboxError(f"The sandbox could not be put into its control group: {error.strerror}.") from error
        raise SandboxError("The sandbox could not be put into its control group: its processes never stay the same.")

    def _contains(self, pid: int) -> bool:
        """Whether a process is in all of its folders, and with it, because nothing ever leaves, all below it."""
        where = f"/{self.name}\n"
        return get(f"/proc/{pid}/cgroup").count(where) >= len(self._parents)

    def tasks(self) -> int:
        """Processes and threads in it."""
        return number(f"{self.pids}/pids.current")

    def limit(self, memory_bytes: int | None, pids: int | None) -> None:
        """Bound memory (without swap) and the number of processes and threads; None leaves one unbounded."""
        if pids is not None:
            put(f"{self.pids}/pids.max", str(pids))
        if memory_bytes is None:
            return
        put(f"{self.memory}/{self._names.most}", str(memory_bytes))
        # Version 1 counts the buffers of TCP apart (row 79), and a kernel may be built without that. All of the machine
        # together may have less than a run of memory: a quarter is enough for one (row 218).
        with contextlib.suppress(OSError):
            shared = kernel_setting("net/ipv4/tcp_mem", memory_bytes) * PAGE_BYTES // 4
            put(f"{self.memory}/memory.kmem.tcp.limit_in_bytes", str(min(memory_bytes, shared)))
        swap, together = self._names.swap
        try:
            put(f"{self.memory}/{swap}", str(memory_bytes) if together else "0")
        except FileNotFoundError:  # a kernel without swap, or without that count
            if together:
                put(f"{self.memory}/memory.swappiness", "0")

    def used_memory(self) -> int:
        """Bytes in use now."""
        return number(f"{self.memory}/{self._names.used}")

    def memory_of_its_own(self) -> int:
        """Bytes in use now that are not a copy of something on a disk."""
        kept = ("anon" if self._version == 2 else "rss", "shmem")
        return sum(value(f"{self.memory}/memory.stat", key) for key in kept)

    def tcp_bytes(self) -> int | None:
        """Bytes that its connections take of the kernel's memory, however little data they have; None if not known."""
        with contextlib.suppress(OSError, ValueError):
            if self._version == 2:
                return value(f"{self.memory}/memory.stat", "sock")
            # Nothing counts before a limit is set.
            return number(f"{self.memory}/memory.kmem.tcp.usage_in_bytes") or None
        return None

    def cpu_seconds(self) -> float | None:
        """Processor time used until now; None where nothing counts it."""
        if self.cpu is None:
            return None
        name, key, units = self._names.cpu
        path = f"{self.cpu}/{name}"
        return (value(path, key) if key else number(path)) / units

    def peak_bytes(self) -> int | None:
        """Most memory used at a time, files in memory and the kernel's share included; None before Linux 5.19 on v2."""
        try:
            return number(f"{self.memory}/{self._names.peak}")
        except FileNotFoundError:
            return None

    def _refused(self) -> int:
        """How many new processes and threads the kernel refused because there were ``pids`` already."""
        return value(f"{self.pids}/pids.events", "max")

    def ended(self) -> int:
        """How many processes the kernel ended for lack of memory."""
        return value(f"{self.memory}/{self._names.ended}", "oom_kill")

    def confine(self, first: int, memory_bytes: int | None, pids: int | None) -> None:
        """Put a run's limits on, before anything of its command is there.

        What is there then, the sandbox's own processes and their memory, does not count against the policy.

        Raises:
            SandboxError: Process 1 could not be moved into the group.
            OSError: The kernel refused a limit.
        """
        self._memory_bytes = memory_bytes
        self.take_in(first)
        self.limit(
            None if memory_bytes is None else memory_bytes + self.used_memory(),
            None if pids is None else pids + self.tasks() - len(children_of(first)),
        )
        # When memory runs out the kernel ends one process, and a run is to end as a whole: if it is process 1, all
        # others end with it. Version 2 can be told so; for version 1 this makes it likely, and beyond() sure.
        with contextlib.suppress(OSError):  # an agent without the right to
            put(f"/proc/{first}/oom_score_adj", _FIRST_TO_END)
        self._cpu_before = self.cpu_seconds() or 0.0
        self._pids, self._refused_before = pids, self._refused()

    def beyond(self) -> tuple[Status, str] | None:
        """Whether memory ran out and the kernel ended one process: the run is to end as a whole."""
        try:
            return (Status.OUT_OF_MEMORY, self._out_of_memory(self.peak_bytes())) if self.ended() else None
        except OSError:  # the run is over, and its group is gone
            return None

    def account(self, report: EndReport) -> None:
        """Put what the kernel counted for the run as a whole into the report."""
        cpu, peak = self.cpu_seconds(), self.peak_bytes()
        if cpu is not None:
            report.cpu_seconds = max(0.0, cpu - self._cpu_before)
        if peak is not None:
            report.max_rss = peak
        if refused := self._refused() - self._refused_before:
            what = "a new process or thread" if refused == 1 else f"{refused:,} new processes or threads"
            report.notes.append(f"The kernel refused it {what}: pids is {self._pids}.")
        if self.ended():
            report.cause = Status.OUT_OF_MEMORY
            report.notes.append(self._out_of_memory(peak))
            if report.status is None:
                report.status = int(signal.SIGKILL)

    def _out_of_memory(self, peak: int | None) -> str:
        most = self._memory_bytes
        if most is None or (peak is not None and peak < most):
            return "Stopped by the kernel: the memory of the machine, or of what the agent itself may use, ran out."
        return (
            f"Stopped by the kernel: its processes together needed more memory than memory_bytes, {most >> 20} MiB, "
            "files in memory included."
        )

    def end_all(self) -> int:
        """Kill what is left in it without waiting; how many there were."""
        left = processes(self.memory)
        if left and self._version == 2:
            with contextlib.suppress(FileNotFoundError):  # before Linux 5.14
                put(f"{self.memory}/cgroup.kill", "1")
                return len(left)
        for pid in left:
            _kill(pid, self.memory)
        return len(left)

    def remove(self) -> bool:
        """Remove it; False while something in it is still on its way out."""
        return all([remove_folder(folder) for folder in self._folders])  # noqa: C419  # each is tried


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
        for pid in processes(folder):
            _kill(pid, folder)


def _kill(pid: int, folder: str) -> None:
    """Kill a process if it is still in this group: its number may be another's by now."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if pid in processes(folder):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except OSError:  # it ended, or the group did
        pass
    finally:
        os.close(pidfd)


def _move_process(pid: int, folder: str) -> None:
    try:
        put(f"{folder}/cgroup.procs", str(pid))
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
            for child in get(f"/proc/{first}/task/{thread}/children").split():
                yield from _tree(int(child))


# Where this process may make control groups: below its own group, so that the limits of that one hold as well.
#
# Version 1 (and "hybrid" systems, where version 2 has no controllers) has a tree of groups for each controller.
# Version 2 has one tree, and a group that hands its controllers on must not have processes itself.

AGENT_GROUP = "adk-skills-runtime"
"""Version 2: where an agent that was alone in its group goes, so that the group can hand its controllers on."""

_NEEDED = ("memory", "pids")
_MOST_ANCESTORS = 100


def _fix() -> str:
    """The command that gives an agent a group of its own."""
    return (
        f"start the agent with systemd-run {'--user ' if os.geteuid() else ''}--scope -p Delegate=yes, then its command"
    )


class NoControlGroups(Exception):
    """None can be made here; the message is the reason as a clause, ``fix`` a command that would change it."""

    def __init__(self, reason: str, fix: str | None = None) -> None:
        super().__init__(reason)
        self.fix = fix


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Folders of this process's own groups, in which groups for runs can be made: by controller, None where nothing
    counts.
    """

    version: int
    memory: str
    pids: str
    cpu: str | None

    @property
    def folders(self) -> tuple[str, ...]:
        """All of them, each once; controllers of version 1 may be mounted together."""
        return tuple(dict.fromkeys(folder for folder in (self.memory, self.pids, self.cpu) if folder is not None))


def find_hierarchy() -> Hierarchy:
    """Where groups can be made. On version 2 this may hand controllers on, and move the agent into a group below.

    Raises:
        NoControlGroups: Nowhere, with the reason as a clause.
    """
    try:
        own = own_groups(get("/proc/self/cgroup"), get("/proc/self/mountinfo"))
    except OSError as error:
        raise NoControlGroups(f"this system shows no control groups ({error.strerror})") from error
    if all(name in own for name in _NEEDED):
        return _version_1(own)
    if "" in own:
        return _version_2(own[""])
    raise NoControlGroups("the agent's memory and pids groups are not mounted where it could see them")


def _version_1(own: Mapping[str, str]) -> Hierarchy:
    found = Hierarchy(1, own["memory"], own["pids"], own.get("cpuacct"))
    for folder in found.folders:
        _check_writable(folder, "tasks")
    return found


def _version_2(own: str) -> Hierarchy:
    # An agent that stepped aside, or a child of it, finds the groups where it came from.
    folder = os.path.dirname(own) if os.path.basename(own) == AGENT_GROUP else own  # noqa: PTH119, PTH120
    _check_writable(folder, "cgroup.procs")
    _check_writable(folder, "cgroup.subtree_control")
    available = get(f"{folder}/cgroup.controllers").split()
    lacking = [name for name in _NEEDED if name not in available]
    if lacking:
        raise NoControlGroups(
            f"the agent's group has no {' and no '.join(lacking)} controller; it needs a group of its own", _fix()
        )
    given = get(f"{folder}/cgroup.subtree_control").split()
    if not set(_NEEDED).issubset(given):
        _hand_on(folder)
    return Hierarchy(2, folder, folder, folder)


def _check_writable(folder: str, name: str) -> None:
    """Tried out, because a mode says nothing about a read-only mount or a namespace."""
    try:
        os.close(os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CLOEXEC))
    except OSError as error:
        # Without the folder: the reason may reach a model.
        reason = f"control groups are not writable here: {name}: {error.strerror}"
        raise NoControlGroups(reason, _fix() if name == "cgroup.procs" and _has_systemd() else None) from error


def _has_systemd() -> bool:
    return os.path.isdir("/run/systemd/system")  # noqa: PTH112


def _hand_on(folder: str) -> None:
    text = " ".join(f"+{name}" for name in _NEEDED)  # every group counts processor time, without a controller
    try:
        put(f"{folder}/cgroup.subtree_control", text)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise NoControlGroups(f"the agent's group cannot hand its controllers on ({error.strerror})") from error
    else:
        return
    moved = _step_aside(folder)
    try:
        put(f"{folder}/cgroup.subtree_control", text)
    except OSError as error:
        for pid in moved:
            _move_all(pid, folder)
        raise NoControlGroups(f"the agent's group cannot hand its controllers on ({error.strerror})") from error


def _step_aside(folder: str) -> list[int]:
    """Move the agent and its children into a group below; only when nobody else is in its group."""
    present = processes(folder)
    if strangers := [pid for pid in present if not _descends(pid, os.getpid())]:
        raise NoControlGroups(
            f"the agent's group has other processes ({len(strangers)}), so its controllers cannot be handed on; it "
            "needs a group of its own",
            _fix(),
        )
    leaf = f"{folder}/{AGENT_GROUP}"
    try:
        os.makedirs(leaf, exist_ok=True)  # noqa: PTH103
    except OSError as error:
        raise NoControlGroups(f"no group can be made below the agent's ({error.strerror})") from error
    return [pid for pid in present if _move_all(pid, leaf)]


def _move_all(pid: int, folder: str) -> bool:
    try:
        put(f"{folder}/cgroup.procs", str(pid))
    except OSError:  # it ended meanwhile; if not, handing on fails and says so
        return False
    return True


def _descends(pid: int, ancestor: int) -> bool:
    for _ in range(_MOST_ANCESTORS):
        if pid in {0, 1, ancestor}:
            break
        fields = stat_fields(pid)
        if fields is None:
            return True  # it ended, and is in nobody's way
        pid = int(fields[1])
    return pid == ancestor


# Read and write the one-line files control groups are made of.

_MOST_BYTES = 1 << 16


def put(path: str, text: str) -> None:
    """Write a setting, in one piece as the kernel demands."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def get(path: str) -> str:
    """The content of a file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        said = b""
        while data := os.read(descriptor, _MOST_BYTES):
            said += data
    finally:
        os.close(descriptor)
    return said.decode("ascii", "replace")


def number(path: str) -> int:
    """A file that holds one number."""
    return int(get(path))


def value(path: str, key: str) -> int:
    """The number after a key in a file of ``key number`` lines; 0 when there is no such line."""
    for line in get(path).splitlines():
        name, _, rest = line.partition(" ")
        if name == key:
            return int(rest)
    return 0


def processes(folder: str) -> list[int]:
    """The processes of a group, those of groups below it not included."""
    return [int(line) for line in get(f"{folder}/cgroup.procs").split()]


# The groups of this agent: each is made for one run and removed after it.
#
# A group's name tells whose it is, so that the groups of an agent that was killed are found and removed by the next
# one: see :mod:`.removal`.

PREFIX = "adk-skills"
_FIRST_PAUSE_SECONDS = 0.0005
_EXIT_SECONDS = 2.0


class GroupPool:
    """Makes and removes groups in one hierarchy."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._hierarchy = hierarchy
        self._owner = _owner()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._used: list[ControlGroup] = []
        remove_stale(hierarchy)

    @property
    def version(self) -> int:
        """Of the control groups: 1 or 2."""
        return self._hierarchy.version

    def take(self) -> ControlGroup:
        """A group nobody used before."""
        return ControlGroup(self._hierarchy, f"{PREFIX}.{self._owner}.{next(self._numbers)}")

    def give_back(self, group: ControlGroup) -> None:
        """Have a group removed as soon as nothing is in it any more; never blocks."""
        with self._lock:
            self._used.append(group)
        threads.later(self.close)

    def close(self) -> None:
        """Remove what was given back; what is still busy after some time is tried again with the next."""
        with self._lock:
            used, self._used = self._used, []
        left = _remove_all(used)
        with self._lock:
            self._used += left


def remove_stale(hierarchy: Hierarchy) -> None:
    """End and remove what agents left behind that were killed; what will not end stays for the next agent."""
    deadline = time.monotonic() + _EXIT_SECONDS
    for parent in hierarchy.folders:
        try:
            names = os.listdir(parent)  # noqa: PTH208
        except OSError:
            continue
        for name in names:
            if name.startswith(f"{PREFIX}.") and _is_stale(name):
                end_members(f"{parent}/{name}")
                with contextlib.suppress(OSError):
                    while not remove_folder(f"{parent}/{name}") and time.monotonic() < deadline:
                        time.sleep(_FIRST_PAUSE_SECONDS)


def _owner() -> str:
    owner = owner_name()
    if owner is None:
        raise SandboxError(
            "Control groups cannot be used: /proc does not say which process this is and when it started."
        )
    return owner.replace("-", ".")


def _is_stale(name: str) -> bool:
    parts = name.split(".")
    return len(parts) == 5 and all(part.isdigit() for part in parts[2:]) and is_gone(*parts[1:4])


def _removed(group: ControlGroup) -> bool:
    try:
        return group.remove()
    except OSError:
        return False


def _remove_all(groups: list[ControlGroup]) -> list[ControlGroup]:
    """Those that are still there after :data:`_EXIT_SECONDS`."""
    deadline = time.monotonic() + _EXIT_SECONDS
    pause = _FIRST_PAUSE_SECONDS
    while (groups := [group for group in groups if not _removed(group)]) and time.monotonic() < deadline:
        time.sleep(pause)
        pause *= 2
    return groups


def group_of_run() -> ControlGroup:
    """A group for a sandbox, which is started in it and then limited; a SandboxError when there is none to be had."""
    try:
        return group_pool().take()
    except (NoControlGroups, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SandboxError(f"No control group could be made for the run: {reason}.") from error


group_pool = OnePerProcess(lambda: GroupPool(find_hierarchy()))
"""This process's groups; the first call raises what :class:`GroupPool` does, or ``NoControlGroups`` with the reason."""


def _close() -> None:
    if (pool := group_pool.made) is not None:
        pool.close()


atexit.register(_close)
