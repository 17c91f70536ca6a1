"""One command in a container, a pod or another service's machine: all it needs goes in, a result is made of what comes.

All that the command needs is sent before anything is waited for, so that a sandbox may also be one request with one
answer. The host's clock is the authority: a sandbox that has not answered some time after its deadline is ended.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from adk_skills_agent.errors import SandboxError, SandboxUnavailable, SkillsError
from adk_skills_agent.sandbox.contract import (
    HOME_DIR,
    TMP_DIR,
    WORK_DIR,
    ExecutionRequest,
    ExecutionResult,
    IsolationLevel,
    IsolationReport,
    ReadOnlyMount,
    SandboxPolicy,
    Status,
)
from adk_skills_agent.sandbox.output import PathMapping, build_result, open_captures, secrets_of_run
from adk_skills_agent.sandbox.policy import check_policy
from adk_skills_agent.sandbox.process.command import build_environment, check_argv, encode, spelling
from adk_skills_agent.sandbox.process.supervise import Stream, streams_of
from adk_skills_agent.sandbox.secrets import SecretForms, redact_error
from adk_skills_agent.sandbox.supervisor import frames
from adk_skills_agent.sandbox.supervisor.channel import Answer, Channel, SandboxEnd, bytes_of_each
from adk_skills_agent.sandbox.supervisor.transfer import RunFolder
from adk_skills_agent.sandbox.threads import Step, Turn, in_worker, uninterrupted

_BATCH_BYTES = 4 << 20  # sent at a time: enough to keep a worker thread out of the way, little enough to hold
_EXEC_ID = 1
_PATH = "/usr/local/bin:/usr/bin:/bin"
_ENVELOPE_SECONDS = 10.0
"""After the command's own time: how long a sandbox may take to say how it ended before it is ended itself."""
_BYTES_A_SECOND = 1 << 20
"""The slowest line that is waited for: what may come back adds to that."""


def check_level(policy: SandboxPolicy, level: IsolationLevel, why: str) -> None:
    """Refuse a policy that asks for something else than a backend with one level gives (fail closed)."""
    asked = policy.isolation
    if asked != "auto" and IsolationLevel(asked).strength < IsolationLevel(policy.min_isolation).strength:
        reason = f"{asked}: weaker than min_isolation={policy.min_isolation!r}"
    elif asked not in {"auto", level.value}:
        reason = f"{level.value}: {why}, and isolation={policy.isolation!r} is required"
    elif IsolationLevel(policy.min_isolation).strength > level.strength:
        reason = f"{level.value}: weaker than min_isolation={policy.min_isolation!r}; {why}"
    else:
        return
    raise SandboxUnavailable(f"The run is refused ({reason}).", (reason,))


async def run_command(
    open_channel: Callable[[SandboxPolicy], Awaitable[Channel]],
    request: ExecutionRequest,
    layout: Layout,
    *,
    patience: float = 0.0,
) -> ExecutionResult:
    """Run one command in a sandbox that is opened for it and closed after it; raises what :meth:`Sandbox.run` does.

    ``patience`` are seconds on top of the usual after which a sandbox that does not answer is ended; for one whose
    start is part of its answer.
    """
    asked = time.monotonic()
    policy = check_policy(request.policy)
    with Step("prepare the run", ValueError):
        secrets = secrets_of_run(request, policy)
    try:
        with Step("run the command", ValueError):
            result = await _run(open_channel, request, policy, layout, secrets, asked, patience)
    except SkillsError as error:
        redact_error(error, secrets)
        raise
    if isinstance(result, Exception):  # what the caller's on_output raised
        raise result
    return result


async def _run(
    open_channel: Callable[[SandboxPolicy], Awaitable[Channel]],
    request: ExecutionRequest,
    policy: SandboxPolicy,
    layout: Layout,
    secrets: SecretForms | None,
    asked: float,
    patience: float,
) -> ExecutionResult | Exception:
    run_id = os.urandom(8).hex()
    command = _command(request, policy, layout, run_id)
    shown = spelling(request.argv[0], request.argv[0]) if request.argv[0] == sys.executable else request.argv[0]
    captures = open_captures(request.spill_dir, policy, run_id)
    files = RunFolder(request, policy, layout)
    file_frames: list[frames.Frame] = []
    try:
        await in_worker(lambda: files.fill(run_id))
        streams = dict(enumerate(streams_of(request, policy, captures, layout.view(request.mounts), secrets), 1))
        answer = Answer(_EXEC_ID, policy, streams, file_frames.append)
        channel = await open_channel(policy)
        overdue = False
        started = time.monotonic()
        try:
            try:
                async with asyncio.timeout(longest_run(policy, patience)):
                    await _send(channel, _messages(request, policy, files, command, layout))
                    started = time.monotonic()
                    await _listen(channel, answer, files, file_frames, Turn("".join(request.share[:1])))
            except TimeoutError:
                overdue = True
                channel.kill()
            ended = time.monotonic()
        except GeneratorExit:  # the loop is gone: nothing can be waited for any more
            channel.kill()
            raise
        except BaseException:
            await uninterrupted(channel.close())
            raise
        end = await uninterrupted(channel.close())
        answer.close_streams()

        def conclude() -> ExecutionResult | Exception:
            try:
                if answer.failure is not None:
                    for capture in captures:
                        capture.discard()
                    return answer.failure
                return _result(
                    answer,
                    files,
                    streams,
                    channel.isolation,
                    end,
                    secrets,
                    shown,
                    asked=asked,
                    sent=started,
                    ended=ended,
                    overdue=overdue,
                )
            finally:
                files.discard()

        return await in_worker(conclude)
    except BaseException as error:
        for capture in captures:
            capture.discard()
        if isinstance(error, GeneratorExit):
            files.discard()
        else:
            await in_worker(files.discard)
        raise


