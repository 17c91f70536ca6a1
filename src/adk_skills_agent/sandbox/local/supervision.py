"""Watch one child from the event loop: its output, its deadline, its end. No thread, nothing that blocks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable

from adk_skills_agent.sandbox.contract import SandboxPolicy, Status
from adk_skills_agent.sandbox.local.exit_watch import ExitWatch
from adk_skills_agent.sandbox.local.levels import LevelRun
from adk_skills_agent.sandbox.local.output import Capture
from adk_skills_agent.sandbox.local.output_filter import OutputFilter
from adk_skills_agent.sandbox.streaming import ResourceSample

CHUNK = 1 << 16
_READS_PER_TURN = 4  # then other callbacks of the loop get their turn
_FIRST_LOOK_SECONDS = 0.002
_LAST_LOOK_SECONDS = 0.05
_UNKILLABLE_SECONDS = 5.0  # a process that survives SIGKILL so long hangs in the kernel

OnOutput = Callable[[str, bytes], None]


class Stream:
    """One output pipe: counts what was written, keeps what the limits allow, passes the first part on.

    Args:
        name: ``stdout`` or ``stderr``.
        descriptor: Its reading end.
        capture: Keeps it.
        filtered: Replaces secrets and host paths.
        on_output: Gets the first ``share`` bytes.
        share: See ``on_output``.
    """

    def __init__(
        self,
        name: str,
        descriptor: int,
        capture: Capture,
        filtered: OutputFilter,
        on_output: OnOutput | None,
        share: int,
    ) -> None:
        self.name = name
        self.descriptor = descriptor
        self.capture = capture
        self.total = 0
        self.ended = False
        self._filter = filtered
        self._on_output = on_output
        self._share = share

    def feed(self, data: bytes) -> None:
        """The next bytes from the pipe."""
        self.total += len(data)
        self._pass_on(self._filter.feed(data))

    def close(self) -> None:
        """There is no more."""
        self._pass_on(self._filter.close())

    def _pass_on(self, data: bytes) -> None:
        if not data:
            return
        self.capture.add(data)
        if self._on_output is not None and self._share > 0:
            piece = data[: self._share]
            self._share -= len(piece)
            self._on_output(self.name, piece)


class Supervision:
    """One run under the policy's limits; ``done`` is set when nothing more is to be waited for.

    Attributes:
        done: Set when the command has ended and its pipes are closed or no longer waited for.
        cause: Which limit ended the run, or None when it ended by itself.
        timed_out: The deadline passed before the command ended.
        notes: A sentence for each limit that struck.
        failure: What ``on_output`` or ``on_sample`` raised.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        run: LevelRun,
        policy: SandboxPolicy,
        streams: tuple[Stream, Stream],
        on_sample: Callable[[ResourceSample], None] | None = None,
    ) -> None:
        self.done: asyncio.Future[None] = loop.create_future()
        self.cause: Status | None = None
        self.timed_out = False
        self.notes: list[str] = []
        self.failure: Exception | None = None
        self._loop = loop
        self._run = run
        self._child = run.child
        self._policy = policy
        self._streams = streams
        self._on_sample = on_sample
        self._owner = os.getpid()
        self._exited = False
        self._closed = False
        self._killed = False
        self._timers: list[asyncio.TimerHandle] = []
        self._exit: ExitWatch | None = None

    def start(self) -> None:
        """Begin to watch.

        Raises:
            OSError: The loop cannot watch another descriptor.
        """
        for stream in self._streams:
            self._loop.add_reader(stream.descriptor, self._read, stream)
        if self._policy.wall_seconds is not None:
            self._after(self._child.started + self._policy.wall_seconds - time.monotonic(), self._deadline)
        self._exit = ExitWatch(self._loop, self._child, self._on_exit)

    def stop(self, cause: Status | None, note: str | None = None) -> None:
        """End everything of the run now."""
        if self._closed or self._exited or os.getpid() != self._owner:
            return
        if self.cause is None and cause is not None:
            self.cause = cause
            if note:
                self.notes.append(note)
        if not self._killed:
            self._killed = True
            self._run.kill()
            self._after(_UNKILLABLE_SECONDS, self._finish)

    def overdue(self) -> None:
        """The deadline has long passed, and its own timer did not come: something blocked the loop."""
        if self._closed or self._exited:
            return
        self.timed_out = True
        self.cause = self.cause or Status.TIMEOUT
        self.stop(None)

    def sampled(self, sample: ResourceSample) -> None:
        """Pass on what the run uses, while there is somebody to stop it for a listener that fails."""
        if self._closed or self._exited or self._on_sample is None:
            return
        try:
            self._on_sample(sample)
        except Exception as error:  # noqa: BLE001  # the caller's on_sample; raised again when all is cleaned up
            self.failure = self.failure or error
            self.stop(Status.CANCELLED)

    def close(self) -> None:
        """Stop watching; descriptors stay open. Works also when the loop is closed already."""
        # A forked child shares the loop's selector with us: what it closes there would be closed for us too.
        if self._closed or os.getpid() != self._owner:
            return
        self._closed = True
        for timer in self._timers:
            timer.cancel()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            if self._exit is not None:
                self._exit.close()
            for stream in self._streams:
                self._loop.remove_reader(stream.descriptor)

    def _after(self, seconds: float, call: Callable[[], None]) -> None:
        self._timers.append(self._loop.call_later(max(0.0, seconds), call))

    def _read(self, stream: Stream) -> None:
        if self._closed or stream.ended:
            return
        for _ in range(_READS_PER_TURN):
            try:
                data = os.read(stream.descriptor, CHUNK)
            except (BlockingIOError, InterruptedError):
                return
            if not data:
                self._end_of(stream)
                return
            try:
                stream.feed(data)
            except Exception as error:  # noqa: BLE001  # the caller's on_output; raised again when all is cleaned up
                self.failure = self.failure or error
                self.stop(Status.CANCELLED)
                self._end_of(stream)
                return
            flood = self._policy.output_flood_bytes
            if flood is not None and stream.total > flood:
                self.stop(
                    Status.OUTPUT_LIMIT,
                    f"Stopped: it wrote more than {flood:,} bytes to {stream.name}.",
                )
                self._end_of(stream)
                return

    def _end_of(self, stream: Stream) -> None:
        stream.ended = True
        self._loop.remove_reader(stream.descriptor)
        if not all(other.ended for other in self._streams):
            return
        if self._exited:
            self._finish()
        elif self._exit is not None:
            self._exit.hurry()

    def _on_exit(self) -> None:
        self._exited = True
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        if self._killed or self.timed_out or all(stream.ended for stream in self._streams):
            self._finish()
        else:
            # Somebody still holds a pipe: perhaps the end of a pipeline that is about to finish, perhaps a daemon.
            self._after(self._policy.drain_seconds, self._finish)
            self._look_for_writers(_FIRST_LOOK_SECONDS)

    def _look_for_writers(self, pause: float) -> None:
        """Where the pipes do not end with the last writer: ask now and then whether there is one."""
        more = self._run.may_write_more()
        if more:
            self._after(pause, lambda: self._look_for_writers(min(pause * 1.5, _LAST_LOOK_SECONDS)))
        elif more is not None:
            self._finish()

    def _deadline(self) -> None:
        if self._exited or self._killed:
            return
        self.timed_out = True
        self.cause = self.cause or Status.TIMEOUT
        if self._policy.term_grace_seconds <= 0:
            self.stop(None)
            return
        self._run.terminate()
        self._after(self._policy.term_grace_seconds, lambda: self.stop(None))

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)
