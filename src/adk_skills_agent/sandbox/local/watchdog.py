"""Limits no rlimit covers at this level: memory and number of processes of the whole run, and its disk space.

One thread per agent looks at all runs at once, a tenth of a second after their start and from then on, and never uses
more than a tenth of a processor. It needs ``/proc``.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from adk_skills_agent.sandbox.contract import Status
from adk_skills_agent.sandbox.local.environment import RUN_ID_VARIABLE
from adk_skills_agent.sandbox.local.memory_files import (
    deleted_files,
    may_hide_memory,
    memory_in_files,
    private_memory,
    shared_memory,
)
from adk_skills_agent.sandbox.local.one_per_process import OnePerProcess
from adk_skills_agent.sandbox.local.processes import PROC, ProcessInfo, RunMarks, all_processes
from adk_skills_agent.sandbox.local.tree import disk_usage
from adk_skills_agent.sandbox.local.watch_thread import WatchThread
from adk_skills_agent.sandbox.streaming import ResourceSample

INTERVAL_SECONDS = 0.1
PIDS_FACTOR = 4
"""At how many times ``pids`` a run is stopped. A script that goes a little over the number of processes would only be
refused another one elsewhere, so stopping it is kept for what can only be a fork bomb."""
_DISK_INTERVAL_SECONDS = 0.25
_SHARE = 10  # of the time, at most one in so many is spent looking
_LOOK_SECONDS = 0.2
_MANY_ENTRIES = 200_000
_UNWATCHED = (Status.ERROR, "Stopped: its limits could not be watched any longer; the agent's log says why.")

_logger = logging.getLogger("adk_skills_agent.sandbox")


@dataclass(frozen=True, slots=True)
class DiskLimit:
    """How much one place of a run may hold.

    Attributes:
        usage: Gives bytes and entries now, counting no further than so many entries and seconds; may raise OSError.
        most_bytes: None for no limit.
        most_entries: None for no limit.
        folder: The host folder that is walked, whose deleted files are on the same disk; None for a file system of its
            own, which counts these itself.
    """

    usage: Callable[[int, float], tuple[int, int]]
    most_bytes: int | None
    most_entries: int | None
    folder: str | None = None


def folder_limit(folder: str, most_bytes: int | None, most_entries: int | None) -> DiskLimit:
    """The limit of a host folder, which is walked to measure it."""
    return DiskLimit(functools.partial(disk_usage, folder), most_bytes, most_entries, folder)


@dataclass(slots=True, eq=False)
class Watched:
    """One run under watch.

    Attributes:
        marks: The run.
        memory_bytes: Of all its processes together; None for no limit.
        pids: See :data:`PIDS_FACTOR`; None for no limit.
        disk: Each limited place, the workspace first.
        breach: Called in the watchdog's thread, at most once, with the status and a sentence.
        beyond: Tells of a limit that only the level sees, with the status and a sentence; None while it holds.
        on_look: Called in the watchdog's thread with what each look has found; None for nobody.
        peak_rss: Largest sum of resident memory seen, in bytes.
    """

    marks: RunMarks
    memory_bytes: int | None
    pids: int | None
    disk: tuple[DiskLimit, ...]
    breach: Callable[[Status, str], None]
    beyond: Callable[[], tuple[Status, str] | None]
    on_look: Callable[[ResourceSample], None] | None = None
    peak_rss: int = 0
    _cpu_ticks: int = 0
    _workspace_bytes: int | None = None
    _next_disk: float = field(default=0.0)
    _over: bool = field(default=False)
    _shared_before: int = field(default_factory=shared_memory)


class Watchdog(WatchThread[Watched]):
    """The thread; started with the first run that lives long enough to be watched."""

    def __init__(self) -> None:
        self._owners: dict[tuple[int, int], str] = {}
        super().__init__("adk-skills-watchdog")

    def add(self, run: Watched) -> None:
        """Begin to watch."""
        with self._changed:
            if not self._runs:
                self._owners.clear()
            super().add(run)

    def _round(self) -> None:
        with self._changed:
            runs = list(self._runs)
        began = time.thread_time()  # the processor's time: on a busy machine a look takes long and costs no more
        self._look(runs)
        time.sleep(max(INTERVAL_SECONDS, (time.thread_time() - began) * _SHARE))

    def _look(self, runs: list[Watched]) -> None:
        members: dict[str, list[ProcessInfo]] | None = None
        for run in runs:
            if run._over:
                continue
            # Whatever goes wrong, a run whose limits nobody watches must not go on, and the others stay watched.
            try:
                if members is None:
                    members = self._members(runs)
                own = members[run.marks.run_id]
                problem = run.beyond() or _processes_problem(run, own, alone=len(runs) == 1) or _disk_problem(run, own)
                if problem is None and run.on_look is not None:
                    run.on_look(_sample(run, own))
            except Exception:
                _logger.exception("The limits of a run could not be looked at, so it is stopped.")
                problem = _UNWATCHED
            if problem is not None:
                run._over = True
                run.breach(*problem)

    def _members(self, runs: list[Watched]) -> dict[str, list[ProcessInfo]]:
        """The live processes of every run, its command included, in one pass over the system."""
        commands = {run.marks.pid: run.marks.run_id for run in runs}
        # Not by the ids of sessions: one that has just ended may have passed its id on to the command of another run.
        members: dict[str, list[ProcessInfo]] = {run.marks.run_id: [] for run in runs}
        owners: dict[tuple[int, int], str] = {}
        owner_of: dict[int, str] = {}
        for info in sorted(all_processes(), key=lambda process: process.start):
            if not info.alive or info.pid == os.getpid():
                continue
            # A command that leads no session is bubblewrap.
            run_id = commands.get(info.session) or commands.get(info.pid) or owner_of.get(info.parent)
            if run_id is None:
                key = (info.pid, info.start)
                run_id = self._owners.get(key)
                # What has no mark is remembered too: an environment is read once per process.
                if run_id is None or (run_id and run_id not in members):
                    run_id = _mark_of(info.pid)
                owners[key] = run_id
            if run_id in members:
                owner_of[info.pid] = run_id
                members[run_id].append(info)
        self._owners = owners
        return members


def _sample(run: Watched, members: list[ProcessInfo]) -> ResourceSample:
    # A process that has ended takes its time along when nobody of the run waited for it.
    run._cpu_ticks = max(run._cpu_ticks, sum(info.cpu_ticks for info in members))
    return ResourceSample(
        seconds=time.monotonic() - run.marks.started,
        memory_bytes=sum(info.rss_pages for info in members) * _PAGE,
        cpu_seconds=run._cpu_ticks / _TICKS_PER_SECOND,
        processes=len(members),
        workspace_bytes=run._workspace_bytes,
    )


def _processes_problem(run: Watched, members: list[ProcessInfo], *, alone: bool) -> tuple[Status, str] | None:
    rss = sum(info.rss_pages for info in members) * _PAGE
    run.peak_rss = max(run.peak_rss, rss)
    if run.memory_bytes is not None and rss > run.memory_bytes:
        # Resident memory counts what processes share once for each of them; the exact sum is dearer to get.
        used = sum(_proportional(info) for info in members)
        if used > run.memory_bytes:
            return (
                Status.OUT_OF_MEMORY,
                f"Stopped: its {len(members)} processes used {used >> 20} MiB of memory together; memory_bytes is "
                f"{run.memory_bytes >> 20} MiB.",
            )
    if run.memory_bytes is not None and shared_memory() - run._shared_before > run.memory_bytes // 2:
        pids = [info.pid for info in members]
        used = private_memory(pids) + memory_in_files(pids)
        if alone:
            used = max(used, _hidden_memory(run, pids))
        if used > run.memory_bytes:
            return (
                Status.OUT_OF_MEMORY,
                f"Stopped: it used {used >> 20} MiB of memory, files in memory included; memory_bytes is "
                f"{run.memory_bytes >> 20} MiB.",
            )
    if run.pids is not None:
        threads = sum(info.threads for info in members)
        if threads > run.pids * PIDS_FACTOR:
            return Status.ERROR, f"Stopped: it had {threads} processes and threads; pids is {run.pids}."
    return None


def _hidden_memory(run: Watched, pids: list[int]) -> int:
    """Shared memory the machine has more than when the only run there is began, when that can only be the run's.

    Nothing says whose it is: so it takes half as much again as the limit, and the run must hold what can hide memory.
    """
    assert run.memory_bytes is not None  # noqa: S101  # checked by the caller
    grown = shared_memory() - run._shared_before
    if grown <= run.memory_bytes * 3 // 2 or not run.disk or not may_hide_memory(pids):
        return 0
    for limit in run.disk:  # it may be in memory, and has a limit of its own
        with contextlib.suppress(OSError):
            grown -= limit.usage(_MANY_ENTRIES, _LOOK_SECONDS)[0]
    return grown if grown > run.memory_bytes * 3 // 2 else 0


def _disk_problem(run: Watched, members: list[ProcessInfo]) -> tuple[Status, str] | None:
    now = time.monotonic()
    if now < run._next_disk:
        return None
    problem = None
    for number, limit in enumerate(run.disk):
        most_bytes, most_entries = limit.most_bytes, limit.most_entries
        if most_bytes is None and most_entries is None:
            continue
        ceiling = _MANY_ENTRIES if most_entries is None else most_entries + 1
        try:
            used, entries = limit.usage(ceiling, _LOOK_SECONDS)
            if limit.folder is not None and most_bytes is not None:
                used += deleted_files([info.pid for info in members], limit.folder)
        except OSError:  # removed or renamed by the script; the next look may find it again
            continue
        if number == 0:
            run._workspace_bytes = used
        if most_bytes is not None and used > most_bytes:
            problem = f"Stopped: it wrote {used >> 20} MiB to disk; {most_bytes >> 20} MiB are allowed."
        elif most_entries is not None and entries > most_entries:
            problem = f"Stopped: it made more than {most_entries:,} files."
    took = time.monotonic() - now
    run._next_disk = now + max(_DISK_INTERVAL_SECONDS, took * _SHARE)
    return None if problem is None else (Status.DISK_LIMIT, problem)


def _proportional(info: ProcessInfo) -> int:
    """Memory of a process with shared pages divided among those that share them, in bytes."""
    try:
        with open(f"{PROC}/{info.pid}/smaps_rollup", "rb") as stream:
            for line in stream:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:  # it ended, or the system does not say
        return info.rss_pages * _PAGE if os.path.exists(f"{PROC}/{info.pid}/stat") else 0  # noqa: PTH110
    return info.rss_pages * _PAGE


def _mark_of(pid: int) -> str:
    """The run a process says it belongs to, by its environment; empty for none."""
    try:
        with open(f"{PROC}/{pid}/environ", "rb") as stream:
            environment = stream.read(1 << 20)
    except OSError:
        return ""
    needle = f"{RUN_ID_VARIABLE}=".encode()
    for variable in environment.split(b"\0"):
        if variable.startswith(needle):
            return variable[len(needle) :].decode("ascii", "replace")
    return ""


_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

watchdog = OnePerProcess(Watchdog)
"""This process's."""


def works_here() -> bool:
    """Whether the system shows what a watchdog needs."""
    return os.path.exists(f"{PROC}/self/stat")  # noqa: PTH110
