"""Other services' machines seen as a :class:`Sandbox`, with the contract's meaning of deadline, output and files.

A service needs to be able to do little: run a command and move files (:class:`RemoteShell`), or run Python code
(:class:`RemotePython`). The program of :mod:`.program` is sent along with each run and supervises it there, so that
a deadline, too much output and a signal are the same facts as everywhere. What the service itself enforces is its own
affair, and is reported as that. The clock of this machine is the authority: when no answer came in time the run is
over here, and the result says that the remote side may go on (S0-83).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import functools
import io
import json
import logging
import os
import re
import shlex
import zipfile
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeVar, runtime_checkable

from adk_skills_agent.errors import ConfigError, SandboxError
from adk_skills_agent.sandbox import threads
from adk_skills_agent.sandbox.contract import (
    STRICT_ELSEWHERE,
    ExecutionRequest,
    ExecutionResult,
    IsolationLevel,
    IsolationReport,
    Sandbox,
    SandboxPolicy,
    Status,
)
from adk_skills_agent.sandbox.policy import check_policy
from adk_skills_agent.sandbox.process.tree import machine_memory, private_memory
from adk_skills_agent.sandbox.secrets import secrets_of
from adk_skills_agent.sandbox.supervisor.channel import SandboxEnd
from adk_skills_agent.sandbox.supervisor.command import Layout, check_level, run_command
from adk_skills_agent.sandbox.supervisor.program import module_texts, program_text
from adk_skills_agent.sandbox.threads import MAX_RUNNING, MAX_WAITING, WHOSE, Semaphore

logger = logging.getLogger(__name__)
_T = TypeVar("_T")
Ask = Callable[[bytes, Callable[[], None]], Coroutine[None, None, bytes]]
"""Sends a request, says when it has been sent, and gives the answer."""

MAY_GO_ON = (
    "The service did not answer in time and is no longer waited for; what was started there may go on until the "
    "service's own limit ends it."
)
"""The warning of a run that was given up here."""
CLOSED_WITH_IT = "The service did not answer in time and is no longer waited for; the run's machine is closed."
"""The same where each run has a machine of its own."""

INLINE_BYTES = 256 << 10
"""A larger answer becomes a file."""
_CHUNK = 256 << 10  # as a pipe gives it: what is made of it in one go stays small
_CLEANUP_SECONDS = 10.0
_MOST_TROUBLE = 1 << 15  # characters: the launcher tells 4,000 bytes, as JSON
_MOST_REASON = 4_000  # characters of a service's output in which the reason of a failure is looked for
KEPT_SECONDS = 600.0
"""How long a machine or a pod that nobody waits for keeps its place, when nothing says that it is there, or gone."""
_CODE_HOME = "/tmp"  # noqa: S108  # of the service's machine
_SHARED = (
    "processes: where {service} is one machine, its scripts of all skills and users share it: one can read the secrets "
    "of another that runs at the same time, and change what later ones find there. remote_sandbox() takes a function "
    "that makes an environment: each run then has a machine of its own."
)
_WORKSPACE_BYTES = 1 << 30  # where the policy sets no bound
_BESIDES_BYTES = 64 << 20
_LOOK_SECONDS = 0.1
_MEMORY_PARTS = 4
"""One of so many parts of the memory that is left may go with an answer: libraries copy it as often as that."""
_PARTS_ON_THE_WAY = 8  # one of so many is for requests, whose bytes take two to four times their size while packed
_SMALL_REQUEST = 1 << 20  # bytes that every run may have on the way
_LEAST_ROOM = 64 << 20
"""What an agent takes for its other work must not end a run where little is left."""
_SERVICE_SECONDS = 60.0
"""For the way there and back and for a service that has to start something first."""


@dataclass(frozen=True, slots=True)
class RemoteAnswer:
    """What a service says of one command: exit code (None: it does not say), texts, whether the service ended it."""

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

    async def read(self, path: str, most: int) -> bytes:
        """A file's content; of a larger one as little beyond ``most`` bytes as the service allows."""

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


class Sender(Protocol):
    """A run whose bytes are on their way: for whom it is, as :data:`.threads.WHOSE` begins."""

    user: tuple[str, ...]


