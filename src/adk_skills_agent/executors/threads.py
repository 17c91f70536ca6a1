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
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextvars import ContextVar
from functools import update_wrapper
from types import TracebackType
from typing import Any, Generic, TypeVar, cast

from adk_skills_agent.platforms import after_fork_in_child

_Result = TypeVar("_Result")

logger = logging.getLogger(__name__)


class BackgroundCall(Generic[_Result]):
    """One coroutine on the background loop.

    Raises ``RuntimeError`` when this is the background loop's own thread, which would wait for itself.
    """

    def __init__(self, start: Callable[[], Coroutine[Any, Any, _Result]]) -> None:
        self._start = start
        self._ended: Future[_Result] = Future()
        self._task: asyncio.Task[_Result] | None = None
        self._cancelled = False
        self._loop = _background_loop()
        self._loop.call_soon_threadsafe(self._begin)

    def result(self) -> _Result:
        """Wait for the end, from any other thread.

        An interrupt (Ctrl-C) while waiting cancels the call; it comes out after everything of it is cleaned up. Raises
        ``CancelledError`` when :meth:`cancel` was called.
        """
        try:
            return self._ended.result()
        except CancelledError:
            raise asyncio.CancelledError from None
        except BaseException:
            if not self._ended.done():
                self.cancel()
                with contextlib.suppress(BaseException):
                    self._ended.exception()
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
    done: asyncio.Future[None] = loop.create_future()
    outcome: list[Callable[[], _Result]] = []
    context = contextvars.copy_context()

    def finish() -> None:
        if not done.done():
            done.set_result(None)

    def go() -> None:
        try:
            result = context.run(work)
        except BaseException as error:  # noqa: BLE001 - SystemExit of a script too; raised again where it is awaited
            raised = error
            outcome.append(lambda: _raise(raised))
        else:
            outcome.append(lambda: result)
        try:
            loop.call_soon_threadsafe(finish)
        except RuntimeError:
            pass  # the loop was closed: nobody waits any more

    threading.Thread(target=go, name="adk-skills-execute-code", daemon=True).start()
    await asyncio.wait({done}, timeout=seconds)
    if not done.done():
        raise TooLate
    return outcome[0]()


def _raise(error: BaseException) -> Any:
    raise error


# Notice that the agent's turn was cancelled while ``execute_code`` runs in a worker thread (rows E3, 18).
#
# ``asyncio.to_thread(executor.execute_code, ...)`` cannot be cancelled: the task that awaits it ends, the thread goes
# on, and with it the script. google-adk has no public way to tell an executor. But the task itself reads the
# attribute ``execute_code``, and at that moment it is the current one; so the method is bound to it as well as to the
# executor.

_Method = TypeVar("_Method", bound=Callable[..., Any])


class Caller:
    """The task that reads ``execute_code``, and its loop."""

    __slots__ = ("_loop", "_notify", "_task", "_thread")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self._loop = task.get_loop()
        self._thread = threading.get_ident()
        self._notify: Callable[[object], None] | None = None

    def watch(self, cancel: Callable[[], None]) -> Watch:
        """``with caller.watch(cancel):`` calls ``cancel`` when the task ends inside the block."""
        return Watch(self, cancel)

    def _add(self, notify: Callable[[object], None]) -> None:
        if threading.get_ident() == self._thread:
            return  # called in the loop's own thread, which is blocked until the end
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._task.add_done_callback, notify)

    def _remove(self, notify: Callable[[object], None]) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._task.remove_done_callback, notify)


class Watch:
    """See :meth:`Caller.watch`."""

    __slots__ = ("_caller", "_cancel")

    def __init__(self, caller: Caller, cancel: Callable[[], None]) -> None:
        self._caller = caller
        self._cancel = cancel

    def _ended(self, _task: object) -> None:
        self._cancel()

    def __enter__(self) -> None:
        self._caller._add(self._ended)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._caller._remove(self._ended)


_caller: ContextVar[Caller | None] = ContextVar("adk_skills_caller", default=None)


def calling_task() -> Caller | None:
    """The caller of the running ``execute_code``; None outside of a task."""
    return _caller.get()


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
        caller = Caller(task)

        def call(*arguments: Any, **keywords: Any) -> Any:
            token = _caller.set(caller)
            try:
                return bound(*arguments, **keywords)
            finally:
                _caller.reset(token)

        return update_wrapper(call, self._method)


def bound_to_task(method: _Method) -> _Method:
    """Let a synchronous method know, by :func:`calling_task`, which task reads and so calls it."""
    return cast(_Method, BoundToTask(method))
