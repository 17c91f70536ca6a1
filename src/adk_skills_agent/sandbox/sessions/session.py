"""A Python session: variables, imports and files that last from one execution to the next (SANDBOX.md 4.4).

Whatever can start the program of :mod:`..supervisor.program` somewhere and pass bytes to it can host sessions: it is a
:class:`SessionHost`. :class:`PythonSession` is one such sandbox and what is known about its health; which session a
call gets, and for how long one is kept, is :class:`~.sessions.Sessions`' business.

Nothing is ever run twice: when a sandbox is lost, so is what was in it, and the next execution begins anew and says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Protocol

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import (
    ExecutionResult,
    InputFile,
    IsolationReport,
    SandboxPolicy,
    Status,
)
from adk_skills_agent.sandbox.files.collect import Collected, OutputFiles, readable_name, safe_name
from adk_skills_agent.sandbox.output import PathMapping, build_result, open_captures, secrets_of_run
from adk_skills_agent.sandbox.process.command import granted_value
from adk_skills_agent.sandbox.process.supervise import streams_of
from adk_skills_agent.sandbox.secrets import EnvValue, FileSearch, FrozenMapping, Secret, SecretForms
from adk_skills_agent.sandbox.supervisor import frames
from adk_skills_agent.sandbox.supervisor.channel import Answer, Channel, SandboxEnd, bytes_of_each, check_ready
from adk_skills_agent.sandbox.threads import Turn, in_worker, uninterrupted

_READY_SECONDS = 20.0
_PING_SECONDS = 2.0
_LATE_SECONDS = 5.0
"""After the deadline and its grace: how long the sandbox may take to say that it has ended what ran. It may itself wait
two seconds for the code to begin, and two for the traceback of code that has ended."""
_CANCEL_SECONDS = 1.0
_SENDING_SECONDS = 5.0
_SENT_PER_SECOND = 4 << 20  # bytes, of any engine or network
_MOST_PATH_CHARS = 4096
_MOST_REMEMBERED = 20_000  # files, of which others may be hard links
_MOST_LATE_CHARS = 2000
_MOST_LATE_BYTES = 64 << 10  # so much more than is told that no secret at this cut reaches into it
_MOST_SKIPPED = 100
_LARGE_CODE = 256 << 10  # characters; JSON may make six bytes of one, twelve of some
KEPT = "Nothing that this code assigned was kept: variables, environment and working directory are as before it."
"""The sentence of a failed execution whose session goes on."""


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """One execution in a session.

    Attributes:
        code: Python source; the value of a last expression is printed.
        policy: Its limits. Those of the sandbox as a whole (memory, processes, disk, network, isolation) hold for the
            session; deadline, processor time, output and files for this execution.
        env: Variables for this execution; a :class:`~.secrets.Secret` among them is kept out of what comes out.
        input_files: Written into the working directory first.
        cwd: Folder below the working directory to run in; made when it is missing. None stays where the session is.
        restrict_builtins: Take away dangerous builtins; friction, no boundary.
        redact: Names and values of more secrets that must not come out.
        share: See ``ExecutionRequest.share``.
        on_output: See ``ExecutionRequest.on_output``.
        spill_dir: See ``ExecutionRequest.spill_dir``.
    """

    code: str
    policy: SandboxPolicy = field(default_factory=SandboxPolicy)
    env: Mapping[str, EnvValue] = field(default_factory=FrozenMapping)
    input_files: tuple[InputFile, ...] = ()
    cwd: str | None = None
    restrict_builtins: bool = False
    redact: tuple[tuple[str, Secret], ...] = ()
    share: tuple[str, ...] = ()
    on_output: Callable[[str, bytes], None] | None = None
    spill_dir: Path | None = None


class SessionChannel(Channel, Protocol):
    """A sandbox that lasts for more than one execution."""

    @property
    def view(self) -> PathMapping | None:
        """What host paths in its output are replaced by; None when it sees none."""

    @property
    def is_open(self) -> bool:
        """Whether, as far as can be told without asking it, the sandbox is there; never blocks."""

    async def keeps_limits(self, cpu_seconds: float | None) -> bool:
        """Whether it does, now that an execution has ended; if not, it is killed and its end says why.

        What the execution left running may use so much processor time until the next one begins; None for any.
        """


class SessionHost(Protocol):
    """What can start sandboxes for sessions."""

    async def start(self, policy: SandboxPolicy) -> SessionChannel:
        """Start the program in a new sandbox.

        Args:
            policy: A checked policy; its deadline, processor time and output do not concern the sandbox.

        Raises:
            SandboxUnavailable: The policy cannot be met here.
            SandboxError: The sandbox could not be started.
        """


class SessionState(StrEnum):
    """What a session is doing; ``unhealthy`` and ``closed`` are final."""

    NEW = "new"
    STARTING = "starting"
    READY = "ready"
    BUSY = "busy"
    UNHEALTHY = "unhealthy"
    CLOSED = "closed"


class PythonSession:
    """One sandbox and the Python state in it. For one event loop, and one execution at a time.

    Attributes:
        lost: Why its state is gone, as a clause; None while it is there.
        executions: How many have begun.
        used: ``time.monotonic()`` when the last one ended.
        born: ``time.monotonic()`` when the sandbox was ready.
    """

    def __init__(self, session_id: str, host: SessionHost) -> None:
        self.session_id = session_id
        self.state = SessionState.NEW
        self.lost: str | None = None
        self.executions = 0
        self.used = self.born = time.monotonic()
        self._host = host
        self._channel: SessionChannel | None = None
        self._reader = frames.FrameReader()
        self._turn = Turn(session_id)
        self._frames: deque[frames.Frame] = deque()
        self._late = bytearray()  # what processes of earlier executions wrote since the last one ended
        self._secrets: dict[Secret, str] = {}
        self._killed: str | None = None

    async def start(self, policy: SandboxPolicy) -> None:
        """Start the sandbox and wait until its program answers."""
        self.state = SessionState.STARTING
        try:
            self._channel = channel = await self._host.start(policy)
            if self._killed is not None:
                channel.kill()
            async with asyncio.timeout(_READY_SECONDS):
                await channel.send(frames.encode({"t": "hello", "proto": frames.PROTOCOL}))
                first = await self._next()
            if first is None:
                raise SandboxError(
                    "The program of the session ended before it was ready: its sandbox was ended, or its Python is "
                    "older than 3.8."
                    if self._killed is None
                    else f"The session was ended before it was ready: {self._killed}."
                )
            check_ready(first)
        except BaseException as error:
            with contextlib.suppress(SandboxError):
                await self.close()
            if isinstance(error, TimeoutError):
                raise SandboxError(
                    f"The program of the session did not answer within {_READY_SECONDS:g} s: the machine is overloaded."
                ) from None
            if isinstance(error, frames.FrameError):
                raise SandboxError(f"The program in the sandbox does not speak our protocol: {error}") from error
            raise
        self.state = SessionState.READY
        self.used = self.born = time.monotonic()

    async def execute(self, request: SessionRequest) -> ExecutionResult:
        """Run code in the session.

        A result with ``session_reset`` in it is :class:`~.sessions.Sessions`' to make; here a lost state is in
        ``notes`` and ``lost``. A cancelled execution is interrupted, and killed when it does not heed that.
        """
        if self.state is not SessionState.READY or self._channel is None:
            raise SandboxError(f"The session cannot run code now: it is {self.state.value}.")
        channel, policy = self._channel, request.policy
        self._turn.user = "".join(request.share[:1]) or self.session_id
        self.executions += 1
        request = replace(request, redact=self._secrets_until(request))
        sent = request_frames(self.executions, request)
        execution = Execution(self.executions, request, channel.view)
        self.state = SessionState.BUSY
        is_sent = False
        try:
            try:
                async with asyncio.timeout(_sending_seconds(request)):
                    for data in sent:
                        await channel.send(data)
                is_sent = True
                seconds = policy.wall_seconds
                limit = None if seconds is None else seconds + policy.term_grace_seconds + _LATE_SECONDS
                async with asyncio.timeout(limit):
                    await self._listen(execution)
            except TimeoutError:  # the sandbox should have ended it long ago: it hangs, or the code has stopped it
                execution.is_overdue = True
                execution.lost = "its sandbox ended" if is_sent else "its sandbox did not take what was sent to it"
        except BaseException as error:
            execution.discard()
            if isinstance(error, asyncio.CancelledError):
                await uninterrupted(self._give_up(execution, is_sent=is_sent, policy=policy))
            else:
                await uninterrupted(self._break("it failed"))
            if isinstance(error, frames.FrameError):
                raise SandboxError(f"The session broke its protocol and was ended: {error}") from error
            raise
        if execution.lost is None and not await self._keeps_limits(policy):
            execution.lost = "it was ended"
        self.used = time.monotonic()
        end = SandboxEnd()
        if execution.lost is not None:
            end = await uninterrupted(self._break(execution.lost))
        else:
            self.state = SessionState.READY
        late, self._late = bytes(self._late), bytearray()
        return execution.result(channel.isolation, end, self.session_id, late)

    async def interrupt(self) -> None:
        """SIGINT to what runs; its state stays when it heeds that. No effect when nothing runs."""
        if self.state is SessionState.BUSY and self._channel is not None:
            await self._channel.send(frames.encode({"t": "interrupt", "id": self.executions}))

    async def is_alive(self) -> bool:
        """Ask the sandbox for an answer, and wait two seconds for it; a session that gives none is unhealthy."""
        if self.state is not SessionState.READY or self._channel is None:
            return False
        if not self._channel.is_open:
            await self._break("its sandbox ended while it was idle")
            return False
        try:
            async with asyncio.timeout(_PING_SECONDS):
                await self._channel.send(frames.encode({"t": "ping", "n": self.executions}))
                while (frame := await self._next()) is not None and frame["t"] != "pong":
                    self._keep_late(frame)
        except (frames.FrameError, TimeoutError):
            frame = None
        if frame is None:
            await self._break("its sandbox did not answer any more")
        return frame is not None

    @property
    def is_usable(self) -> bool:
        """Whether it could run code now, as far as can be told without asking the sandbox."""
        return self.state is SessionState.READY and self._channel is not None and self._channel.is_open

    async def close(self) -> None:
        """End the sandbox and everything in it; leaves nothing behind. Safe to call twice."""
        if self.state is not SessionState.CLOSED:
            self.state = SessionState.UNHEALTHY
            try:
                await self._close_channel()
            finally:
                self.state = SessionState.CLOSED

    def kill(self, why: str) -> None:
        """End the sandbox at once, from any thread, with a clause for its results; the rest is for :meth:`close`."""
        self._killed = why
        if self._channel is not None:
            self._channel.kill()

    def _secrets_until(self, request: SessionRequest) -> tuple[tuple[str, Secret], ...]:
        """This execution's and those of earlier ones, which code may have kept."""
        for name, value in (*request.env.items(), *request.redact):
            if isinstance(value, Secret):
                self._secrets.setdefault(value, name)
        return tuple((name, secret) for secret, name in self._secrets.items())

    async def _listen(self, execution: Execution) -> None:
        while not execution.over:
            frame = await self._next()
            if frame is None:
                execution.lost = self._killed or "its sandbox ended"
                return
            if frame["t"] == "out" and frame.get("late"):
                self._keep_late(frame)
            else:
                execution.take(frame)
                await execution.search_files()
            if not self._frames and (rest := execution.pass_on()) > 0:
                await asyncio.sleep(rest)
        if execution.failure is not None or execution.flood:
            execution.lost = "it was ended"
        elif execution.done is not None and execution.done.get("lost") is not None:
            execution.lost = frames.text(execution.done, "lost")[:200]

    async def _next(self) -> frames.Frame | None:
        while not self._frames:
            assert self._channel is not None  # noqa: S101  # only called with a sandbox
            await self._turn.come()
            data = await self._channel.receive()
            if not data:
                return None
            began = time.thread_time()
            self._frames.extend(self._reader.feed(data))
            took = 2 * (time.thread_time() - began)  # to take a frame costs about as much as to read it
            self._turn.took(took, bytes_of_each(self._frames, len(data)))
        return self._frames.popleft()

    def _keep_late(self, frame: frames.Frame) -> None:
        if frame["t"] == "out":
            self._late += frames.content(frame)
            del self._late[:-_MOST_LATE_BYTES]

    async def _give_up(self, execution: Execution, *, is_sent: bool, policy: SandboxPolicy) -> None:
        """The caller was cancelled: what runs is interrupted, and ended when it goes on; half of it is never run."""
        stopped = False
        if is_sent:
            with contextlib.suppress(frames.FrameError, SandboxError, TimeoutError):
                async with asyncio.timeout(_CANCEL_SECONDS):
                    await self.interrupt()
                    await self._listen(execution)
                    stopped = execution.lost is None and await self._keeps_limits(policy)
        if stopped:
            self.state = SessionState.READY
            self.used = time.monotonic()
        else:
            await self._break("what ran in it was cancelled and did not stop")

    async def _keeps_limits(self, policy: SandboxPolicy) -> bool:
        most = policy.wall_seconds if policy.cpu_seconds is None else policy.cpu_seconds
        return self._channel is not None and await self._channel.keeps_limits(most)

    async def _break(self, why: str) -> SandboxEnd:
        """The state is gone; so is the sandbox, now."""
        self.lost = self.lost or why
        self.state = SessionState.UNHEALTHY
        return await self._close_channel()

    async def _close_channel(self) -> SandboxEnd:
        channel = self._channel
        if channel is None:
            return SandboxEnd()
        channel.kill()
        return await channel.close()