class OnTheWay:
    """Bytes of requests and answers that are gathered, of all runs of this process elsewhere: an eighth of the memory.

    A run with more waits, and its user has no more of that than is left; the oldest run always goes on (rows 440, 444).
    What another user has counts as an equal part at most, or large runs of one would keep everybody waiting (row 453).
    """

    def __init__(self) -> None:
        self._held: dict[Sender, int] = {}

    async def add(self, sender: Sender, size: int) -> None:
        """Wait until there is room for so many bytes more."""
        self._held.setdefault(sender, 0)
        while self._is_too_much(sender, size):  # noqa: ASYNC110  # the runs are of several event loops
            await asyncio.sleep(_LOOK_SECONDS)
        self._held[sender] = self._held.get(sender, 0) + size

    def release(self, sender: Sender) -> None:
        """They have been sent, or never will be. Safe to call twice."""
        self._held.pop(sender, None)

    def _is_too_much(self, sender: Sender, size: int) -> bool:
        held = list(self._held.items())  # other threads have loops, too
        wanted = self._held.get(sender, 0) + size
        if wanted <= _SMALL_REQUEST or not held or held[0][0] is sender:
            return False
        of_user = Counter({sender.user: 0})
        for one, number in held:
            of_user[one.user] += number
        most, own = machine_memory().available // _PARTS_ON_THE_WAY, of_user.pop(sender.user)
        left = most - own - sum(min(number, most // (len(of_user) + 1)) for number in of_user.values())
        return threads.more_for(own, left, size, times=1) < 1


on_the_way = threads.OnePerProcess(OnTheWay)


class RemoteChannel:
    """One request with one answer, as a channel: what is sent is gathered, the first look for an answer sends it."""

    def __init__(
        self,
        isolation: IsolationReport,
        ask: Ask,
        given_up: str = MAY_GO_ON,
    ) -> None:
        self.isolation = isolation
        self.user = WHOSE.get()[:1]
        self._ask = ask
        self._note = given_up
        self._request = bytearray()
        self._asked: asyncio.Task[bytes] | None = None
        self._at = 0
        self._given_up = False

    async def send(self, data: bytes) -> None:
        """Bytes for the program there; waits while too many are on the way."""
        await on_the_way().add(self, len(data))
        self._request += data

    async def receive(self) -> bytes:
        """Bytes of the program there; none at the end."""
        if self._asked is None:
            self._asked = asyncio.create_task(self._ask(self._taken(), self._sent))
        answer = await asyncio.shield(self._asked)
        data = answer[self._at : self._at + _CHUNK]
        self._at += len(data)
        return data

    def _taken(self) -> bytes:
        request, self._request = bytes(self._request), bytearray()
        return request

    def _sent(self) -> None:
        on_the_way().release(self)

    def kill(self) -> None:
        """Give up; there is no way to reach what runs there."""
        self._given_up = self._asked is not None and not self._asked.done()

    async def close(self) -> SandboxEnd:
        """Wait for nothing any more."""
        self._request.clear()
        self._sent()
        if not await self.give_up():
            logger.warning(self._note)
        return SandboxEnd(notes=(self._note,)) if self._given_up else SandboxEnd()

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


class BatchSandbox(Sandbox):
    """What a service's machine and a pod have in common: a run is one request with one answer."""

    _place: str
    """Completes "A trial run"."""
    _probed: IsolationReport | None = None

    def __init__(self, most_runs: int) -> None:
        if most_runs < 1:
            raise ConfigError(f"most_runs={most_runs}: use a number of at least 1.")
        self._turns = Semaphore(most_runs, fair=True, most_waiting=MAX_WAITING)

    async def probe(self) -> IsolationReport:
        """Run a command that does nothing there and report what is known; once for each object."""
        if self._probed is None:
            policy = SandboxPolicy(min_isolation=IsolationLevel.PROCESS.value, wall_seconds=10.0)
            result = await self.run(ExecutionRequest(("sh", "-c", ":"), policy))
            if result.status is not Status.OK:
                raise SandboxError(f"A trial run {self._place} did not end well: {result.status.value}.")
            self._probed = result.isolation
        return self._probed


class RemoteSandbox(BatchSandbox):
    """Runs commands on another service's machine; see :class:`Sandbox` for the contract.

    ``another`` makes a further machine, not yet started: with it each run has one of its own, which is closed after
    the run. ``most_services_seconds`` is how long the way there and back may take on top of the run's own time.
    ``most_runs`` is how many runs there are at the same time; more wait for their turn, fair to users and sessions.
    """

    filters_secrets = True

    def __init__(
        self,
        service: RemoteShell | RemotePython,
        *,
        another: Callable[[], RemoteShell] | None = None,
        most_services_seconds: float = _SERVICE_SECONDS,
        most_runs: int = MAX_RUNNING,
    ) -> None:
        super().__init__(most_runs)
        self.name = f"remote:{service.name}"
        self._place = f"on {service.name}"
        self._service = service
        self._another = another
        self.wants_invocation = isinstance(service, RemotePython)
        self._patience = most_services_seconds
        self._opening = Semaphore(1)  # over all event loops
        self._late: set[asyncio.Task[None]] = set()  # machines that are closed when they are there
        self._told = False

    async def run(self, request: ExecutionRequest) -> ExecutionResult:
        """Run one command to its end; see :meth:`Sandbox.run`."""
        policy = check_policy(request.policy)
        check_level(policy, IsolationLevel.REMOTE, f"{self._service.name} runs what it gets on its own machine")
        async with self._turns.turn(request.share) as place:
            if self._another is not None:
                return await self._run_alone(request, policy, self._another, place)
            if not self._told and secrets_of(policy.env, request.env):
                self._told = True  # row 288
                logger.warning("A run gets secrets. %s", _SHARED.format(service=self._service.name))
            with Trouble(self._service.name, "could not be made ready"):
                base = await self._shared_base(self._service)
            return await self._run(request, policy, self._service, base)

    async def _run_alone(
        self, request: ExecutionRequest, policy: SandboxPolicy, another: Callable[[], RemoteShell], place: threads.Place
    ) -> ExecutionResult:
        """Run on a machine of the run's own, which is closed afterwards, whatever happened."""
        with Trouble(self._service.name, "could not be made"):
            machine = another()
        opening = asyncio.ensure_future(machine.open())
        try:
            with Trouble(machine.name, "could not be made ready"):
                async with asyncio.timeout(self._patience):
                    # Shielded: who is cancelled while a service makes a machine does not learn which one (row 301).
                    base = await asyncio.shield(opening)
            result = await self._run(request, policy, machine, base)
        except GeneratorExit:  # the loop is gone: nothing can be waited for any more
            raise
        except BaseException:
            if opening.done():
                await threads.uninterrupted(_closed(machine))
            else:
                # Until then the machine counts: else who comes and leaves has any number of them (row 433).
                place.keep(KEPT_SECONDS)
                closing = asyncio.ensure_future(_closed_when_open(machine, opening))
                self._late.add(closing)
                closing.add_done_callback(self._late.discard)
                closing.add_done_callback(lambda _: place.give_back())
            raise
        await threads.uninterrupted(_closed(machine))
        return result

    async def _run(
        self, request: ExecutionRequest, policy: SandboxPolicy, service: RemoteShell | RemotePython, base: str
    ) -> ExecutionResult:
        nonce = os.urandom(16).hex()
        root = f"{base.rstrip('/')}/.adk-skills-{nonce[:12]}"
        layout = Layout(root=root, batch=True)
        inline = None if isinstance(service, RemotePython) else INLINE_BYTES
        job = Job(nonce, root, layout.work, (layout.work, layout.temporary), (root,), inline)
        seconds = None if policy.wall_seconds is None else policy.wall_seconds + self._patience
        shared = self._another is None

        def ask(frames: bytes, sent: Callable[[], None]) -> Coroutine[None, None, bytes]:
            if isinstance(service, RemotePython):
                return _ask_python(service, job, frames, seconds)
            return ask_shell(service, job, frames, seconds, most_answer(policy), sent, clean_up=shared)

        async def open_channel(_checked: SandboxPolicy) -> RemoteChannel:
            isolation = report_of(service.name, policy, shared=shared)
            return RemoteChannel(isolation, ask, MAY_GO_ON if shared else CLOSED_WITH_IT)

        return await run_command(open_channel, request, layout, patience=self._patience)

    async def close(self) -> None:
        """Let go of the service. Safe to call twice. A run's own machine is closed with its run."""
        here = asyncio.get_running_loop()
        if late := [closing for closing in self._late if closing.get_loop() is here]:
            await asyncio.wait(late, timeout=self._patience)
        await self._service.close()

    async def _shared_base(self, service: RemoteShell | RemotePython) -> str:
        if isinstance(service, RemotePython):
            return _CODE_HOME
        async with self._opening, asyncio.timeout(self._patience):
            return await service.open()


async def _closed_when_open(machine: RemoteShell, opening: asyncio.Future[str]) -> None:
    """Close a machine that nobody waits for any more while its service makes it."""
    await asyncio.wait([opening])
    if not opening.cancelled():
        opening.exception()  # taken: whoever waited is gone
    await _closed(machine)


async def _closed(machine: RemoteShell) -> None:
    """Close the machine of a run; what fails is logged, because the run has its result."""
    try:
        async with asyncio.timeout(_CLEANUP_SECONDS):
            await machine.close()
    except Exception as error:  # of the service's library, of the network
        logger.warning(
            "A machine of %s could not be closed after its run (%s); it may go on until the service's own limit ends "
            "it.",
            machine.name,
            type(error).__name__,
            exc_info=error,
        )


def most_answer(policy: SandboxPolicy) -> int:
    """Bytes of a run's answer, at most: the files of its workspace, encoded, and what else it can be."""
    return 2 * (_WORKSPACE_BYTES if policy.workspace_bytes is None else policy.workspace_bytes) + _BESIDES_BYTES


async def ask_shell(
    service: RemoteShell,
    job: Job,
    request: bytes,
    seconds: float | None,
    most: int,
    sent: Callable[[], None],
    *,
    clean_up: bool = True,
) -> bytes:
    """Send a run to a service and bring its answer back, of at most so many bytes; ``sent`` is called in between."""
    packed = await threads.submit(asyncio.get_running_loop(), functools.partial(bundle, job, request))
    del request  # the command may take long
    with Trouble(service.name, "did not run the command"):
        await service.write(job.bundle, packed)
        del packed
        sent()
        command = f"python3 -I {shlex.quote(job.bundle)}"
        answer = await within_memory(service.name, service.run(command, seconds))
    found = await threads.in_worker(_found, service.name, job, answer)
    if isinstance(found, bytes):
        return found
    if found > most:
        raise SandboxError(f"{service.name} says that the result has {found:,} bytes; there are at most {most:,}.")
    with Trouble(service.name, "did not give the result's file"):
        data = await within_memory(service.name, service.read(job.answer, found), found)
    if clean_up:
        with suppress(Exception):
            async with asyncio.timeout(_CLEANUP_SECONDS):
                await service.run(f"rm -rf -- {shlex.quote(job.home)}", _CLEANUP_SECONDS)
    if len(data) != found:
        raise SandboxError(f"{service.name} gave {len(data):,} bytes of a result of {found:,}.")
    return data


@dataclass(slots=True, eq=False)
class _Waiting:
    """A call of a service that waits for its answer: how large that is said to be, and this process' memory before."""

    size: int
    before: int | None = None


_waiting: list[_Waiting] = []


async def within_memory(service: str, asked: Coroutine[Any, Any, _T], size: int = 0) -> _T:
    """What a service answers, while it leaves this process enough memory (row 300).

    The libraries of services keep an answer whole, whatever its size, and a script decides what its machine answers: it
    can leave a file without end where the answer is looked for, or a shell's profile that prints without end. Of all
    calls that wait, the one goes first whose answer is said to be largest, then the one that has seen most of the
    growth; the others begin to count anew (row 439).

    Args:
        service: How it is called in a sentence.
        asked: The call.
        size: Bytes that the answer is said to have; 0 where nobody has said it.

    Raises:
        SandboxError: It was given up. And what the call raises.
    """
    asking = asyncio.ensure_future(asked)
    own = [os.getpid()]
    room = max(machine_memory().available // _MEMORY_PARTS, _LEAST_ROOM)
    call = _Waiting(size, private_memory(own))
    _waiting.append(call)
    try:
        while not (await asyncio.wait([asking], timeout=_LOOK_SECONDS))[0]:
            now = private_memory(own)
            if call.before is None:
                call.before = now
            if now - call.before > room and call is _first_to_go(now):
                raise SandboxError(
                    f"{service} was given up: while it answered, this process took {room >> 20:,} MiB more of the "
                    "memory, which is too much of what was left. The script may have done a part of its work."
                )
    except GeneratorExit:  # the loop is gone: nothing can be waited for any more
        raise
    except BaseException as error:
        asking.cancel()
        await asyncio.wait([asking], timeout=_CLEANUP_SECONDS)
        if asking.done() and not asking.cancelled():
            asking.exception()  # taken: it is given up
        if isinstance(error, SandboxError):
            for other in _waiting:
                other.before = None
        raise
    finally:
        _waiting.remove(call)
    return asking.result()


def _first_to_go(now: int) -> _Waiting:
    return max(list(_waiting), key=lambda call: (call.size, 0 if call.before is None else now - call.before))


async def _ask_python(service: RemotePython, job: Job, request: bytes, seconds: float | None) -> bytes:
    code = await threads.submit(asyncio.get_running_loop(), lambda: as_code(job, bundle(job, request)))
    if service.most_code_bytes is not None and len(code) > service.most_code_bytes:
        raise SandboxError(
            f"{service.name} takes programs of at most {service.most_code_bytes:,} bytes; the skill, the inputs and "
            f"the workspace make one of {len(code):,}. Send less, or use another executor."
        )
    with Trouble(service.name, "did not run the code"):
        answer = await within_memory(service.name, service.run_code(code, seconds))
    found = await threads.in_worker(_found, service.name, job, answer)
    if not isinstance(found, bytes):
        raise SandboxError(f"{service.name} changed the result on the way.")
    return found


def _found(name: str, job: Job, answer: RemoteAnswer) -> bytes | int:
    try:
        return told(job.nonce, answer.stdout)
    except AnswerError as error:
        raise SandboxError(f"{name} gave no result: {_why(answer) or error}.") from None


def report_of(service: str, policy: SandboxPolicy, *, shared: bool = True) -> IsolationReport:
    """What is known of a service: nothing of it can be checked from here, and the report says so.

    ``shared`` says whether a run's machine is that of other runs, too.
    """
    enforced = {
        "files": f"remote ({service})",
        "network": f"remote ({service})",
        "processes": "supervisor" if shared else f"supervisor, and a machine of {service} for each run",
        "memory": "rlimit",
        "pids": "rlimit",
        "disk": "none",
        "cpu": "rlimit",
        "syscalls": f"remote ({service})",
    }
    degraded = [
        f"files: the agent's machine is out of reach; what else {service} lets a script see is its own affair.",
        "memory: per process, not for the whole run.",
        "output: comes when the run has ended, not while it lasts.",
        f"disk: {service} decides how much may be written; only what comes back is bounded.",
    ]
    if shared:
        degraded.append("processes: a run that does not answer in time is given up here and may go on there.")
        degraded.append(_SHARED.format(service=service))
    if policy.network.mode != "host":
        degraded.append(
            f"network: {policy.network.mode!r} is not enforced from here; {service} decides what can be reached."
        )
    if policy.syscalls == "strict":
        degraded.append(STRICT_ELSEWHERE)
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
        said = str(error)[:_MOST_REASON].strip().splitlines()[:1]
        detail = "it did not answer in time" if isinstance(error, TimeoutError) else said[0] if said else ""
        reason = f"{type(error).__name__}: {detail}" if detail else type(error).__name__
        raise SandboxError(f"{self._sentence} ({reason}). The agent's log has the details.") from error


def _why(answer: RemoteAnswer) -> str:
    """Why there is no answer, when the command's own end says it."""
    if answer.timed_out:
        return "it ended the run at a time limit of its own"
    # A script decides how much there is (row 438).
    text = f"{answer.stderr[-_MOST_REASON:]}\n{answer.stdout[-_MOST_REASON:]}"
    if answer.exit_code == 127 or "python3: not found" in text or "python3: command not found" in text:
        return "there is no python3 there; it needs 3.8 or newer"
    last = [line.strip() for line in text.splitlines() if line.strip()][-1:]
    return f"exit code {answer.exit_code}: {last[0][:200]}" if last and answer.exit_code else ""


# What runs first on another service's machine: one file with the supervisor's program and everything the run needs.
#
# A zip file that Python starts (``python3 -I FILE``). It makes the run's folders, lets the program of :mod:`.program`
# have the frames as its input, and tells the answer on its standard output, behind a number used once. The program's
# output is a file without a name: nothing that runs there can write to it, and by the time it is told, nothing of the
# run is left.

_MAIN = Path(__file__).with_name("launcher_program.py")
_IMPORTED = ("python_program", "process")  # with what it imports itself

_INSIDE_PYTHON = """\
import base64 as _base64, os as _os, shutil as _shutil, subprocess as _subprocess, sys as _sys, tempfile as _tempfile
_home = _os.path.realpath({home!r})
_os.makedirs(_home, mode=0o700, exist_ok=True)
try:
  with open(_os.path.join(_home, 'bundle'), 'wb') as _file:
    _file.write(_base64.b64decode({bundle!r}))
  _run = _subprocess.run(
    [_sys.executable or 'python3', '-I', _os.path.join(_home, 'bundle')], stdin=_subprocess.DEVNULL,
    stdout=_subprocess.PIPE, stderr=_subprocess.STDOUT,
  )
  print('\\n' + _run.stdout.decode('utf-8', 'replace'))
finally:
  _shutil.rmtree(_home, ignore_errors=True)
"""


class AnswerError(ValueError):
    """What came back is not what the launcher tells."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run on a remote machine; all paths are the remote machine's.

    Attributes:
        nonce: Begins the launcher's lines.
        home: Where the launcher's own files are.
        work: The workspace; it is the program's working directory.
        folders: Made when they are missing.
        remove: Emptied at the end.
        inline: Most bytes of an answer told on standard output, a larger one becomes a file; None for no bound.
    """

    nonce: str
    home: str
    work: str
    folders: tuple[str, ...]
    remove: tuple[str, ...]
    inline: int | None

    @property
    def bundle(self) -> str:
        """Where the launcher itself is put."""
        return f"{self.home}/bundle-{self.nonce}"

    @property
    def answer(self) -> str:
        """Where a large answer is."""
        return f"{self.home}/answer-{self.nonce}.frames"


def bundle(job: Job, request: bytes) -> bytes:
    """The launcher with everything in it."""
    packed = io.BytesIO()
    told = {**asdict(job), "folders": [job.home, *job.folders], "answer": job.answer}
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as parts:
        parts.writestr("__main__.py", _MAIN.read_text(encoding="utf-8"))
        for path, text in module_texts(_IMPORTED).items():
            parts.writestr(path, text)
        parts.writestr("job.json", json.dumps(told))
        parts.writestr("supervisor.py", program_text())
        parts.writestr("request", request)
    return packed.getvalue()


def as_code(job: Job, packed: bytes) -> str:
    """The same as Python code, for a service that runs nothing else; the home is its own and is removed."""
    return _INSIDE_PYTHON.format(home=job.home, bundle=base64.b64encode(packed).decode("ascii"))


def told(nonce: str, stdout: str) -> bytes | int:
    """What a launcher told: the answer, or the size of the file it is in; an AnswerError with what is known else."""
    at = 0 if stdout.startswith(nonce) else stdout.find(f"\n{nonce} ") + 1
    start = re.compile(rf"{nonce} (inline|file|failed) (.*)$", re.MULTILINE).match(stdout, at)
    if start is None:
        raise AnswerError("it did not start the program that was sent, or its output was cut")
    kind, rest = start[1], start[2].strip()
    if kind == "failed":
        raise AnswerError(f"the program that was sent did not run: {_trouble(rest)}")
    size = int(rest) if rest.isdecimal() and len(rest) < 16 else -1
    if kind == "file":
        return size
    text, end, _ = stdout[start.end() :].partition(f"\n{nonce} end")
    if not end:
        raise AnswerError("its output was cut before the end of the answer")
    try:
        # One line after the other, and no list of all: other threads go on in between.
        answer = b"".join(binascii.a2b_base64(line[0]) for line in re.finditer(r"\S+", text))
    except ValueError:
        raise AnswerError("its output was changed on the way") from None
    if len(answer) != size:
        raise AnswerError("its output was changed on the way")
    return answer


def _trouble(rest: str) -> str:
    if len(rest) > _MOST_TROUBLE:
        return "no reason is known"
    try:
        status, said = json.loads(rest)
    except (ValueError, TypeError):
        return "no reason is known"
    last = str(said).strip().splitlines()[-1:] or [f"status {status}"]
    return last[0][:200]
