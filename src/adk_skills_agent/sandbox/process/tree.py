"""Which processes belong to a run, as far as the system shows it, what they use, and their end.

A run is a session of its own, so its group can be killed as a whole. A process that made itself another session is
recognised, on Linux, by the run's variable in its environment, its working directory, or a pipe of the run it holds.
That is best effort: a process that gives up all three is not found, and is the reason for the stronger levels.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from adk_skills_agent.platforms import PAGE_BYTES, own_groups
from adk_skills_agent.sandbox.process.command import RUN_ID_VARIABLE
from adk_skills_agent.sandbox.process.system_calls import NUMBERS
from adk_skills_agent.sandbox.threads import MAX_RUNNING, RUNNING

PROC = "/proc"
LEAVING_SECONDS = 0.05
"""How long a process that has closed the pipes may take to be gone before it counts as one left behind."""

_ROUNDS = 12
_FIRST_PAUSE = 0.002
_DYING_SECONDS = 1.0  # what a killed process may take; one that takes longer hangs in the kernel
# In a run shorter than this the kernel cannot have used up all process ids and started over, so whatever the run
# started has a higher id than its first process.
_NO_WRAP_SECONDS = 1.0
ENVIRONMENT_BYTES = 1 << 20
_KCMP_VM = 1
_MANY = 2000  # from this many ids on, listing what exists is cheaper than trying each


@dataclass(frozen=True, slots=True)
class RunMarks:
    """What a process of a run can be recognised by.

    Attributes:
        pid: The command: leader of the run's session and group.
        run_id: Value of the run's variable.
        root: Host folder of the run; a process inside it belongs to the run.
        pipes: Inodes of its output pipes.
        started: ``time.monotonic()`` of its start.
    """

    pid: int
    run_id: str
    root: str
    pipes: frozenset[int] = frozenset()
    started: float = 0.0


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """One line of ``/proc/PID/stat``.

    Attributes:
        system_ticks: Those of ``cpu_ticks`` that the kernel worked.
        shown: The number below ``/proc`` that shows what the process holds: its own, or that of a thread that goes on
            when its first one has ended, with which all of it seems to be gone (row 246).
    """

    pid: int
    state: str
    parent: int
    group: int
    session: int
    threads: int
    start: int
    rss_pages: int
    cpu_ticks: int
    system_ticks: int
    shown: int

    @property
    def alive(self) -> bool:
        """Not a zombie; one of which threads go on is none."""
        return self.state not in "ZXx" or self.threads > 1


def signal_group(pid: int, number: int) -> None:
    """Signal the whole group of a command that has not been waited for, so that its id cannot be another's."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return
    except PermissionError:
        return  # macOS says so for a group of zombies; on Linux every member changed its user


