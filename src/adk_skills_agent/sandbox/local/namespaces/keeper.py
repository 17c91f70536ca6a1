"""The end of sandboxes whose agent is killed before bubblewrap has made them (row 31, decision 0017).

The process that bubblewrap clones waits for bubblewrap's word, and for ever when bubblewrap was killed before it gave
it. So bubblewrap is started in the process group of a *keeper*: a shell that reads from a pipe only the agent could
write to, and when that ends, as it does with the agent, kills its group and itself. What is cloned is in that group
until it makes a session of its own, the last step before process 1 of the sandbox, which hears of the agent's end
itself.

Nothing is missed at the beginning either: a process that was forked and has not joined the group yet still holds the
pipe, which is closed to it after it has joined.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from adk_skills_agent.sandbox.process.spawn import OWN_GROUP, Launch, spawner

# Nothing but the agent's end or SIGKILL ends it, whatever a terminal or a service manager sends to everybody.
_PROGRAM = b'trap "" HUP INT QUIT TERM TSTP TTIN TTOU; read x; kill -9 0'
_LINE = (b"/bin/sh", b"-c", _PROGRAM, b"adk-skills-keeper")


@dataclass(slots=True, eq=False)
class Keeper:
    """A running one.

    Attributes:
        pid: Its process, and the group it leads.
        pidfd: Becomes readable when it ends; None where the system has no such descriptors.
        alive: The writing end of its pipe.
        files: What the two are of: an agent may close all descriptors it finds, and then others get their numbers.
        fits: For which agent: only in the same session can a process join the group, and only a process of the same
            user kill all that is in it.
        users: How many sandboxes are being started in its group.
        outdated: Whether it is to end when they are.
    """

    pid: int
    pidfd: int | None
    alive: int
    files: dict[int, tuple[int, int] | None]
    fits: tuple[int, int]
    users: int = 0
    outdated: bool = False


class Keepers:
    """That of this process, and those it has replaced and still needs."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._all: list[Keeper] = []

    @property
    def current(self) -> Keeper | None:
        """The one for what is started next, if there is one."""
        return next((keeper for keeper in self._all if not keeper.outdated), None)

    @contextlib.contextmanager
    def group(self) -> Iterator[int]:
        """The process group to start bubblewrap in, which ends with the agent. Hold it until the sandbox is ready.

        Raises:
            SandboxError: The keeper could not be started: no descriptors, memory or processes left, no ``/bin/sh``.
            OSError: No descriptor is left.
        """
        with self.lock:
            keeper = self._fitting()
            keeper.users += 1
        try:
            yield keeper.pid
        finally:
            with self.lock:
                keeper.users -= 1
                self._end_unused()

    def end(self) -> None:
        """End this process's keeper as soon as no sandbox is being started; the next start makes another."""
        with self.lock:
            for keeper in self._all:
                keeper.outdated = True
            self._end_unused()

    def let_go(self) -> None:
        """In a forked child, whose copy of the pipe would hide the agent's end: close what is the parent's."""
        for keeper in self._all:
            _close(keeper)
        self._all.clear()

    def _fitting(self) -> Keeper:
        fits = (os.getsid(0), os.geteuid())
        keeper = self.current
        if keeper is not None and not (keeper.fits == fits and _is_alive(keeper)):
            keeper.outdated = True
            self._end_unused()
            keeper = None
        if keeper is None:
            keeper = _start(fits)
            self._all.append(keeper)
        return keeper

    def _end_unused(self) -> None:
        unused = [keeper for keeper in self._all if keeper.outdated and not keeper.users]
        for keeper in unused:
            self._all.remove(keeper)
            _end(keeper)


def _start(fits: tuple[int, int]) -> Keeper:
    read, alive = os.pipe()
    try:
        launch = Launch(_LINE, {}, b"/", read, group=OWN_GROUP)
        child = spawner().spawn(launch)
    except BaseException:
        os.close(alive)
        raise
    finally:
        os.close(read)
    for output in (child.stdout, child.stderr):
        os.close(output)  # it says nothing
    files = {number: _file_of(number) for number in (child.pidfd, alive) if number is not None}
    return Keeper(child.pid, child.pidfd, alive, files, fits)


def _is_alive(keeper: Keeper) -> bool:
    if _ours(keeper) != [*keeper.files]:
        return False  # closed by an agent that closes what it does not know
    if keeper.pidfd is None:  # without such descriptors there are no sandboxes either, and their start says so
        return True
    poll = select.poll()
    poll.register(keeper.pidfd, select.POLLIN)
    return not poll.poll(0)


def _end(keeper: Keeper) -> None:
    """Before its pipe ends, so that it does not kill its group: sandboxes that are ready need it no more."""
    # Whoever waited for it before: then its number may be another's by now, even another child's.
    with contextlib.suppress(ChildProcessError, ProcessLookupError):
        if keeper.pidfd is not None and keeper.pidfd in _ours(keeper):
            signal.pidfd_send_signal(keeper.pidfd, signal.SIGKILL)
        elif os.waitpid(keeper.pid, os.WNOHANG)[0] == 0:
            os.kill(keeper.pid, signal.SIGKILL)
        os.waitpid(keeper.pid, 0)
    _close(keeper)


def _close(keeper: Keeper) -> None:
    for number in _ours(keeper):
        os.close(number)


def _ours(keeper: Keeper) -> list[int]:
    """Of its descriptors those that are still its own."""
    return [number for number, file in keeper.files.items() if file is not None and _file_of(number) == file]


def _file_of(number: int) -> tuple[int, int] | None:
    try:
        info = os.fstat(number)
    except OSError:
        return None
    return info.st_dev, info.st_ino


keepers = Keepers()


kept_group, end_keeper = keepers.group, keepers.end


def _forget() -> None:
    try:
        keepers.let_go()
    finally:
        keepers.lock.release()


# Held, because of a keeper that is being started a child would not know that it has the pipe.
os.register_at_fork(before=keepers.lock.acquire, after_in_parent=keepers.lock.release, after_in_child=_forget)
atexit.register(end_keeper)
