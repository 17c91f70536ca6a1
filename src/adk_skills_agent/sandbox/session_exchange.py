"""One execution in a session, from its first frame to its result."""

from __future__ import annotations

import os
import signal

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox import frames
from adk_skills_agent.sandbox.box_answer import cut_note
from adk_skills_agent.sandbox.contract import ExecutionResult, IsolationReport, OutputFile, Status
from adk_skills_agent.sandbox.local.mime_types import mime_type
from adk_skills_agent.sandbox.local.output import open_captures
from adk_skills_agent.sandbox.local.output_filter import OutputFilter, secrets_among
from adk_skills_agent.sandbox.local.output_names import distinct, readable, safe_name
from adk_skills_agent.sandbox.local.supervision import Stream
from adk_skills_agent.sandbox.local.view import PathView
from adk_skills_agent.sandbox.redaction import redacted
from adk_skills_agent.sandbox.session_channel import BoxEnd
from adk_skills_agent.sandbox.session_request import SessionRequest

_MOST_LATE_CHARS = 2000
_MOST_SKIPPED = 100
KEPT = "Nothing that this code assigned was kept: variables, environment and working directory are as before it."
"""The sentence of a failed execution whose session goes on."""


class Exchange:
    """What the box has said about one execution.

    Args:
        number: Its id.
        request: What was asked for.
        view: What host paths in its output are replaced by.
        late: What processes of earlier executions wrote since the last one ended.

    Attributes:
        is_over: The box has said that it ended.
        is_sent: The box has been told everything.
        is_overdue: The host had to end the box because its deadline had long passed.
        lost: Why the session's state is gone; None while it is there.
        failure: What ``on_output`` raised.
    """

    def __init__(self, number: int, request: SessionRequest, view: PathView | None, late: str) -> None:
        self.is_over = False
        self.is_overdue = False
        self.is_sent = False
        self.lost: str | None = None
        self.failure: Exception | None = None
        self._number = number
        self._request = request
        self._policy = policy = request.policy
        self._view = view if view is not None else PathView(())
        self._late = late
        self._secrets = secrets_among(request.env, request.redact, policy)
        captures = open_captures(request.spill_dir, policy, os.urandom(8).hex())
        self._streams = tuple(
            Stream(name, -1, capture, OutputFilter(self._view, self._secrets), request.on_output, policy.output_bytes)
            for name, capture in zip(("stdout", "stderr"), captures, strict=True)
        )
        self._done: frames.Frame = {"t": "done"}
        self._files: list[OutputFile] = []
        self._sent: dict[str, bytes] = {}  # by the box's own paths
        self._names: set[str] = set()
        self._bytes = 0
        self._open: tuple[str, bytearray] | None = None
        self._skipped: list[tuple[str, str]] = []

    @property
    def is_too_much(self) -> bool:
        """Whether more came than the box should ever have passed on."""
        most = self._policy.output_flood_bytes
        # The box stops a flood itself, after at most one more read of each pipe and what is left in it.
        return most is not None and any(stream.total > most + (4 << 20) for stream in self._streams)

    def take(self, frame: frames.Frame) -> None:
        """The next frame.

        Raises:
            FrameError: It cannot come now.
        """
        kind = frame["t"]
        if kind == "failed":
            if frames.text(frame, "of") == "frame":
                raise frames.FrameError(frames.text(frame, "reason"))
            return  # the same is the reason of a "done"
        if frames.number(frame, "id") != self._number:
            raise frames.FrameError(f"A frame of kind {kind!r} is about another execution.")
        if kind == "out":
            self._take_output(frame)
        elif kind == "file":
            self._take_file(frame)
        elif kind == "skip":
            if len(self._skipped) < _MOST_SKIPPED:
                path = readable(frames.text(frame, "path"))
                self._skipped.append((path, frames.text(frame, "reason")[:200]))
        elif kind == "done":
            self._done = frame
            self.is_over = True
            if frame.get("lost") is not None:
                self.lose(frames.text(frame, "lost")[:200])
        elif kind != "gone":
            raise frames.FrameError(f"A frame of kind {kind!r} cannot come now.")

    def add_late(self, frame: frames.Frame) -> None:
        """Output of what an earlier execution left running."""
        data = frames.content(frame).decode("utf-8", "replace")
        self._late = (self._late + data)[-2 * _MOST_LATE_CHARS :]

    def lose(self, why: str) -> None:
        """The session's state is gone."""
        self.lost = self.lost or why

    def discard(self) -> None:
        """There will be no result."""
        for stream in self._streams:
            stream.capture.discard()

    def result(self, isolation: IsolationReport, end: BoxEnd, session_id: str) -> ExecutionResult:
        """What the caller gets.

        Args:
            isolation: Of the box.
            end: How the box was, when the state was lost.
            session_id: See ``ExecutionResult``.

        Raises:
            SandboxError: The code could not be started.
        """
        done = self._done
        if done.get("started") is False:
            self.discard()
            raise SandboxError(f"The code was not run: {done.get('reason')}.")
        for stream in self._streams:
            try:
                stream.close()
            except Exception:
                self.discard()
                raise
        code, number = done.get("exit"), done.get("signal")
        if not isinstance(code, int):
            code, number = None, number if isinstance(number, int) else int(signal.SIGKILL)
        status = self._status(end, code)
        out, err = (stream.capture for stream in self._streams)
        spills = (out.finish(), err.finish())
        notes = [*end.notes, *self._notes(status, done)]
        notes += [f"{stream.name}: {stream.capture.problem}." for stream in self._streams if stream.capture.problem]
        return redacted(
            ExecutionResult(
                status=status,
                exit_code=code,
                isolation=isolation,
                signal=number,
                timed_out=status is Status.TIMEOUT,
                oom_killed=status is Status.OUT_OF_MEMORY,
                interrupted=bool(done.get("interrupted")),
                stdout=out.kept(),
                stderr=err.kept(),
                stdout_total=self._streams[0].total,
                stderr_total=self._streams[1].total,
                stdout_truncated=out.truncated,
                stderr_truncated=err.truncated,
                stdout_spill=spills[0],
                stderr_spill=spills[1],
                wall_ms=_number(done.get("ms")) or 0.0,
                cpu_ms=end.cpu_ms if end.cpu_ms is not None else _number(done.get("cpu_ms")),
                max_rss_bytes=end.max_rss_bytes,
                files=tuple(self._files),
                skipped_files=tuple(self._skipped),
                session_id=session_id,
                stdout_cut_at=out.cut_at,
                stderr_cut_at=err.cut_at,
                notes=tuple(dict.fromkeys(notes)),
            ),
            self._secrets,
        )

    def _status(self, end: BoxEnd, code: int | None) -> Status:
        done = self._done
        if end.status is not None:
            return end.status
        if self.is_overdue or done.get("timed_out"):
            return Status.TIMEOUT
        if done.get("disk"):
            return Status.DISK_LIMIT
        if done.get("flood") or self.is_too_much:
            return Status.OUTPUT_LIMIT
        if done.get("oom") and code != 0:
            return Status.OUT_OF_MEMORY
        return Status.OK if code == 0 and self.lost is None else Status.ERROR

    def _notes(self, status: Status, done: frames.Frame) -> list[str]:
        policy, notes = self._policy, []
        if done.get("out_of_cpu"):
            notes.append(f"Stopped: it used more than cpu_seconds={policy.cpu_seconds} of processor time.")
        if status is Status.OUTPUT_LIMIT:
            name = "stderr" if done.get("flood") == 2 else "stdout"
            notes.append(f"Stopped: it wrote more than {policy.output_flood_bytes or 0:,} bytes to {name}.")
        if status is Status.OUT_OF_MEMORY and done.get("oom") and policy.memory_bytes is not None:
            notes.append(
                f"Stopped by the kernel: its processes together needed more memory than memory_bytes, "
                f"{policy.memory_bytes >> 20} MiB."
            )
        if status is Status.DISK_LIMIT and done.get("disk"):
            notes.append(f"Stopped: there were more than workspace_inodes={policy.workspace_inodes} files.")
        if self.lost is not None:
            notes.append(
                f"The Python state of this session (variables, imports, working files) is lost: {self.lost}. Nothing "
                "was run again. The next code starts in a new session: define again what it needs."
            )
        elif status is not Status.OK and done.get("exit") != 0:
            notes.append(KEPT)
        if unlisted := _number(done.get("unlisted")):
            notes.append(f"{int(unlisted):,} more files were not collected.")
        if (cut := cut_note(done)) is not None:
            notes.append(cut)
        if self._late:
            text = "".join(c if c.isprintable() or c in "\n\t" else "?" for c in self._late)
            text = self._view.text(text.encode("utf-8", "replace")).decode("utf-8", "replace")
            text = text if len(text) <= _MOST_LATE_CHARS else f"...{text[-_MOST_LATE_CHARS:]}"
            notes.append(f"What earlier executions left running wrote meanwhile: {text.rstrip()}")
        return notes

    def _take_output(self, frame: frames.Frame) -> None:
        number = frames.number(frame, "s")
        if number not in {1, 2}:
            raise frames.FrameError("There are two streams.")
        try:
            self._streams[number - 1].feed(frames.content(frame))
        except frames.FrameError:
            raise
        except Exception as error:  # noqa: BLE001  # the caller's on_output; raised again when all is over
            self.failure = error

    def _take_file(self, frame: frames.Frame) -> None:
        path = frames.text(frame, "path")
        if not {"", ".", ".."}.isdisjoint(path.split("/")):
            raise frames.FrameError("The path of a file leaves the working directory.")
        if self._open is None:
            self._open = (path, bytearray())
        held = self._open[1]
        held += frames.content(frame)
        policy = self._policy
        if self._open[0] != path or len(held) > policy.max_file_bytes + frames.PIECE_BYTES:
            raise frames.FrameError("The pieces of a file are no file.")
        if frames.flag(frame, "more"):
            return
        self._open = None
        content: bytes | None = bytes(held)
        if "same" in frame:  # of several hard links to one file the content comes once
            content = self._sent.get(frames.text(frame, "same"))
        reason = self._refused(path, content)
        if reason is not None or content is None:
            if len(self._skipped) < _MOST_SKIPPED:
                self._skipped.append((readable(path), reason or ""))
            return
        name = distinct(safe_name(path) or "", self._names)
        self._files.append(OutputFile(name, content, mime_type(name)))

    def _refused(self, path: str, content: bytes | None) -> str | None:
        """Why a file is not taken."""
        if content is None:
            return "is a hard link to a file that was not taken"
        policy = self._policy
        self._bytes += len(content)
        if len(content) > policy.max_file_bytes:
            return f"larger than max_file_bytes={policy.max_file_bytes:,}"
        if len(self._files) >= policy.max_files or self._bytes > policy.max_total_file_bytes:
            return "more than the limits of output files"
        self._sent[path] = content  # whatever its name: a hard link to it may have a better one
        return "its path is too long" if safe_name(path) is None else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
