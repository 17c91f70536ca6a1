"""Which runs end when the machine, or the container around the agent, runs short of something."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from adk_skills_agent.platforms import PAGE_BYTES
from adk_skills_agent.sandbox.process.open_files import SURE_PLACE, hiding_places, most_in_kernel
from adk_skills_agent.sandbox.process.tree import (
    EVERYTHING,
    PROC,
    MachineMemory,
    ProcessInfo,
    kept_of,
    kernel_setting,
    tasks_left,
    tcp_of_machine,
    text_of,
)
from adk_skills_agent.sandbox.threads import of_who_has_most

if TYPE_CHECKING:
    from adk_skills_agent.sandbox.process.watchdog import Limits

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
_LEAST_QUEUED = 8 << 20  # bytes; a run with less in its connections is not the cause
_LEAST_ORPHANS = 256  # nor one with fewer that are closed
_MOST_LISTED = 2 << 20  # bytes of a list of connections: as many as a run may have
_FEW = 8  # a run with so many is not the cause


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
        if run.memory_bytes is None or run._before is None or run._over:
            continue
        own, guarded = members[run.marks.run_id], run.guarded()  # those are ours
        pids = [info.shown for info in own if info.pid not in guarded]
        shown = sum(info.rss_pages for info in own) * PAGE_BYTES
        lost = max(run._before.available - now.available, now.kernel - run._before.kernel)
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
    that has most.
    """
    memory, orphans = tcp_of_machine()
    most_memory = kernel_setting("net/ipv4/tcp_mem", EVERYTHING) // 3 * 2
    most_orphans = kernel_setting("net/ipv4/tcp_max_orphans", EVERYTHING) // 2
    if memory <= most_memory and orphans <= most_orphans:
        return None
    queued: dict[Limits, int] = {}
    closed: dict[Limits, int] = {}
    for run in runs:
        queued[run], closed[run] = tcp_of_run(info.shown for info in members[run.marks.run_id])
        if run._over:  # killed, it takes a moment
            memory -= queued.pop(run) // PAGE_BYTES
            orphans -= closed.pop(run)
    if memory <= most_memory and orphans <= most_orphans:
        return None
    held, least = (queued, _LEAST_QUEUED) if memory > most_memory else (closed, _LEAST_ORPHANS)
    return next(_of_who_has_most({run: number for run, number in held.items() if number > least}), None)


def tcp_of_run(pids: Iterable[int]) -> tuple[int, int]:
    """Bytes in the connections of processes that have a network of their own, and how many closed ones still send."""
    own_network, queued, closed = _network_of("self"), 0, 0
    for pid in pids:
        if _network_of(pid) in {own_network, None}:
            continue
        for name in ("tcp", "tcp6"):
            for line in text_of(f"{PROC}/{pid}/net/{name}", _MOST_LISTED).splitlines()[1:]:
                fields = line.split()
                if len(fields) > 9 and b":" in fields[4]:  # not cut off: the queues, and the number of the file
                    queued += sum(int(number, 16) for number in fields[4].split(b":"))
                    closed += fields[9] == b"0" and fields[3] in _CLOSING
        break  # all of a run are in one
    return queued, closed


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
    left += sum(number for run, number in tasks.items() if run._over)  # killed, they take a moment
    tasks = {run: number for run, number in tasks.items() if number > _FEW and not run._over}
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
        of_user[run._user] += number
    largest_first = sorted(amounts, key=lambda run: amounts[run], reverse=True)
    return of_who_has_most(largest_first, lambda run: run._user, of_user, lambda run: amounts[run])
