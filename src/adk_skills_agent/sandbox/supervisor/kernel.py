"""The process that holds a session's Python state and runs its code, and the supervisor's link to it.

Part of the program in the sandbox (:mod:`.program`). :class:`Kernel` runs in a fork of the :mod:`.supervisor` and has
one descriptor besides its standard streams, a socket to the supervisor; the host's channel is not in this process.
Whatever code does to that socket costs the session's state and nothing else.

Execution N either succeeds, or leaves names, environment and working directory as they were before it (S0-112). What
it did inside of objects, and to files, stays.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import builtins
import io
import os
import posix
import sys
import time
from types import CodeType, FrameType, ModuleType
from typing import Any, Dict

from adk_skills_agent.sandbox.supervisor import frames
from adk_skills_agent.sandbox.supervisor.late import Late, Stream
from adk_skills_agent.sandbox.supervisor.process import MOST_DESCRIPTORS, Started, leave_supervisor, make_home
from adk_skills_agent.sandbox.supervisor.python_program import restricted_builtins

Names = Dict[str, Any]

RUNS, ENDED = 1, 2
"""How far an execution is, in the byte both sides see: its code runs; it has ended, and what is left to do (a traceback
needs modules, a figure is saved) is this process' own. 0 before."""
LINK_LOST = 70
"""Exit code of a kernel that cannot reach its supervisor any more."""
LINK_CLOSED = "the code closed descriptors of its own process, put another program in it, or broke its Python"
"""Why a state is lost whose kernel cannot be reached any more."""

_ONLY_AST, _TOP_LEVEL_AWAIT = 0x400, 0x2000  # ast.PyCF_ONLY_AST and PyCF_ALLOW_TOP_LEVEL_AWAIT, without importing ast
_IS_COROUTINE = 0x80  # inspect.CO_COROUTINE
_MOST_SOURCES = 200
_READ_BYTES = 1 << 16
_MOST_ANSWER = 1 << 10
_DESCRIPTOR_BYTES = 4
_HALF = 1 << 31  # exit codes have 32 bits
_SIGNALS = (_signal.SIGINT, _signal.SIGXCPU)


class KernelLink:
    """A kernel process, forked here without the descriptors in ``channel``, and the socket to it.

    ``is_closed`` says that it has closed the socket, ``is_forged`` that something else than its answer came from it.
    """

    def __init__(self, home: str, channel: list[int]) -> None:
        import mmap

        self._progress = mmap.mmap(-1, 1)
        self._socket, there = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self.pid = os.fork()
        if not self.pid:
            try:
                link = there.detach()
                self._socket.close()
                leave_supervisor(channel)
                os.closerange(3, link)
                os.closerange(link + 1, MOST_DESCRIPTORS)
                os.chdir(home)
                make_home(os.environ)
                Kernel(link, home, self._progress).serve()
            finally:
                os._exit(LINK_LOST)
        there.close()
        self._socket.setblocking(True)
        self.is_closed = self.is_forged = False
        self._token = 0

    @property
    def descriptor(self) -> int:
        """To watch for an answer."""
        return int(self._socket.fileno())

    @property
    def has_begun(self) -> bool:
        """Whether the code has: an interrupt before that would be lost. Only what the kernel says."""
        return self._progress[0] in (RUNS, ENDED)

    @property
    def has_ended(self) -> bool:
        """Whether the code has, and the kernel is busy with its end. Only what the kernel says."""
        return bool(self._progress[0] == ENDED)

    def give(self, job: frames.Frame, code: bytes | bytearray) -> Started:
        """Let an execution begin, with output pipes of its own."""
        # Not a secret from code that searches its own process for it, only nothing it could guess: who gets that far
        # has gained no more than an early end of its own execution.
        self._token = int.from_bytes(os.urandom(8), "big")
        message = b"".join([*frames.parts("code", code), frames.encode({**job, "token": self._token})])
        out, err = os.pipe(), os.pipe()
        self._progress[0] = 0
        passed = b"".join(end.to_bytes(_DESCRIPTOR_BYTES, sys.byteorder) for end in (out[1], err[1]))
        try:
            sent = self._socket.sendmsg([message], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, passed)])
            self._socket.sendall(message[sent:])
        except OSError:
            pass  # the kernel is gone: what its end looks like is about to be seen
        finally:
            os.close(out[1])
            os.close(err[1])
        return Started(self.pid, out[0], err[0])

    def hear(self, *, in_flight: bool) -> dict[str, Any] | None:
        """What a ``done`` frame says of the end of an execution, once the kernel has told; see the attributes, too."""
        try:
            said = self._socket.recv(_READ_BYTES)
        except OSError:
            said = b""
        if not said:
            self.is_closed = True
            return None
        try:
            # The kernel writes its short answer at once, so it comes in one piece. Less than a frame is the code's;
            # waiting for its rest would swallow the answer.
            reader = frames.FrameReader(_MOST_ANSWER)
            found = list(reader.feed(said))
            if in_flight and len(found) == 1 and reader.is_between_frames and found[0]["token"] == self._token:
                return {
                    "exit": frames.number(found[0], "exit"),
                    "signal": None,
                    "interrupted": frames.flag(found[0], "interrupted"),
                    "out_of_cpu": frames.flag(found[0], "out_of_cpu"),
                    "cpu_ms": frames.number(found[0], "cpu_us") / 1000,
                }
        except (frames.FrameError, KeyError):
            pass
        self.is_forged = True
        return None

    def close(self) -> None:
        """Close the socket to the supervisor."""
        self._socket.close()


