"""What a run wrote and what came of it: host paths out of its streams, bounded captures of them, and the result.

A capture has the head and the tail of a stream, and all of it in a spill file when it is long. Where the sandbox has no
file system of its own, arguments are translated to the host before the run, and output back before it is kept, so that
no host path of the workspace or of a mount reaches the model.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.platforms import O_CLOEXEC, O_NOFOLLOW
from adk_skills_agent.sandbox.contract import (
    ExecutionRequest,
    ExecutionResult,
    IsolationReport,
    NetworkDecision,
    SandboxPolicy,
    Status,
)
from adk_skills_agent.sandbox.files.collect import MAX_PATH_CHARS, Collected, portable, write_all
from adk_skills_agent.sandbox.process.command import secrets_in
from adk_skills_agent.sandbox.secrets import Redactor, Secret, SecretForms, forms_of

if TYPE_CHECKING:
    from adk_skills_agent.sandbox.process.supervise import Stream
    from adk_skills_agent.sandbox.sessions.session import SessionRequest

# The folders of a run have random names, so they are recognised wherever they occur. A host path of a mount ends
# where a file name cannot go on: "/x/pdf" in "/x/pdf-tools" is another folder, the same in "/x/pdf." at the end of a
# sentence is not.
_LOOK_AHEAD = 2
_BOUNDARY = rb"(?![A-Za-z0-9_\-\x80-\xff]|\.[A-Za-z0-9_])"


class PathMapping:
    """Both directions of one run's path mapping: pairs of sandbox path and host path, of which the longest wins.

    ``root`` is the run's own host folder, with a random name; in output it becomes ``/``.
    """

    def __init__(self, pairs: Iterable[tuple[PurePosixPath, str]], *, root: str | None = None) -> None:
        # Host paths as UTF-8 text like everything that travels; the agent's locale decides nothing (row 54).
        known = ((str(inside), portable(host)) for inside, host in pairs)
        self._to_host = sorted(known, key=lambda pair: -len(pair[0]))
        needles: dict[bytes, bytes] = {}
        for inside, host in self._to_host:
            raw = host.encode("utf-8", "surrogateescape")
            for spelling in (raw, os.path.realpath(raw)):
                if spelling not in {b"/", inside.encode()}:
                    needles.setdefault(spelling, inside.encode())
        own: tuple[bytes, ...] = ()
        if root is not None:
            raw = portable(root).encode("utf-8", "surrogateescape")
            own = (raw, os.path.realpath(raw))
            for spelling in own:
                needles.setdefault(spelling, b"/")
                needles.setdefault(spelling + b"/", b"/")
        self._needles = needles
        ordered = sorted(needles, key=len, reverse=True)
        self._longest = len(ordered[0]) if ordered else 0
        patterns = (re.escape(needle) + (b"" if needle.startswith(own) else _BOUNDARY) for needle in ordered)
        self._pattern = re.compile(b"|".join(patterns)) if ordered else None

    def argument(self, value: str) -> str:
        """A host path for an argument that is, or starts with, a path of the sandbox; else the argument as it is."""
        if value[:1] == "/":
            for inside, host in self._to_host:
                if value == inside or value.startswith(f"{inside}/"):
                    return host + value[len(inside) :]
        return value

    def directory(self, value: PurePosixPath) -> str:
        """The host path of a folder of the sandbox; a ValueError when it is not in the workspace or a mount."""
        text = str(value)
        host = self.argument(text)
        if host == text or ".." in value.parts or "\0" in text:
            known = ", ".join(inside for inside, _ in sorted(self._to_host))
            raise ValueError(f"cwd {text!r} is not inside the sandbox; use a folder under {known}.")
        return host

    def text(self, data: bytes) -> bytes:
        """Output with host paths replaced by the sandbox's."""
        if self._pattern is None or not any(needle in data for needle in self._needles):
            return data
        return self._pattern.sub(lambda match: self._needles[match.group()], data)

    def stream(self) -> PathMappingStream:
        """The same for a stream that arrives in pieces."""
        return PathMappingStream(self)

    def split(self, data: bytes) -> int:
        """Where to cut ``data`` so that no host path, or what decides whether it ends there, is torn apart."""
        start = max(0, len(data) - self._longest - _LOOK_AHEAD)
        while (start := data.find(b"/", start)) >= 0:
            rest = data[start:]
            for needle in self._needles:
                if needle.startswith(rest) or (rest.startswith(needle) and len(rest) < len(needle) + _LOOK_AHEAD):
                    return self._before_match(data, start)
            start += 1
        return len(data)

    def _before_match(self, data: bytes, cut: int) -> int:
        """The same place, or the start of the host path it is inside: a path may contain the beginning of another."""
        if self._pattern is not None:
            for match in self._pattern.finditer(data):
                if match.start() >= cut:
                    break
                if match.end() > cut:
                    return match.start()
        return cut


