"""Finish in a thread of its own what the kernel takes milliseconds for and no run has to wait for.

The last reference to a mount namespace is one such thing: all its mounts go when it is closed, and the kernel waits for
all processors. When it is a process that has it, that process cannot be waited for before; so a run holds one, and
gives it up here. The end of a sandbox in which nothing is alive any more is another.
"""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import threading
from collections.abc import Callable, Iterable

_waiting: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
_lock = threading.Lock()
_working = False


def close_late(descriptors: Iterable[int]) -> None:
    """Close them soon; never blocks."""
    for descriptor in descriptors:
        do_late(functools.partial(os.close, descriptor))


def do_late(work: Callable[[], object]) -> None:
    """Call it soon, after what was given before; never blocks. What it raises is lost, so it should raise nothing."""
    global _working  # noqa: PLW0603  # one thread per process is the point
    _waiting.put(work)
    with _lock:
        if not _working:
            _working = True
            try:
                threading.Thread(target=_work, name="adk-skills-closer", daemon=True).start()
            except RuntimeError:  # the interpreter is ending, and all descriptors with it
                _working = False


def wait_for_late(seconds: float) -> bool:
    """Block until all that was given before is done, at most so long; whether it is."""
    if not _working:
        return True
    done = threading.Event()
    _waiting.put(done.set)
    return done.wait(seconds)


def _work() -> None:
    while True:
        with contextlib.suppress(OSError):
            _waiting.get()()


def _forget() -> None:
    global _waiting, _lock, _working  # threads do not survive a fork
    _waiting, _lock, _working = queue.SimpleQueue(), threading.Lock(), False


os.register_at_fork(after_in_child=_forget)
