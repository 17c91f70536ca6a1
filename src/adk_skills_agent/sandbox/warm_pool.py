"""The warm pool: sandboxes that were started before there is anything to run in them, each for one run (S0-163).

A run takes one only of its own description, and none twice. Those who want none pay for none. They are made by threads
of the pool's own, slower and slower while that fails; a run never fails because of the pool. None is kept longer than
some minutes without a run that could use it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from adk_skills_agent.errors import SandboxError

MOST_IDLE = 8
"""Sandboxes of one pool that wait for a run."""
MAKERS = min(2, os.cpu_count() or 1)
"""Threads that make them."""

_IDLE_SECONDS = 300.0
_LOOK_SECONDS = 1.0  # between two looks at what is idle
_FIRST_PAUSE_SECONDS = 0.1
_LAST_PAUSE_SECONDS = 60.0

_Spec = TypeVar("_Spec", bound=Hashable)
_Started = TypeVar("_Started")
_logger = logging.getLogger("adk_skills_agent.sandbox")


@dataclass(slots=True)
class _Kind(Generic[_Started]):
    """The waiting sandboxes of one description."""

    wanted: int
    used: float = 0.0
    ready: deque[_Started] = field(default_factory=deque)
    starting: int = 0
    waiting: int = 0
    failures: int = 0
    not_before: float = 0.0


class WarmPool(Generic[_Spec, _Started]):
    """The waiting sandboxes of one owner; from any thread.

    Args:
        make: Starts one of a description, in a thread of the pool; None when it is not wanted any more.
        is_waiting: Whether one can still be used; called under the pool's lock.
        end: Ends some.
        delay: Seconds by which the start of one is put off: the run that ends or begins now needs the processor first.
        patience: Seconds for which :meth:`take` waits for one that is being made.
        from_second: Whether there are none for the first run: a program that runs one script pays for none.
        what: What they are, for the log.
    """

    def __init__(
        self,
        make: Callable[[_Spec], _Started | None],
        is_waiting: Callable[[_Started], bool],
        end: Callable[[list[_Started]], None],
        *,
        delay: float,
        patience: float = 0.0,
        from_second: bool = False,
        what: str = "sandbox",
    ) -> None:
        self._start, self._is_waiting, self._end = make, is_waiting, end
        self._delay, self._patience, self._from_second, self._what = delay, patience, from_second, what
        self._changed = threading.Condition()
        self._kinds: OrderedDict[_Spec, _Kind[_Started]] = OrderedDict()  # the one used last comes last
        self._makers = 0
        self._asked = False
        self._being_made = 0

    def take(self, spec: _Spec, wanted: int) -> _Started | None:
        """A sandbox nobody has used, or None.

        Args:
            spec: What must match.
            wanted: How many are to be kept ready from now on.
        """
        deadline = time.monotonic() + self._patience
        dead: list[_Started] = []
        with self._changed:
            was_asked, self._asked = self._asked, True
            if self._from_second and not was_asked:
                return None
            kind = self._kinds.get(spec)
            if kind is None:
                kind = self._kinds[spec] = _Kind(wanted)
            kind.wanted, kind.used = wanted, time.monotonic()
            self._kinds.move_to_end(spec)
            self._start_makers()
            found = self._usable_one(kind, dead)
            if found is None:
                self._changed.notify_all()  # else they are told when the run is over, which needs the processor now
            # What is being made for this spec comes sooner than what would be begun now, for as many as are being made.
            while found is None and kind.waiting < kind.starting and time.monotonic() < deadline:
                kind.waiting += 1
                self._changed.wait(max(0.0, deadline - time.monotonic()))
                kind.waiting -= 1
                found = self._usable_one(kind, dead)
        if dead:
            self._end(dead)
        return found

    def refill(self) -> None:
        """The run that took a sandbox is over: make another."""
        with self._changed:
            self._changed.notify_all()

    def ready(self) -> list[_Started]:
        """The sandboxes that wait."""
        with self._changed:
            return [sandbox for kind in self._kinds.values() for sandbox in kind.ready]

    def idle(self) -> int:
        """Sandboxes that are ready."""
        return len(self.ready())

    def starting(self) -> int:
        """Sandboxes that are being made."""
        with self._changed:
            return sum(kind.starting for kind in self._kinds.values())

    def close(self, seconds: float = 1.0) -> None:
        """End all; the next run begins anew. Those being made end when they are, which is waited for so long."""
        sandboxes = self.ready()
        with self._changed:
            self._kinds.clear()
            self._asked = False
            self._changed.notify_all()
        self._end(sandboxes)
        with self._changed:
            self._changed.wait_for(lambda: self._being_made == 0, seconds)

    def _start_makers(self) -> None:
        while self._makers < MAKERS:
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
            if surplus:
                self._end(surplus)
            if spec is not None:
                time.sleep(self._delay)
                try:
                    self._make_one(spec)
                finally:
                    with self._changed:
                        self._being_made -= 1
                        self._changed.notify_all()

    def _make_one(self, spec: _Spec) -> None:
        made: _Started | None = None
        problem: Exception | None = None
        try:
            made = self._start(spec)
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
                elif made is None:
                    kind.wanted = 0
                else:
                    kind.failures = 0
                    kind.ready.append(made)
                    made = None
            self._changed.notify_all()
            told = kind is not None and kind.failures == 1
        if problem is not None and told:
            reason = getattr(problem, "message", problem)
            _logger.warning("No %s could be started ahead, so scripts start more slowly: %s", self._what, reason)
        if made is not None:
            self._end([made])

    def _lacking(self) -> _Spec | None:
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

    def _surplus(self) -> list[_Started]:
        """The sandboxes to end: those that waited too long, those that are dead, and those too many."""
        now = time.monotonic()
        found: list[_Started] = []
        left = MOST_IDLE
        for spec, kind in reversed(list(self._kinds.items())):
            keep = min(kind.wanted, left)
            if now - kind.used > _IDLE_SECONDS or keep <= 0:
                found += kind.ready
                del self._kinds[spec]
                continue
            usable = deque(sandbox for sandbox in kind.ready if self._is_waiting(sandbox))
            found += [sandbox for sandbox in kind.ready if sandbox not in usable]
            kind.ready = usable
            while len(kind.ready) > keep:
                found.append(kind.ready.popleft())
            left -= keep
        return found

    def _usable_one(self, kind: _Kind[_Started], dead: list[_Started]) -> _Started | None:
        while kind.ready:
            sandbox = kind.ready.popleft()
            if self._is_waiting(sandbox):
                return sandbox
            dead.append(sandbox)
        return None
