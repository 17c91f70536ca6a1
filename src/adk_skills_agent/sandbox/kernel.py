"""The process that holds a session's Python state and runs its code; forked by the :mod:`.supervisor` of the box.

Part of the program in a box (:mod:`.box_program`): imports nothing of this package. It has one descriptor besides its
standard streams, a socket to the supervisor; the host's channel is not in this process. Whatever code does to that
socket costs the session's state and nothing else.

Execution N either succeeds, or leaves names, environment and working directory as they were before it (S0-112). What
it did inside of objects, and to files, stays.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import _thread
import builtins
import io
import marshal
import os
import posix
import sys
import time
from types import FrameType, ModuleType
from typing import Any

from adk_skills_agent.sandbox.kernel_state import State, enter
from adk_skills_agent.sandbox.python_program import restricted_builtins

INTERRUPTED = 1
"""Flag of an answer: SIGINT ended it."""
OUT_OF_CPU = 2
"""Flag of an answer: its processor time was used up."""
RUNS, ENDED = 1, 2
"""How far an execution is, in the byte both sides see: its code runs; it has ended, and what is left to do (a traceback
needs modules, a figure is saved) is this process' own. 0 before."""
LENGTH_BYTES = 8
ANSWER_BYTES = 8 + 4 + 1 + 8
LINK_LOST = 70
"""Exit code of a kernel that cannot reach its supervisor any more."""

_ONLY_AST = 0x400  # ast.PyCF_ONLY_AST, without the import of ast
_MOST_SOURCES = 200
_FIRST_BYTES = 1 << 16  # most jobs are shorter, and come in one piece with their descriptors
_SIGNALS = (_signal.SIGINT, _signal.SIGXCPU)


class _OutOfCpu(BaseException):
    """SIGXCPU; no ``except Exception`` of the code swallows it."""


