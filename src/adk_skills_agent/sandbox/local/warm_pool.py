"""Every sandbox with namespaces comes from here: a description goes in, a started sandbox comes out.

Two makers are behind it, the zygote and bubblewrap. Over them is the warm pool: sandboxes that were started before
there is anything to run in them, each for one run (S0-163). Such a sandbox waits for a job in its init program. It
knows nothing of the run to come: command, variables, secrets and files arrive with the job, and limits count from
there. A run takes one only of its own description, and none twice.

A process has them from its second run on, at most :data:`MOST_IDLE`, until it ends or all sandboxes are closed; none is
kept longer than some minutes without a run that could use it. A program that runs one script pays for none. They are
made by threads of their own, slower and slower while that fails; a run never fails because of the pool.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.files.workspace import Workspace, link_mounts
from adk_skills_agent.sandbox.local.cgroup import RunGroup
from adk_skills_agent.sandbox.local.namespaces.bubblewrap import start_with_bubblewrap
from adk_skills_agent.sandbox.local.namespaces.sandbox import SandboxSpec, StartedSandbox
from adk_skills_agent.sandbox.local.namespaces.zygote import zygote_life
from adk_skills_agent.sandbox.threads import OnePerProcess

MOST_IDLE = 8
"""Sandboxes of one process that wait for a run, 6 MB each."""

_IDLE_SECONDS = 300.0
_LOOK_SECONDS = 1.0  # between two looks at what is idle
_MAKERS = min(2, os.cpu_count() or 1)
_PATIENCE_SECONDS = 5.0
_RUN_FIRST_SECONDS = 0.02
"""How long the start of one is put off: without that the run that ends or begins now takes 2 ms longer."""

_END_SECONDS = 1.0
_FIRST_PAUSE_SECONDS = 0.1
_LAST_PAUSE_SECONDS = 60.0

_logger = logging.getLogger("adk_skills_agent.sandbox")


def start_sandbox(spec: SandboxSpec) -> StartedSandbox:
    """Make a sandbox, forked if that is possible now, else by bubblewrap. Blocking, for a worker thread.

    Raises:
        SandboxError: It could not be made or limited, or there is no control group to be had.
        OSError: No descriptor or memory is left.
    """
    with contextlib.ExitStack() as undo:
        group = None
        if spec.grouped:
            group = RunGroup(spec.memory_bytes, spec.pids)
            undo.callback(group.give_back)
        life = zygote_life()
        zygote = life.ready(spec.uid) if life.can_make(spec) else None
        started = None
        if zygote is not None:
            try:
                started = zygote.start(spec, () if group is None else group.group.task_files())
                life.succeeded()
            except (SandboxError, OSError) as error:
                problem = error
        if started is None:
            started = start_with_bubblewrap(spec, contextlib.nullcontext if group is None else group.group.membership)
            if zygote is not None:
                life.failed(zygote, problem)  # only now: else it was not the zygote's fault
        undo.pop_all()
    started.group = group
    if group is not None:
        try:
            group.confine(started.first_pid)
        except BaseException:
            started.discard()
            raise
    return started


def start_waiting(spec: SandboxSpec) -> StartedSandbox:
    """Make a sandbox that will wait for a run, with the run's mounts linked into its workspace already.

    Raises:
        SandboxError: As :func:`start_sandbox`.
        OSError: As :func:`start_sandbox`, or a mount is gone.
    """
    started = start_sandbox(spec)
    try:
        started.workspace = Workspace("", started.folders.work, started.folders.tmp)
        link_mounts(started.workspace, spec.mounts, inside=True)
    except BaseException:
        started.discard()
        raise
    started.was_waiting = True
    return started


@dataclass(slots=True)
class _Kind:
    """The waiting sandboxes of one description."""

    wanted: int
    used: float = 0.0
    ready: deque[StartedSandbox] = field(default_factory=deque)
    starting: int = 0
    waiting: int = 0
    failures: int = 0
    not_before: float = 0.0


class WarmPool:
    """The waiting sandboxes of one process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._kinds: OrderedDict[SandboxSpec, _Kind] = OrderedDict()  # the one used last comes last
        self._makers = 0
        self._asked = 0
        self._being_made = 0

    def take(self, spec: SandboxSpec, wanted: int) -> StartedSandbox | None:
        """A sandbox nobody has used, or None. Blocking while one that is being made is nearly there.

        Args:
            spec: What must match.
            wanted: How many are to be kept ready from now on.
        """
        deadline = time.monotonic() + _PATIENCE_SECONDS
        dead: list[StartedSandbox] = []
        with self._changed:
            self._asked += 1
            if self._asked == 1:
                return None
            kind = self._kinds.get(spec)
            if kind is None:
                kind = self._kinds[spec] = _Kind(wanted)
            kind.wanted, kind.used = wanted, time.monotonic()
            self._kinds.move_to_end(spec)
            self._start_makers()
            found = _alive_one(kind, dead)
            if found is None:
                self._changed.notify_all()  # else they are told when the run is over, which needs the processor now
            # What is being made for this spec comes sooner than what would be begun now, for as many as are being made.
            while found is None and kind.waiting < kind.starting:
                kind.waiting += 1
                self._changed.wait(max(0.0, deadline - time.monotonic()))
                kind.waiting -= 1
                found = _alive_one(kind, dead)
                if time.monotonic() > deadline:
                    break
        _end(dead)
        return found

    def refill(self) -> None:
        """The run that took a sandbox is over: make another."""
        with self._changed:
            self._changed.notify_all()

    def idle(self) -> int:
        """Sandboxes that are ready."""
        with self._changed:
            return sum(len(kind.ready) for kind in self._kinds.values())

    def starting(self) -> int:
        """Sandboxes that are being made."""
        with self._changed:
            return sum(kind.starting for kind in self._kinds.values())

    def close(self) -> None:
        """End all; the next run begins anew. Those being made end when they are, which is waited for a moment."""
        with self._changed:
            sandboxes = [sandbox for kind in self._kinds.values() for sandbox in kind.ready]
            self._kinds.clear()
            self._asked = 0
            self._changed.notify_all()
        _end(sandboxes)
        with self._changed:
            self._changed.wait_for(lambda: self._being_made == 0, _END_SECONDS)

    def forget(self) -> None:
        """In a forked child: what is the parent's is let go of, and left alone."""
        for kind in list(self._kinds.values()):
            for sandbox in list(kind.ready):
                sandbox.close()
                sandbox.folders.close()

    def _start_makers(self) -> None:
        while self._makers < _MAKERS:
            self._makers += 1
            threading.Thread(target=self._make, name=f"adk-skills-pool-{self._makers}", daemon=True).start()

    def _make(self) -> None:
        """The work of a thread."""
        while True:
            with self._changed:
                surplus = self._surplus()
                spec = None if surplus else self._lacking()
                if spec is None and not surplus:
                    if not self._kinds:
                        self._makers -= 1
                        return
                    self._changed.wait(_LOOK_SECONDS)
                    continue
                if spec is not None:
                    self._kinds[spec].starting += 1
                    self._being_made += 1
            _end(surplus)
            if spec is not None:
                time.sleep(_RUN_FIRST_SECONDS)
                try:
                    self._make_one(spec)
                finally:
                    with self._changed:
                        self._being_made -= 1
                        self._changed.notify_all()

    def _make_one(self, spec: SandboxSpec) -> None:
        made: StartedSandbox | None = None
        problem: Exception | None = None
        try:
            made = start_waiting(spec)
        except (SandboxError, OSError, ValueError) as error:
            problem = error
        with self._changed:
            kind = self._kinds.get(spec)
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

    def _lacking(self) -> SandboxSpec | None:
        """For which spec to make one, the one used last first."""
        left = MOST_IDLE
        now = time.monotonic()
        for spec, kind in reversed(self._kinds.items()):
            wanted = min(kind.wanted, left)
            have = len(kind.ready) + kind.starting
            if have < wanted and now >= kind.not_before:
                return spec
            left -= max(wanted, 0)
        return None

    def _surplus(self) -> list[StartedSandbox]:
        """Those to end: they waited too long, they are dead, there are too many."""
        now = time.monotonic()
        found: list[StartedSandbox] = []
        left = MOST_IDLE
        for spec, kind in reversed(list(self._kinds.items())):
            keep = min(kind.wanted, left)
            if now - kind.used > _IDLE_SECONDS or keep <= 0:
                found += kind.ready
                del self._kinds[spec]
                continue
            found += [sandbox for sandbox in kind.ready if not sandbox.is_waiting()]
            kind.ready = deque(sandbox for sandbox in kind.ready if sandbox not in found)
            while len(kind.ready) > keep:
                found.append(kind.ready.popleft())
            left -= keep
        return found


def _alive_one(kind: _Kind, dead: list[StartedSandbox]) -> StartedSandbox | None:
    while kind.ready:
        sandbox = kind.ready.popleft()
        if sandbox.is_waiting():
            return sandbox
        dead.append(sandbox)
    return None


def _end(sandboxes: list[StartedSandbox]) -> None:
    for sandbox in sandboxes:
        sandbox.end()
    for sandbox in sandboxes:
        sandbox.discard()


warm_pool = OnePerProcess(WarmPool, WarmPool.forget)


def close_warm_pool() -> None:
    """End all waiting sandboxes of this process, if there are any; see :meth:`WarmPool.close`."""
    if (pool := warm_pool.made) is not None:
        pool.close()


atexit.register(close_warm_pool)