class Execution(Answer):
    """One execution in a session, and what the sandbox says about it.

    ``is_overdue`` says that the host had to end the sandbox because the deadline had long passed, ``lost`` why the
    session's state is gone; None while it is there.
    """

    def __init__(self, number: int, request: SessionRequest, view: PathMapping | None) -> None:
        self.is_overdue = False
        self.lost: str | None = None
        self._view = view if view is not None else PathMapping(())
        self._secrets = secrets_of_run(request, request.policy)
        captures = open_captures(request.spill_dir, request.policy, os.urandom(8).hex())
        self._out, self._err = streams_of(request, request.policy, captures, self._view, self._secrets)
        self._files = _Files(request.policy, self._secrets)
        super().__init__(number, request.policy, {1: self._out, 2: self._err}, self._files.take)

    async def search_files(self) -> None:
        """Search a file that has come for secrets, in a worker thread: a large one takes long (row 434)."""
        if self._files.due:
            await in_worker(self._files.search)

    def discard(self) -> None:
        """There will be no result."""
        for stream in (self._out, self._err):
            stream.capture.discard()

    def result(self, isolation: IsolationReport, end: SandboxEnd, session_id: str, late: bytes) -> ExecutionResult:
        """What the caller gets; raises what ``on_output`` raised, and a SandboxError when the code could not be
        started.
        """
        done = self.done or {"t": "done"}
        self.close_streams()
        if self.failure is not None or done.get("started") is False:
            self.discard()
            raise self.failure or SandboxError(f"The code was not run: {str(done.get('reason'))[:200]}.")
        cause = Status.TIMEOUT if self.is_overdue else self.cause
        code, number = self.end
        if cause is Status.OUT_OF_MEMORY and code == 0:
            cause = None  # it lost a process of its own, and went on
        failed = Status.ERROR if code != 0 or self.lost is not None else Status.OK
        status = end.status or cause or failed
        return build_result(
            isolation,
            (self._out, self._err),
            self._secrets,
            exit_code=code,
            signal=number,
            cause=status,
            interrupted=self.interrupted,
            collected=Collected(self._files.kept, self._files.skipped),
            notes=[*end.notes, *self._notes(cause, status, done, late)],
            wall_ms=self.number("ms") or 0.0,
            cpu_ms=end.cpu_ms if end.cpu_ms is not None else self.number("cpu_ms"),
            max_rss_bytes=end.max_rss_bytes,
            session_id=session_id,
        )

    def _notes(self, cause: Status | None, status: Status, done: frames.Frame, late: bytes) -> list[str]:
        policy, notes = self._policy, []
        if done.get("out_of_cpu"):
            notes.append(f"Stopped: it used more than cpu_seconds={policy.cpu_seconds} of processor time.")
        notes += self.limit_notes(cause)
        if self.lost is not None:
            notes.append(
                f"The Python state of this session (variables, imports, working files) is lost: {self.lost}. Nothing "
                "was run again. The next code starts in a new session: define again what it needs."
            )
        elif status is not Status.OK and done.get("exit") != 0:
            notes.append(KEPT)
        if unheard := self.number("unheard"):
            notes.append(f"{int(unheard):,} bytes that earlier executions left running wrote meanwhile were dropped.")
        if unlisted := self.number("unlisted"):
            notes.append(f"{int(unlisted):,} more files were not collected.")
        notes += self.notes
        if late:
            late = self._view.text(late)
            if self._secrets is not None:  # before anything of it is cut off
                late = self._secrets.redact_start(late)[0] if unheard else self._secrets.redact(late)
            text = "".join(c if c.isprintable() or c in "\n\t" else "?" for c in late.decode("utf-8", "replace"))
            text = text if len(text) <= _MOST_LATE_CHARS else f"...{text[-_MOST_LATE_CHARS:]}"
            notes.append(f"What earlier executions left running wrote meanwhile: {text.rstrip()}")
        return notes