def why_ended(code: int | None, number: int | None) -> str:
    """Why a state is lost, as a clause, from the exit code or the signal of its kernel."""
    if code == LINK_LOST:
        return LINK_CLOSED
    if code is not None:
        return f"the code ended its process (exit code {code})"
    return f"its process was ended by signal {number}"


class _OutOfCpu(BaseException):
    """SIGXCPU; no ``except Exception`` of the code swallows it."""


class Kernel:
    """The state of one session."""

    def __init__(self, link: int, home: str, progress: Any) -> None:
        self._progress = progress
        self._link = _socket.socket(fileno=link)
        self._home = home
        self._pid = posix.getpid()
        self._running = False
        self._sources: dict[str, str] = {}
        self._late = Late()
        self._streams: tuple[io.TextIOWrapper, Stream, Stream] = (
            _stdin(),
            Stream(1, self._late),
            Stream(2, self._late),
        )
        self._number = 0
        self._shown = 0
        main = ModuleType("__main__")
        sys.modules["__main__"] = main
        self._names = main.__dict__
        self._names["__builtins__"] = builtins
        sys.argv = [""]
        sys.path[:] = ["", *(folder for folder in sys.path if folder)]  # the session's own modules, as at a prompt
        # What libraries keep for themselves is no output of the code, and there is no screen.
        temporary = os.environ.get("TMPDIR", "/tmp")  # noqa: S108  # the sandbox's own
        for name, value in (
            ("MPLBACKEND", "agg"),
            ("MPLCONFIGDIR", f"{temporary}/matplotlib"),
            ("XDG_CACHE_HOME", f"{temporary}/cache"),
        ):
            os.environ.setdefault(name, value)
        self._late.watch()
        # What code may replace in these modules must not be missing here.
        self._exit, self._getpid, self._dup2, self._close = posix._exit, posix.getpid, posix.dup2, posix.close

    def serve(self) -> None:
        """Run one execution after the other; never returns."""
        while True:
            try:
                job, source, out, err = self._receive()
            except (OSError, ValueError, EOFError):
                self._exit(LINK_LOST)
            self._begin(out, err)
            self._limit_cpu(job["cpu_seconds"])
            started = _cpu_microseconds()
            code, reason = self._run(job, source.decode("utf-8", "surrogatepass"))
            for stream in (sys.stdout, sys.stderr):
                try:
                    stream.flush()
                except BaseException:  # noqa: BLE001  # the code closed or replaced it
                    pass
            if self._getpid() != self._pid:
                self._exit(code & 0xFF)  # a process the code forked, that came to the end of the code
            answer = {
                "t": "done",
                "token": job["token"],
                "exit": (code + _HALF) % (2 * _HALF) - _HALF,
                "interrupted": reason is not None,
                "out_of_cpu": reason is _OutOfCpu,
                "cpu_us": max(0, _cpu_microseconds() - started),
            }
            try:
                self._link.sendall(frames.encode(answer))
            except OSError:
                self._exit(LINK_LOST)

    # ---- the way of one execution

    def _receive(self) -> tuple[frames.Frame, bytes, int, int]:
        """The next job, its code, and the descriptors of its output."""
        room = _socket.CMSG_SPACE(2 * _DESCRIPTOR_BYTES)
        data, passed, _, _ = self._link.recvmsg(_READ_BYTES, room)
        if not passed:
            raise EOFError
        numbers = passed[0][2]
        out, err = (
            int.from_bytes(numbers[at : at + _DESCRIPTOR_BYTES], sys.byteorder) for at in (0, _DESCRIPTOR_BYTES)
        )
        reader, code = frames.FrameReader(), bytearray()
        while data:
            for frame in reader.feed(data):
                if frame["t"] == "exec":
                    return frame, bytes(code), out, err
                code += frames.content(frame)
            data = self._link.recv(_READ_BYTES)
        raise EOFError

    def _begin(self, out: int, err: int) -> None:
        """Give the streams to a new execution, and those it takes over to threads that are still there."""
        self._late.begin(out, err)
        null = posix.open("/dev/null", posix.O_RDONLY)
        if null != 0:
            self._dup2(null, 0)
            self._close(null)
        # The same objects as before, which a logger may hold, unless code has closed one.
        stdin, stdout, stderr = self._streams
        stdin = _stdin() if stdin.closed else stdin
        stdout = stdout if stdout.is_usable else Stream(1, self._late)
        stderr = stderr if stderr.is_usable else Stream(2, self._late)
        self._streams = (stdin, stdout, stderr)
        sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__ = self._streams  # type: ignore[misc]
        # What an earlier execution did to signals and to the display hook was for itself.
        sys.displayhook = self._show
        _signal.signal(_signal.SIGINT, self._on_signal)
        _signal.signal(_signal.SIGXCPU, self._on_signal)
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, _SIGNALS)

    def _limit_cpu(self, seconds: int | None) -> None:
        import resource

        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        soft = resource.RLIM_INFINITY
        if seconds is not None:
            soft = int(_cpu_microseconds() / 1e6) + max(1, seconds)
        if hard != resource.RLIM_INFINITY:
            soft = hard if soft == resource.RLIM_INFINITY else min(soft, hard)
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self._running and self._getpid() == self._pid:
            if number == _signal.SIGXCPU:
                raise _OutOfCpu
            raise KeyboardInterrupt

    def _run(self, job: frames.Frame, source: str) -> tuple[int, type[BaseException] | None]:
        """Exit code, and which signal ended the code: KeyboardInterrupt, _OutOfCpu or None."""
        self._number, self._shown = job["id"], 0
        before = State(self._names)
        failure = None  # type: BaseException | None
        code, reason = 0, None  # type: int, type[BaseException] | None
        try:
            try:
                self._running = True
                self._progress[0] = RUNS
                enter(job)
                self._execute(source, job["restrict"])
            finally:
                self._running = False
                if self._getpid() == self._pid:
                    self._progress[0] = ENDED
        except SystemExit as end:
            if end.code is not None:
                code = end.code if type(end.code) is int else 1
            if code and type(end.code) is not int:
                _say(end.code)
        except (KeyboardInterrupt, _OutOfCpu) as end:
            failure, code, reason = end, 1, _OutOfCpu if isinstance(end, _OutOfCpu) else KeyboardInterrupt
        except BaseException as end:  # noqa: BLE001  # whatever the code raises
            failure, code = end, 1
        if self._getpid() != self._pid:
            if failure is not None:
                self._complain(failure)
            return code, reason
        try:
            if failure is not None:
                self._complain(failure)
            self._take_figures(wanted=code == 0)
        except BaseException as error:  # noqa: BLE001
            _say(f"(not everything could be shown: {type(error).__name__})")
        if failure is not None:
            failure.__traceback__ = None  # it holds every local variable of the code
        if code == 0:
            before.leave(job)
        else:
            before.restore()
        return code, reason

    def _execute(self, source: str, restrict: bool) -> None:
        name = f"<execution {self._number}>"
        self._sources[name] = source
        if len(self._sources) > _MOST_SOURCES:
            del self._sources[next(iter(self._sources))]
        self._names["__builtins__"] = restricted_builtins() if restrict else builtins
        tree: Any = compile(source, name, "exec", _ONLY_AST, dont_inherit=True)
        import _ast

        last: list[Any] = []
        if tree.body and isinstance(tree.body[-1], _ast.Expr):
            last = [tree.body.pop()]
        if tree.body:
            self._run_code(compile(tree, name, "exec", _TOP_LEVEL_AWAIT, dont_inherit=True))
        if last:
            self._run_code(compile(_ast.Interactive(body=last), name, "single", _TOP_LEVEL_AWAIT, dont_inherit=True))

    def _run_code(self, code: CodeType) -> None:
        """Run code; what awaits outside of a function gets an event loop of its own, as long as it runs."""
        awaited = eval(code, self._names)  # noqa: S307
        if code.co_flags & _IS_COROUTINE:
            import asyncio

            asyncio.run(awaited)

    # ---- what code shows

    def _show(self, value: object) -> None:
        """The value of a last expression: its ``repr``; a data frame also as a file."""
        if value is None:
            return
        builtins._ = value  # type: ignore[attr-defined]
        kind = type(value)
        sys.stdout.write(repr(value) + "\n")
        if kind.__module__.partition(".")[0] == "pandas" and kind.__name__ == "DataFrame":
            self._shown += 1
            self._save("table", "csv", value.to_csv)  # type: ignore[attr-defined]

    def _take_figures(self, *, wanted: bool) -> None:
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None:
            return
        for number in pyplot.get_fignums():
            if wanted:
                self._shown += 1
                self._save("figure", "png", pyplot.figure(number).savefig)
        pyplot.close("all")

    def _save(self, kind: str, suffix: str, save: Any) -> None:
        name = f"{kind}-{self._number}-{self._shown}.{suffix}"
        try:
            save(self._home + "/" + name)
        except Exception as error:  # noqa: BLE001  # of the library
            _say(f"(this {kind} could not be saved as a file: {type(error).__name__}: {error})")

    def _complain(self, error: BaseException) -> None:
        """The traceback, without frames of ours."""
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename not in self._sources:
            trace = trace.tb_next
        own = {method.__code__.co_filename for method in (Kernel._on_signal, Late.write)}
        last = frame = trace
        while frame is not None:  # ends after the last frame of the code: print() and signals lead here
            if frame.tb_frame.f_code.co_filename not in own:
                last = frame
            frame = frame.tb_next
        if last is not None:
            last.tb_next = None
        try:
            import linecache
            import traceback

            for name, source in self._sources.items():
                linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
            kind = KeyboardInterrupt if isinstance(error, _OutOfCpu) else type(error)
            shown = KeyboardInterrupt("out of CPU time") if isinstance(error, _OutOfCpu) else error
            _say("".join(traceback.format_exception(kind, shown, trace)).rstrip("\n"))
        except BaseException as again:  # noqa: BLE001  # a __str__ that raises, no memory
            _say(f"{type(error).__name__}; it cannot be shown: {type(again).__name__}")


