"""Other services' machines seen as a :class:`Sandbox`, with the contract's meaning of deadline, output and files.

A service needs to be able to do little: run a command and move files (:class:`RemoteShell`), or run Python code
(:class:`RemotePython`). The program of :mod:`.box_program` is sent along with each run and supervises it there, so that
a deadline, too much output and a signal are the same facts as everywhere. What the service itself enforces is its own
affair, and is reported as that. The clock of this machine is the authority: when no answer came in time the run is
over here, and the result says that the remote side may go on (S0-83).
"""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Protocol, runtime_checkable

from adk_skills_agent.errors import SandboxError, SandboxUnavailable
from adk_skills_agent.sandbox.box_command import run_command
from adk_skills_agent.sandbox.box_layout import BoxLayout
from adk_skills_agent.sandbox.contract import (
    ExecutionRequest,
    ExecutionResult,
    IsolationLevel,
    IsolationReport,
    Sandbox,
    SandboxPolicy,
    Status,
)
from adk_skills_agent.sandbox.local import workers
from adk_skills_agent.sandbox.local.turns import Turns
from adk_skills_agent.sandbox.policy import check_policy
from adk_skills_agent.sandbox.remote_launcher import AnswerError, Job, as_code, bundle, told

logger = logging.getLogger(__name__)

MAY_GO_ON = (
    "The service did not answer in time and is no longer waited for; what was started there may go on until the "
    "service's own limit ends it."
)
"""The warning of a run that was given up here."""

_INLINE_BYTES = 256 << 10
_CHUNK = 256 << 10  # as a pipe gives it: what is made of it in one go stays small
_CLEANUP_SECONDS = 10.0
_CODE_HOME = "/tmp"  # noqa: S108  # of the service's machine
_SERVICE_SECONDS = 60.0
"""For the way there and back and for a service that has to start something first."""


@dataclass(frozen=True, slots=True)
class RemoteAnswer:
    """What a service says of one command.

    Attributes:
        exit_code: Of the command; None when it does not say.
        stdout: Text.
        stderr: Text.
        timed_out: The service ended it.
    """

    exit_code: int | None
    stdout: str
    stderr: str = ""
    timed_out: bool = False


@runtime_checkable
class RemoteShell(Protocol):
    """A service that runs commands and keeps files."""

    name: str

    async def open(self) -> str:
        """Make it ready; the absolute path of a folder that can be written to."""

    async def run(self, command: str, seconds: float | None) -> RemoteAnswer:
        """Run a shell command, at most so many seconds if the service can."""

    async def read(self, path: str) -> bytes:
        """A file's content."""

    async def write(self, path: str, content: bytes) -> None:
        """Write a file; its folder is made if need be."""

    async def close(self) -> None:
        """Let go of it."""


@runtime_checkable
class RemotePython(Protocol):
    """A service that runs Python code."""

    name: str
    most_code_bytes: int | None

    async def run_code(self, code: str, seconds: float | None) -> RemoteAnswer:
        """Run Python code; what it prints is the answer."""

    async def close(self) -> None:
        """Let go of it."""


@dataclass(slots=True)
class RemoteEnd:
    """See :class:`~.box_command.BoxEnd`."""

    status: Status | None = None
    notes: tuple[str, ...] = ()
    cpu_ms: float | None = None
    max_rss_bytes: int | None = None


@dataclass(slots=True)
class RemoteChannel:
    """One request with one answer, as a channel: what is sent is gathered, the first look for an answer sends it.

    Args:
        isolation: What is known of the service.
        ask: Sends a request and gives the answer.
        forget: Called when the answer is not waited for any more.
    """

    isolation: IsolationReport
    ask: Callable[[bytes], asyncio.Future[bytes]]
    _request: bytearray = field(default_factory=bytearray)
    _asked: asyncio.Future[bytes] | None = None
    _answer: bytes = b""
    _at: int = 0
    _given_up: bool = False

    async def send(self, data: bytes) -> None:
        """Bytes for the program there."""
        self._request += data

    async def receive(self) -> bytes:
        """Bytes of the program there; none at the end.

        Raises:
            SandboxError: The service did not do it.
        """
        if self._asked is None:
            request, self._request = bytes(self._request), bytearray()
            self._asked = self.ask(request)
        if not self._answer:
            self._answer = await asyncio.shield(self._asked)
        data = self._answer[self._at : self._at + _CHUNK]
        self._at += len(data)
        return data

    def kill(self) -> None:
        """Give up; there is no way to reach what runs there."""
        if self._asked is not None and not self._asked.done():
            self._given_up = True

    async def close(self) -> RemoteEnd:
        """Wait for nothing any more."""
        if not await self.give_up():
            logger.warning(MAY_GO_ON)
        return RemoteEnd(notes=(MAY_GO_ON,)) if self._given_up else RemoteEnd()

    async def give_up(self) -> bool:
        """Stop waiting for the answer; whether it had come, or was not asked for."""
        asked = self._asked
        if asked is None or asked.done():
            if asked is not None and not asked.cancelled():
                asked.exception()  # taken: it was raised by receive(), or nobody wants it
            return True
        asked.cancel()
        await asyncio.wait([asked], timeout=_CLEANUP_SECONDS)
        return False