class Kernel:
    """The state of one session.

    Args:
        link: The socket to the supervisor.
        home: The working directory.
        progress: One byte that the supervisor sees, see :data:`RUNS`.
    """

    def __init__(self, link: int, home: str, progress: Any) -> None:
        self._progress = progress
        self._link = _socket.socket(fileno=link)
        self._home = home
        self._pid = posix.getpid()
        self._running = False
        self._sources: dict[str, str] = {}
        self._late = _Late()
        self._streams: tuple[io.TextIOWrapper, ...] = (_stdin(), _Stream(1, self._late), _Stream(2, self._late))
        self._number = 0
        self._shown = 0
        main = ModuleType("__main__")
        sys.modules["__main__"] = main
        self._names = main.__dict__
        self._names["__builtins__"] = builtins
        sys.argv = [""]
        sys.path[:] = ["", *(folder for folder in sys.path if folder)]  # the session's own modules, as at a prompt
        # What libraries keep for themselves is no output of the code, and there is no screen.
        temporary = os.environ.get("TMPDIR", "/tmp")  # noqa: S108  # the box's own
        for name, value in (
            ("MPLBACKEND", "agg"),
            ("MPLCONFIGDIR", f"{temporary}/matplotlib"),
            ("XDG_CACHE_HOME", f"{temporary}/cache"),
        ):
            os.environ.setdefault(name, value)
        # What code may replace in these modules must not be missing here.
        self._exit, self._getpid, self._dup2, self._close = posix._exit, posix.getpid, posix.dup2, posix.close

    def serve(self) -> None:
        """Run one execution after the other; never returns."""
        while True:
            try:
                job, out, err = self._receive()
            except (OSError, ValueError, EOFError):
                self._exit(LINK_LOST)
            self._begin(out, err)
            self._limit_cpu(job["cpu_seconds"])
            started = _cpu_microseconds()
            code, flags = self._run(job)
            for stream in (sys.stdout, sys.stderr):
                try:
                    stream.flush()
                except BaseException:  # noqa: BLE001  # the code closed or replaced it
                    pass
            if self._getpid() != self._pid:
                self._exit(code & 0xFF)  # a process the code forked, that came to the end of the code
            used = max(0, _cpu_microseconds() - started)
            answer = job["token"].to_bytes(8, "big") + (code & 0xFFFFFFFF).to_bytes(4, "big") + bytes([flags])
            try:
                self._link.sendall(answer + min(used, 1 << 62).to_bytes(8, "big"))
            except OSError:
                self._exit(LINK_LOST)

    # ---- the way of one execution

    def _receive(self) -> tuple[dict[str, Any], int, int]:
        data, passed, _, _ = self._link.recvmsg(_FIRST_BYTES, _socket.CMSG_SPACE(8))
        if len(data) < LENGTH_BYTES or not passed:
            raise EOFError
        numbers = passed[0][2]
        out, err = (int.from_bytes(numbers[at : at + 4], sys.byteorder) for at in (0, 4))
        end = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "big")
        held = bytearray(data)
        while len(held) < end:
            piece = self._link.recv(min(end - len(held), 1 << 20))
            if not piece:
                raise EOFError
            held += piece
        return marshal.loads(memoryview(held)[LENGTH_BYTES:]), out, err  # noqa: S302  # from the supervisor

    def _begin(self, out: int, err: int) -> None:
        """Give the streams to a new execution, and those it takes over to threads that are still there."""
        late = self._late
        with late.lock:
            late.threads = set(sys._current_frames()) - {_thread.get_ident()}
            if late.threads and not late.descriptors:
                late.descriptors = (posix.dup(1), posix.dup(2))
            for old, number in zip(late.descriptors, (1, 2) if late.threads else (0, 0)):
                self._dup2(number, old)
            for number, descriptor in ((1, out), (2, err)):
                self._dup2(descriptor, number)
                self._close(descriptor)
        null = posix.open("/dev/null", posix.O_RDONLY)
        if null != 0:
            self._dup2(null, 0)
            self._close(null)
        # The same objects as before, which a logger may hold, unless code has closed one.
        stdin, stdout, stderr = self._streams
        stdin = _stdin() if stdin.closed else stdin
        stdout = _Stream(1, late) if stdout.closed else stdout
        stderr = _Stream(2, late) if stderr.closed else stderr
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

    def _run(self, job: dict[str, Any]) -> tuple[int, int]:
        self._number, self._shown = job["id"], 0
        before = State(self._names)
        failure = None  # type: BaseException | None
        code = flags = 0
        try:
            try:
                self._running = True
                self._progress[0] = RUNS
                enter(job)
                self._execute(job["code"], job["restrict"])
            finally:
                self._running = False
                if self._getpid() == self._pid:
                    self._progress[0] = ENDED
        except SystemExit as end:
            if end.code is not None:
                code = end.code if type(end.code) is int else 1
            if code and type(end.code) is not int:
                _say(end.code)
        except KeyboardInterrupt as end:
            failure, code, flags = end, 1, INTERRUPTED
        except _OutOfCpu as end:
            failure, code, flags = end, 1, OUT_OF_CPU
        except BaseException as end:  # noqa: BLE001  # whatever the code raises
            failure, code = end, 1
        if self._getpid() != self._pid:
            if failure is not None:
                self._complain(failure)
            return code, flags
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
        return code, flags

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
            exec(compile(tree, name, "exec", dont_inherit=True), self._names)  # noqa: S102
        if last:
            exec(compile(_ast.Interactive(body=last), name, "single", dont_inherit=True), self._names)  # noqa: S102

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
        own, last, frame = Kernel._on_signal.__code__.co_filename, trace, trace
        while frame is not None:  # the last one that is none of ours ends it: print() and signals lead here
            if frame.tb_frame.f_code.co_filename != own:
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


class _Late:
    """Threads of earlier executions, and where what they print goes; changed and asked under its lock."""

    def __init__(self) -> None:
        self.lock = _thread.allocate_lock()
        self.threads: set[int] = set()
        self.descriptors: tuple[int, ...] = ()  # never closed: a thread may be writing


class _Stream(io.TextIOWrapper):
    """Standard output or error as ``python -u`` has it: what was printed before a kill is not lost in a buffer.

    Args:
        number: Its descriptor.
        late: What threads of earlier executions print is not this execution's.
    """

    def __init__(self, number: int, late: _Late) -> None:
        raw: Any = io.FileIO(number, "w", closefd=False)
        errors = "surrogateescape" if number == 1 else "backslashreplace"
        super().__init__(raw, "utf-8", errors, write_through=True)
        self._number, self._late, self._main = number, late, _thread.get_ident()

    def write(self, text: str) -> int:
        """To one of both."""
        if _thread.get_ident() == self._main:
            return super().write(text)
        late = self._late
        with late.lock:
            if _thread.get_ident() not in late.threads:
                return super().write(text)
            try:
                posix.write(late.descriptors[self._number - 1], text.encode("utf-8", "replace"))
            except OSError:  # nobody reads it any more
                pass
        return len(text)


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
