"""A list that only its owner can have written: what it says decides what may run, so it is refused when in doubt."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from adk_skills_agent.catalog.spelling import shown
from adk_skills_agent.errors import ConfigError

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MAX_BYTES = 1 << 20  # some ten thousand lines


class OwnerFile:
    """Lines of bytes in a file of the user's settings.

    Args:
        path: Where it is; it need not exist.
        what: What it lists, for sentences: ``trusted projects``.
    """

    def __init__(self, path: Path, what: str) -> None:
        self.path = path
        self._what = what

    def read(self) -> frozenset[bytes]:
        """The lines, without spaces at their ends.

        Raises:
            FileNotFoundError: There is no list.
            ConfigError: It is not the user's own, others can write it or its folder, or it is too large.
            OSError: It cannot be read.
        """
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        try:
            parent = os.fstat(folder)
            descriptor = os.open(
                self.path.name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=folder
            )
        finally:
            os.close(folder)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            reason = ""
            if not stat.S_ISREG(status.st_mode):
                reason = "it is not a file"
            elif status.st_uid != os.geteuid():
                reason = f"it belongs to user {status.st_uid}, not to user {os.geteuid()}"
            elif status.st_mode & _OTHERS_WRITE:
                reason = "others can write it (chmod go-w)"
            elif parent.st_uid != os.geteuid() or parent.st_mode & _OTHERS_WRITE:
                reason = "others can write its folder (chmod go-w), or own it"
            elif status.st_size > _MAX_BYTES:
                reason = f"it has more than {_MAX_BYTES} bytes"
            if reason:
                raise ConfigError(f"The list of {self._what} {shown(str(self.path))} is refused: {reason}. Repair it.")
            return frozenset(line.strip() for line in file.read(_MAX_BYTES).splitlines())

    def change(self, wanted: Callable[[frozenset[bytes]], frozenset[bytes]]) -> None:
        """Replace the lines by what ``wanted`` makes of them, with a lock, so that no other change is lost.

        Raises:
            ConfigError: The list is refused, would be too large, or cannot be written.
        """
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _locked(self.path.parent):
                try:
                    before = self.read()
                except FileNotFoundError:
                    before = frozenset()
                after = wanted(before)
                if after != before:
                    self._write(after)
        except OSError as error:
            raise ConfigError(
                f"The list of {self._what} {shown(str(self.path))} cannot be changed: {error.strerror}."
            ) from error

    def _write(self, lines: frozenset[bytes]) -> None:
        content = b"".join(line + b"\n" for line in sorted(lines))
        if len(content) > _MAX_BYTES:
            raise ConfigError(f"The list of {self._what} {shown(str(self.path))} is full. Take lines off it first.")
        aside = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        aside.replace(self.path)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock on the folder, so that two commands at once do not lose one another's line."""
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
