"""Which runs end when the machine, or the container around the agent, runs short of something."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from adk_skills_agent.platforms import PAGE_BYTES
from adk_skills_agent.sandbox.contract import Status
from adk_skills_agent.sandbox.process.open_files import SURE_PLACE, hiding_places, most_in_kernel, shared_memory
from adk_skills_agent.sandbox.process.tree import (
    EVERYTHING,
    LOOK_SECONDS,
    PROC,
    MachineMemory,
    ProcessInfo,
    kept_of,
    kernel_setting,
    machine_files,
    machine_memory,
    tasks_left,
    tcp_of_machine,
    text_of,
)
from adk_skills_agent.sandbox.threads import of_who_has_most

if TYPE_CHECKING:
    from adk_skills_agent.sandbox.process.watchdog import Limits

Problem = tuple[Status, str]
"""Why a run is ended: its status, and a sentence."""

SCARCE = (
    "Stopped: the memory of the machine, or of what the agent itself may use, ran out while the run went on. Nothing "
    "says whose it is; of the runs since then this one is the most likely."
)
CROWDED = (
    "Stopped: the processes and threads that the agent itself may have (the limit of its container) were running out, "
    "and this run was one of those with the most."
)
TCP_SCARCE = (
    "Stopped: the memory that all TCP connections of this machine may have together, or the number of closed ones that "
    "may still send, was nearly used up, and this run had most of it."
)
SHARE = 10
"""Of the time, at most one in so many is spent looking."""
MANY_ENTRIES = 200_000
_NEEDED_BYTES_A_SECOND = 16 << 10  # a gigabyte a day: what the kernel of a machine comes to need besides all runs
_SHARE_OF_FILES = 8  # of the files that all programs of a machine may have open, runs may have one in so many
_LEAST_QUEUED = 8 << 20  # bytes; a run with less in its connections is not the cause
_LEAST_BUSY = 32  # connections with data; nor one with fewer, where nothing else says whose the memory is
_LEAST_ORPHANS = 256  # nor one with fewer that are closed
_MOST_LISTED = 2 << 20  # bytes of a list of connections: as many as a run may have
_UNLISTED = 1 << 30  # bytes that a run counts with whose list is longer: what is in the rest is not known
_FEW = 8  # a run with so many is not the cause


def too_much(run: Limits, used: int, what: str) -> Problem:
    """That a run has too much memory, of which the limits of its processes do not show all."""
    limit = (run.memory_bytes or 0) >> 20
    said = f"Stopped: it used {used >> 20} MiB of memory, {what} included; memory_bytes is {limit} MiB."
    return Status.OUT_OF_MEMORY, said


class Shortages:
    """What the machine has had since there are runs, and which run ends when it loses what nobody shows.

    Attributes:
        lowest: Its memory when there was least of it; None while there are no runs. What the machine has when a run
            begins may be another one's, which ends and makes room for it (row 216).
    """

    def __init__(self) -> None:
        self.lowest: MachineMemory | None = None
        self._fewest_files: int | None = None
        self._suspects: list[Limits] = []
        self._looked = time.monotonic()
        self._next_search = 0.0
        self._next_tcp = 0.0

    def begin(self) -> None:
        """There are runs again."""
        self.lowest, self._looked = machine_memory(), time.monotonic()

    def end(self) -> None:
        """There are none any more."""
        self.lowest, self._fewest_files, self._suspects = None, None, []

    def to_go(
        self, runs: list[Limits], members: Mapping[str, list[ProcessInfo]], now: MachineMemory
    ) -> tuple[Mapping[Limits, Problem], float]:
        """The runs to end for what the machine lacks, and how many seconds went for what can take long."""
        found: dict[Limits, Problem] = {}
        if (cause := self._cause(runs, members, now)) is not None:
            used = now.kernel - (self.lowest or now).kernel
            found[cause] = too_much(cause, used, "buffers of sockets, lists of mappings and locks of files")
        began = time.thread_time()
        hider, hidden = self._hider(runs, members, now)
        took = time.thread_time() - began
        if hider is not None:
            found.setdefault(hider, too_much(hider, hidden, "shared memory that no process shows"))
        if (first := first_to_go_of(runs, members, now)) is not None:
            found.setdefault(first, (Status.OUT_OF_MEMORY, SCARCE))
        for run in crowd_of(runs, members):
            found.setdefault(run, (Status.ERROR, CROWDED))
        if (first := self._tcp_first(runs, members)) is not None:
            found.setdefault(first, (Status.OUT_OF_MEMORY, TCP_SCARCE))
        return found, took

    def _cause(self, runs: list[Limits], members: Mapping[str, list[ProcessInfo]], now: MachineMemory) -> Limits | None:
        """The run to end because the kernel's memory has grown by more than all runs that can cause it may have.

        Of these the one that can have caused most; the next one when that one's end did not help. When all are gone,
        or there were none, the growth was somebody else's.
        """
        watched = [run for run in runs if run.memory_bytes is not None]
        if self._suspects and not any(run in runs for run in self._suspects):
            self._suspects = []  # what is there now counts for no run but those that began with less (row 308)
            self.lowest = replace(self.lowest or now, kernel=now.kernel)
        self._lower(watched, now)
        lowest = self.lowest or now
        grown = now.kernel - lowest.kernel
        if not any(grown > run.most_in_kernel for run in watched):
            self._suspects = []
            return None
        possible: dict[Limits, int] = {}
        for run in watched:
            pids = [info.shown for info in members[run.marks.run_id]]
            most = most_in_kernel(pids, run.guarded(), pages=not run.bounded)
            if most > (run.memory_bytes or 0):
                possible[run] = most
        if not possible and not self._suspects:
            self.lowest = replace(lowest, kernel=now.kernel)
        if grown <= sum(run.most_in_kernel for run in possible):
            return None
        self._suspects = self._suspects or list(possible)
        left = [run for run in self._suspects if run in possible and not run.seen.over]
        return max(left, key=lambda run: possible[run], default=None)

    def _hider(
        self, runs: list[Limits], members: Mapping[str, list[ProcessInfo]], now: MachineMemory
    ) -> tuple[Limits | None, int]:
        """The run to end because shared memory has grown by more than what all runs show and what those that can hide
        some may have besides (row 274), and how much is hidden. A run that is alone is looked at by itself.
        """
        lowest = self.lowest or now
        grown, began, used = now.shared - lowest.shared, time.monotonic(), time.thread_time()
        watched = [run for run in runs if run.memory_bytes is not None]
        least = min((run.memory_bytes or 0 for run in watched if not run.bounded), default=EVERYTHING)
        if (
            grown <= least * 3 // 2
            or len(watched) < len(runs)
            or any(run.seen.over or run.is_alone(runs) for run in runs)
        ):
            return None, 0  # one that is ended takes a moment to let go of what it has
        if began < self._next_search:
            return None, 0
        hidden, possible = grown, {}
        for run in watched:
            own, limit = members[run.marks.run_id], run.memory_bytes or 0
            hidden -= limit if run.bounded else min(limit, shared_memory(own))
            for place in run.disk:  # it may be in memory, and has a limit of its own
                with contextlib.suppress(OSError):
                    hidden -= place.usage(MANY_ENTRIES, LOOK_SECONDS)[0]
            if not run.bounded and (places := hiding_places((info.shown for info in own), run.guarded())):
                possible[run] = places
        if max(possible.values(), default=0) >= SURE_PLACE:  # sockets are not unusual
            possible = {run: places for run, places in possible.items() if places >= SURE_PLACE}
        if not possible:
            self.lowest = replace(lowest, shared=lowest.shared + max(hidden, 0))
        self._next_search = began + (time.thread_time() - used) * SHARE
        if hidden <= sum((run.memory_bytes or 0) * 3 // 2 for run in possible):
            return None, 0
        return max(possible, key=lambda run: possible[run], default=None), hidden

    def _tcp_first(self, runs: list[Limits], members: Mapping[str, list[ProcessInfo]]) -> Limits | None:
        """See :func:`first_to_go_for_tcp`; counting many connections takes long, and has a part of the time only."""
        began, used = time.monotonic(), time.thread_time()
        if began < self._next_tcp:
            return None
        found = first_to_go_for_tcp(runs, members)
        self._next_tcp = began + (time.thread_time() - used) * SHARE
        return found

    def files_beyond(self) -> int:
        """How many more files are open than when there were fewest since there are runs; 0 while nobody lacks them."""
        there, most = machine_files()
        self._fewest_files = there if self._fewest_files is None else min(self._fewest_files, there)
        grown = there - self._fewest_files
        return grown if grown > most // _SHARE_OF_FILES else 0

    def _lower(self, runs: list[Limits], now: MachineMemory) -> None:
        """Take note of the lowest memory since there are runs; it rises slowly with what a machine needs by itself."""
        seconds, self._looked = time.monotonic() - self._looked, time.monotonic()
        lowest = self.lowest or now
        lowest = replace(lowest, kernel=lowest.kernel + int(seconds * _NEEDED_BYTES_A_SECOND)).lowest(now)
        for run in runs:
            if not run.seen.met:
                run.seen.met = True
                run.seen.before = run.seen.before or now
                lowest = lowest.lowest(run.seen.before)
        self.lowest = lowest


def first_to_go_of(runs: list[Limits], members: Mapping[str, list[ProcessInfo]], now: MachineMemory) -> Limits | None:
    """The run to end so that the kernel need not choose; None while memory is left, or it was gone before all of them.

    For memory that no count here shows (row 204): of the runs since whose beginning the machine has lost, or the kernel
    got, more than one of them may have, the one for which the kernel has worked most. What it worked for a process that
    nobody waits for is gone with that, and who began before has seen more of the loss: so those come first that can
    hide memory, and half as much that they do not show is enough for these (row 277).
    """
    if not now.is_scarce:
        return None
    found: dict[Limits, tuple[bool, int]] = {}
    seen: dict[Limits, int] = {}
    most_lost = 0
    for run in runs:
        if run.memory_bytes is None or run.seen.before is None or run.seen.over:
            continue
        own, guarded = members[run.marks.run_id], run.guarded()  # those are ours
        pids = [info.shown for info in own if info.pid not in guarded]
        shown = sum(info.rss_pages for info in own) * PAGE_BYTES
        lost = max(run.seen.before.available - now.available, now.kernel - run.seen.before.kernel)
        seen[run], most_lost = shown, max(most_lost, lost)
        can_hide = lost > run.memory_bytes // 2 and (
            hiding_places(pids) >= SURE_PLACE or most_in_kernel(pids, pages=not run.bounded) > run.memory_bytes
        )
        if lost > run.memory_bytes or (can_hide and lost - shown > run.memory_bytes // 2):
            found[run] = can_hide, sum(info.system_ticks for info in own)
    if found and sum(seen.values()) > most_lost * 3 // 4:  # most of it need not be guessed (row 404)
        return max(seen, key=lambda run: seen[run])
    return max(found, key=lambda run: found[run], default=None)


def first_to_go_for_tcp(runs: list[Limits], members: Mapping[str, list[ProcessInfo]]) -> Limits | None:
    """The run to end so that all others of the machine can go on sending (row 443); None while there is room.

    The kernel bounds the memory of TCP, and closed connections that still send, for all network namespaces together;
    beyond, it resets connections of everybody. Of the user who has most in runs with a network of their own, the one
    that has most, as its control group counts it. Without one only data is known, of which a byte may take 780 of the
    kernel's memory (row 448): where it is less than half of what is gone, connections with data count instead.
    """
    memory, orphans = tcp_of_machine()
    most_memory = kernel_setting("net/ipv4/tcp_mem", EVERYTHING) // 3 * 2
    most_orphans = kernel_setting("net/ipv4/tcp_max_orphans", EVERYTHING) // 2
    if memory <= most_memory and orphans <= most_orphans:
        return None
    taken: dict[Limits, int] = {}
    busy: dict[Limits, int] = {}
    closed: dict[Limits, int] = {}
    for run in runs:
        found = tcp_of_run(info.shown for info in members[run.marks.run_id])
        counted = run.tcp_bytes()
        memory_of_run = found.queued if counted is None else counted
        if run.seen.over:  # killed, it takes a moment
            memory -= memory_of_run // PAGE_BYTES
            orphans -= found.closed
            continue
        taken[run], closed[run] = memory_of_run, found.closed
        if counted is None:
            busy[run] = found.busy
    if memory > most_memory:
        is_known = sum(taken.values()) * 2 >= memory * PAGE_BYTES
        held, least = (taken, _LEAST_QUEUED) if is_known else (busy, _LEAST_BUSY)
    elif orphans > most_orphans:
        held, least = closed, _LEAST_ORPHANS
    else:
        return None
    return next(_of_who_has_most({run: number for run, number in held.items() if number > least}), None)


class Connections(NamedTuple):
    """What the connections of a run are: bytes of data in them, how many have some, how many closed ones still send."""

    queued: int = 0
    busy: int = 0
    closed: int = 0


def tcp_of_run(pids: Iterable[int]) -> Connections:
    """The connections of processes that have a network of their own."""
    own_network, queued, busy, closed = _network_of("self"), 0, 0, 0
    for pid in pids:
        if _network_of(pid) in {own_network, None}:
            continue
        for name in ("tcp", "tcp6"):
            listed = text_of(f"{PROC}/{pid}/net/{name}", _MOST_LISTED)
            if len(listed) >= _MOST_LISTED:
                queued, busy = queued + _UNLISTED, busy + _UNLISTED
            for line in listed.splitlines()[1:]:
                fields = line.split()
                if len(fields) > 9 and b":" in fields[4]:  # not cut off: the queues, and the number of the file
                    data = sum(int(number, 16) for number in fields[4].split(b":"))
                    queued, busy = queued + data, busy + (data > 0)
                    closed += fields[9] == b"0" and fields[3] in _CLOSING
        break  # all of a run are in one
    return Connections(queued, busy, closed)


_CLOSING = frozenset({b"04", b"05", b"09", b"0B"})  # FIN_WAIT1, FIN_WAIT2, LAST_ACK, CLOSING


def _network_of(pid: int | str) -> int | None:
    try:
        return os.stat(f"{PROC}/{pid}/ns/net").st_ino  # noqa: PTH116
    except OSError:  # it has ended
        return None


def crowd_of(runs: list[Limits], members: Mapping[str, list[ProcessInfo]]) -> list[Limits]:
    """The runs to end so that the agent and others can still start something (row 411); none while there is room.

    Each may have ``pids``, but the limit around the agent is for all of them: those go that have most, of the user who
    has most.
    """
    left, most = tasks_left()
    kept = kept_of(most) // 2
    if left >= kept:
        return []
    tasks = {run: sum(info.threads for info in members[run.marks.run_id]) for run in runs}
    left += sum(number for run, number in tasks.items() if run.seen.over)  # killed, they take a moment
    tasks = {run: number for run, number in tasks.items() if number > _FEW and not run.seen.over}
    found: list[Limits] = []
    for run in _of_who_has_most(tasks):
        if left >= kept:
            break
        found.append(run)
        left += tasks[run]
    return found


def _of_who_has_most(amounts: Mapping[Limits, int]) -> Iterator[Limits]:
    """Runs in the order in which they go: of the user who has most, the one that has most."""
    of_user: Counter[str] = Counter()
    for run, number in amounts.items():
        of_user[run.seen.user] += number
    largest_first = sorted(amounts, key=lambda run: amounts[run], reverse=True)
    return of_who_has_most(largest_first, lambda run: run.seen.user, of_user, lambda run: amounts[run])
