"""One command in a box: everything it needs goes in, what it does comes out, and a result is made of it.

The host's side of the protocol of :mod:`.frames` for ``exec{kind: argv}``. All that the command needs is sent before
anything is waited for, so that a box may also be one request with one answer. The host's clock is the authority: a box
that has not answered some time after its deadline is ended.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol, TypeVar

from adk_skills_agent.errors import SkillsError
from adk_skills_agent.sandbox import frames
from adk_skills_agent.sandbox.box_answer import BoxAnswer
from adk_skills_agent.sandbox.box_folder import BoxFolder
from adk_skills_agent.sandbox.box_layout import BoxLayout
from adk_skills_agent.sandbox.box_result import BoxEnd, Timing, box_result
from adk_skills_agent.sandbox.contract import (
    WORK_DIR,
    ExecutionRequest,
    ExecutionResult,
    IsolationReport,
    SandboxPolicy,
)
from adk_skills_agent.sandbox.local import workers
from adk_skills_agent.sandbox.local.command import check_argv, encode, spelling
from adk_skills_agent.sandbox.local.environment import build_environment
from adk_skills_agent.sandbox.local.output import open_captures
from adk_skills_agent.sandbox.local.output_filter import OutputFilter, secrets_of_run
from adk_skills_agent.sandbox.local.step import Step
from adk_skills_agent.sandbox.local.supervision import Stream
from adk_skills_agent.sandbox.policy import check_policy
from adk_skills_agent.sandbox.redaction import redact_error, redacted
from adk_skills_agent.sandbox.secret_forms import SecretForms
from adk_skills_agent.sandbox.uninterrupted import uninterrupted

_BATCH_BYTES = 4 << 20  # sent at a time: enough to keep a worker thread out of the way, little enough to hold
_EXEC_ID = 1
_ENVELOPE_SECONDS = 10.0
"""After the command's own time: how long a box may take to say how it ended before it is ended itself."""
_BYTES_A_SECOND = 1 << 20
"""The slowest line that is waited for: what may come back adds to that."""

_Result = TypeVar("_Result")


class Channel(Protocol):
    """A box that runs the program of :mod:`.box_program`; see :class:`~.session.Channel`."""

    @property
    def isolation(self) -> IsolationReport:
        """Who enforces what in it."""

    async def send(self, data: bytes) -> None:
        """Bytes for the program."""

    async def receive(self) -> bytes:
        """Bytes of the program; none at its end."""

    def kill(self) -> None:
        """End it at once."""

    async def close(self) -> BoxEnd:
        """End it and leave nothing."""


