"""One permanent event loop in a thread of its own, for callers that are not asynchronous.

google-adk calls ``execute_code`` from a worker thread, or straight in the thread of a running loop. Neither can await;
a loop made for each call would lose the sandbox's warm slots, and a thread that ends takes what it spawned with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextvars import ContextVar
from functools import update_wrapper
from typing import Any, Generic, TypeVar, cast

from adk_skills_agent.platforms import after_fork_in_child

_Result = TypeVar("_Result")

logger = logging.getLogger(__name__)


_POLL_SECONDS = 0.05


def result_of(future: Future[_Result], seconds: float | None = None) -> _Result:
    """``future.result(seconds)`` that Ctrl-C always interrupts.

    Linux hands SIGINT to whichever thread looks first, and a thread that has just been created does. Python's main
    thread then sleeps on in its lock and raises KeyboardInterrupt only when it wakes, so here it wakes now and then.
    """
    if threading.current_thread() is not threading.main_thread():
        return future.result(seconds)
    end = float("inf") if seconds is None else time.monotonic() + seconds
    while True:
        try:
            return future.result(min(_POLL_SECONDS, max(0.0, end - time.monotonic())))
        except TimeoutError:
            if future.done():
                return future.result()  # it may have ended with a TimeoutError of its own
            if time.monotonic() >= end:
                raise


class BackgroundCall(Generic[_Result]):
    """One coroutine on an event loop in another thread, the background loop unless one is given.

    Raises ``RuntimeError`` when this is the background loop's own thread, which would wait for itself.
    """

    def __init__(
        self, start: Callable[[], Coroutine[Any, Any, _Result]], loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self._start = start
        self._ended: Future[_Result] = Future()
        self._task: asyncio.Task[_Result] | None = None
        self._cancelled = False
        self._loop = _background_loop() if loop is None else loop
        self._loop.call_soon_threadsafe(self._begin)

    def result(self, seconds: float | None = None) -> _Result:
        """Wait for the end, from any other thread, at most so long.

        An interrupt (Ctrl-C) while waiting cancels the call, and so do the time limit and the end of the task that
        called ``execute_code``; each comes out after everything is cleaned up. Raises ``CancelledError`` for the last.
        """
        try:
            with _cancelled_with_caller(self.cancel):
                return result_of(self._ended, seconds)
        except CancelledError:
            raise asyncio.CancelledError from None
        except BaseException:
            if not self._ended.done():
                self.cancel()
                with contextlib.suppress(BaseException):
                    result_of(self._ended, seconds)  # as long once more
            raise

    def cancel(self) -> None:
        """Cancel it; safe from any thread, at any time, more than once."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the interpreter ends
            self._loop.call_soon_threadsafe(self._cancel)

    def _begin(self) -> None:
        if self._cancelled:
            self._ended.cancel()
            return
        self._task = self._loop.create_task(self._start())
        self._task.add_done_callback(self._end)

    def _cancel(self) -> None:
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()

    def _end(self, task: asyncio.Task[_Result]) -> None:
        if task.cancelled():
            self._ended.cancel()
        elif (error := task.exception()) is not None:
            self._ended.set_exception(error)
        else:
            self._ended.set_result(task.result())


_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None
_lock = threading.Lock()


def _background_loop() -> asyncio.AbstractEventLoop:
    global _loop, _thread  # noqa: PLW0603  # one per process is the point
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            _thread = threading.Thread(target=_serve, args=(_loop,), name="adk-skills-executors", daemon=True)
            _thread.start()
        if _thread is threading.current_thread():
            raise RuntimeError(
                "execute_code was called in the executors' own thread, perhaps from an on_output callback; it would "
                "wait for itself. Call it from another thread."
            )
        return _loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    while True:
        try:
            loop.run_forever()
        except BaseException:  # asyncio lets SystemExit and KeyboardInterrupt of a callback stop the loop
            logger.exception("A callback of an execution tried to end the program; it is ignored.")
        else:
            return


def _forget() -> None:
    global _loop, _thread, _lock  # noqa: PLW0603  # a thread does not survive a fork, and the lock may have been held
    _loop = _thread = None
    _lock = threading.Lock()


after_fork_in_child(_forget)


# Blocking work of others in a thread of its own, which can be given up on.


class TooLate(Exception):
    """Work in a thread did not end in time; not a TimeoutError, which the work itself may raise."""


async def in_thread(work: Callable[[], _Result], seconds: float | None) -> _Result:
    """Do blocking work in a thread of its own, which does not keep the interpreter alive.

    Not the loop's pool: it has few threads, and name look-ups of the agent wait there too (row 19). After ``seconds``
    it is waited for no longer and goes on alone; None waits without end.

    Raises:
        TooLate: It did not end in time.
        BaseException: Whatever the work raises.
    """
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    outcome: Future[_Result] = Future()
    context = contextvars.copy_context()

    def go() -> None:
        try:
            outcome.set_result(context.run(work))
        except BaseException as error:  # noqa: BLE001 - SystemExit of a script too; raised again where it is awaited
            outcome.set_exception(error)
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=go, name="adk-skills-execute-code", daemon=True).start()
    try:
        await asyncio.wait_for(done.wait(), seconds)
    except TimeoutError:
        raise TooLate from None
    return outcome.result()


# Notice that the agent's turn was cancelled while ``execute_code`` runs in a worker thread (rows E3, 18).
#
# ``asyncio.to_thread(executor.execute_code, ...)`` cannot be cancelled: the task that awaits it ends, the thread goes
# on, and with it the script. google-adk has no public way to tell an executor. But the task itself reads the
# attribute ``execute_code``, and at that moment it is the current one; so the method is bound to it as well as to the
# executor.

_Method = TypeVar("_Method", bound=Callable[..., Any])


_caller: ContextVar[tuple[asyncio.Task[Any], int] | None] = ContextVar("adk_skills_caller", default=None)
"""The task that reads ``execute_code``, and the thread of its loop."""


@contextlib.contextmanager
def _cancelled_with_caller(cancel: Callable[[], None]) -> Iterator[None]:
    """Calls ``cancel`` when the task that called the running ``execute_code`` ends inside the block."""
    caller = _caller.get()
    if caller is None or caller[1] == threading.get_ident():  # the loop's own thread is blocked until the end
        yield
        return
    task, loop = caller[0], caller[0].get_loop()

    def ended(_: object) -> None:
        cancel()

    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(task.add_done_callback, ended)
    try:
        yield
    finally:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(task.remove_done_callback, ended)


class BoundToTask:
    """A method that remembers the task that read it; see :func:`bound_to_task`."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self._method
        bound = self._method.__get__(instance, owner)
        try:
            task = asyncio.current_task()
        except RuntimeError:
            return bound
        if task is None:
            return bound
        caller = task, threading.get_ident()

        def call(*arguments: Any, **keywords: Any) -> Any:
            token = _caller.set(caller)
            try:
                return bound(*arguments, **keywords)
            finally:
                _caller.reset(token)

        return update_wrapper(call, self._method)


def bound_to_task(method: _Method) -> _Method:
    """Let a synchronous method know which task reads and so calls it: its :class:`BackgroundCall` ends with that."""
    return cast(_Method, BoundToTask(method))
