"""Start a process, and watch it from the event loop: its output, its deadline, its end, with nothing that blocks.

One thread starts every process, for the life of the agent: what a kernel ties to the starting thread
(``PR_SET_PDEATHSIG``, bubblewrap's ``--die-with-parent``) would otherwise fire when a worker thread ends. Only what
lets :mod:`subprocess` use ``vfork`` is passed: no ``preexec_fn``, no ``user``; with a large agent a real fork costs
tens of milliseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import queue
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from adk_skills_agent.errors import SandboxError, about
from adk_skills_agent.sandbox.contract import ExecutionRequest, NetworkDecision, SandboxPolicy, Status
from adk_skills_agent.sandbox.files.collect import Collected
from adk_skills_agent.sandbox.output import Capture, OutputFilter, PathMapping
from adk_skills_agent.sandbox.process.command import without_limits
from adk_skills_agent.sandbox.process.tree import signal_group
from adk_skills_agent.sandbox.streaming import ResourceSample
from adk_skills_agent.sandbox.threads import CALL_SECONDS, OUTPUT_TURNS, OnePerProcess, Patience

if TYPE_CHECKING:
    import resource

    from adk_skills_agent.sandbox.secrets import SecretForms
    from adk_skills_agent.sandbox.sessions.session import SessionRequest

_UMASK = 0o077

OWN_GROUP = 0
"""A process group of its own, in the agent's session."""

Membership = Callable[[], contextlib.AbstractContextManager[None]]
"""Makes what is held in the starting thread while it starts a process, for what a process inherits from its starter."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start, as the host sees it.

    Attributes:
        stdin: Descriptor of standard input, or None for ``/dev/null``.
        pass_fds: Descriptors the process gets besides 0, 1 and 2, under the same numbers.
        membership: Puts it into its control group.
        group: The process group it joins, one of this agent's session, or :data:`OWN_GROUP`; None for a session of its
            own.
    """

    argv: tuple[bytes, ...]
    env: dict[bytes, bytes]
    cwd: bytes
    stdin: int | None = None
    pass_fds: tuple[int, ...] = ()
    umask: int = _UMASK
    membership: Membership = contextlib.nullcontext
    group: int | None = None


@dataclass(slots=True)
class Child:
    """A started process, not waited for yet; its descriptors, of which those of output do not block, are the caller's.

    Attributes:
        pid: Its id, also of its session and group unless it joined a group.
        pidfd: Becomes readable when it ends; None where the system has no such descriptors.
        started: ``time.monotonic()`` right after the start.
        starter_rss: Bytes the agent had used at most by then: a lower bound of what the kernel reports for the child.
        waited: What ``wait4`` gave, once the child has been waited for; its id may be another process's from then on.
    """

    pid: int
    pidfd: int | None
    stdout: int
    stderr: int
    started: float
    starter_rss: int
    waited: tuple[int, resource.struct_rusage | None] | None = None

    def close(self) -> None:
        """Close its descriptors."""
        for descriptor in (self.stdout, self.stderr, self.pidfd):
            if descriptor is not None:
                os.close(descriptor)