class RemoteSandbox(Sandbox):
    """Runs commands on another service's machine; see :class:`Sandbox` for the contract.

    Args:
        service: The machine.
        most_services_seconds: How long the way there and back may take on top of the run's own time.
    """

    def __init__(self, service: RemoteShell | RemotePython, *, most_services_seconds: float = _SERVICE_SECONDS) -> None:
        self.name = f"remote:{service.name}"
        self._service = service
        self.wants_invocation = isinstance(service, RemotePython)
        self._patience = most_services_seconds
        self._opening = Turns(1)  # over all event loops
        self._probed: IsolationReport | None = None

    async def run(self, request: ExecutionRequest) -> ExecutionResult:
        """Run one command to its end; see :meth:`Sandbox.run`."""
        policy = check_policy(request.policy)
        check_level(policy, IsolationLevel.REMOTE, f"{self._service.name} runs what it gets on its own machine")
        nonce = os.urandom(16).hex()
        base = await self._base()
        root = f"{base.rstrip('/')}/.adk-skills-{nonce[:12]}"
        layout = BoxLayout(root=root, batch=True)
        job = Job(nonce, root, layout.work, (layout.work, layout.temporary), (root,), _INLINE_BYTES)
        report = report_of(self._service.name, policy)

        async def open_channel(checked: SandboxPolicy) -> RemoteChannel:
            seconds = None if checked.wall_seconds is None else checked.wall_seconds + self._patience
            return RemoteChannel(report, lambda frames: asyncio.ensure_future(self._ask(job, frames, seconds)))

        return await run_command(open_channel, request, layout, patience=self._patience)

    async def probe(self) -> IsolationReport:
        """Run a command that does nothing there and report what is known; once for each object.

        Raises:
            SandboxError: Not even that works.
        """
        if self._probed is None:
            policy = SandboxPolicy(min_isolation=IsolationLevel.PROCESS.value, wall_seconds=10.0)
            result = await self.run(ExecutionRequest(("sh", "-c", ":"), policy))
            if result.status is not Status.OK:
                raise SandboxError(f"A trial run on {self._service.name} did not end well: {result.status.value}.")
            self._probed = result.isolation
        return self._probed

    async def close(self) -> None:
        """Let go of the service. Safe to call twice."""
        await self._service.close()

    async def _base(self) -> str:
        if isinstance(self._service, RemotePython):
            return _CODE_HOME
        async with self._opening.place():
            with Trouble(self._service.name, "could not be made ready"):
                async with asyncio.timeout(self._patience):
                    return await self._service.open()

    async def _ask(self, job: Job, request: bytes, seconds: float | None) -> bytes:
        service = self._service
        if isinstance(service, RemotePython):
            return await _ask_python(service, replace(job, inline=None), request, seconds)
        return await ask_shell(service, job, request, seconds)


