"""Everything that comes before a run's command, as one piece of work for a worker thread."""

from __future__ import annotations

import threading
import time

from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.local.at_once import TakesTimeError, remember, was_quick
from adk_skills_agent.sandbox.local.levels import Level, LevelRun
from adk_skills_agent.sandbox.local.output import Capture, open_captures
from adk_skills_agent.sandbox.local.slots import slot_pool
from adk_skills_agent.sandbox.local.staging import Staged, stage


class Preparation:
    """Copies of the mounts, what keeps the output, and the run itself.

    Args:
        request: What to run.
        policy: Its checked policy.
        level: What contains it.
    """

    def __init__(self, request: ExecutionRequest, policy: SandboxPolicy, level: Level) -> None:
        self.run: LevelRun
        self.captures: tuple[Capture, Capture]
        self.request = self._asked = request
        self.notes: tuple[str, ...] = ()
        self._policy = policy
        self._level = level
        self._staged: Staged | None = None
        self._lock = threading.RLock()  # re-entrant: garbage that is collected in here may abandon the run
        self._made: LevelRun | None = None
        self._abandoned = False
        self._at_once = False

    def start_at_once(self) -> bool:
        """Start in the event loop, when a sandbox is ready and nothing has to be copied; False when that is not so.

        The folders to be shown are only looked at here when that was quick the last time, not long ago.

        Raises:
            SandboxError: See :meth:`start`, also for more.
        """
        if not self._policy.warm_slots or not slot_pool().idle() or self.request.input_files:
            return False
        if not was_quick(self.request):
            return False
        self._at_once = True
        try:
            self.start()
        except TakesTimeError:
            return False
        finally:
            self._at_once = False
        return True

    def start(self) -> None:
        """Blocking; leaves nothing behind when it fails. From here on ``run`` and ``captures`` are there.

        Raises:
            SandboxError: See ``LevelRun.start``; also when a mount cannot be copied.
        """
        captures: tuple[Capture, ...] = ()
        try:
            began = time.monotonic()
            self._staged = staged = stage(self._asked)
            remember(self._asked, time.monotonic() - began)
            self.request, self.notes = staged.request, staged.notes
            self.run = run = self._level.new_run(self.request, self._policy)
            self.captures = captures = open_captures(self.request.spill_dir, self._policy, run.run_id)
            with self._lock:
                self._made = run
                abandoned = self._abandoned
            if abandoned:
                run.abandon()
            if not self._at_once:
                run.start()
            elif not run.start_at_once():
                raise TakesTimeError
        except BaseException:
            try:
                for capture in captures:
                    capture.discard()
            finally:
                self.release()
            raise

    def abandon(self) -> None:
        """End the run at once from any thread, also while it is being started."""
        with self._lock:
            self._abandoned = True
            run = self._made
        if run is not None:
            run.abandon()

    def release(self) -> None:
        """The run is over: its copies are not needed any more. Safe to call twice."""
        staged, self._staged = self._staged, None
        if staged is not None:
            staged.release()