class Spawner:
    """The thread and its queue."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Launch, Future[Child]]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="adk-skills-spawner", daemon=True).start()

    def spawn(self, launch: Launch) -> Child:
        """Start a process and wait until it is started (milliseconds). Call it from a worker thread.

        Raises:
            SandboxError: The system refused: no descriptors, memory or processes left, no ``/bin/sh``.
            ValueError: The arguments and environment are larger than the system allows.
        """
        done: Future[Child] = Future()
        self._jobs.put((launch, done))
        return done.result()

    def _work(self) -> None:
        while True:
            launch, done = self._jobs.get()
            try:
                done.set_result(start(launch))
            except BaseException as error:  # noqa: BLE001  # it belongs to the caller, who re-raises it
                done.set_exception(error)
            del launch, done


def start(launch: Launch) -> Child:
    """Start a process in this thread; see :meth:`Spawner.spawn`."""
    process: subprocess.Popen[bytes] | None = None
    with contextlib.ExitStack() as undo:
        try:
            out_read, out_write = _pipe(undo)
            err_read, err_write = _pipe(undo)
            with launch.membership():
                process = subprocess.Popen(
                    launch.argv,
                    stdin=subprocess.DEVNULL if launch.stdin is None else launch.stdin,
                    stdout=out_write,
                    stderr=err_write,
                    cwd=launch.cwd,
                    env=launch.env,
                    start_new_session=launch.group is None,
                    process_group=launch.group,
                    close_fds=True,
                    pass_fds=launch.pass_fds,
                    umask=launch.umask,
                )
        except OSError as error:
            if process is not None:  # its group could not be left
                process.kill()
                process.wait()
            raise _refusal(error, launch) from error
        started = time.monotonic()
        # The exit status is taken with wait4, for its resource usage; Popen must not wait, nor complain.
        process.returncode = 0
        undo.pop_all()
    os.close(out_write)
    os.close(err_write)
    os.set_blocking(out_read, False)
    os.set_blocking(err_read, False)
    return Child(process.pid, _pidfd(process.pid), out_read, err_read, started, own_peak())


def _pipe(undo: contextlib.ExitStack) -> tuple[int, int]:
    read, write = os.pipe()
    undo.callback(os.close, read)
    undo.callback(os.close, write)
    return read, write


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # macOS, an old kernel or gVisor, or no descriptor left: the exit is polled for
        return None


def own_peak() -> int:
    """Bytes this process has used at most until now; 0 where nothing says."""
    import sys

    try:
        import resource
    except ImportError:
        return 0

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _refusal(error: OSError, launch: Launch) -> Exception:
    if error.errno == errno.E2BIG:
        size = sum(len(part) + 1 for part in launch.argv)
        longest = max(len(part) for part in launch.argv)
        return ValueError(
            f"The arguments are too large for this system: {size:,} bytes together, the "
            f"longest {longest:,} bytes (Linux allows 131,071 for one). Pass the data as an input file or on stdin."
        )
    # A model may get to see the sentence; the path is for the developer's traceback.
    path = os.fsencode(error.filename) if error.filename else launch.argv[0]
    name = "the working directory" if path == launch.cwd else repr(os.fsdecode(path.rpartition(b"/")[2]))
    reason = {
        errno.EMFILE: "this process has no file descriptor left (raise its limit: ulimit -n)",
        errno.ENFILE: "the system has no file descriptor left",
        errno.ENOMEM: "the system has no memory left",
        errno.EAGAIN: "the limit of processes is reached (ulimit -u, or the container's pids limit)",
        errno.ENOENT: f"{name} does not exist",
        errno.EACCES: f"{name} may not be used",
    }.get(error.errno or 0, error.strerror or type(error).__name__)
    return about(SandboxError(f"The sandbox could not start a process: {reason}."), os.fsdecode(path))


spawner = OnePerProcess(Spawner)
"""This process's, started at the first use."""


# A file in memory with a given content, to be handed to another process.


def memory_file(content: bytes) -> int:
    """A descriptor of such a file, at its start, which a new program does not get by itself."""
    return filled(os.memfd_create("adk-skills", os.MFD_CLOEXEC), content)


def filled(descriptor: int, content: bytes) -> int:
    """Write all of it into an empty file and go back to the start; the descriptor is closed when that fails."""
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


# Standard input that goes on while the command runs.


class LiveStdin(bytes):
    """In place of the bytes of ``ExecutionRequest.stdin``: the caller's socket or pipe, which the run duplicates."""

    descriptor: int

    def __new__(cls, descriptor: int) -> LiveStdin:  # noqa: D102  # see Args
        stdin = super().__new__(cls)
        stdin.descriptor = descriptor
        return stdin


CHUNK = 1 << 16
_READS_PER_TURN = 4  # then other callbacks of the loop are called
_FIRST_LOOK_SECONDS = 0.002
_LAST_LOOK_SECONDS = 0.05
_UNKILLABLE_SECONDS = 5.0  # a process that survives SIGKILL so long hangs in the kernel

OnOutput = Callable[[str, bytes], None]


class Stream:
    """One output pipe: counts what was written, keeps what the limits allow, passes the first ``share`` bytes on."""

    def __init__(
        self,
        name: str,
        descriptor: int,
        capture: Capture,
        filtered: OutputFilter,
        on_output: OnOutput | None,
        share: int,
        user: str = "",
    ) -> None:
        self.name = name
        self.descriptor = descriptor
        self.capture = capture
        self.total = 0
        self.ended = False
        self._filter = filtered
        self._on_output = on_output
        self._share = share
        self._user = user

    def feed(self, data: bytes) -> float:
        """The next bytes from the pipe; for how many seconds no more of them should be read."""
        began = time.thread_time()
        self.total += len(data)
        clean = self._filter.feed(data)
        took = time.thread_time() - began
        self._pass_on(clean)
        return OUTPUT_TURNS.rest_of(self, took, self._user) if took > CALL_SECONDS else 0.0

    def more_rest(self) -> float:
        """How many seconds more it should rest, after what :meth:`feed` said."""
        return OUTPUT_TURNS.more_rest(self._user)

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


def streams_of(
    request: ExecutionRequest | SessionRequest,
    policy: SandboxPolicy,
    captures: tuple[Capture, ...],
    view: PathMapping,
    secrets: SecretForms | None,
    descriptors: tuple[int, int] = (-1, -1),
) -> tuple[Stream, Stream]:
    """Standard output and error output of a run; without descriptors what comes is fed."""
    user = "".join(request.share[:1])
    out, err = (
        Stream(name, descriptor, capture, OutputFilter(view, secrets), request.on_output, policy.output_bytes, user)
        for name, descriptor, capture in zip(("stdout", "stderr"), descriptors, captures, strict=True)
    )
    return out, err