def _stdin() -> io.TextIOWrapper:
    raw: Any = io.FileIO(0, "r", closefd=False)
    return io.TextIOWrapper(io.BufferedReader(raw), "utf-8", "surrogateescape")


def _cpu_microseconds() -> int:
    return time.process_time_ns() // 1000


def _say(text: object) -> None:
    try:
        sys.stderr.write(f"{text}\n")
    except BaseException:  # noqa: BLE001  # closed, or no text at all
        pass


class State:
    """What an execution found: names, variables of the environment, working directory."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._before = dict(names)
        self._environment = dict(os.environ)
        self._folder = _folder()

    def restore(self) -> None:
        """Back to that. Name by name: threads may be using the others."""
        names, before = self._names, self._before
        for name in [name for name in names if name not in before]:
            names.pop(name, None)
        for name, value in before.items():
            if name not in names or names[name] is not value:
                names[name] = value
        _set_environment(self._environment)
        if self._folder is not None and _folder() != self._folder:
            _enter_if_there(self._folder)

    def leave(self, job: frames.Frame) -> None:
        """Take away what was there for this one execution, unless the code itself has changed it."""
        for name, value in job["env"].items():
            if os.environ.get(name) == value:
                if name in self._environment:
                    os.environ[name] = self._environment[name]
                else:
                    del os.environ[name]
        if job["cwd"] is not None and self._folder is not None and _folder() == job["cwd"]:
            _enter_if_there(self._folder)


def enter(job: frames.Frame) -> None:
    """Its variables and its folder, for one execution."""
    os.environ.update(job["env"])
    if job["cwd"] is not None:
        os.makedirs(job["cwd"], exist_ok=True)
        os.chdir(job["cwd"])


def _set_environment(wanted: dict[str, str]) -> None:
    for name in [name for name in os.environ if name not in wanted]:
        del os.environ[name]
    for name, value in wanted.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return None


def _enter_if_there(folder: str) -> None:
    try:
        os.chdir(folder)
    except OSError:
        pass
