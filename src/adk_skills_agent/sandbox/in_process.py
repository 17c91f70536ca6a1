"""Python code in the agent's own process: for debugging only. No isolation, no limit but the wall clock (S0-76, S1-4).

Python cannot stop a thread. A run that outlives its deadline leaves the interpreter unhealthy: further runs are refused
at once, until :meth:`InProcessPython.reinitialize` finds the thread gone.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, TextIO

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.threads import warn_insecure_once

_KEPT_CHARS = 1 << 18
_NOT_CONTAINED = (
    "in_process=True runs code inside the agent's process: it can read every secret and file of the agent, and "
    "cannot be stopped. Use it only to debug code of your own."
)


@dataclass(frozen=True, slots=True)
class InProcessResult:
    """What a run did: at most 262,144 characters of each stream, ``truncated`` when there were more.

    ``exit_code`` is what SystemExit carried, 1 after an exception; None after a timeout, when the thread goes on.
    """

    stdout: str
    stderr: str
    exit_code: int | None
    timed_out: bool = False
    truncated: bool = False


class InProcessPython:
    """One place to run code, one run at a time; any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._healthy = True
        self._thread: threading.Thread | None = None

    def __deepcopy__(self, _memo: dict[int, Any]) -> InProcessPython:
        return InProcessPython()  # a lock and a thread cannot be copied, and a copy has run nothing

    @property
    def healthy(self) -> bool:
        """Whether a run would be accepted."""
        return self._healthy

    def run(self, code: str, *, timeout_seconds: float | None, restrict_builtins: bool = False) -> InProcessResult:
        """Run ``code`` in a daemon thread and wait for it.

        Args:
            code: Python; SystemExit ends only this run.
            timeout_seconds: Seconds to wait, the wait for an earlier run not counted; None waits without end, and with
                0 the code does not even begin.
            restrict_builtins: See :func:`~adk_skills_agent.sandbox.supervisor.python_program.restricted_builtins`.

        Raises:
            SandboxError: An earlier run did not end in time.
        """
        warn_insecure_once(_NOT_CONTAINED)
        self._refuse_unhealthy()
        # The lock is the caller's and not the thread's: a thread that never ends must not keep it.
        with self._lock:
            self._refuse_unhealthy()  # the run that was waited for may just have become the one that hangs
            return self._run(code, timeout_seconds, restrict_builtins)

    def reinitialize(self) -> None:
        """Make it usable again after a timeout; a RuntimeError says that the thread is still running."""
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                raise RuntimeError(
                    "The code that ran out of time is still running in its thread; Python cannot stop it. Wait until "
                    "it ends, restart the process, or use in_process=False, where it would have been killed."
                )
            self._thread = None
            self._healthy = True

    def _refuse_unhealthy(self) -> None:
        if not self._healthy:
            runs = self._thread is not None and self._thread.is_alive()
            raise SandboxError(
                "An earlier in-process execution did not end in time and still runs. Call reinitialize() once it has "
                "ended, or use in_process=False."
                if runs
                else "An earlier in-process execution did not end in time; it has ended since. Call reinitialize()."
            )

    def _run(self, code: str, timeout_seconds: float | None, restrict_builtins: bool) -> InProcessResult:
        if timeout_seconds is not None and timeout_seconds <= 0:
            return InProcessResult("", "", None, timed_out=True)  # it never began, so nothing goes on
        ended: list[int] = []
        out, err = Kept(_KEPT_CHARS), Kept(_KEPT_CHARS)

        def work() -> None:
            # What still runs after a timeout keeps printing into the capture and not onto the host's terminal.
            with captured(out, err):
                _work(code, restrict_builtins, ended)

        self._thread = thread = threading.Thread(target=work, name="adk-skills-in-process", daemon=True)
        thread.start()
        thread.join(timeout_seconds)
        self._healthy = not thread.is_alive()
        code_number = ended[0] if ended else None
        cut = out.cut or err.cut
        return InProcessResult(out.text, err.text, code_number, timed_out=not self._healthy, truncated=cut)


def _work(code: str, restrict: bool, ended: list[int]) -> None:
    import traceback

    from adk_skills_agent.sandbox.supervisor.python_program import restricted_builtins

    namespace: dict[str, Any] = {"__name__": "__main__"}
    if restrict:
        namespace["__builtins__"] = restricted_builtins()
    try:
        exec(compile(code, "<code>", "exec", dont_inherit=True), namespace)  # noqa: S102  # what this file is for
        ended.append(0)
    except SystemExit as error:
        ended.append(_status(error.code))
    except BaseException as error:  # noqa: BLE001  # whatever the code raises is its result
        for raised in _chain(error):
            raised.__traceback__ = _without_ours(raised.__traceback__)
        traceback.print_exception(error, file=sys.stderr)
        ended.append(1)


