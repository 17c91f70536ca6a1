"""Tell an event loop that a process has ended, without a thread: by its pidfd, else by asking now and then."""

from __future__ import annotations

import asyncio
import os
import select
import time
from collections.abc import Callable

from adk_skills_agent.sandbox.local.spawner import Child

_FIRST_DELAY = 0.001
_LAST_DELAY = 0.02


class ExitWatch:
    """Calls ``ended`` once, in the loop, when the child is dead; see :func:`has_ended` for when it is waited for."""

    def __init__(self, loop: asyncio.AbstractEventLoop, child: Child, ended: Callable[[], None]) -> None:
        self._loop = loop
        self._child = child
        self._ended = ended
        self._delay = _FIRST_DELAY
        self._timer: asyncio.TimerHandle | None = None
        self._open = True
        if child.pidfd is not None:
            loop.add_reader(child.pidfd, self._readable)
        else:
            self._ask()

    def hurry(self) -> None:
        """Ask soon: both pipes were closed, so the end is near. No effect with a pidfd."""
        if self._timer is not None:
            self._timer.cancel()
            self._delay = _FIRST_DELAY
            self._ask()

    def close(self) -> None:
        """Stop watching; the pidfd stays open."""
        if not self._open:
            return
        self._open = False
        if self._child.pidfd is not None:
            self._loop.remove_reader(self._child.pidfd)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _readable(self) -> None:
        if self._open:
            self.close()
            self._ended()

    def _ask(self) -> None:
        if has_ended(self._child):
            self._timer = None
            self._readable()
            return
        self._timer = self._loop.call_later(self._delay, self._ask)
        self._delay = min(self._delay * 1.5, _LAST_DELAY)


def has_ended(child: Child) -> bool:
    """Whether a child is dead.

    Its status is left to be waited for, so that its id stays its own; only where the system cannot say without waiting
    (macOS before Python 3.13) the status is taken now and kept in ``child.waited``.
    """
    if child.waited is not None:
        return True
    try:
        if hasattr(os, "waitid"):
            return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
    except ChildProcessError:
        return True  # somebody else waited for it
    if pid:
        child.waited = (status, usage)
    return pid != 0


def nobody_writes(child: Child) -> bool:
    """Whether every writer of both output pipes is gone; nothing is read."""
    poll = select.poll()
    for descriptor in (child.stdout, child.stderr):
        poll.register(descriptor, 0)
    return sum(bool(event & select.POLLHUP) for _, event in poll.poll(0)) == 2


def wait_until_ended(child: Child, seconds: float) -> bool:
    """Block until a child is dead, at most so long; for worker threads."""
    deadline = time.monotonic() + seconds
    delay = _FIRST_DELAY
    while not has_ended(child):
        if time.monotonic() >= deadline:
            return False
        time.sleep(delay)
        delay = min(delay * 2, _LAST_DELAY)
    return True
