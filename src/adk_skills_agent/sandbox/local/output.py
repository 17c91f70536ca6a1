"""Capture of one output stream in bounded memory: its head, its tail, and all of it in a spill file when it is long."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from adk_skills_agent.errors import SandboxError

if TYPE_CHECKING:
    from adk_skills_agent.sandbox.contract import SandboxPolicy

_HEAD_SHARE = (3, 4)


class SpillFile:
    """Where a stream's full text goes once it outgrows what is kept in memory; created only then, mode 0600.

    Args:
        folder: Host folder; made when it is missing.
        name: File name.
        limit: Most bytes written; None for no bound.
    """

    def __init__(self, folder: Path, name: str, limit: int | None) -> None:
        self._place = folder, name
        self._limit = limit
        self._written = 0
        self._descriptor: int | None = None
        self.problem: str | None = None

    @property
    def path(self) -> Path:
        """Where it is, or would be."""
        folder, name = self._place
        return folder / name

    @property
    def created(self) -> bool:
        """Whether the file exists and is complete up to the limit."""
        return self._descriptor is not None and self.problem is None

    def write(self, data: bytes) -> None:
        """Append; a full disk ends the spilling and is remembered in ``problem``, the run goes on."""
        if self.problem is not None:
            return
        try:
            if self._descriptor is None:
                self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                self._descriptor = os.open(self.path, flags, 0o600)
            if self._limit is not None:
                data = data[: max(0, self._limit - self._written)]
            rest = memoryview(data)
            while rest:
                done = os.write(self._descriptor, rest)
                self._written += done
                rest = rest[done:]
        except OSError as error:
            self.problem = f"the full text could not be kept in spill_dir: {error.strerror}"
            self.discard()

    def close(self) -> None:
        """Close the file and keep it."""
        if self._descriptor is not None and self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def discard(self) -> None:
        """Close the file and delete it."""
        if self._descriptor is not None:
            self.close()
            self._descriptor = None
            self.path.unlink(missing_ok=True)


class Capture:
    """Keeps three quarters of ``limit`` from the start of a stream and one quarter from its end.

    Args:
        limit: Bytes kept; 0 keeps nothing.
        spill: Gets the whole stream when it outgrows ``limit``; None for nowhere.
    """

    def __init__(self, limit: int, spill: SpillFile | None = None) -> None:
        self._limit = limit
        self._head_limit = limit * _HEAD_SHARE[0] // _HEAD_SHARE[1]
        self._tail_limit = limit - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0
        self._spill = spill

    @property
    def truncated(self) -> bool:
        """Whether bytes are missing from :meth:`kept`."""
        return self._total > self._limit

    @property
    def cut_at(self) -> int | None:
        """Offset in :meth:`kept` at which bytes are missing."""
        return len(self._head) if self.truncated else None

    def add(self, data: bytes) -> None:
        """The next bytes of the stream."""
        if self._spill is not None and self._total + len(data) > self._limit:
            if not self.truncated:
                self._spill.write(bytes(self._head) + bytes(self._tail))
            self._spill.write(data)
        self._total += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if len(data) >= self._tail_limit:
            self._tail[:] = data[len(data) - self._tail_limit :]
        elif data:
            self._tail += data
            # Moving bytes only when twice too long keeps a stream of single bytes linear.
            if len(self._tail) > 2 * self._tail_limit:
                del self._tail[: len(self._tail) - self._tail_limit]

    def kept(self) -> bytes:
        """Head and tail, without a mark between them."""
        tail = bytes(self._tail[max(0, len(self._tail) - self._tail_limit) :])
        return bytes(self._head) + tail

    def finish(self) -> Path | None:
        """Close the spill file; its path when there is a complete one."""
        if self._spill is None or not self._spill.created:
            return None
        self._spill.close()
        return self._spill.path

    def discard(self) -> None:
        """Close and delete the spill file."""
        if self._spill is not None:
            self._spill.discard()

    @property
    def problem(self) -> str | None:
        """Why the full text is not there, if it should be."""
        return self._spill.problem if self._spill is not None else None


def check_spill_folder(folder: Path) -> None:
    """Refuse a spill folder that is something else.

    Raises:
        SandboxError: ``folder`` exists and is no directory.
    """
    try:
        mode = os.stat(folder).st_mode  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return
    if not stat.S_ISDIR(mode):
        raise SandboxError("spill_dir is not a folder.")


def open_captures(folder: Path | None, policy: SandboxPolicy, name: str) -> tuple[Capture, Capture]:
    """What takes in a run's standard output and error output.

    Args:
        folder: Where the full text goes when it is longer than what is held; None for nowhere.
        policy: Its limits of output, in bytes.
        name: What the names of the files for the full text begin with.

    Raises:
        SandboxError: The folder for their full text cannot be used.
    """
    if folder is None:
        return Capture(policy.output_bytes), Capture(policy.output_bytes)
    check_spill_folder(folder)
    out, err = (
        Capture(policy.output_bytes, SpillFile(folder, f"{name}.{stream}.txt", policy.output_flood_bytes))
        for stream in ("stdout", "stderr")
    )
    return out, err