async def run_command(
    open_channel: Callable[[SandboxPolicy], Awaitable[Channel]],
    request: ExecutionRequest,
    layout: BoxLayout,
    *,
    patience: float = 0.0,
) -> ExecutionResult:
    """Run one command in a box that is opened for it and closed after it.

    Args:
        open_channel: Gives the box, for the checked policy.
        request: What to run.
        layout: The box's places.
        patience: Seconds on top of the usual after which a box that does not answer is ended; for one whose start is
            part of its answer.

    Raises:
        SandboxError: The box failed, or the command could not be started in it.
        ConfigError: The policy has impossible values.
        ValueError: The request cannot be expressed.
        CancelledError: The run was cancelled; the box is closed.
        Exception: What ``on_output`` raised.
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
    return redacted(result, secrets)


async def _run(
    open_channel: Callable[[SandboxPolicy], Awaitable[Channel]],
    request: ExecutionRequest,
    policy: SandboxPolicy,
    layout: BoxLayout,
    secrets: SecretForms | None,
    asked: float,
    patience: float,
) -> ExecutionResult | Exception:
    run_id = os.urandom(8).hex()
    command = _command(request, policy, layout, run_id)
    shown = spelling(request.argv[0], request.argv[0]) if request.argv[0] == sys.executable else request.argv[0]
    captures = open_captures(request.spill_dir, policy, run_id)
    made: list[BoxFolder] = []
    answer = None
    thrown_away = False
    try:
        files = await _work(lambda: _folder(made, request, policy, layout, run_id))
        view = layout.view(request.mounts)
        streams = {
            number: Stream(name, -1, capture, OutputFilter(view, secrets), request.on_output, policy.output_bytes)
            for number, name, capture in ((1, "stdout", captures[0]), (2, "stderr", captures[1]))
        }
        answer = BoxAnswer(streams, files, policy, _EXEC_ID)
        channel = await open_channel(policy)
        overdue = False
        started = ended = time.monotonic()
        try:
            try:
                async with asyncio.timeout(_longest(policy, patience)):
                    await _send(channel, _messages(request, policy, files, command, layout))
                    started = time.monotonic()
                    while not answer.over and (data := await channel.receive()):
                        if found := answer.feed_streams(data):
                            await _work(lambda found=found: answer.take_files(found))  # type: ignore[misc]
            except TimeoutError:
                overdue = True
                channel.kill()
            ended = time.monotonic()
        except GeneratorExit:  # the loop is gone: nothing can be waited for any more
            thrown_away = True
            channel.kill()
            raise
        finally:
            if not thrown_away:
                end = await uninterrupted(channel.close())
        answer.close_streams()
        if answer.failure is not None:
            raise answer.failure
        timing = Timing(asked, started, ended, overdue=overdue)

        def conclude() -> ExecutionResult:
            try:
                isolation = channel.isolation
                return box_result(answer, files, captures, streams, policy, isolation, end, timing, secrets, shown)
            finally:
                made.clear()
                files.discard()

        return await _work(conclude)
    except BaseException as error:
        thrown_away = isinstance(error, GeneratorExit)
        for capture in captures:
            capture.discard()
        if answer is not None and error is answer.failure:
            return answer.failure
        raise
    finally:
        for files in made:  # none when it could not be made; one also when the wait for it was cancelled
            if thrown_away:
                files.discard()
            else:
                await _work(files.discard)


def _folder(
    made: list[BoxFolder], request: ExecutionRequest, policy: SandboxPolicy, layout: BoxLayout, run_id: str
) -> BoxFolder:
    """The run's folder, which is in ``made`` as soon as there is something to discard. Blocking."""
    files = BoxFolder(request, policy, layout, run_id)
    made.append(files)
    files.check_folder(request.cwd)
    return files


def _command(request: ExecutionRequest, policy: SandboxPolicy, layout: BoxLayout, run_id: str) -> frames.Frame:
    """The part of the ``exec`` frame that needs no file.

    Raises:
        ValueError: An argument or the folder cannot be expressed.
    """
    argv = request.argv
    check_argv(argv)
    if not argv[0]:
        raise ValueError("argv[0] is empty: there is no command.")
    view = layout.view(request.mounts)
    environment = build_environment(policy, request.env, workspace=layout.work, tmp=layout.temporary, run_id=run_id)
    if "PATH" not in policy.env and "PATH" not in request.env and "PATH" not in policy.inherit_env:
        environment["PATH"] = layout.path  # the host's interpreter is not there
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
        "pids": None if layout.alone else policy.pids,  # a limit of the user's, who has other boxes
        "last": layout.alone and not layout.batch,
    }


def _messages(
    request: ExecutionRequest, policy: SandboxPolicy, files: BoxFolder, command: frames.Frame, layout: BoxLayout
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
        for piece, _ in frames.pieces(request.stdin):
            yield frames.encode({"t": "part", "of": "stdin", "b64": frames.base64(piece)})
    try:
        yield frames.encode({**command, "files": files.bounds})
    except frames.FrameError:
        raise ValueError("The arguments and the environment are too large for one command.") from None
    if layout.batch:
        yield frames.encode({"t": "close"})


def _limits(policy: SandboxPolicy) -> dict[str, int]:
    """Resource limits of every process in the box, by the system's names."""
    wanted = {
        "CORE": 0,
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
        data, more = await _work(batch)
        await channel.send(data)


def _longest(policy: SandboxPolicy, patience: float) -> float | None:
    if policy.wall_seconds is None:
        return None
    # What may go in and come out at most; a bound of a bound, so none of it has one when a limit is switched off.
    volume = sum(most or 0 for most in (policy.workspace_bytes, policy.max_total_file_bytes, policy.output_flood_bytes))
    own = policy.wall_seconds + policy.term_grace_seconds + policy.drain_seconds
    return own + _ENVELOPE_SECONDS + volume / _BYTES_A_SECOND + patience


async def _work(work: Callable[[], _Result]) -> _Result:
    """Blocking work in a thread for such work; it is not left half done when the wait for it is cancelled."""
    return await uninterrupted(workers.submit(asyncio.get_running_loop(), work))