async def ask_shell(
    service: RemoteShell, job: Job, request: bytes, seconds: float | None, *, clean_up: bool = True
) -> bytes:
    """Send a run to a service and bring its answer back.

    Args:
        service: The machine.
        job: Where on it.
        request: The frames.
        seconds: The service's own time limit, if it has one.
        clean_up: Whether the job's folder is removed at the end.

    Raises:
        SandboxError: The service did not do it, or what it gave is no answer.
    """
    packed = await workers.submit(asyncio.get_running_loop(), lambda: bundle(job, request))
    with Trouble(service.name, "did not run the command"):
        await service.write(job.bundle, packed)
        answer = await service.run(f"python3 -I {shlex.quote(job.bundle)}", seconds)
    found = _found(service.name, job, answer)
    if isinstance(found, bytes):
        return found
    with Trouble(service.name, "did not give the result's file"):
        data = await service.read(job.answer)
    if clean_up:
        with suppress(Exception):
            async with asyncio.timeout(_CLEANUP_SECONDS):
                await service.run(f"rm -rf -- {shlex.quote(job.home)}", _CLEANUP_SECONDS)
    if len(data) != found:
        raise SandboxError(f"{service.name} gave {len(data):,} bytes of a result of {found:,}.")
    return data


async def _ask_python(service: RemotePython, job: Job, request: bytes, seconds: float | None) -> bytes:
    code = await workers.submit(asyncio.get_running_loop(), lambda: as_code(job, bundle(job, request)))
    if service.most_code_bytes is not None and len(code) > service.most_code_bytes:
        raise SandboxError(
            f"{service.name} takes programs of at most {service.most_code_bytes:,} bytes; the skill, the inputs and "
            f"the workspace make one of {len(code):,}. Send less, or use another executor."
        )
    with Trouble(service.name, "did not run the code"):
        answer = await service.run_code(code, seconds)
    found = _found(service.name, job, answer)
    if not isinstance(found, bytes):
        raise SandboxError(f"{service.name} changed the result on the way.")
    return found


def _found(name: str, job: Job, answer: RemoteAnswer) -> bytes | int:
    try:
        return told(job.nonce, answer.stdout)
    except AnswerError as error:
        raise SandboxError(f"{name} gave no result: {_why(answer) or error}.") from None


def check_level(policy: SandboxPolicy, level: IsolationLevel, why: str) -> None:
    """Refuse a policy that asks for something else than a backend with one level gives (fail closed).

    Args:
        policy: Of the run.
        level: What the backend gives.
        why: A clause: what kind of place this is.

    Raises:
        SandboxUnavailable: With the reason.
    """
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


def report_of(service: str, policy: SandboxPolicy) -> IsolationReport:
    """What is known of a service: nothing of it can be checked from here, and the report says so."""
    enforced = {
        "files": f"remote ({service})",
        "network": f"remote ({service})",
        "processes": "supervisor",
        "memory": "rlimit",
        "pids": "rlimit",
        "disk": "none",
        "kernel": f"remote ({service})",
    }
    degraded = [
        f"files: the agent's machine is out of reach; what else {service} lets a script see is its own affair.",
        "memory: per process, not for the whole run.",
        "output: comes when the run has ended, not while it lasts.",
        f"disk: {service} decides how much may be written; only what comes back is bounded.",
        "processes: a run that does not answer in time is given up here and may go on there.",
    ]
    if policy.network.mode != "host":
        degraded.append(
            f"network: {policy.network.mode!r} is not enforced from here; {service} decides what can be reached."
        )
    if policy.extra_ro:
        degraded.append("files: extra_ro names folders of the agent's machine, which are not there.")
    return IsolationReport(IsolationLevel.REMOTE, enforced, tuple(degraded))


class Trouble:
    """Whatever a service's library raises becomes a :class:`SandboxError` with its reason."""

    def __init__(self, service: str, what: str) -> None:
        self._sentence = f"{service} {what}"

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, Exception) or isinstance(error, (SandboxError, Warning)):
            return
        logger.info("%s", self._sentence, exc_info=error)
        said = str(error).strip().splitlines()[:1]
        detail = "it did not answer in time" if isinstance(error, TimeoutError) else said[0][:200] if said else ""
        reason = f"{type(error).__name__}: {detail}" if detail else type(error).__name__
        raise SandboxError(f"{self._sentence} ({reason}). The agent's log has the details.") from error


def _why(answer: RemoteAnswer) -> str:
    """Why there is no answer, when the command's own end says it."""
    if answer.timed_out:
        return "it ended the run at a time limit of its own"
    text = f"{answer.stderr}\n{answer.stdout}"
    if answer.exit_code == 127 or "python3: not found" in text or "python3: command not found" in text:
        return "there is no python3 there; it needs 3.8 or newer"
    last = [line.strip() for line in text.splitlines() if line.strip()][-1:]
    return f"exit code {answer.exit_code}: {last[0][:200]}" if last and answer.exit_code else ""
