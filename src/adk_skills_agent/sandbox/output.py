"""Capture of one output stream in bounded memory: its head, its tail, and all of it in a spill file when it is long."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.files.path_mapping import PathMapping
from adk_skills_agent.sandbox.files.walk import write_all
from adk_skills_agent.sandbox.process.command import secrets_in
from adk_skills_agent.sandbox.secrets import Redactor, Secret, SecretForms, forms_of

if TYPE_CHECKING:
    from adk_skills_agent.sandbox.sessions.session import SessionRequest

_HEAD_SHARE = (3, 4)


class Capture:
    """Keeps three quarters of ``limit`` bytes from the start of a stream and one quarter from its end.

    Args:
        limit: Bytes kept; 0 keeps nothing.
        spill: File for the whole stream, made (mode 0600) only when the stream outgrows ``limit``; None for none.
        most_spilled: Bytes written there; None for no bound.

    Attributes:
        problem: Why the full text is not in the file, if it should be; the run goes on without it.
    """

    def __init__(self, limit: int, spill: Path | None = None, most_spilled: int | None = None) -> None:
        self._limit = limit
        self._head_limit = limit * _HEAD_SHARE[0] // _HEAD_SHARE[1]
        self._tail_limit = limit - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0
        self._spill = spill
        self._room = most_spilled
        self._descriptor: int | None = None
        self.problem: str | None = None

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
            self._write(self._spill, data if self.truncated else bytes(self._head) + bytes(self._tail) + data)
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
        if self._descriptor is None:
            return None
        self._close()
        return self._spill

    def discard(self) -> None:
        """Close and delete the spill file."""
        if self._descriptor is not None and self._spill is not None:
            self._close()
            self._descriptor = None
            self._spill.unlink(missing_ok=True)

    def _write(self, spill: Path, data: bytes) -> None:
        if self.problem is not None:
            return
        try:
            if self._descriptor is None:
                spill.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                self._descriptor = os.open(spill, flags, 0o600)
            if self._room is not None:
                data = data[: self._room]
                self._room -= len(data)
            write_all(self._descriptor, data)
        except OSError as error:
            self.problem = f"the full text could not be kept in spill_dir: {error.strerror}"
            self.discard()

    def _close(self) -> None:
        if self._descriptor is not None and self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def open_captures(folder: Path | None, policy: SandboxPolicy, name: str) -> tuple[Capture, Capture]:
    """What takes in a run's standard output and error output.

    Raises:
        SandboxError: The folder for their full text cannot be used.
    """
    if folder is None:
        return Capture(policy.output_bytes), Capture(policy.output_bytes)
    if folder.exists() and not folder.is_dir():
        raise SandboxError("spill_dir is not a folder.")
    out, err = (
        Capture(policy.output_bytes, folder / f"{name}.{stream}.txt", policy.output_flood_bytes)
        for stream in ("stdout", "stderr")
    )
    return out, err


class OutputFilter:
    """What a stream passes in pieces before anybody gets it: secrets are replaced first, then host paths."""

    __slots__ = ("_paths", "_redactor")

    def __init__(self, paths: PathMapping, secrets: SecretForms | None) -> None:
        self._redactor = Redactor(secrets) if secrets is not None else None
        self._paths = paths.stream()

    def feed(self, chunk: bytes) -> bytes:
        """What can be passed on now."""
        return self._paths.feed(chunk if self._redactor is None else self._redactor.feed(chunk))

    def close(self) -> bytes:
        """What was held back."""
        rest = b"" if self._redactor is None else self._paths.feed(self._redactor.close())
        return rest + self._paths.close()


def secrets_of_run(request: ExecutionRequest | SessionRequest, policy: SandboxPolicy) -> SecretForms | None:
    """What must not come out of a run: what it is given, and what it may find; None when that is nothing.

    Raises:
        ConfigError: An inherited variable that looks secret cannot be one.
    """
    if not (request.env or request.redact or policy.env or policy.inherit_env):
        return None
    first: dict[Secret, str] = {}
    for name, secret in (*secrets_in(policy, request.env), *request.redact):
        first.setdefault(secret, name)
    return forms_of(tuple((name, secret) for secret, name in first.items()))
