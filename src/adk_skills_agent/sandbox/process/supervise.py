"""Watch one child from the event loop: its output, its deadline, its end. No thread, nothing that blocks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from adk_skills_agent.sandbox.contract import NetworkDecision, SandboxPolicy, Status
from adk_skills_agent.sandbox.files.collect import Collected
from adk_skills_agent.sandbox.output import Capture, OutputFilter
from adk_skills_agent.sandbox.process.spawn import Child
from adk_skills_agent.sandbox.process.tree import signal_group
from adk_skills_agent.sandbox.streaming import ResourceSample

CHUNK = 1 << 16
_READS_PER_TURN = 4  # then other callbacks of the loop are called
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


class SupervisedRun(Protocol):
    """What of a run is needed to watch it; see ``LevelRun``."""

    @property
    def child(self) -> Child:
        """The process to wait for."""

    def terminate(self) -> None:
        """Ask the command to end."""

    def kill(self) -> None:
        """End everything of the run."""

    def may_write_more(self) -> bool | None:
        """Whether a process is left that can write; None where the end of the pipes tells."""


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
        run: SupervisedRun,
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


# What is known about a run once everything of it is gone.


@dataclass(slots=True)
class EndReport:
    """What a level tells about a run that is over.

    Attributes:
        status: How the command ended, in the encoding of ``wait``; None when it cannot be known.
        inferred: ``status`` is a signal deduced from an exit code of 128+n.
        cause: A limit that ended the run and that only the level saw (memory of a control group); None for none.
        cpu_seconds: Of everything in the run, or of the command and the children it waited for when that is all that
            can be known.
        max_rss: Largest resident memory of one of them, in bytes, where the kernel's number is about them.
        killed: Processes that were still alive.
        survivors: Processes that could not be killed.
        rest: What was still in the two pipes.
        not_started: The launcher says that the command never ran; its reason is the last line of stderr.
        collected: Output files; None when they were not wanted.
        notes: Sentences about what is left behind or was not kept.
        network: Decisions of the run's network proxy.
    """

    status: int | None = None
    inferred: bool = False
    cause: Status | None = None
    cpu_seconds: float | None = None
    max_rss: int | None = None
    killed: int = 0
    survivors: int = 0
    rest: tuple[bytes, bytes] = (b"", b"")
    not_started: bool = False
    collected: Collected | None = None
    notes: list[str] = field(default_factory=list)
    network: tuple[NetworkDecision, ...] = ()


# Tell an event loop that a process has ended, without a thread: by its pidfd, else by asking now and then.

_FIRST_DELAY = 0.001
_LAST_DELAY = 0.02


class ExitWatch:
    """Calls ``ended`` once, in the loop, when the child is dead; see :func:`has_ended` for when it is waited for."""

    def __init__(self, loop: asyncio.AbstractEventLoop, child: Child, ended: Callable[[], None]) -> None:
        self._loop = loop
        self._child = child
        self._ended = ended
        self._delay = _FIRST_DELAY
        self._timer: asyncio.TimerHandle | None = None
        self._open = True
        if child.pidfd is not None:
            loop.add_reader(child.pidfd, self._readable)
        else:
            self._ask()

    def hurry(self) -> None:
        """Ask soon: both pipes were closed, so the end is near. No effect with a pidfd."""
        if self._timer is not None:
            self._timer.cancel()
            self._delay = _FIRST_DELAY
            self._ask()

    def close(self) -> None:
        """Stop watching; the pidfd stays open."""
        if not self._open:
            return
        self._open = False
        if self._child.pidfd is not None:
            self._loop.remove_reader(self._child.pidfd)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _readable(self) -> None:
        if self._open:
            self.close()
            self._ended()

    def _ask(self) -> None:
        if has_ended(self._child):
            self._timer = None
            self._readable()
            return
        self._timer = self._loop.call_later(self._delay, self._ask)
        self._delay = min(self._delay * 1.5, _LAST_DELAY)


def has_ended(child: Child) -> bool:
    """Whether a child is dead.

    Its status is left to be waited for, so that its id stays its own; only where the system cannot say without waiting
    (macOS before Python 3.13) the status is taken now and kept in ``child.waited``.
    """
    if child.waited is not None:
        return True
    try:
        if hasattr(os, "waitid"):
            return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
    except ChildProcessError:
        return True  # somebody else waited for it
    if pid:
        child.waited = (status, usage)
    return pid != 0


def nobody_writes(child: Child) -> bool:
    """Whether every writer of both output pipes is gone; nothing is read."""
    poll = select.poll()
    for descriptor in (child.stdout, child.stderr):
        poll.register(descriptor, 0)
    return sum(bool(event & select.POLLHUP) for _, event in poll.poll(0)) == 2


def wait_until_ended(child: Child, seconds: float) -> bool:
    """Block until a child is dead, at most so long; for worker threads."""
    deadline = time.monotonic() + seconds
    delay = _FIRST_DELAY
    while not has_ended(child):
        if time.monotonic() >= deadline:
            return False
        time.sleep(delay)
        delay = min(delay * 2, _LAST_DELAY)
    return True


def take_status(child: Child) -> None:
    """Wait for a child without blocking; ``child.waited`` says whether it was there to be waited for, and dead."""
    if child.waited is None:
        with contextlib.suppress(ChildProcessError):
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            child.waited = (status, usage) if pid else None


def is_readable(descriptor: int, seconds: float) -> bool:
    """Whether a descriptor becomes readable, or has ended, in so many seconds."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


# Wait for what takes its time to die: a process that outlives the end of its run must not stay a zombie.


def reap_late(pid: int) -> None:
    """Wait for a child without blocking; one that is still alive is killed first, with the group it leads.

    A thread waits for it, which next to no run needs: a killed process that is not dead yet hangs in the kernel, or the
    machine is too busy to let it die. No effect on a process that was waited for already, whoever did.

    Args:
        pid: The child.
    """
    try:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return
    except ChildProcessError:
        return
    signal_group(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)  # bubblewrap leads no group
    with contextlib.suppress(RuntimeError):  # no thread to be had; the system reaps it after us
        threading.Thread(target=_wait, args=(pid,), name="adk-skills-reaper", daemon=True).start()


def _wait(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
