"""Warm slots: sandboxes that were started before there is anything to run in them, each for one run (S0-163).

A slot is a sandbox up to the point at which its guest waits for a job (:mod:`.guest`). It knows nothing of the run to
come: command, variables, secrets and files arrive with the job, and limits count from there. What it was made from is
its key; a run takes a slot only of its own key, and no slot twice.

There are slots only while an event loop that has run several scripts is open, at most :data:`MOST_IDLE` in a process,
and none is kept longer than some minutes without a run that could use it. They are made by threads of their own, one
after the other, slower and slower while that fails; a run never fails because of a slot.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import select
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import ReadOnlyMount
from adk_skills_agent.sandbox.local.agent_keeper import end_keeper
from adk_skills_agent.sandbox.local.bash_ahead import Bash, Feed, check_can_wait, start_bash
from adk_skills_agent.sandbox.local.guest_start import start_guest
from adk_skills_agent.sandbox.local.late_close import do_late
from adk_skills_agent.sandbox.local.newborn import Birth, Newborn
from adk_skills_agent.sandbox.local.one_per_process import OnePerProcess
from adk_skills_agent.sandbox.local.population import is_ending_now, opened_stat
from adk_skills_agent.sandbox.local.sandbox_start import SandboxSpec
from adk_skills_agent.sandbox.local.workspace import Workspace, link_mounts
from adk_skills_agent.sandbox.local.zygote_life import end_zygote

MOST_IDLE = 8
"""Slots of one process that wait for a run, 6 MB each."""

_IDLE_SECONDS = 300.0
_LOOK_SECONDS = 1.0  # between two looks at what is idle
_MAKERS = min(2, os.cpu_count() or 1)
_PATIENCE_SECONDS = 5.0
_QUIET_SECONDS = 0.05  # after a slot was taken, while there are others: the run that has it needs the processor now
_END_SECONDS = 1.0
_FIRST_PAUSE_SECONDS = 0.1
_LAST_PAUSE_SECONDS = 60.0

_logger = logging.getLogger("adk_skills_agent.sandbox")


@dataclass(frozen=True, slots=True)
class SlotKey:
    """All that must match between a slot and a run.

    Attributes:
        spec: What the sandbox is made from.
        identities: Device and inode of the folders shown in it, so that one made anew is another.
        python: The interpreter, as the sandbox sees it.
        flags: Its switches.
        preload: Modules imported.
        birth: How such a sandbox is born.
        mounts: What is shown in it, and whether linked into its workspace.
        bash: The bash that waits in it; None for a guest that may become anything.
    """

    spec: SandboxSpec
    identities: tuple[tuple[int, int], ...]
    python: str
    flags: tuple[str, ...]
    preload: tuple[str, ...]
    birth: Birth
    mounts: tuple[ReadOnlyMount, ...] = ()
    bash: Bash | None = None
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        made_of = (self.spec, self.identities, self.python, self.flags, self.preload)
        values = (made_of, self.birth, self.mounts, self.bash)
        object.__setattr__(self, "_hash", hash(values))

    def __hash__(self) -> int:
        """Counted once: each look into the pool asks for it."""
        return self._hash

    def make(self) -> Newborn:
        """Start one. Blocking."""
        is_python = self.bash is None
        if not is_python:
            check_can_wait()
        preload = self.preload if is_python else ()
        made = self.birth(lambda: start_guest(self.spec, self.python, self.flags, preload, ahead=is_python))
        try:
            folders = made.started.folders
            workspace = Workspace("", folders.work, folders.tmp)
            link_mounts(workspace, self.mounts, inside=True)
            if self.bash is not None:
                feed = Feed(self.spec.uid)
                made = replace(made, feed=feed)
                start_bash(self.bash, made.started, feed)
            made.stats.extend(map(opened_stat, (made.started.first_pid, made.started.command)))
            if made.group is not None:
                made.group.open_counts()
        except BaseException:
            made.discard()
            raise
        return replace(made, was_idle=True, workspace=workspace)


def identities(paths: list[str]) -> tuple[tuple[int, int], ...]:
    """Device and inode of folders and files of the host.

    Raises:
        OSError: One is gone.
    """
    return tuple((info.st_dev, info.st_ino) for info in map(os.stat, paths))


@dataclass(slots=True)
class _Kind:
    """The slots of one key."""

    wanted: int
    used: float = 0.0
    ready: deque[Newborn] = field(default_factory=deque)
    starting: int = 0
    waiting: int = 0
    failures: int = 0
    not_before: float = 0.0


class SlotPool:
    """The slots of one process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._kinds: OrderedDict[SlotKey, _Kind] = OrderedDict()  # the one used last comes last
        self._holders: set[Callable[[], bool]] = set()
        self._makers = 0
        self._cold = 0
        self._taken = 0.0
        self._being_made = 0

    def hold(self, is_over: Callable[[], bool]) -> None:
        """Keep slots until :meth:`let_go`, or until ``is_over()`` says that nobody will come for them."""
        with self._changed:
            self._holders.add(is_over)

    def let_go(self, is_over: Callable[[], bool]) -> None:
        """The opposite; with the last one all slots end, and what makes them. Blocks for the moment that takes."""
        with self._changed:
            self._holders.discard(is_over)
            held = bool(self._holders)
        if not held:
            self.close()
            end_zygote()
            end_keeper()

    def take(self, key: SlotKey, wanted: int, *, patient: bool = True) -> Newborn | None:
        """A slot nobody has used, or None.

        Args:
            key: What must match.
            wanted: How many are to be kept ready from now on.
            patient: Wait while one that is being made is nearly there; for worker threads.
        """
        deadline = time.monotonic() + (_PATIENCE_SECONDS if patient else 0.0)
        dead: list[Newborn] = []
        with self._changed:
            if not self._holders:
                return None
            kind = self._kinds.get(key)
            if kind is None:
                kind = self._kinds[key] = _Kind(wanted)
            kind.wanted, kind.used = wanted, time.monotonic()
            self._kinds.move_to_end(key)
            self._start_makers()
            self._taken = time.monotonic()
            found = _alive_one(kind, dead)
            if found is None:
                self._changed.notify_all()  # else the makers are left to sleep until refill(), or look by themselves
            # What is being made for this key comes sooner than what would be begun now, for as many as are being made.
            while patient and found is None and kind.waiting < kind.starting:
                kind.waiting += 1
                self._changed.wait(max(0.0, deadline - time.monotonic()))
                kind.waiting -= 1
                found = _alive_one(kind, dead)
                if time.monotonic() > deadline:
                    break
        if dead:
            do_late(functools.partial(_end, dead))
        return found

    def spare(self, key: SlotKey) -> Newborn | None:
        """A slot nobody has used that is ready for others, too, or None; as many are kept ready as before."""
        dead: list[Newborn] = []
        with self._changed:
            kind = self._kinds.get(key) if self._holders else None
            if kind is None:
                return None
            kind.used = self._taken = time.monotonic()
            found = _alive_one(kind, dead)
        if dead:
            do_late(functools.partial(_end, dead))
        return found

    def refill(self) -> None:
        """The run that took a slot is over, or at work: make another."""
        with self._changed:
            self._taken = 0.0
            self._changed.notify_all()

    @contextlib.contextmanager
    def cold_start(self) -> Iterator[None]:
        """While a run starts without a slot none is made, because both would only wait for each other."""
        with self._changed:
            self._cold += 1
        try:
            yield
        finally:
            with self._changed:
                self._cold -= 1
                self._changed.notify_all()

    def idle(self) -> int:
        """Slots that are ready."""
        with self._changed:
            return sum(len(kind.ready) for kind in self._kinds.values())

    def starting(self) -> int:
        """Slots that are being made."""
        with self._changed:
            return sum(kind.starting for kind in self._kinds.values())

    def close(self, *, patient: bool = True) -> None:
        """End all slots; the next run that is held begins anew.

        Those being made end when they are, which is waited for a moment. At the end of the agent it need not be: they
        end with their starter.
        """
        with self._changed:
            slots = [slot for kind in self._kinds.values() for slot in kind.ready]
            self._kinds.clear()
            self._changed.notify_all()
        _end(slots)
        if patient:
            with self._changed:
                self._changed.wait_for(lambda: self._being_made == 0, _END_SECONDS)

    def forget(self) -> None:
        """In a forked child: what is the parent's is let go of, and left alone."""
        for kind in list(self._kinds.values()):
            for slot in list(kind.ready):
                slot.started.close()  # what feeds a bash is closed in all forked children
                slot.close_stats()
                if slot.group is not None:
                    slot.group.close_counts()
                slot.started.folders.let_go()

    def _start_makers(self) -> None:
        while self._makers < _MAKERS:
            self._makers += 1
            threading.Thread(target=self._make, name=f"adk-skills-slots-{self._makers}", daemon=True).start()

    def _make(self) -> None:
        """The work of a thread."""
        while True:
            with self._changed:
                surplus = self._surplus()
                key = None if surplus else self._lacking()
                if key is None and not surplus:
                    if not self._kinds:
                        self._makers -= 1
                        return
                    self._changed.wait(_QUIET_SECONDS if self._is_quiet_time() else _LOOK_SECONDS)
                    continue
                if key is not None:
                    self._kinds[key].starting += 1
                    self._being_made += 1
            _end(surplus)
            if key is not None:
                try:
                    self._make_one(key)
                finally:
                    with self._changed:
                        self._being_made -= 1
                        self._changed.notify_all()

    def _make_one(self, key: SlotKey) -> None:
        made: Newborn | None = None
        problem: Exception | None = None
        try:
            made = key.make()
        except (SandboxError, OSError, ValueError) as error:
            problem = error
        with self._changed:
            kind = self._kinds.get(key)
            if kind is not None and kind.starting > 0:
                kind.starting -= 1
                if problem is not None:
                    kind.failures += 1
                    pause = min(_FIRST_PAUSE_SECONDS * 2.0**kind.failures, _LAST_PAUSE_SECONDS)
                    kind.not_before = time.monotonic() + pause
                elif made is not None:
                    kind.failures = 0
                    kind.ready.append(made)
                    made = None
            self._changed.notify_all()
            told = kind is not None and kind.failures == 1
        if problem is not None and told:
            reason = getattr(problem, "message", problem)
            _logger.warning("No sandbox could be started ahead, so scripts start more slowly: %s", reason)
        if made is not None:
            _end([made])

    def _lacking(self) -> SlotKey | None:
        """For which key to make one, the one used last first."""
        if self._cold >= _MAKERS:
            return None
        left = MOST_IDLE
        now = time.monotonic()
        for key, kind in reversed(self._kinds.items()):
            wanted = min(kind.wanted, left)
            have = len(kind.ready) + kind.starting
            if have < wanted and now >= kind.not_before and not (kind.ready and self._is_quiet_time()):
                return key
            left -= max(wanted, 0)
        return None

    def _is_quiet_time(self) -> bool:
        return time.monotonic() - self._taken < _QUIET_SECONDS

    def _surplus(self) -> list[Newborn]:
        """Slots to end: nobody holds them, they were idle too long, they are dead, there are too many."""
        over = {holder for holder in self._holders if holder()}
        self._holders -= over
        now = time.monotonic()
        found: list[Newborn] = []
        left = MOST_IDLE
        for key, kind in reversed(list(self._kinds.items())):
            keep = min(kind.wanted, left)
            if not self._holders or now - kind.used > _IDLE_SECONDS or keep <= 0:
                found += kind.ready
                del self._kinds[key]
                continue
            found += [slot for slot in kind.ready if not _alive(slot)]
            kind.ready = deque(slot for slot in kind.ready if slot not in found)
            while len(kind.ready) > keep:
                found.append(kind.ready.popleft())
            left -= keep
        return found


def _alive_one(kind: _Kind, dead: list[Newborn]) -> Newborn | None:
    while kind.ready:
        slot = kind.ready.popleft()
        if _alive(slot):
            return slot
        dead.append(slot)
    return None


def _alive(slot: Newborn) -> bool:
    """Whether process 1 is there and silent: its guest says nothing while it waits, unless it ends."""
    started = slot.started
    poll = select.poll()
    poll.register(started.first, select.POLLIN)
    poll.register(started.control.descriptor, select.POLLIN)
    return not poll.poll(0) and not any(map(is_ending_now, slot.stats))


def _end(slots: list[Newborn]) -> None:
    for slot in slots:
        slot.started.end()
    for slot in slots:
        slot.discard()


slot_pool = OnePerProcess(SlotPool, SlotPool.forget)


def close_slots(*, patient: bool = True) -> None:
    """End all slots of this process, if there are any; see :meth:`SlotPool.close`."""
    if (pool := slot_pool.made) is not None:
        pool.close(patient=patient)


atexit.register(close_slots, patient=False)