class _Files:
    """Files that an execution added or changed, held in memory within the policy's bounds."""

    def __init__(self, policy: SandboxPolicy, secrets: SecretForms | None) -> None:
        self._search = None if secrets is None else FileSearch(secrets)
        self.skipped: list[tuple[str, str]] = []
        self._most = policy.max_file_bytes + frames.PIECE_BYTES
        self._left = policy.max_total_file_bytes + self._most  # of content, whatever becomes of it
        self._outputs = OutputFiles(policy)
        self.kept = self._outputs.files
        self._sent: dict[str, bytes] = {}  # by the sandbox's own paths
        self._open: tuple[str, bytearray] | None = None
        self.due: tuple[str, bytes] | None = None  # it has come whole, and has to be searched for secrets

    def take(self, frame: frames.Frame) -> None:
        """A ``file``, ``skip`` or ``gone`` frame."""
        if frame["t"] == "gone":
            return
        path = frames.text(frame, "path")
        if len(path) > _MOST_PATH_CHARS:
            raise frames.FrameError("The path of a file is too long.")
        if frame["t"] == "skip":
            self._skip(path, frames.text(frame, "reason")[:200])
            return
        if not {"", ".", ".."}.isdisjoint(path.split("/")):
            raise frames.FrameError("The path of a file leaves the working directory.")
        if self._open is None:
            self._open = (path, bytearray())
        held, content_bytes = self._open[1], frames.content(frame)
        held += content_bytes
        self._left -= len(content_bytes)
        if self._left < 0:
            raise frames.FrameError("More files came than were asked for.")
        if self._open[0] != path or len(held) > self._most:
            raise frames.FrameError("The pieces of a file are no file.")
        if frames.flag(frame, "more"):
            return
        self._open = None
        content: bytes | None = bytes(held)
        if "same" in frame:  # of several hard links to one file the content comes once
            content = self._sent.get(frames.text(frame, "same"))
        reason = self._refused(path, content)
        if reason is not None or content is None:
            self._skip(path, reason or "")
        elif self._search is None:
            self._outputs.add(path, content)
        else:
            self.due = path, content

    def search(self) -> None:
        """Take the file that is :attr:`due`, or skip it. Blocking; no frame may be taken meanwhile."""
        assert self.due is not None  # noqa: S101  # only called then
        assert self._search is not None  # noqa: S101  # as above
        (path, content), self.due = self.due, None
        names = (path.encode("utf-8", "replace"), (safe_name(path) or "").encode("utf-8", "replace"))
        if (reason := self._search.withheld(*names, content)) is not None:
            self._skip(path, reason)
        else:
            self._outputs.add(path, content)

    def _refused(self, path: str, content: bytes | None) -> str | None:
        """Why a file is not taken."""
        if content is None:
            return "is a hard link to a file that was not taken"
        if len(content) <= self._outputs.most and len(self._sent) < _MOST_REMEMBERED:
            self._sent[path] = content  # whatever its name: a hard link to it may have a better one
        return self._outputs.refusal(path, len(content))

    def _skip(self, path: str, reason: str) -> None:
        if len(self.skipped) < _MOST_SKIPPED:
            self.skipped.append((readable_name(path), reason))


