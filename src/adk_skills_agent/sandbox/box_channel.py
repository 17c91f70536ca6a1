"""The ways through a supervisor: pipes of what runs in, and frames out, which wait until the host reads.

Part of the program in a box (:mod:`.box_program`); see :mod:`.supervisor`.
"""

from __future__ import annotations

import os
import select
import time
from typing import Callable, Iterator

from adk_skills_agent.sandbox import frames

_CHUNK = 1 << 16
_MOST_QUEUED = 1 << 20  # then what runs waits with its output until the host has read
_LOOK_MILLISECONDS = 50
_MOST_OLD = 16
_MOST_DRAINED = 1 << 20
_SOON_SECONDS = 0.002
"""What may wait a moment for what follows waits so long: each piece wakes several processes on its way to the host."""


class Outgoing:
    """Frames on their way to the host.

    Args:
        descriptor: Where they go; does not block.
        poll: Told when there is something left to write.
        meanwhile: Called now and then while nothing can be done but wait for the host.

    Attributes:
        due: ``time.monotonic()`` when :meth:`flush` is to be called; None when nothing waits for what follows.
    """

    def __init__(self, descriptor: int, poll: select.poll, meanwhile: Callable[[], None]) -> None:
        self._descriptor, self._poll, self._meanwhile = descriptor, poll, meanwhile
        self._queue = bytearray()
        self._waiting = False
        self.due: float | None = None

    def send(self, frame: frames.Frame, soon: bool = False) -> bool:
        """Write a frame, or keep it for later; waits only when very much is kept. False when the host is gone.

        Args:
            frame: What to send.
            soon: It may wait a moment, and goes with what follows.
        """
        self._queue += frames.encode(frame)
        if soon and len(self._queue) < _CHUNK:
            if self.due is None and not self._waiting:
                self.due = time.monotonic() + _SOON_SECONDS
            return True
        there = self.flush()
        while there and len(self._queue) > _MOST_QUEUED:
            poll = select.poll()
            poll.register(self._descriptor, select.POLLOUT)
            poll.poll(_LOOK_MILLISECONDS)
            there = self.flush()
            self._meanwhile()
        return there

    def flush_all(self) -> None:
        """Wait until the host has everything, or is gone."""
        while self.flush() and self._queue:
            poll = select.poll()
            poll.register(self._descriptor, select.POLLOUT)
            poll.poll(_LOOK_MILLISECONDS)

    def flush(self) -> bool:
        """Write what can be written now; False when the host is gone."""
        self.due = None
        try:
            while self._queue:
                del self._queue[: os.write(self._descriptor, self._queue[:_CHUNK])]
        except BlockingIOError:
            self._waiting = True
            self._poll.register(self._descriptor, select.POLLOUT)
            return True
        except OSError:
            return False
        if self._waiting:
            self._waiting = False
            ignore(self._poll, self._descriptor)
        return True


class Pipes:
    """The reading ends of what executions write, those of earlier ones too: what they left running may go on writing.

    Args:
        poll: Told which to watch.
    """

    def __init__(self, poll: select.poll) -> None:
        self._poll = poll
        self._known: dict[int, tuple[int, int]] = {}  # oldest first

    def add(self, number: int, stdout: int, stderr: int) -> None:
        """Those of a new execution; none is watched any more until :meth:`watch`."""
        for descriptor in self._known:
            ignore(self._poll, descriptor)
        for stream, descriptor in enumerate((stdout, stderr), 1):
            os.set_blocking(descriptor, False)
            self._known[descriptor] = (stream, number)

    def watch(self) -> None:
        """From here on poll says what comes in any of them."""
        for descriptor in self._known:
            self._poll.register(descriptor, select.POLLIN)

    def owner(self, descriptor: int) -> tuple[int, int] | None:
        """Its stream and execution; None when it is closed."""
        return self._known.get(descriptor)

    def of(self, number: int) -> list[tuple[int, int]]:
        """Descriptors of an execution, and their streams."""
        return [(descriptor, stream) for descriptor, (stream, own) in self._known.items() if own == number]

    def drain(self, descriptor: int) -> Iterator[bytes]:
        """What is in a pipe now, and no more than one can hold."""
        left = _MOST_DRAINED
        while left > 0:
            data = take(descriptor)
            if not data:
                return
            left -= len(data)
            yield data

    def forget(self, descriptor: int) -> None:
        """Close it."""
        del self._known[descriptor]
        ignore(self._poll, descriptor)
        os.close(descriptor)

    def forget_oldest(self) -> None:
        """Close those of long ago; what still writes there gets an error."""
        while len(self._known) > _MOST_OLD:
            self.forget(next(iter(self._known)))


def take(descriptor: int) -> bytes | None:
    """What is in a pipe; nothing at its end, None when there is nothing now."""
    try:
        return os.read(descriptor, _CHUNK)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def ignore(poll: select.poll, descriptor: int) -> None:
    """Do not watch a descriptor any more, if it was watched."""
    try:
        poll.unregister(descriptor)
    except KeyError:
        pass
