"""A thread of the agent looks at all its runs ten times a second, and ends those that must not go on.

That is a run whose loop is blocked beyond its deadline, or was closed without cancelling it, and one beyond a limit
that no rlimit covers at its level: memory and number of processes of the whole run, and its disk space. Limits need
``/proc``. The thread never uses more than a tenth of a processor. A second one ends what keeps this one, or an event
loop, waiting for a lock; a third one waits for nothing but the memory of each process.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from adk_skills_agent.platforms import PAGE_BYTES, TICKS_PER_SECOND
from adk_skills_agent.sandbox import threads as workers
from adk_skills_agent.sandbox.contract import TMP_DIR, Status
from adk_skills_agent.sandbox.files.collect import disk_usage
from adk_skills_agent.sandbox.process.command import RUN_ID_VARIABLE
from adk_skills_agent.sandbox.process.open_files import (
    SURE_PLACE,
    WATCHES_UNSEEN,
    Held,
    deleted_files,
    held,
    hiding_places,
    machine_locks,
    may_hide_files,
    memory_in_files,
    note_sockets,
)
from adk_skills_agent.sandbox.process.shortage import MANY_ENTRIES, SHARE, Problem, Shortages, too_much
from adk_skills_agent.sandbox.process.stalls import Wait, touch, wait_of
from adk_skills_agent.sandbox.process.tree import (
    ENVIRONMENT_BYTES,
    EVERYTHING,
    LOOK_SECONDS,
    PROC,
    MachineMemory,
    ProcessInfo,
    RunMarks,
    all_processes,
    kernel_setting,
    machine_memory,
    mapped_files,
    memory_left,
    most_mapped,
    page_tables,
    private_memory,
    reserved_memory,
    swapped_out,
    text_of,
    used_together,
)
from adk_skills_agent.sandbox.streaming import ResourceSample
from adk_skills_agent.sandbox.threads import OnePerProcess

HIDDEN_MEMORY = (
    "memory: before it was ended, a script had 1.6 times memory_bytes in page tables and 2.1 times in buffers of "
    "sockets; lists of mappings, locks of files, and shared memory that no process has mapped or open may have 1.5 "
    "times more. A control group counts most of this."
)
"""What a watchdog cannot do about memory, with what an attacker reached; for runs without a control group."""
UNCHARGED_MEMORY = (
    "memory: what the kernel charges to nobody (connections that nobody accepts, datagrams, locks of files) is only "
    "watched; a script had 3.1 times memory_bytes more before it was ended."
)
"""The same for runs with one."""

INTERVAL_SECONDS = 0.1
LATE_SECONDS = 1.0
"""How long after the deadline and its grace a run is ended from here: the loop may be merely busy."""

PIDS_FACTOR = 4
"""At how many times ``pids`` a run is stopped. A script that goes a little over the number of processes would only be
refused another one elsewhere, so stopping it is kept for what can only be a fork bomb."""
_RESERVED_FACTOR = 4
"""How much more than ``memory_bytes`` a run may reserve on a machine that gives no more away than it has."""
_DISK_INTERVAL_SECONDS = 0.25
_SHORT_SECONDS = 0.02
_LEAST_REST, _FAST_BYTES = 2, 128 << 20
_HELD_SECONDS = 0.5
_MOST_GROWN_HIDDEN = 128 << 20  # bytes of the kernel's memory, of 600,000 locks, while a process hides its own
_MANY_LOCKS = 1 << 15  # on the machine: those of sixteen runs
_MOST_LOCKS = 2_048  # of one run: whoever closes a file goes through all that there are of it (row 369)
_MOST_MAPPED = 1 << 12  # of one file that a run can cut, which takes 2 ms then
_LEAST_HIDDEN = 1 << 30  # what a machine writes besides in a while
_MOST_WAITED_SECONDS = 0.5  # how long a run may keep a thread of the agent waiting, all its waits together
_MOST_WAITED_FOR_USER = 2.0  # and the runs of a user together (row 377)
_LAST_LOOK_SECONDS = 60.0  # at the disk of a run that is over: 20,000 folders take one
_FORGIVEN = 0.05  # the share of the time that does not count: on a busy machine each lock is waited for now and then
_FORGIVEN_TO_USER = 0.2  # many runs make wait more, and the share of each of them is not the user's
_FOLDER_SHARE = 0.25  # of a wait for a folder counts: a slow disk makes wait, too
_TOUCH_SHARE, _SMALL_SHARE = 0.25, 0.1  # and of one for the memory of a process, or of one with small page tables
_LARGE_TABLES = 4 << 20  # bytes of page tables, of 2 GiB: less is no work that keeps a lock for long
_STALLED = Status.ERROR, "Stopped: it kept the agent waiting for a lock of the kernel that it held."
_UNWATCHED = (Status.ERROR, "Stopped: its limits could not be watched any longer; the agent's log says why.")

_NOT_COUNTED: Callable[[], None] = lambda: None  # noqa: E731

_logger = logging.getLogger("adk_skills_agent.sandbox")


@dataclass(frozen=True, slots=True)
class DiskLimit:
    """How much one place of a run may hold; None for no limit.

    Attributes:
        usage: Gives bytes and entries now, counting no further than so many entries and seconds; may raise OSError.
        folder: The host folder that is walked, whose deleted files are on the same disk; None for a file system of its
            own, which counts these itself.
        place: What it is called in a sentence, and ``named`` the field of the policy that limits its bytes.
    """

    usage: Callable[[int, float], tuple[int, int]]
    most_bytes: int | None
    most_entries: int | None
    folder: str | None = None
    place: str = "the workspace"
    named: str = "workspace_bytes"

    def excess(self, used: int, entries: int) -> str | None:
        """What is beyond the limit, which a file system of its own rounds up to a page; a clause, or None."""
        most = self.most_bytes
        if most is not None and used > -(-most // PAGE_BYTES) * PAGE_BYTES:
            return f"it wrote {used >> 20} MiB to {self.place}; {most >> 20} MiB are allowed ({self.named})"
        if self.most_entries is not None and entries > self.most_entries:
            return f"it made more than {self.most_entries:,} files in {self.place} (workspace_inodes)"
        return None

    def excess_at_end(self) -> str | None:
        """The same for a run that is over, of which nothing may be left out; raises OSError."""
        ceiling = MANY_ENTRIES if self.most_entries is None else self.most_entries + 1
        return self.excess(*self.usage(ceiling, _LAST_LOOK_SECONDS))


TMP_NAMES = (str(TMP_DIR), "tmp_bytes")
"""``place`` and ``named`` of the folder for temporary files."""


def folder_limit(
    folder: str, most_bytes: int | None, most_entries: int | None, names: tuple[str, str] | None = None
) -> DiskLimit:
    """The limit of a host folder, which is walked to measure it; the workspace unless ``names`` say what it is."""
    return DiskLimit(functools.partial(disk_usage, folder), most_bytes, most_entries, folder, *(names or ()))


@dataclass(slots=True, eq=False)
class Seen:
    """What the watchdog knows of a run from its looks.

    Attributes:
        user: Whose it is; empty for the owner's own.
        over: Whether it was ended; it takes a moment to go.
        before: The machine's memory when it began.
        met: Whether a look has seen it.
        most_free: Bytes its disk had free when that was most; ``free`` is what it had at the last look.
        has_time: Whether this look may still do what can take long; ``dear_seconds`` is what it took for that,
            ``shared_by`` how many runs share the time for it, and ``cost_of_others`` what it takes for these.
        costs: Seconds that the last look of each kind took.
        in_files: Bytes in memory and in no process that it had at the last look, and those of the machine then.
    """

    user: str = ""
    over: bool = False
    before: MachineMemory | None = None
    met: bool = False
    most_free: int = 0
    free: int = 0
    cpu_ticks: int = 0
    last_ticks: int = 0
    sampled: float | None = None
    workspace_bytes: int | None = None
    has_time: bool = True
    dear_seconds: float = 0.0
    shared_by: int = 1
    cost_of_others: float = 0.0
    costs: dict[str, float] = field(default_factory=dict)
    in_files: tuple[int, int] = (0, 0)
    _next: dict[str, tuple[float, float]] = field(default_factory=dict)

    @contextlib.contextmanager
    def dear(self, what: str, least_seconds: float = 0.0, *, at_once: bool = False) -> Iterator[bool]:
        """A look that can take long; gives whether it is time for it. However long it takes, no other look waits for it
        (row 250): the next of its kind comes when those of all runs would have had their share of the time. Runs that
        cost nothing prolong nobody's rest (row 452). With ``at_once`` the rest is shorter, as that of the thread itself
        while memory or a disk goes fast.
        """
        began, used = time.monotonic(), time.thread_time()
        next_look, soon = self._next.get(what, (0.0, 0.0))
        is_due = self.has_time and began >= (soon if at_once else next_look)
        yield is_due
        if is_due:
            used = self.costs[what] = time.thread_time() - used
            self.dear_seconds += used
            turn = min(used * self.shared_by, used + self.cost_of_others)
            self._next[what] = began + max(least_seconds, turn * SHARE), began + turn * _LEAST_REST


@dataclass(slots=True, eq=False)
class Limits:
    """What one run may use, and what is told when it uses more; None for no limit.

    Attributes:
        memory_bytes: Of all its processes together.
        bounded: Whether the kernel bounds its memory as a whole. What it charges to nobody is compared then, too.
        guarded: Gives its processes that are ours.
        imports: Whether it is a sandbox that imports modules, which nobody misses: what nothing shows counts as its
            own, also while there are runs (row 223).
        waits: Whether it is one that waits for its run: another run is alone beside it.
        pids: See :data:`PIDS_FACTOR`.
        watches: How many files its epoll instances may watch together (:func:`.command.most_watches`).
        disk: Each limited place, the workspace first.
        breach: Called in the watchdog's thread, at most once, with the status and a sentence.
        beyond: Tells of a limit that only the level sees, with the status and a sentence; None while it holds.
        on_look: Called in the watchdog's thread with what each look has found; None for nobody.
        tcp_bytes: Tells what the kernel counts for its connections, in bytes; None where it does not.
        peak_rss: Largest sum of resident memory seen, in bytes; 0 before the first look.
    """

    marks: RunMarks
    memory_bytes: int | None
    pids: int | None
    disk: tuple[DiskLimit, ...]
    breach: Callable[[Status, str], None]
    beyond: Callable[[], Problem | None]
    on_look: Callable[[ResourceSample], None] | None = None
    bounded: bool = False
    guarded: Callable[[], Collection[int]] = tuple
    watches: int | None = None
    imports: bool = False
    waits: bool = False
    tcp_bytes: Callable[[], int | None] = _NOT_COUNTED
    peak_rss: int = 0
    seen: Seen = field(default_factory=Seen)

    def is_alone(self, runs: list[Limits]) -> bool:
        """Whether what nothing shows can only be this one's. Sandboxes that wait for a run are there for minutes after
        each run of a skill that imports modules beforehand, and nobody else's limit may end with that.
        """
        return self.imports or all(other is self or other.waits for other in runs)

    @property
    def most_in_kernel(self) -> int:
        """Bytes by which the kernel's memory may grow: nothing says whose it is, so half as much again as the limit.

        On a small machine half of what all TCP may have is less, and without the other half the agent could not speak.
        """
        assert self.memory_bytes is not None  # noqa: S101  # asked only where there is one
        return min(self.memory_bytes * 3 // 2, kernel_setting("net/ipv4/tcp_mem", EVERYTHING) // 2 * PAGE_BYTES)

    def __post_init__(self) -> None:
        # Where the kernel bounds the memory of a run as a whole, the first look will do, and short runs pay nothing,
        # unless that may come late (:attr:`Watched.before`).
        if self.memory_bytes is not None and not self.bounded:
            self.seen.before = machine_memory()
        with contextlib.suppress(OSError):  # the looks will see
            free = [_free(limit.folder) for limit in self.disk if limit.folder is not None]
            self.seen.most_free = max(free, default=0)


@dataclass(slots=True, eq=False)
class Watched:
    """One run under watch, from before its start.

    Attributes:
        loop_closed: Whether the event loop that looks after the run is closed.
        abandon: Ends the run and cleans up without a loop; called at most once, in a worker thread.
        kill: Ends the run although its loop does not, and tells whether it was still going on; must not block. Set
            before ``deadline``.
        deadline: When the loop should have ended the run at the latest, by ``time.monotonic()``; None for never.
        limits: Looked at when the run is older than :data:`INTERVAL_SECONDS`; None for nothing to look at.
        is_overdue: The watchdog has killed the run, because its deadline had passed.
        before: The machine's memory when the run was added, where the first look may come late (row 308).
        thread: The kernel's id of the thread that reads its output; 0 for none.
        descriptors: What that one reads.
        user: Whose it is; empty for the owner's own.
    """

    loop_closed: Callable[[], bool]
    abandon: Callable[[], None]
    kill: Callable[[], bool] = lambda: False
    deadline: float | None = None
    limits: Limits | None = None
    is_overdue: bool = False
    before: MachineMemory | None = None
    thread: int = 0
    descriptors: tuple[int, ...] = ()
    user: str = ""
    _stalled: float = 0.0


class Watchdog:
    """The three threads; they sleep while there are no runs."""

    def __init__(self) -> None:
        self._runs: set[Watched] = set()
        self._owners: dict[tuple[int, int], str] = {}
        self._shortages = Shortages()
        self._is_late = False  # whether the next look may come later than usual
        self._changed = threading.Condition()  # re-entrant: a run may be collected as garbage in here
        self._waited: dict[str, float] = {}  # seconds that the runs of each user have kept the agent waiting
        self._thread, self._toucher = 0, 0
        self._shown: tuple[int, ...] = ()  # every process of the runs that the last look saw
        self._looking: Limits | None = None  # at this run alone
        threading.Thread(target=self._work, name="adk-skills-watchdog", daemon=True).start()
        threading.Thread(target=self._end_stalls, name="adk-skills-stalls", daemon=True).start()
        threading.Thread(target=self._touch_memories, name="adk-skills-touches", daemon=True).start()

    def add(self, run: Watched) -> None:
        """Begin to watch."""
        if self._is_late:
            run.before = machine_memory()
        with self._changed:
            if not self._runs and os.geteuid():  # root gives each run a user
                note_sockets()
            self._runs.add(run)
            self._changed.notify_all()

    def remove(self, run: Watched) -> None:
        """Stop watching. Neither ``kill`` nor ``abandon`` is called any more."""
        with self._changed:
            self._runs.discard(run)

    def _end_stalls(self) -> None:
        """End runs that keep a loop that reads their output, or the watchdog itself, waiting in the kernel."""
        looked = time.monotonic()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._runs)
            time.sleep(INTERVAL_SECONDS)
            passed = min(time.monotonic() - looked, 2 * INTERVAL_SECONDS)
            looked = time.monotonic()
            with self._changed:
                runs = tuple(self._runs)
            try:
                self._count_stalls(runs, passed)
            except Exception:  # the next look may do better, and without this thread nobody is ended
                _logger.exception("What the agent waits for could not be looked at.")

    def _count_stalls(self, runs: Collection[Watched], passed: float) -> None:
        for run in runs:
            run._stalled = max(run._stalled - _FORGIVEN * passed, 0.0)
        left = {user: waited - _FORGIVEN_TO_USER * passed for user, waited in self._waited.items()}
        self._waited = {user: waited for user, waited in left.items() if waited > 0}
        for thread in {self._thread, self._toucher, *(run.thread for run in runs)} - {0}:
            wait = wait_of(thread)
            found = None if wait is None else self._run_behind(wait, thread, runs)
            if found is not None:
                behind, share = found
                behind._stalled += passed * share
                together = self._waited.get(behind.user, 0.0) + passed * share if behind.user else 0.0
                if together > _MOST_WAITED_FOR_USER:
                    together -= _MOST_WAITED_SECONDS
                    behind = max((run for run in runs if run.user == behind.user), key=lambda run: run._stalled)
                    self._end_stalled(behind)
                elif behind._stalled > _MOST_WAITED_SECONDS:
                    self._end_stalled(behind)
                if behind.user:
                    self._waited[behind.user] = together

    def _run_behind(self, wait: Wait, thread: int, runs: Collection[Watched]) -> tuple[Watched, float] | None:
        """The run whose pipe, process or folder it is, and how much of the wait counts."""
        of_run: dict[str, Watched] = {}
        of_command: dict[int, Watched] = {}
        for run in runs:
            if run.thread == thread and wait.descriptor in run.descriptors:
                return run, 1.0
            if run.limits is not None:
                marks = run.limits.marks
                of_run[marks.run_id], of_command[marks.pid] = run, run
                if thread == self._thread and run.limits is self._looking:
                    return run, 1.0 if wait.path.startswith(f"{PROC}/") else _FOLDER_SHARE
        for info in wait.processes():
            run_id = self._owners.get((info.pid, info.start), "")
            if found := of_command.get(info.session) or of_command.get(info.pid) or of_run.get(run_id):
                return found, _touch_share(info.pid) if thread == self._toucher else 1.0
        return None

    def _end_stalled(self, run: Watched) -> None:
        run._stalled = 0.0  # killed, it takes a moment; if that does not help, once more
        _logger.warning("A run kept a thread of the agent waiting in the kernel, and was ended.")
        with self._changed:
            if run in self._runs:
                _kill(run)
        if run.limits is not None and not run.limits.seen.over:
            run.limits.seen.over = True
            run.limits.breach(*_STALLED)

    def _touch_memories(self) -> None:
        """Wait for the memory of each process in turn; :meth:`_end_stalls` looks at what this thread waits for."""
        self._toucher = threading.get_native_id()
        took = 0.0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._runs)
            time.sleep(max(INTERVAL_SECONDS, took * SHARE))
            began = time.thread_time()
            for pid in self._shown:
                touch(pid)
            took = time.thread_time() - began

    def _work(self) -> None:
        took = 0.0
        self._thread = threading.get_native_id()
        while True:
            with self._changed:
                if not self._runs:
                    self._owners.clear()
                    self._shown = ()
                    self._shortages.end()
                self._changed.wait_for(lambda: self._runs)
            self._begin()
            self._rest(took)
            self._is_late = True  # nobody knows how long this one takes
            began = time.thread_time()  # the processor's time: on a busy machine a look takes long and costs no more
            self._end_those_without_a_loop()
            limits = self._limits()
            young = time.monotonic() - INTERVAL_SECONDS
            dear = self._look([limit for limit in limits if limit.marks.started <= young])
            took = time.thread_time() - began - dear
            self._is_late = took * SHARE > INTERVAL_SECONDS

    def _begin(self) -> None:
        """Take note of the machine's memory when there are runs again: what one takes before the first look, which may
        come late, is its own (row 416). A short run has ended by then, and pays nothing.
        """
        if self._shortages.lowest is None:
            time.sleep(_SHORT_SECONDS)
            if self._runs:
                self._shortages.begin()

    def _rest(self, took: float) -> None:
        """Wait until the next look, so that looks take a tenth of the time at most. Processes that only sleep make each
        look take long: then it is a third while memory or disk goes fast, and where as much goes as a run may have the
        wait is over (row 403).
        """
        began = time.monotonic()
        left, limit = self._left() if took * SHARE > INTERVAL_SECONDS else ({}, EVERYTHING)
        while (rest := max(INTERVAL_SECONDS, took * SHARE) - (time.monotonic() - began)) > 0:
            time.sleep(min(INTERVAL_SECONDS, rest))
            if left:
                now = self._left()[0]
                gone = max(before - now.get(what, before) for what, before in left.items())
                if gone > limit or (gone > _FAST_BYTES and time.monotonic() - began >= took * _LEAST_REST):
                    return

    def _left(self) -> tuple[dict[str, int], int]:
        """Bytes of memory, and on the disks of the runs, that anybody may still take, which is cheap to find out; and
        the least limit of memory that one of the runs has.
        """
        with self._changed:
            limits = [run.limits for run in self._runs if run.limits is not None]
        found = {"": memory_left()}
        for folder in {disk.folder for one in limits for disk in one.disk}:
            if folder is not None:
                with contextlib.suppress(OSError):  # of a run that has just ended
                    found[folder] = _free(folder)
        return found, min((one.memory_bytes or EVERYTHING for one in limits), default=EVERYTHING)

    def _end_those_without_a_loop(self) -> None:
        """End runs whose event loop was closed without cancelling them, or is blocked beyond their deadline."""
        now = time.monotonic()
        with self._changed:
            for run in tuple(self._runs):
                if run.loop_closed():
                    self._runs.discard(run)
                    workers.later(functools.partial(_abandon, run))
                elif run.deadline is not None and not run.is_overdue and now > run.deadline + LATE_SECONDS:
                    run.deadline = None
                    run.is_overdue = _kill(run)

    def _limits(self) -> list[Limits]:
        """Those of the runs. In a frame of its own: a run that a thread still names keeps its place."""
        limits = []
        with self._changed:
            for run in self._runs:
                if run.limits is not None:
                    run.limits.seen.before = run.limits.seen.before or run.before
                    run.limits.seen.user = run.user
                    limits.append(run.limits)
        return limits

    def _look(self, runs: list[Limits]) -> float:
        """Look at these runs; how many seconds of that were for what can take long."""
        members: dict[str, list[ProcessInfo]] | None = None
        now, dear, cost, files = MachineMemory(), 0.0, 0.0, 0
        to_go: Mapping[Limits, Problem] = {}
        for run in runs:
            if run.seen.over:
                continue
            # Whatever goes wrong, a run whose limits nobody watches must not go on, and the others stay watched.
            try:
                if members is None:
                    members = self._members(runs)
                    self._shown = tuple(info.shown for own in members.values() for info in own)
                    now = machine_memory()
                    to_go, dear = self._shortages.to_go(runs, members, now)
                    files = self._shortages.files_beyond()
                    cost = sum(sum(one.seen.costs.values()) for one in runs)
                own, seen, self._looking = members[run.marks.run_id], run.seen, run
                seen.has_time, seen.shared_by, seen.dear_seconds = dear < LOOK_SECONDS, len(runs), 0.0
                seen.cost_of_others = cost - sum(seen.costs.values())
                lowest = self._shortages.lowest or now
                problem = (
                    run.beyond()
                    or _processes_problem(run, own, now, lowest, alone=run.is_alone(runs))
                    or to_go.get(run)
                    or _files_problem(run, own, files // len(runs))
                    or _held_problem(run, own, now)
                    or _mapped_problem(run, own)
                    or _disk_problem(run, own)
                )
                if problem is None and run.on_look is not None:
                    run.on_look(_sample(run, own))
            except Exception:
                _logger.exception("The limits of a run could not be looked at, so it is stopped.")
                problem = _UNWATCHED
            self._looking = None
            dear += run.seen.dear_seconds
            if problem is not None:
                run.seen.over = True
                run.breach(*problem)
        return dear

    def _members(self, runs: list[Limits]) -> dict[str, list[ProcessInfo]]:
        """The live processes of every run, its command included, in one pass over the system."""
        commands = {run.marks.pid: run.marks.run_id for run in runs}
        # Not by the ids of sessions: one that has just ended may have passed its id on to the command of another run.
        members: dict[str, list[ProcessInfo]] = {run.marks.run_id: [] for run in runs}
        owners: dict[tuple[int, int], str] = {}
        there = {info.pid: info for info in all_processes() if info.alive and info.pid != os.getpid()}
        owner_of: dict[int, str] = {}
        for last in there.values():
            # From the first of its parents down: a child may have a lower id and have begun in the same tick (row 253).
            way: dict[int, ProcessInfo] = {}
            pid = last.pid
            while pid in there and pid not in owner_of and pid not in way:
                way[pid] = there[pid]
                pid = there[pid].parent
            run_id = owner_of.get(pid, "")
            for info in reversed(way.values()):
                # A command that leads no session is bubblewrap.
                run_id = commands.get(info.session) or commands.get(info.pid) or run_id
                if not run_id:
                    key = (info.pid, info.start)
                    marked = self._owners.get(key)
                    # What has no mark is remembered too: an environment is read once per process.
                    if marked is None or (marked and marked not in members):
                        marked = _mark_of(info.shown)
                    owners[key] = marked
                    run_id = marked if marked in members else ""
                owner_of[info.pid] = run_id
                if run_id:
                    members[run_id].append(info)
        self._owners = owners
        return members


def _touch_share(pid: int) -> float:
    """How much of a wait for the memory of a process counts: many small programs on a busy machine make wait, too."""
    return _SMALL_SHARE if page_tables([pid]) < _LARGE_TABLES else _TOUCH_SHARE


def _kill(run: Watched) -> bool:
    try:
        return run.kill()
    except Exception:
        _logger.exception("A run could not be ended although its deadline had passed.")
        return True


def _abandon(run: Watched) -> None:
    try:
        run.abandon()
    except Exception:
        _logger.exception("A run that has no event loop any more could not be ended.")


def _sample(run: Limits, members: list[ProcessInfo]) -> ResourceSample:
    # A process that has ended takes its time along when nobody of the run waited for it, and what it had used until the
    # last look still counts. If somebody waits for it later, all of it is back at once: more than there was time for.
    now, seen = time.monotonic(), sum(info.cpu_ticks for info in members)
    since = run.marks.started if run.seen.sampled is None else run.seen.sampled
    possible = 1 + int((now - since) * TICKS_PER_SECOND) * (os.cpu_count() or 1)
    run.seen.cpu_ticks += min(max(seen - run.seen.last_ticks, 0), possible)
    run.seen.sampled, run.seen.last_ticks = now, seen
    return ResourceSample(
        seconds=now - run.marks.started,
        memory_bytes=sum(info.rss_pages for info in members) * PAGE_BYTES,
        cpu_seconds=run.seen.cpu_ticks / TICKS_PER_SECOND,
        processes=len(members),
        workspace_bytes=run.seen.workspace_bytes,
    )


def _processes_problem(
    run: Limits, members: list[ProcessInfo], now: MachineMemory, lowest: MachineMemory, *, alone: bool
) -> Problem | None:
    rss = sum(info.rss_pages for info in members) * PAGE_BYTES
    run.peak_rss = max(run.peak_rss, rss)
    if run.memory_bytes is not None and not run.bounded:
        # Resident memory counts what processes share once for each of them; the exact sum is dearer to get.
        if rss > run.memory_bytes and (used := used_together(members)) > run.memory_bytes:
            return (
                Status.OUT_OF_MEMORY,
                f"Stopped: its {len(members)} processes used {used >> 20} MiB of memory together; memory_bytes is "
                f"{run.memory_bytes >> 20} MiB.",
            )
        found = _other_memory(run, run.memory_bytes, members, now, lowest, alone=alone)
        if found is not None:
            return too_much(run, *found)
    if run.memory_bytes is not None and kernel_setting("vm/overcommit_memory", 0) == 2:
        reserved = reserved_memory(info.shown for info in members)
        if reserved > _RESERVED_FACTOR * run.memory_bytes:
            return too_much(run, reserved, "what it reserved")
    if run.pids is not None:
        threads = sum(info.threads for info in members)
        if threads > run.pids * PIDS_FACTOR:
            return Status.ERROR, f"Stopped: it had {threads} processes and threads; pids is {run.pids}."
    return None


def _other_memory(
    run: Limits,
    limit: int,
    members: list[ProcessInfo],
    now: MachineMemory,
    lowest: MachineMemory,
    *,
    alone: bool,
) -> tuple[int, str] | None:
    """Bytes beyond the limit that are not in the processes' own memory (row 79), and where they are."""
    before = run.seen.before or now
    pids = [info.shown for info in members]
    if now.shared - lowest.shared > limit // 2 or now.swapped - lowest.swapped > limit // 4:
        used, there, (had, of_machine) = 0, now.shared + now.swapped, run.seen.in_files
        # Where all that has come since could be this one's, it is not left alone until the next look is due (row 452).
        at_once = there - of_machine > max(limit - had, limit // 4)
        with run.seen.dear("memory", at_once=at_once) as is_due:
            if is_due:
                in_files = memory_in_files(pids) + swapped_out(pids)
                run.seen.in_files = in_files, there
                used = _own_memory(members, limit, in_files)
                if alone:
                    used = max(used, _hidden_memory(run, limit, now.shared - before.shared, pids))
        if used > limit:
            return used, "files in memory and swapped memory"
    if now.page_tables - lowest.page_tables > limit // 4:
        used = _own_memory(members, limit, page_tables(pids))
        if used > limit:
            return used, "page tables"
    return None


def _own_memory(members: list[ProcessInfo], limit: int, besides: int) -> int:
    """Bytes in no file that these processes have, and others besides; what forked ones share counts once where it
    matters, which takes longer.
    """
    own = private_memory(info.shown for info in members)
    if besides <= limit < own + besides:
        own = min(own, used_together(members, b"Pss_Anon:"))
    return own + besides


def _hidden_memory(run: Limits, limit: int, grown: int, pids: list[int]) -> int:
    """Shared memory the machine has more than when the only run there is began, when that can only be the run's.

    Nothing says whose it is: so it takes half as much again as the limit, and the run must have where memory is hidden.
    A socket alone is no such place: the memory may be another agent's, or a program's of the machine (row 395).
    """
    if grown <= limit * 3 // 2 or not run.disk or hiding_places(pids, run.guarded()) < SURE_PLACE:
        return 0
    for place in run.disk:  # it may be in memory, and has a limit of its own
        with contextlib.suppress(OSError):
            grown -= place.usage(MANY_ENTRIES, LOOK_SECONDS)[0]
    return grown if grown > limit * 3 // 2 else 0


def _files_problem(run: Limits, members: list[ProcessInfo], share: int) -> Problem | None:
    """Whether a run keeps more than its share of those files open by mapping them, which no limit counts (row 272)."""
    if not share:
        return None
    with run.seen.dear("files") as is_due:
        files = mapped_files((info.shown for info in members), share) if is_due else 0
    if files <= share:
        return None
    return Status.ERROR, f"Stopped: it mapped more than {share:,} files, and the machine may have no more open soon."


def _mapped_problem(run: Limits, members: list[ProcessInfo]) -> Problem | None:
    """Whether a run has mapped a file that it can cut so often that each cut keeps others waiting (row 412)."""
    folders = [limit.folder for limit in run.disk if limit.folder is not None]
    if not folders:
        return None
    found = 0
    with run.seen.dear("mapped", _HELD_SECONDS) as is_due:
        if is_due:
            guarded = run.guarded()
            pids = [info.shown for info in members if info.shown not in guarded]
            found = most_mapped(sorted(pids, key=lambda _: os.urandom(4)), folders, _MOST_MAPPED)
    if found <= _MOST_MAPPED:
        return None
    hidden = f"a process that hides its mappings counts as {_MOST_MAPPED // 2:,}"
    return Status.ERROR, f"Stopped: it mapped a file of its own more than {_MOST_MAPPED:,} times; {hidden}."


def _held_problem(run: Limits, members: list[ProcessInfo], now: MachineMemory) -> Problem | None:
    """Whether a run holds so many watches or locks that others wait for whoever goes through them."""
    most, found = EVERYTHING if run.watches is None else run.watches, Held()
    with run.seen.dear("held", _HELD_SECONDS) as is_due:
        if is_due:
            found = held((info.shown for info in members), most, _MOST_LOCKS, run.guarded())
    if found.watches > most:
        hidden = f"; each process that hides what it has open counts as {WATCHES_UNSEEN:,}" if found.hides else ""
        return Status.ERROR, f"Stopped: it watched more than {most:,} files (epoll){hidden}."
    if found.locks > _MOST_LOCKS:
        return Status.ERROR, f"Stopped: it held more than {_MOST_LOCKS:,} locks of files."
    grown = now.kernel - (run.seen.before or now).kernel
    # The memory alone may be another run's (row 394).
    if found.hides and grown > _MOST_GROWN_HIDDEN and machine_locks(_MANY_LOCKS) >= _MANY_LOCKS:
        said = f"Stopped: one of its processes hides what it has open, and the kernel took {grown >> 20} MiB meanwhile."
        return Status.ERROR, said
    return None


def _disk_problem(run: Limits, members: list[ProcessInfo]) -> Problem | None:
    walked = [(limit.folder, limit.most_bytes) for limit in run.disk if limit.folder and limit.most_bytes]
    free, seen = 0, run.seen
    with contextlib.suppress(OSError):  # it has just ended
        free = min((_free(folder) for folder, _ in walked), default=0)
    # As much as it may have went since the last look: a slow one is not waited for (row 451).
    at_once = seen.free - free > min((most for _, most in walked), default=EVERYTHING)
    with seen.dear("disk", _DISK_INTERVAL_SECONDS, at_once=at_once) as is_due:
        if is_due:
            seen.free = free
        excess = _excess_on_disk(run, members) if is_due else None
    return None if excess is None else (Status.DISK_LIMIT, f"Stopped: {excess}.")


def _excess_on_disk(run: Limits, members: list[ProcessInfo]) -> str | None:
    found = None
    pids = [info.shown for info in members]
    for number, limit in enumerate(run.disk):
        most_bytes, most_entries = limit.most_bytes, limit.most_entries
        if most_bytes is None and most_entries is None:
            continue
        ceiling = MANY_ENTRIES if most_entries is None else most_entries + 1
        try:
            used, entries = limit.usage(ceiling, LOOK_SECONDS)
            if limit.folder is not None and most_bytes is not None:
                hidden = _hidden_on_disk(run, limit.folder, most_bytes, pids)
                used = max(used + deleted_files(pids, limit.folder, too_deep=number == 0), hidden)
        except OSError:  # removed or renamed by the script; the next look may find it again
            continue
        if number == 0:
            run.seen.workspace_bytes = used
        found = limit.excess(used, entries) or found
    return found


def _hidden_on_disk(run: Limits, folder: str, most_bytes: int, pids: list[int]) -> int:
    """Bytes the disk has less than when it had most in this run, when that can only be deleted files of the run which
    nobody shows (row 248); nothing says whose they are, so it takes half as much again as the limit, and a gigabyte.
    """
    free = _free(folder)
    run.seen.most_free = max(run.seen.most_free, free)
    taken = run.seen.most_free - free
    least = max(most_bytes * 3 // 2, _LEAST_HIDDEN)
    return taken if taken > least and may_hide_files(pids, folder, run.guarded()) else 0


def _free(folder: str) -> int:
    told = os.statvfs(folder)
    return told.f_bfree * told.f_frsize


def _mark_of(pid: int) -> str:
    """The run a process says it belongs to, by its environment; empty for none."""
    needle = f"{RUN_ID_VARIABLE}=".encode()
    for variable in text_of(f"{PROC}/{pid}/environ", ENVIRONMENT_BYTES).split(b"\0"):
        if variable.startswith(needle):
            return variable[len(needle) :].decode("ascii", "replace")
    return ""


watchdog = OnePerProcess(Watchdog)
"""This process's."""


def works_here() -> bool:
    """Whether the system shows what a watchdog needs."""
    return os.path.exists(f"{PROC}/self/stat")  # noqa: PTH110