def request_frames(number: int, request: SessionRequest) -> Iterator[bytes]:
    """What goes to the sandbox for one execution, in order. A ValueError comes before the first frame."""
    policy = request.policy
    environment = {name: granted_value(name, value) for name, value in request.env.items()}
    cwd = None if request.cwd is None else _inside(request.cwd, "cwd")
    files = [(_inside(file.path, "input file"), file) for file in request.input_files]
    code = request.code.encode("utf-8", "surrogatepass")
    execution = {
        "t": "exec",
        "id": number,
        "kind": "code",
        "cwd": cwd,
        "env": environment,
        "deadline_ms": None if policy.wall_seconds is None else round(policy.wall_seconds * 1000),
        "grace_ms": round(policy.term_grace_seconds * 1000),
        "flood": policy.output_flood_bytes,
        "files": {
            "count": policy.max_files,
            "each": policy.max_file_bytes,
            "total": policy.max_total_file_bytes,
        },
        "cpu_seconds": policy.cpu_seconds,
        "restrict": request.restrict_builtins,
    }
    is_large = len(code) > _LARGE_CODE
    if not is_large:
        execution["code"] = request.code
    try:
        last = frames.encode(execution)
    except frames.FrameError:
        raise ValueError("The variables of this execution are too large.") from None

    def in_order() -> Iterator[bytes]:
        for path, file in files:
            mode = 0o700 if file.executable else 0o600
            for piece, more in frames.pieces(file.content):
                frame = {"t": "put", "path": path, "mode": mode, "b64": frames.base64(piece), "more": more}
                yield frames.encode(frame)
        if is_large:
            yield from frames.parts("code", code)
        yield last

    return in_order()


def _sending_seconds(request: SessionRequest) -> float:
    """How long a sandbox may take to read what is sent: code that has stopped its program never does (row 325)."""
    size = len(request.code) + sum(len(file.content) for file in request.input_files)
    return _SENDING_SECONDS + size / _SENT_PER_SECOND


def _inside(path: str, what: str) -> str:
    given = PurePosixPath(path)
    if given.is_absolute() or ".." in given.parts or "\0" in path or (what != "cwd" and not given.parts):
        raise ValueError(f"The {what} {path!r} is not inside the session's working directory.")
    return "" if given == PurePosixPath() else str(given)
