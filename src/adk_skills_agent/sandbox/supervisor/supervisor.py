"""The program that serves a sandbox from inside: it alone holds the channel to the host (SANDBOX.md 4.4).

It runs wherever there is Python 3.8 or newer: a local sandbox, a container, a pod (:mod:`.program`). Frames
(:mod:`.frames`) come in on descriptor 0 and go out on descriptor 1; both are moved out of the way at once, and are in
no other process. Nothing in the sandbox may look into this process (PR_SET_DUMPABLE). It ends when the channel does,
and everything it started ends with it.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import errno
import os
import select
import sys
import time
from typing import Any, Callable, Iterator

from adk_skills_agent.sandbox.supervisor import frames, python_program
from adk_skills_agent.sandbox.supervisor import process as processes
from adk_skills_agent.sandbox.supervisor.files import Inputs, Parts, Workspace
from adk_skills_agent.sandbox.supervisor.kernel import LINK_CLOSED, KernelLink, why_ended
from adk_skills_agent.sandbox.supervisor.process import (
    INTERVAL_SECONDS,
    Child,
    Started,
    Watch,
    end_everything,
    end_orphans,
    ending,
    is_own,
    kill_all,
    others,
    signal_group,
    start_command,
)
from adk_skills_agent.sandbox.supervisor.script_end import QuickEnd

_CHUNK = 1 << 18
_PIPE_CHUNK = 1 << 16
# More small pieces of output than these at once, or than one in so many seconds for long, are gathered.
_FEW_BYTES, _MOST_PIECES, _PIECE_SECONDS = 1 << 12, 50, 0.005
_MOST_QUEUED = 1 << 20  # then what runs waits with its output until the host has read
_MOST_LATE = 1 << 18  # from the end of one execution to that of the next; less than waits in the queue
_MOST_OLD_PIPES = 16
_MOST_DRAINED = 1 << 20
_LOOK_MILLISECONDS = 50
_DRAIN_SECONDS = 0.5
_OWN_SECONDS = 2.0  # what a kernel does itself before and after its code may take so long beyond the deadline, each
_AGAIN_SECONDS = 0.01
_BEYOND = {
    "terminals": "it opened too many terminals",
    "watches": "it watched or locked too many files",
    "waits": "it kept what watches its limits waiting",
}
_IDLE_SECONDS = 1.0  # between two executions of a session
_GONE_SECONDS = 0.05  # a process that has closed its pipes may take so long to be gone
_LAST_SECONDS = 0.1  # a process without its socket is about to end
_CANNOT_START = "its supervisor could not start code any more"
_WRONG = 2  # exit code: the host does not speak our protocol


class Supervisor:
    """Serves one sandbox."""

    def __init__(self, reading: int, writing: int, guarded: bool) -> None:
        self._reading, self._writing, self._guarded = reading, writing, guarded
        self._reader = frames.FrameReader()
        self._workspace = Workspace(os.getcwd())
        self._poll = select.poll()
        self._poll.register(reading, select.POLLIN)
        self._woken, waking = os.pipe()
        for descriptor in (self._woken, waking, writing):
            os.set_blocking(descriptor, False)
        self._outgoing = Outgoing(writing, self._poll, self._overtime)
        self._own = [reading, writing, self._woken, waking]
        _signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
        _signal.signal(_signal.SIGCHLD, lambda *_: None)
        _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
        self._poll.register(self._woken, select.POLLIN)
        self._watch = Watch()
        self._alone = self._batch = self._ending = self._said_hello = False
        self._kernel: KernelLink | None = None
        self._running: Running | None = None
        self._pipes = Pipes(self._poll)
        self._inputs = Inputs(self._workspace)
        self._file_bytes: int | None = None
        self._last_id = self._unheard = 0
        self._late_bytes = _MOST_LATE
        self._pieces = self._counted = 0.0

    def serve(self) -> None:
        """Until the channel is closed; never returns."""
        while True:
            for descriptor, _ in self._poll.poll(self._timeout()):
                if descriptor == self._reading:
                    self._listen()
                elif descriptor == self._writing:
                    if not self._outgoing.flush():
                        self._end(0)
                elif descriptor == self._woken:
                    self._drain_wakeups()
                elif self._kernel is not None and descriptor == self._kernel.descriptor:
                    self._hear_kernel()
                else:
                    self._read(descriptor)
            self._look_at_clock()

    def _timeout(self) -> float | None:
        run = self._running
        times = [] if run is None else run.times()
        if run is not None and (self._watch.is_wanted() or self._alone):
            times.append(time.monotonic() + INTERVAL_SECONDS)
        elif run is None and self._kernel is not None and self._alone:
            times.append(time.monotonic() + _IDLE_SECONDS)
        return max(0.0, (min(times) - time.monotonic()) * 1000 + 1) if times else None

    def _look_at_clock(self) -> None:
        run = self._running
        if run is None:
            # What code of a session left running goes on between two executions (rows 170, 211).
            watch = self._watch
            is_due = self._kernel is not None and self._alone and watch.is_due()
            if is_due and (
                watch.has_hidden_memory() or watch.has_many_tasks() or watch.beyond() or watch.has_used_much_time()
            ):
                self._end(0)
            return
        now = time.monotonic()
        if self._watch.is_due():
            full = self._watch.overfull()
            if full is not None and "disk" not in run.done:
                run.done["disk"] = full
                self._kill(run, f"there were too many files in {full}")
            if self._alone and not run.is_code and "oom" not in run.done and self._watch.ran_out_of_memory():
                run.done["oom"] = True  # the kernel took one process; the rest is not the program that was asked for
                self._kill(run, "the memory of its container ran out")
            if "oom" not in run.done and self._watch.has_hidden_memory():
                run.done.update(oom=True, sockets=self._watch.sockets)
                self._kill(run, "its sockets held memory that its container does not count")
            if "tasks" not in run.done and self._watch.has_many_tasks():
                run.done["tasks"] = self._watch.tasks
                self._kill(run, "it had too many processes")
            beyond = self._watch.beyond()
            if beyond and beyond not in run.done:
                run.done[beyond] = getattr(self._watch, beyond, 1)
                self._kill(run, _BEYOND[beyond])
        if run.drain_until is not None:
            if now >= run.drain_until or not self._pipes.of(run.id):
                self._finish(run)
        elif run.kill_at is not None and now >= run.kill_at:
            if self._kernel is not None and run.is_given_time(self._kernel.has_ended):
                return
            run.kill_at = None
            self._kill(run, LINK_CLOSED if run.link_lost else "it did not stop at its deadline and was killed")
        elif run.deadline is not None and now >= run.deadline:
            run.deadline = None
            run.done["timed_out"] = True
            self._interrupt(run)
        elif run.ask_again is not None and now >= run.ask_again:
            self._interrupt(run)

    def _overtime(self) -> None:
        """The host does not read: what runs has to wait with its output, but its deadline and its limits hold."""
        if self._running is None or self._running.drain_until is None:
            self._look_at_clock()

    def _interrupt(self, run: Running) -> None:
        if run.kill_at is not None or run.status is not None:
            return
        if run.grace <= 0:
            self._kill(run, "it was killed at its deadline")
            return
        if self._kernel is not None and run.waits_to_begin(self._kernel.has_begun):
            return  # the kernel would take the signal for one of the execution before
        run.kill_at = time.monotonic() + run.grace
        for number in (_signal.SIGINT if run.is_code else _signal.SIGTERM, _signal.SIGCONT):
            signal_group(run.process.pid, number)

    def _kill(self, run: Running, why: str) -> None:
        run.lost = run.lost or why
        signal_group(run.process.pid, _signal.SIGKILL)
        if self._alone:
            kill_all()

    def _listen(self) -> None:
        try:
            data = os.read(self._reading, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._leave()
        try:
            for frame in self._reader.feed(data):
                self._obey(frame)
        except frames.FrameError as error:
            self._send({"t": "failed", "of": "frame", "reason": str(error)})
            self._end(_WRONG)

    def _obey(self, frame: frames.Frame) -> None:
        kind = frame["t"]
        if kind == "hello" or not self._said_hello:
            if kind != "hello" or frame.get("proto") != frames.PROTOCOL:
                theirs = frame.get("proto")
                raise frames.FrameError(f"The sandbox speaks protocol {frames.PROTOCOL}, the host {theirs}.")
            self._greet(frame)
        elif kind == "put":
            problem = self._inputs.put(frame)
            if problem is not None:
                self._send({"t": "failed", "of": "put", "reason": problem})
        elif kind == "part":
            self._inputs.keep(frame)
        elif kind == "exec":
            self._start(frame)
        elif kind == "interrupt":
            if self._running is not None and self._running.id == frame.get("id"):
                self._interrupt(self._running)
        elif kind == "ping":
            self._send({"t": "pong", "n": frames.number(frame, "n")})
        elif kind == "close":
            if not self._batch:
                self._say_goodbye()
            self._leave()
        else:
            raise frames.FrameError(f"There is no frame of kind {kind!r}.")

    def _greet(self, frame: frames.Frame) -> None:
        if not self._said_hello:
            processes.stay()
            self._workspace.remember()
        self._said_hello = True
        # A container that was made ahead was greeted then, and keeps what a later greeting leaves out.
        self._alone = self._alone or frames.flag(frame, "alone")
        self._batch = frames.flag(frame, "batch")
        self._watch.inodes = frame.get("inodes") or self._watch.inodes
        self._watch.sockets = frame.get("sockets") or self._watch.sockets
        self._watch.socket_bytes = frame.get("socket_bytes") or self._watch.socket_bytes
        self._watch.terminals = frame.get("terminals") or self._watch.terminals
        self._watch.tasks = frame.get("tasks") or self._watch.tasks
        self._watch.watches = frame.get("watches") or self._watch.watches
        self._watch.prepare()
        limits = dict(frame.get("limits") or {})
        if self._batch:  # the answer is a file, which may be larger than any that a command may write
            self._file_bytes = limits.pop("FSIZE", None)
        if "NOFILE" in limits:
            processes.limit_files(limits.pop("NOFILE"))
        processes.limit(limits)
        if "nice" in frame:
            processes.give_way(frames.number(frame, "nice"))
        filters = frame.get("filters") or {}
        if filters:
            processes.filter_calls(frames.content({**filters, "t": "hello"}, os.uname().machine))
        version = "{}.{}.{}".format(*sys.version_info[:3])
        told = {"pid": os.getpid(), "proto": frames.PROTOCOL, "python": version, "guarded": self._guarded}
        self._send({"t": "ready", **told, "writable": os.access(".", os.W_OK)})

    def _start(self, frame: frames.Frame) -> None:
        number = frames.number(frame, "id")
        if self._running is not None or number <= self._last_id:
            raise frames.FrameError(f"Execution {number} cannot begin now.")
        self._last_id = number
        parts, problem = self._inputs.take()
        is_code = frames.text(frame, "kind") == "code"
        self._watch.begin(of_command=not is_code)
        try:
            if problem is not None:
                raise OSError(errno.EIO, problem)
            run = self._start_code(frame, parts) if is_code else self._start_command(frame, parts)
        except OSError as error:
            # Code may have lowered the limits of this process, which it cannot raise again: the state is of no use.
            told = {"reason": error.strerror, "lost": _CANNOT_START if is_code and problem is None else None}
            self._send({"t": "done", "id": number, "started": False, "exit": None, **told})
            if self._ending:
                self._end(0)
            return
        self._running = run
        self._pipes.add(run.id, run.process.stdout, run.process.stderr)

    def _start_code(self, frame: frames.Frame, parts: Parts) -> Running:
        if self._kernel is None:
            self._kernel = KernelLink(self._workspace.root, self._own)
            self._poll.register(self._kernel.descriptor, select.POLLIN)
        cwd = frame.get("cwd")
        job = {
            "t": "exec",
            "id": frames.number(frame, "id"),
            "env": frame.get("env") or {},
            "cwd": None if cwd is None else os.path.join(self._workspace.root, cwd),
            "restrict": frames.flag(frame, "restrict"),
            "cpu_seconds": frame.get("cpu_seconds"),
        }
        code = parts["code"] if "code" in parts else frames.text(frame, "code").encode("utf-8", "surrogatepass")
        return Running(frame, self._kernel.give(job, code), True)

    def _start_command(self, frame: frames.Frame, parts: Parts) -> Running:
        cwd = os.path.join(self._workspace.root, frame.get("cwd") or "")
        pids = frame.get("pids") if os.getuid() else None
        limits = {"FSIZE": self._file_bytes, "CPU": frame.get("cpu_seconds"), "NPROC": pids}
        argv, environment = frames.field(frame, "argv", list), frame.get("env") or {}
        here = self._kernel is None and is_own(argv, environment)
        process = start_command(argv, environment, cwd, parts.get("stdin"), self._own, limits, here)
        return Running(frame, process, False)

    def _read(self, descriptor: int) -> None:
        owner = self._pipes.owner(descriptor)
        if owner is None:
            return  # closed by what came before it in the same turn
        stream, number = owner
        data = take(descriptor)
        if not data:
            if data is not None:
                self._pipes.forget(descriptor)
            return
        run = self._running
        late = run is None or number != run.id
        self._pass_on(number, stream, data, late)
        if len(data) < _FEW_BYTES:
            self._gather()
        if run is not None and not late:
            run.written[stream] += len(data)
            if run.flood is not None and run.written[stream] > run.flood and "flood" not in run.done:
                run.done["flood"] = stream
                self._kill(run, "it wrote too much and was killed")

    def _gather(self) -> None:
        """After many small pieces, let the next one grow: a frame is more work for the host than a byte is here."""
        now = time.monotonic()
        self._pieces = max(0.0, self._pieces - (now - self._counted) / _PIECE_SECONDS) + 1
        self._counted = now
        if self._pieces > _MOST_PIECES:
            time.sleep(_PIECE_SECONDS)

    def _pass_on(self, number: int, stream: int, data: bytes, late: bool) -> None:
        if late:
            # Nobody reads between two executions, so nobody may wait for it; nor is it worth the host's time (row 325).
            heard = data[: self._late_bytes]
            self._late_bytes -= len(heard)
            self._unheard += len(data) - len(heard)
            data = heard
            if not data:
                return
        frame = {"t": "out", "id": number, "s": stream, "b64": frames.base64(data)}
        self._send({**frame, "late": True} if late else frame)

    def _hear_kernel(self) -> None:
        kernel, run = self._kernel, self._running
        assert kernel is not None  # noqa: S101
        code_runs = run is not None and run.is_code
        answer = kernel.hear(in_flight=code_runs)
        if answer is not None and run is not None:
            run.done.update(answer)
            self._finish(run)
        elif kernel.is_forged:
            # Code that found the socket wrote to it; nothing of this process can be believed any more.
            if run is not None:
                run.lost = run.lost or "the code wrote to the descriptor of its supervisor"
            signal_group(kernel.pid, _signal.SIGKILL)
        elif kernel.is_closed:
            ignore(self._poll, kernel.descriptor)
            if run is not None and code_runs:
                run.link_lost = True
                run.kill_at = time.monotonic() + _LAST_SECONDS
            else:
                signal_group(kernel.pid, _signal.SIGKILL)  # without the socket it is of no use

    def _drain_wakeups(self) -> None:
        while take(self._woken):
            pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self._kernel is not None and pid == self._kernel.pid:
                self._kernel_ended(status)
            elif self._running is not None and not self._running.is_code and pid == self._running.process.pid:
                self._running.ended(status)

    def _kernel_ended(self, status: int) -> None:
        kernel = self._kernel
        assert kernel is not None  # noqa: S101
        if self._running is not None and select.select([kernel.descriptor], [], [], 0)[0]:
            self._hear_kernel()  # what it said before it ended came first
        self._kernel = None
        ignore(self._poll, kernel.descriptor)
        kernel.close()
        signal_group(kernel.pid, _signal.SIGKILL)
        run = self._running
        if run is None or not run.is_code:
            return
        code, number = ending(status)
        run.done.update(exit=code, signal=number)
        run.lost = run.lost or why_ended(code, number)
        self._finish(run)

    def _finish(self, run: Running) -> None:
        """Everything written before the end goes first, then the files, then ``done``."""
        self._running = None
        if self._kernel is not None:
            self._watch.rest(run.rest_seconds)
        for descriptor, stream in self._pipes.of(run.id):
            for data in self._pipes.drain(descriptor):
                self._pass_on(run.id, stream, data, late=False)
            if not run.is_code or run.lost is not None:
                self._pipes.forget(descriptor)
        self._pipes.forget_oldest()
        if not run.is_code and self._alone:
            run.done["killed"] = others(_GONE_SECONDS if run.lost is None else 0) - (self._kernel is not None)
            self._end_others()
        elif not run.is_code and self._batch:
            spared = None if self._kernel is None else self._kernel.pid
            run.done["killed"] = end_orphans(spared, _GONE_SECONDS if run.lost is None else 0)
            run.done.update(self._watch.reaped())
        if self._watch.ran_out_of_memory():
            run.done["oom"] = True
        # Files come fast: a command may have run into the file system's own bound between two looks.
        if run.done.get("exit") != 0 and (full := self._watch.overfull()) is not None:
            run.done.setdefault("disk", full)
        if self._alone and not run.is_code and (used := self._watch.cpu_ms()) is not None:
            run.done["cpu_ms"] = used
        if run.files is not None:
            run.done["unlisted"] = self._workspace.tell_changes(run.id, run.files, self._send)
            run.done["cut"] = self._workspace.cut_at
        if self._unheard:
            run.done["unheard"], self._unheard = self._unheard, 0
        self._late_bytes = _MOST_LATE
        took = round((time.monotonic() - run.began) * 1000, 3)
        self._send({"t": "done", "id": run.id, "ms": took, "lost": run.lost, **run.done})
        if self._ending:
            self._end(0)
        if run.is_last:
            self._say_goodbye()

    def _send(self, frame: frames.Frame) -> None:
        if not self._outgoing.send(frame):
            self._end(0)

    def _leave(self) -> None:
        """The host is done with this sandbox, or gone: end now, or in a batch when what runs has ended."""
        self._ending = True
        if not self._batch or self._running is None:
            self._end(0)
        ignore(self._poll, self._reading)

    def _say_goodbye(self) -> None:
        """The host may let go of this sandbox at once: there is nobody left in it but this process."""
        if self._alone:
            self._end_others()
        self._outgoing.send({"t": "bye"})
        self._outgoing.flush_all()

    def _end_others(self) -> None:
        for pid, status in end_everything():
            if self._kernel is not None and pid == self._kernel.pid:
                self._kernel_ended(status)

    def _end(self, code: int) -> None:
        for pid in [run.process.pid for run in [self._running] if run] + [k.pid for k in [self._kernel] if k]:
            signal_group(pid, _signal.SIGKILL)
        if self._alone:
            kill_all()
        if self._batch or code:
            self._outgoing.flush_all()
        os._exit(code)


class Running:
    """The execution in flight."""

    def __init__(self, frame: frames.Frame, process: Started, is_code: bool) -> None:
        self.id = frames.number(frame, "id")
        self.is_code = is_code
        self.is_last = frames.flag(frame, "last")
        self.process = process
        self.began = time.monotonic()
        deadline = frame.get("deadline_ms")
        self.deadline: float | None = None if deadline is None else self.began + deadline / 1000
        # Processor time that what it leaves running may use until the next execution.
        self.rest_seconds: float | None = frame.get("cpu_seconds") or (None if deadline is None else deadline / 1000)
        self.grace = frames.number(frame, "grace_ms", 1000) / 1000
        self.flood: int | None = frame.get("flood")
        self.files: dict[str, int] | None = frame.get("files")
        self.written = [0, 0, 0]
        self.asked: float | None = None  # when its end was first wanted
        self.ask_again: float | None = None
        self.kill_at: float | None = None
        self.is_spared = False
        self.drain_until: float | None = None
        self.status: int | None = None  # of a command that has ended
        self.done: dict[str, Any] = {}
        self.lost: str | None = None
        self.link_lost = False

    def times(self) -> list[float]:
        """When it has to be looked at."""
        times = (self.deadline, self.ask_again, self.kill_at, self.drain_until)
        return [when for when in times if when is not None]

    def waits_to_begin(self, has_begun: bool) -> bool:
        """Whether to ask again a little later for its end, because its code has not begun; not for ever."""
        now, self.ask_again = time.monotonic(), None
        self.asked = now if self.asked is None else self.asked
        if self.is_code and not has_begun and now < self.asked + _OWN_SECONDS:
            self.ask_again = now + _AGAIN_SECONDS
        return self.ask_again is not None

    def is_given_time(self, has_ended: bool) -> bool:
        """Whether it is not killed yet, because its code has ended in time and only the kernel is late; once."""
        if not has_ended or self.is_spared or self.link_lost or not self.is_code or self.kill_at is None:
            return False
        self.is_spared = True
        self.kill_at += _OWN_SECONDS
        return True

    def ended(self, status: int) -> None:
        """Take the exit status of a command; its output may continue for a moment."""
        self.status = status
        code, number = ending(status)
        self.done.update(exit=code, signal=number)
        self.drain_until = time.monotonic() + (0 if self.lost or "timed_out" in self.done else _DRAIN_SECONDS)


class Outgoing:
    """Frames on their way to the host; ``meanwhile`` is called now and then while it does not read."""

    def __init__(self, descriptor: int, poll: select.poll, meanwhile: Callable[[], None]) -> None:
        self._descriptor, self._poll, self._meanwhile = descriptor, poll, meanwhile
        self._queue = bytearray()
        self._waiting = False

    def send(self, frame: frames.Frame) -> bool:
        """Write a frame, or keep it for later; waits only when very much is kept. False when the host is gone."""
        self._queue += frames.encode(frame)
        there = self.flush()
        while there and len(self._queue) > _MOST_QUEUED:
            self._wait()
            there = self.flush()
            self._meanwhile()
        return there

    def flush_all(self) -> None:
        """Wait until the host has everything, or is gone."""
        while self.flush() and self._queue:
            self._wait()

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        poll.poll(_LOOK_MILLISECONDS)

    def flush(self) -> bool:
        """Write what can be written now; False when the host is gone."""
        try:
            while self._queue:
                del self._queue[: os.write(self._descriptor, self._queue[:_PIPE_CHUNK])]
        except BlockingIOError:
            self._waiting = True
            self._poll.register(self._descriptor, select.POLLOUT)
            return True
        except OSError:
            return False
        if self._waiting:
            self._waiting = False
            ignore(self._poll, self._descriptor)
        return True


class Pipes:
    """The reading ends of what executions write; what earlier ones left running may go on writing, too."""

    def __init__(self, poll: select.poll) -> None:
        self._poll = poll
        self._known: dict[int, tuple[int, int]] = {}  # oldest first

    def add(self, number: int, stdout: int, stderr: int) -> None:
        """Add the streams of a new execution."""
        for stream, descriptor in enumerate((stdout, stderr), 1):
            os.set_blocking(descriptor, False)
            self._known[descriptor] = (stream, number)
            self._poll.register(descriptor, select.POLLIN)

    def owner(self, descriptor: int) -> tuple[int, int] | None:
        """Its stream and execution; None when it is closed."""
        return self._known.get(descriptor)

    def of(self, number: int) -> list[tuple[int, int]]:
        """Descriptors of an execution, and their streams."""
        return [(descriptor, stream) for descriptor, (stream, own) in self._known.items() if own == number]

    def drain(self, descriptor: int) -> Iterator[bytes]:
        """What is in a pipe now, and no more than one can hold."""
        left = _MOST_DRAINED
        while left > 0:
            data = take(descriptor)
            if not data:
                return
            left -= len(data)
            yield data

    def forget(self, descriptor: int) -> None:
        """Close it."""
        del self._known[descriptor]
        ignore(self._poll, descriptor)
        os.close(descriptor)

    def forget_oldest(self) -> None:
        """Close those of long ago; what still writes there gets an error."""
        while len(self._known) > _MOST_OLD_PIPES:
            self.forget(next(iter(self._known)))


def take(descriptor: int) -> bytes | None:
    """What is in a pipe; nothing at its end, None when there is nothing now."""
    try:
        return os.read(descriptor, _PIPE_CHUNK)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def ignore(poll: select.poll, descriptor: int) -> None:
    """Do not watch a descriptor any more, if it was watched."""
    try:
        poll.unregister(descriptor)
    except KeyError:
        pass


def main() -> None:
    """Take the channel out of everybody's reach, then serve; a child of that which is Python code runs it."""
    processes.end_unless_greeted()
    reading, writing = processes.take_channel()
    try:
        Supervisor(reading, writing, processes.guard()).serve()
    except Child:
        pass  # and out of it, so that nothing of the supervisor is in a traceback
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
    around, end = frame.f_globals, QuickEnd()
    try:
        python_program.main()
    except BaseException as error:
        end.ended(error, around)
        raise
    end.ended(None, around)