async def _listen(
    channel: Channel, answer: Answer, files: RunFolder, file_frames: list[frames.Frame], turn: Turn
) -> None:
    """Take what comes until nothing more is to be waited for; writing files is a worker's job."""

    def write() -> None:
        for frame in file_frames:
            files.take(frame)

    reader = frames.FrameReader()
    try:
        while not answer.over and (data := await channel.receive()):
            began = time.thread_time()
            try:
                found = []
                for frame in reader.feed(data):
                    found.append(frame)
                    if answer.take(frame):
                        break
                turn.took(time.thread_time() - began, bytes_of_each(found, len(data)))
            finally:
                if file_frames:
                    await in_worker(write)
                    file_frames.clear()
            if (rest := answer.pass_on()) > 0:
                await asyncio.sleep(rest)
            await turn.come()
    except frames.FrameError as error:
        answer.broken = str(error)
        answer.done = None
    if answer.done is not None:
        files.leave_out(answer.done.get("unlisted"))


def _command(request: ExecutionRequest, policy: SandboxPolicy, layout: Layout, run_id: str) -> frames.Frame:
    """The part of the ``exec`` frame that needs no file."""
    argv = request.argv
    check_argv(argv)
    if not argv[0]:
        raise ValueError("argv[0] is empty: there is no command.")
    view = layout.view(request.mounts)
    environment = build_environment(
        policy,
        request.env,
        home=layout.home,
        tmp=layout.temporary,
        run_id=run_id,
        place=view.argument,
    )
    if "PATH" not in policy.env and "PATH" not in request.env and "PATH" not in policy.inherit_env:
        environment["PATH"] = _PATH  # the host's interpreter is not there
    for name, value in environment.items():
        encode(name)
        encode(value)
    own = argv[0] in {sys.executable, policy.python}
    words = [layout.python if own else view.argument(argv[0]), *(view.argument(part) for part in argv[1:])]
    known = (WORK_DIR, *(mount.target for mount in request.mounts))
    inside = any(request.cwd.is_relative_to(place) for place in known)
    if not inside or ".." in request.cwd.parts or "\0" in str(request.cwd):
        under = ", ".join(sorted(map(str, known)))
        raise ValueError(f"cwd {str(request.cwd)!r} is not inside the sandbox; use a folder under {under}.")
    wall = policy.wall_seconds
    return {
        "t": "exec",
        "id": _EXEC_ID,
        "kind": "argv",
        "argv": words,
        "cwd": view.argument(str(request.cwd)),
        "env": environment,
        "deadline_ms": None if wall is None else round(wall * 1000),
        "grace_ms": round(policy.term_grace_seconds * 1000),
        "flood": policy.output_flood_bytes,
        "cpu_seconds": _cpu_seconds(policy),
        "pids": None if layout.alone else policy.pids,  # a limit of the user's, who has other sandboxes
        "last": layout.alone and not layout.batch,
    }


def _messages(
    request: ExecutionRequest, policy: SandboxPolicy, files: RunFolder, command: frames.Frame, layout: Layout
) -> Iterator[bytes]:
    yield frames.encode(
        {
            "t": "hello",
            "proto": frames.PROTOCOL,
            "limits": _limits(policy),
            "alone": layout.alone,
            "batch": layout.batch,
        }
    )
    yield from files.sent()
    if request.stdin is not None:
        yield from frames.parts("stdin", request.stdin)
    try:
        yield frames.encode({**command, "files": files.bounds})
    except frames.FrameError:
        raise ValueError("The arguments and the environment are too large for one command.") from None
    if layout.batch:
        yield frames.encode({"t": "close"})


def _limits(policy: SandboxPolicy) -> dict[str, int]:
    """Resource limits of every process in the sandbox, by the system's names."""
    wanted = {
        "CORE": 1,  # not 0, see process_limits()
        "DATA": policy.memory_bytes,
        "FSIZE": policy.file_bytes,
        "NOFILE": policy.open_files,
    }
    return {name: most for name, most in wanted.items() if most is not None}


def _cpu_seconds(policy: SandboxPolicy) -> int | None:
    if policy.cpu_seconds is not None or policy.wall_seconds is None:
        return policy.cpu_seconds
    return math.floor(policy.wall_seconds) + 1  # must not beat the wall clock to the deadline