class SupervisedRun(Protocol):
    """What of a run is needed to watch it; see ``LocalRun`` in ``local/levels/base.py``."""

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
    """One run under the policy's limits.

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
        self.limit_note = ""  # the sentence about it
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
        self._patience = Patience()
        self._resting: dict[Stream, asyncio.TimerHandle] = {}

    def start(self) -> None:
        """Begin to watch; an OSError when the loop cannot watch another descriptor."""
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
            self.limit_note = note or ""
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
        for timer in (*self._timers, *self._resting.values()):
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
            began = time.thread_time()
            try:
                data = os.read(stream.descriptor, CHUNK)
            except (BlockingIOError, InterruptedError):
                return
            self._patience.take(began)
            if not data:
                self._end_of(stream)
                return
            try:
                rest = stream.feed(data)
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
            if self._patience.is_over:
                self.stop(
                    Status.OUTPUT_LIMIT, f"Stopped: it watches {stream.name} so often that reading it takes long."
                )
                self._end_of(stream)
                return
            if rest > 0 and not self._exited:
                self._loop.remove_reader(stream.descriptor)
                self._resting[stream] = self._loop.call_later(rest, self._go_on, stream)
                return
            if time.thread_time() - began > CALL_SECONDS:  # searching what was read for secrets can take longer
                return

    def _go_on(self, stream: Stream) -> None:
        """Read again what has rested."""
        self._resting.pop(stream).cancel()
        if self._closed:
            return
        if not self._exited and (rest := stream.more_rest()) > 0:
            self._resting[stream] = self._loop.call_later(rest, self._go_on, stream)
            return
        self._loop.add_reader(stream.descriptor, self._read, stream)
        if not self._exited:
            self._read(stream)  # now, so that the next one waits for it

    def _end_of(self, stream: Stream) -> None:
        stream.ended = True
        self._loop.remove_reader(stream.descriptor)
        if not all(other.ended for other in self._streams):
            return
        if self._exited:
            self._finish()

    def _on_exit(self) -> None:
        self._exited = True
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        for stream in tuple(self._resting):
            self._go_on(stream)
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
        cause: A limit that ended the run and that only the level saw (memory of a control group); None for none.
        limit_note: The sentence about it, where ``notes`` have none.
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
    cause: Status | None = None
    limit_note: str = ""
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

_DELAY = 0.005


class ExitWatch:
    """Calls ``ended`` once, in the loop, when the child is dead; see :func:`has_ended` for when it is waited for."""

    def __init__(self, loop: asyncio.AbstractEventLoop, child: Child, ended: Callable[[], None]) -> None:
        self._loop = loop
        self._child = child
        self._ended = ended
        self._timer: asyncio.TimerHandle | None = None
        self._open = True
        if child.pidfd is not None:
            loop.add_reader(child.pidfd, self._readable)
        else:
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
        self._timer = self._loop.call_later(_DELAY, self._ask)


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
        pid, status, usage = _wait4(child.pid)
    except ChildProcessError:
        return True  # somebody else waited for it
    if pid:
        child.waited = (status, usage)
    return pid != 0


def _wait4(pid: int) -> tuple[int, int, resource.struct_rusage | None]:
    """``os.wait4`` without blocking; it fails after it has waited where the module ``resource`` is missing (S0-94)."""
    if without_limits() is not None:
        return *os.waitpid(pid, os.WNOHANG), None
    return os.wait4(pid, os.WNOHANG)


def nobody_writes(child: Child) -> bool:
    """Whether every writer of both output pipes is gone; nothing is read."""
    poll = select.poll()
    for descriptor in (child.stdout, child.stderr):
        poll.register(descriptor, 0)
    return sum(bool(event & select.POLLHUP) for _, event in poll.poll(0)) == 2


def wait_until_ended(child: Child, seconds: float) -> bool:
    """Block until a child is dead, at most so long; for worker threads."""
    deadline = time.monotonic() + seconds
    while not has_ended(child):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_DELAY)
    return True


def take_status(child: Child) -> None:
    """Wait for a child without blocking; ``child.waited`` says whether it was there to be waited for, and dead."""
    if child.waited is None:
        with contextlib.suppress(ChildProcessError):
            pid, status, usage = _wait4(child.pid)
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


_LAST_READ_BYTES = 1 << 20  # what a pipe can hold at most when a script enlarged it


def drain(descriptor: int) -> bytes:
    """What is in a pipe now, without waiting for more."""
    chunks: list[bytes] = []
    left = _LAST_READ_BYTES
    with contextlib.suppress(BlockingIOError):
        while left > 0 and (chunk := os.read(descriptor, left)):
            chunks.append(chunk)
            left -= len(chunk)
    return b"".join(chunks)
