"""Close descriptors whose closing takes the kernel milliseconds, in a thread of its own.

The last reference to a mount namespace is one: all its mounts go, and the kernel waits for all processors. When it is
a process that has it, that process cannot be waited for before; so a run holds one, and gives it up here.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterable

_waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
_lock = threading.Lock()
_working = False


def close_late(descriptors: Iterable[int]) -> None:
    """Close them soon; never blocks."""
    global _working  # noqa: PLW0603  # one thread per process is the point
    for descriptor in descriptors:
        _waiting.put(descriptor)
    with _lock:
        if not _working:
            _working = True
            try:
                threading.Thread(target=_work, name="adk-skills-closer", daemon=True).start()
            except RuntimeError:  # the interpreter is ending, and all descriptors with it
                _working = False


def _work() -> None:
    while True:
        os.close(_waiting.get())


def _forget() -> None:
    global _waiting, _lock, _working  # threads do not survive a fork
    _waiting, _lock, _working = queue.SimpleQueue(), threading.Lock(), False


os.register_at_fork(after_in_child=_forget)