async def _send(channel: Channel, messages: Iterator[bytes]) -> None:
    """Send everything, a part at a time; reading files is a worker's job."""

    def batch() -> tuple[bytes, bool]:
        data = bytearray()
        for message in messages:
            data += message
            if len(data) >= _BATCH_BYTES:
                return bytes(data), True
        return bytes(data), False

    more = True
    while more:
        data, more = await in_worker(batch)
        await channel.send(data)


def longest_run(policy: SandboxPolicy, patience: float) -> float | None:
    """Seconds after which a sandbox that has not answered is ended; None for no bound."""
    if policy.wall_seconds is None:
        return None
    # What may go in and come out at most; a bound of a bound, so none of it has one when a limit is switched off.
    volume = sum(most or 0 for most in (policy.workspace_bytes, policy.max_total_file_bytes, policy.output_flood_bytes))
    own = policy.wall_seconds + policy.term_grace_seconds + policy.drain_seconds
    return own + _ENVELOPE_SECONDS + volume / _BYTES_A_SECOND + patience


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of one sandbox.

    Attributes:
        root: Folder below which they are, without a slash at its end; empty where they have their own names.
        python: What is started instead of the agent's own interpreter, which the sandbox has not got.
        mounted: The sandbox has the mounts at their places already; they are not sent.
        alone: Nothing but this run is in the sandbox's process table: whatever is left over may be killed.
        batch: The sandbox is one request with one answer: it gets an end of its input and must then still finish.
    """

    root: str = ""
    python: str = "python3"
    mounted: bool = False
    alone: bool = False
    batch: bool = False

    @property
    def work(self) -> str:
        """The workspace in the sandbox."""
        return f"{self.root}{WORK_DIR}"

    @property
    def temporary(self) -> str:
        """The folder for temporary files in the sandbox."""
        return f"{self.root}{TMP_DIR}"

    @property
    def home(self) -> str:
        """The home folder in the sandbox; the supervisor makes it."""
        return f"{self.root}{HOME_DIR}"

    def place(self, path: PurePosixPath) -> str:
        """Where the sandbox has a mount."""
        return f"{self.root}{path}"

    def view(self, mounts: tuple[ReadOnlyMount, ...]) -> PathMapping:
        """Both directions of the mapping; does nothing where the sandbox has the contract's own names."""
        if not self.root:
            return PathMapping(())
        pairs = [(mount.target, self.place(mount.target)) for mount in mounts]
        return PathMapping([*pairs, (WORK_DIR, self.work), (TMP_DIR, self.temporary)], root=self.root)


_LOST = (
    "The sandbox was ended before it had sent back the files of the run: what the script wrote is lost, the session's "
    "workspace is as it was before."
)


def _result(
    answer: Answer,
    files: RunFolder,
    streams: dict[int, Stream],
    isolation: IsolationReport,
    end: SandboxEnd,
    secrets: SecretForms | None,
    shown: str,
    *,
    asked: float,
    sent: float,
    ended: float,
    overdue: bool,
) -> ExecutionResult:
    """Collect the files and put the result together. Blocking.

    Times are ``time.monotonic()``: when the run was asked for, when everything was sent, when the answer was there.
    ``overdue`` says that there was none in time and the sandbox was ended.
    """
    done = answer.done
    if done is not None and done.get("started") is False:
        raise SandboxError(
            f"The command {shown!r} could not be started: {str(done.get('reason') or 'no reason given')[:300]}."
        )
    cause = end.status or answer.cause
    notes = [*files.notes, *answer.notes, *end.notes]
    if done is None and cause is None:
        if not overdue:
            raise SandboxError(" ".join((_why_no_answer(answer), *end.notes)))
        cause = Status.TIMEOUT
        notes.append("The sandbox did not answer in time after the deadline and was ended.")
    notes += answer.limit_notes(cause)
    if done is None:
        notes.append(_LOST)
    exit_code, number = answer.end
    wall, rss = answer.number("ms"), answer.number("rss")
    waited = (ended - asked) * 1000
    return build_result(
        isolation,
        tuple(streams.values()),
        secrets,
        exit_code=exit_code,
        signal=number,
        cause=cause,
        interrupted=answer.interrupted,
        collected=files.collect(secrets),
        notes=notes,
        wall_ms=wall if wall is not None else (ended - sent) * 1000,
        setup_ms=waited - wall if wall is not None else (sent - asked) * 1000,
        cpu_ms=end.cpu_ms if end.cpu_ms is not None else answer.number("cpu_ms"),
        max_rss_bytes=end.max_rss_bytes if end.max_rss_bytes is not None else None if rss is None else int(rss),
        processes_killed=int(answer.number("killed") or 0),
    )


def _why_no_answer(answer: Answer) -> str:
    if answer.broken:
        return f"The sandbox said what cannot be understood, and was closed: {answer.broken}"
    if not answer.is_ready:
        return "The sandbox ended before its program had started. It needs python3 3.8 or newer on its PATH."
    return "The sandbox ended without saying how the command did: something in it may have ended its supervisor."
