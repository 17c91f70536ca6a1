"""Worker threads for the blocking half of runs, and the semaphore that bounds how many run at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
import warnings
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Generic, TypeVar

from adk_skills_agent.errors import SandboxError, SecurityWarning, SkillsError

_Result = TypeVar("_Result")
_Thing = TypeVar("_Thing")


async def uninterrupted(work: Awaitable[_Result]) -> _Result:
    """Wait for work to its end; a cancellation comes out after it.

    Raises:
        CancelledError: The wait was cancelled; the work has ended nevertheless.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # taken, so that it is not reported as lost
        raise cancelled
    return task.result()


_logger = logging.getLogger("adk_skills_agent.sandbox")


class Step:
    """``with Step("end the run"):`` turns an unforeseen exception into a :class:`SandboxError` that names the step.

    A bug here must not end an agent's run. Errors of this package, cancellations and warnings made errors pass.

    Args:
        doing: Completes "The sandbox could not".
        passing: Further exceptions that mean something to the caller.
    """

    __slots__ = ("_doing", "_passing")

    def __init__(self, doing: str, *passing: type[Exception]) -> None:
        self._doing = doing
        self._passing = (SkillsError, Warning, *passing)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, Exception) or isinstance(error, self._passing):
            return
        _logger.error("The sandbox could not %s.", self._doing, exc_info=error)
        # Only the class: the text may hold a path of the host, and the sentence may reach a model.
        reason = error.strerror if isinstance(error, OSError) and error.strerror else f"an unexpected {kind.__name__}"  # type: ignore[union-attr]
        raise SandboxError(
            f"The sandbox could not {self._doing}: {reason}. The agent's log has the details."
        ) from error


MAX_RUNNING = 64
"""Runs at the same time in one agent process: each holds three descriptors and at least one process."""


class _Waiter:
    __slots__ = ("future", "granted", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.future: asyncio.Future[None] = loop.create_future()
        self.granted = False


class Semaphore(contextlib.AbstractAsyncContextManager[None]):
    """``async with semaphore:`` waits for one of its places, first come first served, whatever event loop it is in.

    (An asyncio semaphore belongs to a single loop.)
    """

    def __init__(self, places: int) -> None:
        self._places = places
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._free = self._places
        self._waiting: deque[_Waiter] = deque()

    @property
    def free(self) -> int:
        """Places nobody has."""
        return self._free

    @property
    def wanted(self) -> int:
        """Places somebody has, or waits for; never more than there are."""
        return min(self._places, self._places - self._free + len(self._waiting))

    async def __aenter__(self) -> None:
        with self._lock:
            if self._free > 0 and not self._waiting:
                self._free -= 1
                return
            waiter = _Waiter(asyncio.get_running_loop())
            self._waiting.append(waiter)
        try:
            await waiter.future
        except BaseException:
            with self._lock:
                granted = waiter.granted
                if not granted:
                    self._waiting.remove(waiter)
            if granted:  # the place was ours already when the wait was cancelled
                self._give_back()
            raise

    async def __aexit__(self, *error: object) -> None:
        self._give_back()

    def _give_back(self) -> None:
        with self._lock:
            self._free += 1
            while self._free > 0 and self._waiting:
                waiter = self._waiting.popleft()
                waiter.granted = True
                self._free -= 1
                try:
                    waiter.loop.call_soon_threadsafe(_wake, waiter.future)
                except RuntimeError:  # its loop is closed; nobody waits any more
                    self._free += 1


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


RUNNING = Semaphore(MAX_RUNNING)
os.register_at_fork(after_in_child=RUNNING._reset)  # what the parent runs is not the child's


class OnePerProcess(Generic[_Thing]):
    """Call it to get the one thing of a process, such as a pool of threads; ``make`` makes it at the first use.

    A forked child gets one of its own, because threads do not survive a fork and the parent's locks may have been held;
    ``let_go`` closes in the child what is its parent's.
    """

    def __init__(self, make: Callable[[], _Thing], let_go: Callable[[_Thing], None] | None = None) -> None:
        self._make = make
        self._let_go = let_go
        self._made: list[_Thing] = []
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._forget)

    def __call__(self) -> _Thing:
        """The thing."""
        if not self._made:
            with self._lock:
                if not self._made:
                    self._made.append(self._make())
        return self._made[0]

    @property
    def made(self) -> _Thing | None:
        """The one of this process, if anybody has asked for it."""
        return self._made[0] if self._made else None

    def _forget(self) -> None:
        made, self._made = self._made, []
        self._lock = threading.Lock()
        if self._let_go is not None:
            for thing in made:
                self._let_go(thing)


# A few permanent threads for the file work of runs. Their number is also the bound of runs that are being started at
# the same time. asyncio's own pool is left alone: an agent's other work must not wait behind scripts.
WORKERS = 2 * (os.cpu_count() or 1)

_pool = OnePerProcess(lambda: ThreadPoolExecutor(WORKERS, thread_name_prefix="adk-skills-files"))
_served = threading.local()
_later: set[Future[object]] = set()
os.register_at_fork(after_in_child=_later.clear)


def submit(loop: asyncio.AbstractEventLoop, work: Callable[[], _Result]) -> asyncio.Future[_Result]:
    """Run ``work`` in a worker thread; the future belongs to ``loop``.

    Raises:
        SandboxError: The interpreter is shutting down, or no thread can be started.
    """
    try:
        future = _pool().submit(_serve, loop, work)
    except RuntimeError as error:
        raise SandboxError(f"The sandbox could not start its work: {error}.") from error
    return asyncio.wrap_future(future, loop=loop)


def later(work: Callable[[], object]) -> None:
    """Call ``work`` soon in a worker thread; nobody waits for it but :func:`finished`.

    It is called here when the interpreter is shutting down, or no thread can be started.
    """
    try:
        future = _pool().submit(work)
    except RuntimeError:
        work()
        return
    _later.add(future)
    future.add_done_callback(_later.discard)


async def finished(seconds: float) -> None:
    """Wait until all that was left for :func:`later` is done, at most so long."""
    left = [asyncio.wrap_future(future) for future in tuple(_later)]
    if left:
        await asyncio.wait(left, timeout=seconds)


def served_loop() -> asyncio.AbstractEventLoop:
    """The event loop this thread works for: the one that runs in it, or the one a worker thread has its work from.

    Raises:
        RuntimeError: There is none.
    """
    loop: asyncio.AbstractEventLoop | None = getattr(_served, "loop", None)
    return asyncio.get_running_loop() if loop is None else loop


def _serve(loop: asyncio.AbstractEventLoop, work: Callable[[], _Result]) -> _Result:
    _served.loop = loop
    try:
        return work()
    finally:
        _served.loop = None


_PACKAGE = str(Path(__file__).resolve().parents[1]) + "/"
_said: set[str] = set()


def warn_insecure_once(sentence: str, *, also_of: str = "") -> None:
    """Warn with a :class:`SecurityWarning`, once per process and sentence, at the nearest caller outside this package.

    How many frames of ours lie between differs from way to way, so they are looked through.

    Args:
        sentence: What is insecure; nothing is said when it has been, or when it is a subject that another one covered.
        also_of: A further subject that need not be warned of any more (S0-97: one warning at the first use).
    """
    if sentence in _said:
        return
    _said.update({sentence, also_of})
    frame = sys._getframe(1)
    level = 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
        level += 1
    warnings.warn(sentence, SecurityWarning, stacklevel=level)
