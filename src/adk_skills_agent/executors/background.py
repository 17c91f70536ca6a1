"""One permanent event loop in a thread of its own, for callers that are not asynchronous.

google-adk calls ``execute_code`` from a worker thread, or straight in the thread of a running loop. Neither can await;
a loop made for each call would lose the sandbox's warm slots, and a thread that ends takes what it spawned with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, Generic, TypeVar

_Result = TypeVar("_Result")

logger = logging.getLogger(__name__)


class BackgroundCall(Generic[_Result]):
    """One coroutine on the background loop.

    Args:
        start: Makes the coroutine; called on the loop.

    Raises:
        RuntimeError: This is the background loop's own thread, which would wait for itself.
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

        An interrupt (Ctrl-C) while waiting cancels the call; it comes out after everything of it is cleaned up.

        Raises:
            CancelledError: :meth:`cancel` was called.
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


os.register_at_fork(after_in_child=_forget)
