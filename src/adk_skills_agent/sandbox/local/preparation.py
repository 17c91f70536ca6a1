"""Everything that comes before a run's command, as one piece of work for a worker thread."""

from __future__ import annotations

import contextlib
import threading

from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.local.levels import Level, LevelRun
from adk_skills_agent.sandbox.local.output import Capture, SpillFile, check_spill_folder
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
        self.request = request
        self.notes: tuple[str, ...] = ()
        self._policy = policy
        self._level = level
        self._staged: Staged | None = None
        self._lock = threading.Lock()
        self._made: LevelRun | None = None
        self._abandoned = False

    def start(self) -> None:
        """Blocking; leaves nothing behind when it fails. From here on ``run`` and ``captures`` are there.

        Raises:
            SandboxError: See ``LevelRun.start``; also when a mount cannot be copied.
        """
        with contextlib.ExitStack() as undo:
            undo.callback(self.release)
            self._staged = staged = stage(self.request)
            self.request, self.notes = staged.request, staged.notes
            self.run = run = self._level.new_run(self.request, self._policy)
            self.captures = _captures(self.request, self._policy, run.run_id)
            for capture in self.captures:
                undo.callback(capture.discard)
            with self._lock:
                self._made = run
                abandoned = self._abandoned
            if abandoned:
                run.abandon()
            run.start()
            undo.pop_all()

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


def _captures(request: ExecutionRequest, policy: SandboxPolicy, run_id: str) -> tuple[Capture, Capture]:
    folder = request.spill_dir
    if folder is None:
        return Capture(policy.output_bytes), Capture(policy.output_bytes)
    check_spill_folder(folder)
    out, err = (
        Capture(policy.output_bytes, SpillFile(folder, f"{run_id}.{name}.txt", policy.output_flood_bytes))
        for name in ("stdout", "stderr")
    )
    return out, err
