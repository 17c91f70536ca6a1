"""Which processes belong to a run, as far as the system shows it, and their end.

A run is a session of its own, so its group can be killed as a whole. A process that made itself another session is
recognised, on Linux, by the run's variable in its environment, its working directory, or a pipe of the run it holds.
That is best effort: a process that gives up all three is not found, and is the reason for the stronger levels.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from adk_skills_agent.sandbox.process.command import RUN_ID_VARIABLE

PROC = "/proc"
LEAVING_SECONDS = 0.05
"""How long a process that has closed the pipes may take to be gone before it counts as one left behind."""

_ROUNDS = 12
_FIRST_PAUSE = 0.002
_DYING_SECONDS = 1.0  # what a killed process may take; one that takes longer hangs in the kernel
# In a run shorter than this the kernel cannot have used up all process ids and started over, so whatever the run
# started has a higher id than its first process.
_NO_WRAP_SECONDS = 1.0
_ENVIRONMENT_BYTES = 1 << 20
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
        with open(f"{PROC}/loadavg", "rb") as stream:
            return int(stream.read().split()[-1])
    except (OSError, ValueError, IndexError):
        return None


def _is_marked(info: ProcessInfo, marks: RunMarks) -> bool:
    try:
        with open(f"{PROC}/{info.pid}/environ", "rb") as stream:
            if f"{RUN_ID_VARIABLE}={marks.run_id}".encode() in stream.read(_ENVIRONMENT_BYTES):
                return True
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