class PathMappingStream:
    """Replaces paths in a stream; holds back at most one path's length until the next piece."""

    __slots__ = ("_held", "_view")

    def __init__(self, view: PathMapping) -> None:
        self._view = view
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """What can be passed on now."""
        data = self._held + chunk if self._held else chunk
        cut = self._view.split(data)
        self._held = data[cut:]
        return self._view.text(data[:cut] if self._held else data)

    def close(self) -> bytes:
        """What was held back."""
        data, self._held = self._held, b""
        return self._view.text(data)


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
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | O_NOFOLLOW | O_CLOEXEC
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
    """What takes in a run's standard output and error output."""
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
    """What a stream passes in pieces before anybody gets it: host paths are replaced first, then secrets.

    In the other order a script could print a host path inside its secret, and have it put together (row 127).
    """

    __slots__ = ("_paths", "_redactor")

    def __init__(self, paths: PathMapping, secrets: SecretForms | None) -> None:
        self._redactor = Redactor(secrets) if secrets is not None else None
        self._paths = paths.stream()

    def feed(self, chunk: bytes) -> bytes:
        """What can be passed on now."""
        chunk = self._paths.feed(chunk)
        return chunk if self._redactor is None else self._redactor.feed(chunk)

    def close(self) -> bytes:
        """What was held back."""
        rest = self._paths.close()
        return rest if self._redactor is None else self._redactor.feed(rest) + self._redactor.close()


def secrets_of_run(request: ExecutionRequest | SessionRequest, policy: SandboxPolicy) -> SecretForms | None:
    """What must not come out of a run: what it is given, and what it may find; None when that is nothing."""
    if not (request.env or request.redact or policy.env or policy.inherit_env):
        return None
    first: dict[Secret, str] = {}
    for name, secret in (*secrets_in(policy, request.env), *request.redact):
        first.setdefault(secret, name)
    return forms_of(tuple((name, secret) for secret, name in first.items()))


def build_result(
    isolation: IsolationReport,
    streams: Sequence[Stream],
    secrets: SecretForms | None,
    *,
    exit_code: int | None,
    signal: int | None,
    cause: Status | None,
    notes: Iterable[str],
    limit_note: str = "",
    wall_ms: float,
    setup_ms: float = 0.0,
    cpu_ms: float | None = None,
    max_rss_bytes: int | None = None,
    collected: Collected | None = None,
    timed_out: bool = False,
    interrupted: bool = False,
    processes_killed: int = 0,
    survivors: int = 0,
    network: tuple[NetworkDecision, ...] = (),
    warm: bool = False,
    session_id: str | None = None,
) -> ExecutionResult:
    """Builds the result of every backend and takes the secrets out of what has not been filtered on its way.

    Streams, spill files, collected files and the proxy's decisions were filtered as they came; sentences and the names
    of files that were left out are filtered here.

    ``streams`` are standard output and error output, closed; their captures are finished here. ``cause`` is the limit
    that ended the run, None when it ended by itself; ``limit_note`` says more about it. Equal sentences come once.
    """
    collected = collected or Collected()
    problems = [f"{stream.name}: {stream.capture.problem}." for stream in streams if stream.capture.problem]
    if survivors:
        problems.append(f"{survivors} processes of the run could not be killed and are still there.")
    sentences = list(dict.fromkeys([*notes, *filter(None, [limit_note]), *collected.notes, *problems]))
    skipped = collected.skipped
    if secrets is not None:
        sentences, limit_note = [secrets.text(sentence) for sentence in sentences], secrets.text(limit_note)
        skipped = [(secrets.text(name), secrets.text(reason)) for name, reason in skipped]
    # Cut only now: half of a secret would not have been found (row 163).
    skipped = [
        (name if len(name) <= MAX_PATH_CHARS else f"{name[:MAX_PATH_CHARS]}...", reason) for name, reason in skipped
    ]
    status = cause or (Status.OK if exit_code == 0 else Status.ERROR)
    out, err = (stream.capture for stream in streams)
    return ExecutionResult(
        status=status,
        exit_code=exit_code,
        isolation=isolation,
        signal=signal,
        timed_out=timed_out or status is Status.TIMEOUT,
        oom_killed=status is Status.OUT_OF_MEMORY,
        interrupted=interrupted,
        stdout=out.kept(),
        stderr=err.kept(),
        stdout_total=streams[0].total,
        stderr_total=streams[1].total,
        stdout_truncated=out.truncated,
        stderr_truncated=err.truncated,
        stdout_spill=out.finish(),
        stderr_spill=err.finish(),
        wall_ms=wall_ms,
        setup_ms=setup_ms,
        cpu_ms=cpu_ms,
        max_rss_bytes=max_rss_bytes,
        processes_killed=processes_killed,
        survivors=survivors,
        files=tuple(collected.files),
        skipped_files=tuple(skipped),
        session_id=session_id,
        stdout_cut_at=out.cut_at,
        stderr_cut_at=err.cut_at,
        notes=tuple(sentences),
        limit_note=limit_note,
        network=network,
        warm=warm,
    )
