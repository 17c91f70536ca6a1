"""Notice that the agent's turn was cancelled while ``execute_code`` runs in a worker thread (rows E3, 18).

``asyncio.to_thread(executor.execute_code, ...)`` cannot be cancelled: the task that awaits it ends, the thread goes on,
and with it the script. google-adk has no public way to tell an executor. But the task itself reads the attribute
``execute_code``, and at that moment it is the current one; so the method is bound to it as well as to the executor.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from contextvars import ContextVar
from functools import update_wrapper
from types import TracebackType
from typing import Any, TypeVar, cast

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
    """Who called the running ``execute_code``; None outside of a task."""
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