def _chain(error: BaseException) -> list[BaseException]:
    """An exception and those it came from."""
    found: list[BaseException] = []
    pending: list[BaseException | None] = [error]
    while pending:
        raised = pending.pop()
        if raised is not None and raised not in found:
            found.append(raised)
            pending += [raised.__cause__, raised.__context__]
    return found


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of this package, which are none of the code's: they name paths of the host."""
    if trace is None:
        return None
    rest = _without_ours(trace.tb_next)
    if _is_ours(trace.tb_frame):
        return rest
    return TracebackType(rest, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)


def _is_ours(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") in {__name__, "adk_skills_agent.sandbox.supervisor.python_program"}


def _status(code: object) -> int:
    """The exit status SystemExit means, as the interpreter would have it (S0-68)."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)  # noqa: T201  # what Python does with any other value
    return 1


# ``sys.stdout`` and ``sys.stderr`` by thread: what some threads write is kept, what all others write goes on. There is
# one stand-in per stream and process, however many threads are captured: it comes with the first, goes with the last.

_NAMES = ("stdout", "stderr")


class Kept:
    """What one thread wrote to one stream."""

    def __init__(self, most: int) -> None:
        self.cut = False
        self._parts: list[str] = []
        self._room = most

    @property
    def text(self) -> str:
        """Its beginning."""
        return "".join(self._parts)

    def add(self, text: str) -> None:
        """The next piece."""
        if self._room > 0:
            self._parts.append(text[: self._room])
        self._room -= len(text)
        self.cut = self._room < 0


class _Closed(Kept):
    """What stands in for the capture of a thread that closed its stream: nothing more is taken."""

    def add(self, text: str) -> None:  # noqa: ARG002  # as its base has it
        raise ValueError("I/O operation on closed file.")


class _Bytes(io.RawIOBase):
    """The stream of one thread, for code that writes bytes."""

    def __init__(self, kept: Kept) -> None:
        super().__init__()
        self._kept = kept
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._kept.add(self._decoder.decode(bytes(data)))
        return len(data)


class _StandIn:
    """Stands in for one of the streams; a captured thread that closes it closes its own and not the agent's."""

    def __init__(self, original: TextIO, kept: dict[int, Kept]) -> None:
        self.original = original
        self.kept = kept

    @property
    def _mine(self) -> Kept | None:
        return self.kept.get(threading.get_ident())

    def write(self, text: str) -> int:
        kept = self._mine
        if kept is None:
            return self.original.write(text)
        kept.add(text)
        return len(text)

    def flush(self) -> None:
        if self._mine is None:
            self.original.flush()

    @property
    def closed(self) -> bool:
        kept = self._mine
        return self.original.closed if kept is None else isinstance(kept, _Closed)

    def close(self) -> None:
        if self._mine is None:
            self.original.close()
        else:
            self.kept[threading.get_ident()] = _Closed(0)

    @property
    def buffer(self) -> Any:
        kept = self._mine
        return self.original.buffer if kept is None else _Bytes(kept)

    def detach(self) -> Any:
        kept = self._mine
        if kept is None:
            return self.original.detach()  # type: ignore[attr-defined]  # not of every text stream
        self.close()
        return _Bytes(kept)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)


_lock = threading.Lock()
_captures: dict[str, dict[int, Kept]] = {name: {} for name in _NAMES}
"""By stream and thread; one for the process, as the streams are."""


@contextlib.contextmanager
def captured(out: Kept, err: Kept) -> Iterator[None]:
    """Keep what the running thread writes in the block; also when others do the same at the same time."""
    me = threading.get_ident()
    before: dict[str, TextIO] = {}
    with _lock:
        for name, kept in zip(_NAMES, (out, err), strict=True):
            stream = getattr(sys, name)
            # Somebody else may have put their own in place while a thread that never ends is still captured.
            if not isinstance(stream, _StandIn):
                setattr(sys, name, _StandIn(stream, _captures[name]))
            before[name] = getattr(sys, name)
            _captures[name][me] = kept
    try:
        yield
    finally:
        with _lock:
            for name in _NAMES:
                del _captures[name][me]
                stream = getattr(sys, name, None)
                if stream is None or isinstance(getattr(stream, "buffer", None), _Bytes):
                    setattr(sys, name, before[name])  # the code's doing; the agent still has something to say
                stream = getattr(sys, name)
                # Somebody else's own is left alone (a test runner has one).
                if not _captures[name] and isinstance(stream, _StandIn):
                    setattr(sys, name, stream.original)
