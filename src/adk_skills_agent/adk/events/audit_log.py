"""The audit log: one JSON object a line, appended, readable by its owner alone, rotated by size (S4-25).

Lines are written by one background thread, which is started when the first event comes and ends when there was none
for a while; the event loop never waits for the disk. Several processes may append to one file: each line is one
``write`` at the end of the file, which the system does not mix with another's.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import stat
import threading
import time
from collections import deque
from datetime import UTC, datetime
from pathlib import Path

from adk_skills_agent.adk.events.events import SkillEvent
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.platforms import O_CLOEXEC, O_NOFOLLOW, O_NONBLOCK, locked

logger = logging.getLogger(__name__)

MAX_BYTES = 10 << 20
KEEP = 5
QUEUED = 10_000
"""Events that wait to be written at most; more are dropped and counted."""
LOST = "EventsLost"
"""The line that says how many events are missing before it."""
_IDLE_SECONDS = 5.0
_CLOSE_SECONDS = 10.0
"""Longest wait for a disk that does not answer when the toolset is closed or the process ends."""
_BATCH = 200


class AuditLog:
    """A listener that appends every event to a file.

    Args:
        path: The file; its folder is made when it does not exist.
        max_bytes: When the file is this large, it becomes ``<name>.1``, ``.1`` becomes ``.2`` and so on.
        keep: How many of those are kept.
        queued: How many events may wait for the disk; more are dropped, and a line says how many.

    Raises:
        ConfigError: The file cannot be written, or is not a regular file.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES, keep: int = KEEP, queued: int = QUEUED
    ) -> None:
        if max_bytes < 1 or keep < 1 or queued < 1:
            raise ConfigError("An audit log needs max_bytes, keep and queued of at least 1.")
        self.path = Path(path).expanduser().absolute()
        self._max_bytes = max_bytes
        self._keep = keep
        self._queued = queued
        self._file: int | None = None
        self._thread: threading.Thread | None = None
        self._waiting: deque[SkillEvent] = deque()
        self._lost = 0
        self._start_over()
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(self._open())
        except OSError as error:
            raise ConfigError(f"The audit log {self.path} cannot be written: {error.strerror}.") from error

    def __call__(self, event: SkillEvent) -> None:
        """Take an event; it is written soon."""
        if self._process != os.getpid():
            self._start_over()  # forked: the thread, the lock and what waited belong to the parent
        with self._changed:
            if len(self._waiting) >= self._queued:
                self._lost += 1
                return
            self._waiting.append(event)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="adk-skills-audit-log", daemon=True)
                self._thread.start()
                atexit.register(self.close)
            self._changed.notify_all()

    def flush(self, timeout: float = _CLOSE_SECONDS) -> bool:
        """Wait until everything is written.

        Args:
            timeout: Seconds to wait at most.

        Returns:
            Whether it is.
        """
        if self._process != os.getpid():
            return True
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._writing, timeout)

    def close(self) -> None:
        """Write what waits and end the thread; a later event starts it again."""
        if self._process != os.getpid():
            return
        if not self.flush():
            logger.error("the audit log %s did not take all events within %.0f s", self.path, _CLOSE_SECONDS)
        with self._changed:
            thread = self._thread
            self._closing = thread is not None
            self._changed.notify_all()
        if thread is not None:
            thread.join(_CLOSE_SECONDS)

    def _start_over(self) -> None:
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._waiting = deque()
        self._thread = None
        self._writing = False
        self._closing = False
        self._lost = 0
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._torn = False

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing, _IDLE_SECONDS)
                if not self._waiting:  # closed, or idle for long enough
                    self._thread = None
                    self._closing = False
                    atexit.unregister(self.close)
                    if self._file is not None:
                        os.close(self._file)
                        self._file = None
                    return
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), _BATCH))]
                lost, self._lost = self._lost, 0
                self._writing = True
            try:
                missing = self._write(batch, lost)
            except Exception:  # the thread must live: whoever flushes waits for it
                logger.exception("the audit log %s lost %d events", self.path, len(batch))
                missing = len(batch) + lost
            with self._changed:
                self._lost += missing
                self._writing = False
                self._changed.notify_all()

    def _write(self, events: list[SkillEvent], lost: int) -> int:
        """Append the events; return how many are missing in the file."""
        lines = []
        unsaid = 0
        for event in events:
            try:
                lines.append(_line(event))
            except Exception:  # an event is the application's to make, with any value; the others are still written
                logger.exception("an event has no line in the audit log %s", self.path)
                unsaid += 1
        told = len(lines)
        lost += unsaid
        if lost:
            lines.append(_lost_line(lost))
        for done, line in enumerate(lines):
            try:
                self._append(line)
            except OSError as error:
                logger.error("the audit log %s cannot be written: %s", self.path, error.strerror)  # noqa: TRY400 - no trace for a full disk
                return told - min(told, done) + lost
        return 0

    def _append(self, line: bytes) -> None:
        descriptor = self._current(len(line))
        if self._torn:  # what a full disk cut off gets a line of its own
            line = b"\n" + line
        written = os.write(descriptor, line)
        self._torn = written < len(line)
        if self._torn:
            raise OSError(28, "No space left on device")

    def _current(self, more: int) -> int:
        """The open file, a new one when another process has rotated it or ``more`` bytes would not fit."""
        if self._file is not None and not self._is_still_there(self._file):
            os.close(self._file)
            self._file = None
        if self._file is None:
            self._file = self._open()
        size = os.fstat(self._file).st_size
        if size and size + more > self._max_bytes:
            os.close(self._file)
            self._file = None
            with locked(self.path.with_name(f".{self.path.name}.lock")):
                self._rotate(more)
            self._file = self._open()
        return self._file

    def _is_still_there(self, descriptor: int) -> bool:
        try:
            there = self.path.lstat()
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(descriptor))

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK
        descriptor = os.open(self.path, flags, 0o600)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise OSError(22, "it is not a regular file")
        if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o077:
            os.fchmod(descriptor, 0o600)  # it says who did what
        return descriptor

    def _rotate(self, more: int) -> None:
        """Rename the files, unless another process has done so while this one waited for the lock."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            return
        if size + more <= self._max_bytes:
            return
        for number in range(self._keep, 0, -1):
            older = self.path.with_name(f"{self.path.name}.{number}")
            newer = self.path if number == 1 else self.path.with_name(f"{self.path.name}.{number - 1}")
            try:
                newer.replace(older)
            except FileNotFoundError:
                continue


def _line(event: SkillEvent) -> bytes:
    return _json(event.to_dict())


def _lost_line(count: int) -> bytes:
    now = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return _json({"time": now, "event": LOST, "count": count})


def _json(record: dict[str, object]) -> bytes:
    # ASCII: a lone surrogate in a name cannot end the log, and no viewer obeys what a model wrote
    return json.dumps(record, separators=(",", ":"), default=str).encode("ascii") + b"\n"