def stat_fields(pid: int) -> list[bytes] | None:
    """``/proc/PID/stat`` from the state on, which comes third; None when the process is gone."""
    try:
        descriptor = os.open(f"{PROC}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        line = os.read(descriptor, 4096)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    # The name in parentheses may contain anything, also parentheses and spaces.
    return line[line.rfind(b")") + 2 :].split()


def process_info(pid: int) -> ProcessInfo | None:
    """What the system says about a process; None when it is gone."""
    fields = stat_fields(pid)
    if fields is None:
        return None
    shown = pid
    if fields[0] in b"ZXx" and int(fields[17]) > 1 and (living := _living_thread(pid)) is not None:
        shown, fields[21] = living
    return ProcessInfo(
        pid=pid,
        state=fields[0].decode("ascii"),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        threads=int(fields[17]),
        start=int(fields[19]),
        rss_pages=int(fields[21]),
        cpu_ticks=sum(map(int, fields[11:15])),  # its own and that of children it has waited for
        system_ticks=int(fields[12]) + int(fields[14]),
        shown=shown,
    )


def _living_thread(pid: int) -> tuple[int, bytes] | None:
    """A thread of a process whose first one has ended, and its resident pages; threads may come and go all the time."""
    for _ in range(_ROUNDS):
        with contextlib.suppress(OSError):
            for thread in map(int, os.listdir(f"{PROC}/{pid}/task")):  # noqa: PTH208
                if (fields := stat_fields(thread)) is not None and fields[0] not in b"ZXx":
                    return thread, fields[21]
    return None


def all_processes() -> Iterator[ProcessInfo]:
    """Every process that can be seen."""
    try:
        names = os.listdir(PROC)  # noqa: PTH208
    except OSError:
        return
    for name in names:
        if name.isdigit() and (info := process_info(int(name))) is not None:
            yield info


def run_members(marks: RunMarks) -> list[ProcessInfo]:
    """The live processes of a run, without its command."""
    suspects = _suspects(marks)
    parents = {marks.pid}
    found: dict[int, ProcessInfo] = {}
    for info in suspects:
        if not info.alive or info.pid in {marks.pid, os.getpid()}:
            continue
        if marks.pid in {info.session, info.group} or info.parent in parents or _is_marked(info, marks):
            found[info.pid] = info
            parents.add(info.pid)
    return list(found.values())


def end_run(marks: RunMarks, *, leaving: bool = False) -> tuple[int, int, frozenset[tuple[int, int]]]:
    """Kill everything of a run. The command itself should not have been waited for yet, so that its id is its own.

    ``leaving`` says that it has ended and the pipes are closed, so that what is still there may just be ending.

    Returns:
        How many processes besides the command were still alive, how many are left, and for :func:`reap_adopted` the
        former's ids and starts.
    """
    met: set[tuple[int, int]] = set()
    pause = _FIRST_PAUSE
    patience = time.monotonic() + LEAVING_SECONDS if leaving else 0.0
    for attempt in range(_ROUNDS):
        members = run_members(marks)
        while members and time.monotonic() < patience:
            time.sleep(_FIRST_PAUSE)
            members = run_members(marks)
        signal_group(marks.pid, signal.SIGKILL)
        if not members:
            return len(met), 0, frozenset(met)
        met.update((info.pid, info.start) for info in members)
        strangers = [info for info in members if info.group != marks.pid]
        if strangers:
            # First all stop, so that none can start another while the others are being killed.
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for info in strangers:
                    _signal_exactly(info, number)
        if attempt + 1 < _ROUNDS:
            time.sleep(pause)
            pause = min(pause * 2, 0.1)
    return len(met), len(run_members(marks)), frozenset(met)


def reap_adopted(group: int, killed: Collection[tuple[int, int]]) -> None:
    """Wait for the run's dead that became our children, because the agent is process 1 or a subreaper (row 31).

    ``killed`` are ids and starts of processes that were killed outside of the run's group, too.
    """
    # A killed process loses what it is recognised by a moment before it is dead.
    deadline = time.monotonic() + _DYING_SECONDS
    while any(map(_is_alive, killed)) and time.monotonic() < deadline:
        time.sleep(_FIRST_PAUSE)
    for which in (-group, *(pid for pid, _ in killed)):
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(which, os.WNOHANG)[0] > 0:
                pass


def _is_alive(process: tuple[int, int]) -> bool:
    info = process_info(process[0])
    return info is not None and info.start == process[1] and info.alive


def _suspects(marks: RunMarks) -> Iterator[ProcessInfo]:
    """Every process that may be the run's, parents before children.

    One that is dead when it is looked at may have started another a moment before; that one has an id higher than all
    there were at the beginning, so new ids are looked at until there are none.
    """
    last = _last_pid()
    young = time.monotonic() - marks.started < _NO_WRAP_SECONDS
    if young and last is not None and 0 <= last - marks.pid <= _MANY:
        done = marks.pid - 1
    else:
        yield from all_processes()
        done, last = last or 0, _last_pid()
    for _ in range(_ROUNDS):
        if last is None or not done < last <= done + _MANY:  # none is new; so many are never one run's in a moment
            return
        for pid in range(done + 1, last + 1):
            if (info := process_info(pid)) is not None:
                yield info
        done, last = last, _last_pid()


def _last_pid() -> int | None:
    """The id the kernel gave out last, in our PID namespace."""
    try:
        return int(text_of(f"{PROC}/loadavg").split()[-1])
    except (ValueError, IndexError):
        return None


def _is_marked(info: ProcessInfo, marks: RunMarks) -> bool:
    if f"{RUN_ID_VARIABLE}={marks.run_id}".encode() in text_of(f"{PROC}/{info.pid}/environ", ENVIRONMENT_BYTES):
        return True
    try:
        where = os.readlink(f"{PROC}/{info.pid}/cwd")  # noqa: PTH115
        if where == marks.root or where.startswith(f"{marks.root}/"):
            return True
    except OSError:
        return False  # it ended, or it is another user's
    return bool(marks.pipes) and _holds(info.pid, marks.pipes)


def _holds(pid: int, pipes: frozenset[int]) -> bool:
    """Whether a process can write to a pipe of the run. One that can also read it is a fork of the agent, not ours."""
    names = {f"pipe:[{inode}]" for inode in pipes}
    writes = False
    try:
        for descriptor in os.listdir(f"{PROC}/{pid}/fd"):  # noqa: PTH208
            path = f"{PROC}/{pid}/fd/{descriptor}"
            try:
                if os.readlink(path) in names:  # noqa: PTH115
                    if os.lstat(path).st_mode & 0o400:
                        return False
                    writes = True
            except OSError:  # closed in the meantime
                continue
    except OSError:
        return False
    return writes


def _signal_exactly(info: ProcessInfo, number: int) -> None:
    """Signal this process and never another one that got its id."""
    try:
        descriptor = os.pidfd_open(info.pid)
    except (AttributeError, OSError):
        current = process_info(info.pid)
        if current is not None and current.start == info.start:
            with contextlib.suppress(OSError):
                os.kill(info.pid, number)
        return
    try:
        current = process_info(info.pid)
        if current is not None and current.start == info.start:
            signal.pidfd_send_signal(descriptor, number)
    except OSError:
        return  # it ended by itself
    finally:
        os.close(descriptor)


# Who is in a sandbox, seen from outside, and what it has used.

_EXITING = 0x4  # the kernel's PF_EXITING
_KILLED = 1 << 8  # SIGKILL, pending


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


def is_ending(pid: int) -> bool:
    """Whether a process was killed, is on its way out or is gone, though it may not look dead yet."""
    fields = stat_fields(pid)
    if fields is not None and fields[0] in b"ZXx" and int(fields[17]) > 1:
        return False  # its first thread alone has ended
    return fields is None or fields[0] in b"ZXx" or bool(int(fields[6]) & _EXITING or int(fields[28]) & _KILLED)


def cpu_seconds(pid: int) -> float:
    """Processor time of another process until now, by its clock."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def children_of(pid: int) -> list[int]:
    """The processes whose parent is this one's main thread; empty when it is gone."""
    try:
        descriptor = os.open(f"/proc/{pid}/task/{pid}/children", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        return [int(child) for child in os.read(descriptor, 1 << 16).split()]
    except OSError:
        return []
    finally:
        os.close(descriptor)


# What processes and the whole machine use, also where no limit of the kernel counts it: files in memory without a name
# (memfd), which a script can fill without mapping them (row 7), and files it deleted and still has open (row 11), among
# much else. Numbers are of one moment: a process that ends meanwhile counts as nothing.

EVERYTHING = 1 << 62
"""Bytes where nothing says how many."""
LOOK_SECONDS = 0.2
"""How long at most one look goes through files, or through mappings and descriptors for them."""

ADDING_SECONDS = 0.03
# What takes the machine's memory and says so.
_NAMED = frozenset(
    b"MemFree Buffers Cached SwapCached AnonPages Slab KernelStack PageTables SecPageTables Percpu".split()
)
_PINNED = (b"KernelStack", b"PageTables", b"SecPageTables", b"Percpu")  # the kernel's, and not to be given back
_OTHER_LINES = frozenset(b"MemTotal MemAvailable SwapTotal SwapFree Shmem SUnreclaim".split())
_SCARCE_BYTES = 256 << 20  # twice what one run made the kernel keep between two looks; on small machines a 32nd
MAPS_BYTES = 1 << 17  # the text of a thousand mappings or more; few programs have so many
_AVAILABLE = re.compile(rb"^MemAvailable: +([0-9]+)", re.MULTILINE)
_KEPT_PAGES = re.compile(rb"^ +count: +([0-9]+)$", re.MULTILINE)
ZONES_BYTES = 1 << 22  # a hundred for each processor and zone


@dataclass(frozen=True, slots=True)
class MachineMemory:
    """Memory of the whole machine that no process has as its own: cheap to read, and a reason to look closer.

    Attributes:
        shared: Bytes in files in memory and shared mappings.
        page_tables: Bytes in page tables.
        kernel: Bytes the kernel cannot give back or has no name for, as buffers of sockets and lists of mappings.
        available: Bytes that programs can still get, also of those that the agent's control group may have.
        is_scarce: Whether that is so little that the kernel is about to end processes.
        swapped: Bytes that were swapped out.
    """

    shared: int = 0
    page_tables: int = 0
    kernel: int = 0
    available: int = 0
    is_scarce: bool = False
    swapped: int = 0

    def lowest(self, other: MachineMemory) -> MachineMemory:
        """The lower of both, each number for itself."""
        return MachineMemory(
            min(self.shared, other.shared),
            min(self.page_tables, other.page_tables),
            min(self.kernel, other.kernel),
            min(self.available, other.available),
            self.is_scarce and other.is_scarce,
            min(self.swapped, other.swapped),
        )


def machine_memory() -> MachineMemory:
    """What it is now; zeros where the system does not say."""
    found: dict[bytes, int] = {}
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"{PROC}/meminfo", "rb") as stream:
        for line in stream:
            name, _, rest = line.partition(b":")
            if name in _NAMED or name in _OTHER_LINES:
                found[name] = int(rest.split()[0]) * 1024
    # The data of large messages is in pages that no line counts. Nor does one count the free pages that each processor
    # keeps: gigabytes, up to an eighth of the memory, which come and go with what anybody lets go of (row 217).
    kept = sum(map(int, _KEPT_PAGES.findall(text_of(f"{PROC}/zoneinfo", ZONES_BYTES)))) * PAGE_BYTES
    unnamed = found.get(b"MemTotal", 0) - sum(found.get(name, 0) for name in _NAMED) - kept
    kernel = found.get(b"SUnreclaim", 0) + max(unnamed, 0)
    available = found.get(b"MemAvailable", EVERYTHING) + found.get(b"SwapFree", 0)
    is_scarce = available < min(_SCARCE_BYTES, found.get(b"MemTotal", 0) // 32)
    left, most = group_memory(kernel + sum(found.get(name, 0) for name in _PINNED))
    left += found.get(b"SwapFree", 0)
    available, is_scarce = min(available, left), is_scarce or left < min(_SCARCE_BYTES, most // 16)
    swapped = found.get(b"SwapTotal", 0) - found.get(b"SwapFree", 0)
    return MachineMemory(found.get(b"Shmem", 0), found.get(b"PageTables", 0), kernel, available, is_scarce, swapped)


def memory_left() -> int:
    """Bytes of the machine's memory that programs can still get."""
    found = _AVAILABLE.search(text_of(f"{PROC}/meminfo"))
    return EVERYTHING if found is None else int(found[1]) * 1024


# What the control group leaves this process, as a container has one, where /proc/meminfo shows the whole machine.


def group_memory(pinned: int) -> tuple[int, int]:
    """Bytes that programs can still get in the memory group of this process, and how many it may have at most; those of
    the group above where that leaves less. :data:`EVERYTHING` where nothing limits it. ``pinned`` are bytes that the
    kernel has of the whole machine and cannot give back.

    Names of files that were asked for, and what is known of files, fill a group, and are given back when memory is
    needed (row 392). Version 1 counts them with the kernel's other memory: that is what the whole machine has more of
    than at the first look, at most.
    """
    least, most = EVERYTHING, EVERYTHING
    for folder, version in _limited_groups():
        names = _GROUP_FILES[version]
        with contextlib.suppress(ValueError):  # there is no limit any more
            limit, used = (int(text_of(f"{folder}/{name}")) for name in names[:2])
            counts = dict(line.split() for line in text_of(f"{folder}/memory.stat").splitlines())
            left = limit - used + sum(int(counts.get(name.encode(), 0)) for name in names[2:])
            if version == 1:
                kernel = int(text_of(f"{folder}/memory.kmem.usage_in_bytes") or 0)
                left += max(kernel - max(pinned - _pinned_at_first.setdefault(folder, pinned), 0), 0)
            least, most = min((least, most), (left, limit))
    return max(least, 0), most


_pinned_at_first: dict[str, int] = {}  # by group: what the agent itself had then is little


# The limit of a group, what is used of it, and what of that can be given back; by version.
_GROUP_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file"),
    2: ("memory.max", "memory.current", "inactive_file", "active_file", "slab_reclaimable"),
}


@functools.lru_cache(maxsize=1)
def _limited_groups() -> tuple[tuple[str, int], ...]:
    """Folders of the groups of this process that have a limit of memory, and their version."""
    return _groups_with("memory", {version: names[0] for version, names in _GROUP_FILES.items()})


@functools.lru_cache(maxsize=1)
def _groups_with_pids() -> tuple[tuple[str, int], ...]:
    return _groups_with("pids", {1: "pids.max", 2: "pids.max"})


def _groups_with(controller: str, limit_files: Mapping[int, str]) -> tuple[tuple[str, int], ...]:
    """Folders of this process's group and of those above it that can be seen, as far as they have this limit, and their
    version.
    """
    groups, mounts = (os.fsdecode(text_of(f"{PROC}/self/{name}", ZONES_BYTES)) for name in ("cgroup", "mountinfo"))
    own: dict[str, str] = {}
    with contextlib.suppress(ValueError):  # a line this does not understand
        own = own_groups(groups, mounts)
    version, folder = (1, own[controller]) if controller in own else (2, own.get("", ""))
    found = []
    while len(folder) > 1:
        with contextlib.suppress(ValueError):  # "max", or no group
            if int(text_of(f"{folder}/{limit_files[version]}")) < EVERYTHING:
                found.append((folder, version))
        folder = os.path.dirname(folder)  # noqa: PTH120
    return tuple(found)


def tasks_left() -> tuple[int, int]:
    """How many processes and threads the groups around this process still allow, and how many at most;
    :data:`EVERYTHING` where nothing limits them.
    """
    least, most = EVERYTHING, EVERYTHING
    for folder, _ in _groups_with_pids():
        with contextlib.suppress(ValueError):  # there is no limit any more
            limit, there = (int(text_of(f"{folder}/pids.{name}")) for name in ("max", "current"))
            least, most = min((least, most), (limit - there, limit))
    return max(least, 0), most


_KEPT, _KEPT_SHARE = 256, 4  # processes, or one in so many where there are few
_OF_A_SANDBOX = 4  # processes of a run that are ours


def bound_running(pids: int | None) -> None:
    """Before a run waits for its place: let fewer go on at a time where the container around the agent has no room for
    the processes of more of them (row 411).
    """
    most = tasks_left()[1]
    if most < EVERYTHING and pids is not None and (places := places_for(most, pids)) < RUNNING.places:
        RUNNING.resize(places)


def places_for(most: int, pids: int) -> int:
    """How many runs of ``pids`` processes may go on at a time where there may be ``most`` of all programs."""
    return max(1, min(MAX_RUNNING, (most - kept_of(most)) // (pids + _OF_A_SANDBOX)))


def kept_of(most: int) -> int:
    """How many processes are kept for the agent and for new runs."""
    return min(_KEPT, most // _KEPT_SHARE)


def machine_files() -> tuple[int, int]:
    """How many files all programs of the machine have open together, and may have."""
    try:
        there, _, most = map(int, text_of(f"{PROC}/sys/fs/file-nr").split())
    except ValueError:
        return 0, EVERYTHING
    return there, most


def mapped_files(pids: Iterable[int], enough: int) -> int:
    """Mappings of files in these processes, each of which may keep one open that has no descriptor; no further than
    ``enough``.
    """
    found = 0
    for pid in pids:
        with contextlib.suppress(OSError), open(f"{PROC}/{pid}/maps", "rb") as stream:  # it ended
            while found <= enough and (text := stream.read(MAPS_BYTES)):
                found += text.count(b" /")
    return found


def most_mapped(pids: Iterable[int], folders: Iterable[str], enough: int) -> int:
    """How often these processes have mapped the file below these folders that they have mapped most often, no further
    than ``enough``, nor longer than :data:`LOOK_SECONDS`. A process that does not show its own counts as half of that.
    """
    places = "|".join(re.escape(folder) for folder in folders)
    below = re.compile(rf" ([0-9a-f]+:[0-9a-f]+ \d+) +(?:{places})/".encode())
    times: Counter[bytes] = Counter()  # by device and number, which a link does not change
    found, hidden, until = 0, 0, time.monotonic() + LOOK_SECONDS
    for pid in pids:
        try:
            with open(f"{PROC}/{pid}/maps", "rb") as stream:
                while found + hidden <= enough and (text := stream.read(MAPS_BYTES)):
                    times.update(below.findall(text))
                    found = max(times.values(), default=0)
        except PermissionError:
            hidden += enough // 2
        except OSError:  # it ended
            continue
        if found + hidden > enough or time.monotonic() > until:
            break
    return found + hidden


def page_tables(pids: Iterable[int]) -> int:
    """Bytes in the page tables of these processes."""
    return status_bytes(pids, b"VmPTE:")


def swapped_out(pids: Iterable[int]) -> int:
    """Bytes of these processes' own memory that were swapped out."""
    return status_bytes(pids, b"VmSwap:")


def status_bytes(pids: Iterable[int], *names: bytes) -> int:
    """The sum of these lines of ``/proc/PID/status`` of each of these processes, in bytes."""
    lines = (line for pid in pids for line in text_of(f"{PROC}/{pid}/status").splitlines() if line.startswith(names))
    return sum(int(line.split()[1]) for line in lines) * 1024


def text_of(path: str, most_bytes: int = MAPS_BYTES) -> bytes:
    """The beginning of a file of ``/proc``; empty when its process has ended."""
    with contextlib.suppress(OSError), open(path, "rb") as stream:
        return stream.read(most_bytes)
    return b""


def tcp_sockets(pid: int) -> int:
    """TCP sockets in the network namespace of a process, with those that nobody has accepted or that are closing."""
    found = 0
    for name in ("sockstat", "sockstat6"):
        for line in text_of(f"{PROC}/{pid}/net/{name}").splitlines():
            if line.startswith((b"TCP: inuse ", b"TCP6: inuse ")):
                found += int(line.split()[2])
    return found


def tcp_of_machine() -> tuple[int, int]:
    """Pages that the TCP connections of all network namespaces have, and how many that are closed still send."""
    for line in text_of(f"{PROC}/net/sockstat").splitlines():
        if line.startswith(b"TCP: inuse "):
            fields = line.split()
            numbers = dict(zip(fields[1::2], fields[2::2], strict=False))
            return int(numbers.get(b"mem", 0)), int(numbers.get(b"orphan", 0))
    return 0, 0


@functools.lru_cache(maxsize=32)
def kernel_setting(name: str, usual: int) -> int:
    """A number among the kernel's settings, by its place below ``/proc/sys``; the last one of several.

    ``usual`` where the system does not say.
    """
    try:
        return int(text_of(f"{PROC}/sys/{name}").split()[-1])
    except (ValueError, IndexError):
        return usual


def private_memory(pids: Iterable[int]) -> int:
    """Resident bytes of these processes that are in no file and not shared."""
    return sum(resident - shared for _, resident, shared, *_ in _pages(pids)) * PAGE_BYTES


def reserved_memory(pids: Iterable[int]) -> int:
    """Bytes of private memory these processes may write to, touched or not: what ``vm.overcommit_memory=2`` counts."""
    return sum(pages[5] for pages in _pages(pids)) * PAGE_BYTES


def _pages(pids: Iterable[int]) -> Iterator[list[int]]:
    """``/proc/PID/statm`` of each of these processes that has not ended."""
    return filter(None, (list(map(int, text_of(f"{PROC}/{pid}/statm").split())) for pid in pids))


def used_together(members: list[ProcessInfo], name: bytes = b"Pss:") -> int:
    """Bytes these processes use together: all, or what has a name. A process of very many mappings takes the kernel
    long to add up (row 84): after twice :data:`ADDING_SECONDS` of processor time, enough for 2 GiB, the rest counts
    with all its own pages.

    A process that has ended meanwhile, or begun another program, counts with what it has left: what it shared counts
    in full for the others, if they are looked at later. One that has the very memory of its parent, as between vfork
    and the program that it begins, does not count.
    """
    until = time.thread_time() + 2 * ADDING_SECONDS
    used: list[tuple[ProcessInfo, int]] = []
    there = {info.pid: info for info in members}
    for info in sorted(members, key=lambda process: process.rss_pages, reverse=True):
        # Of a thread that goes on: where the first one has ended there is no memory, which is the same as that of
        # another one whose first thread has ended (row 246).
        parent = there.get(info.parent)
        if parent is not None and info.rss_pages and has_memory_of(info.shown, parent.shown):
            continue
        late = used and time.thread_time() > until
        used.append((info, private_memory([info.shown]) if late else proportional(info, name)))
    return sum(min(bytes_seen, _resident(info)) for info, bytes_seen in used)


@functools.lru_cache(maxsize=1)
def _kcmp() -> Callable[[int, int], int]:
    if (number := NUMBERS.get(platform.machine(), {}).get("kcmp")) is None:
        return lambda *_: -1
    import ctypes

    call = ctypes.CDLL(None).syscall
    return lambda one, other: int(call(number, one, other, _KCMP_VM, ctypes.c_ulong(0), ctypes.c_ulong(0)))


def has_memory_of(pid: int, parent: int) -> bool:
    """Whether two processes have one memory; False where the kernel does not say."""
    return _kcmp()(pid, parent) == 0


def _resident(before: ProcessInfo) -> int:
    """Resident bytes of a process now; 0 when it has ended."""
    info = process_info(before.pid)
    return info.rss_pages * PAGE_BYTES if info is not None and info.start == before.start and info.alive else 0


def proportional(info: ProcessInfo, name: bytes = b"Pss:") -> int:
    """Memory of a process with shared pages divided among those that share them, in bytes: all, or what has a name."""
    try:
        with open(f"{PROC}/{info.shown}/smaps_rollup", "rb") as stream:
            for line in stream:
                if line.startswith(name):
                    return int(line.split()[1]) * 1024
    except OSError:  # it ended, or the system does not say
        return info.rss_pages * PAGE_BYTES if os.path.exists(f"{PROC}/{info.pid}/stat") else 0  # noqa: PTH110
    return info.rss_pages * PAGE_BYTES
