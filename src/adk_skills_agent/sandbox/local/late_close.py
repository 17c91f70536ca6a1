"""Finish in a thread of its own what the kernel takes milliseconds for and no run has to wait for.

The last reference to a mount namespace is one such thing: all its mounts go when it is closed, and the kernel waits for
all processors. When it is a process that has it, that process cannot be waited for before; so a run holds one, and
gives it up here. The end of a sandbox in which nothing is alive any more is another.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable

_waiting: deque[Callable[[], object]] = deque()
_called: queue.SimpleQueue[None] = queue.SimpleQueue()
_lock = threading.Lock()
_working = False


def close_late(descriptors: Iterable[int]) -> None:
    """Close them soon; never blocks."""
    do_late(functools.partial(_close_all, tuple(descriptors)))


def _close_all(descriptors: tuple[int, ...]) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def do_late(work: Callable[[], object]) -> None:
    """Call it soon, after what was given before; never blocks. What it raises is lost, so it should raise nothing."""
    _waiting.append(work)
    when_idle(_call)


def when_idle(work: Callable[[], object]) -> None:
    """Call it when the running task waits for something; now where there is none.

    For what wakes another thread: that takes the interpreter's lock from the task, which then waits for it: 0.1 ms.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        work()
    else:
        loop.call_soon(work)


def _call() -> None:
    global _working  # noqa: PLW0603  # one thread per process is the point
    _called.put(None)
    with _lock:
        if not _working:
            _working = True
            try:
                threading.Thread(target=_work, name="adk-skills-closer", daemon=True).start()
            except RuntimeError:  # the interpreter is ending, and all descriptors with it
                _working = False


def wait_for_late(seconds: float) -> bool:
    """Block until all that was given before is done, at most so long; whether it is."""
    if not _working and not _waiting:
        return True
    done = threading.Event()
    _waiting.append(done.set)
    _call()
    return done.wait(seconds)


def _work() -> None:
    while True:
        _called.get()
        while _waiting:
            with contextlib.suppress(OSError):
                _waiting.popleft()()


def _forget() -> None:
    global _waiting, _called, _lock, _working  # threads do not survive a fork
    _waiting, _called, _lock, _working = deque(), queue.SimpleQueue(), threading.Lock(), False


os.register_at_fork(after_in_child=_forget)
