"""Python sessions in this machine's sandbox, at any level: the program of a session is a long run (SANDBOX.md 4.4)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import socket
import sys
import threading
from dataclasses import dataclass, replace

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox import threads
from adk_skills_agent.sandbox.contract import ExecutionRequest, IsolationReport, SandboxPolicy, Status
from adk_skills_agent.sandbox.local.levels.base import LocalRun
from adk_skills_agent.sandbox.local.sandbox import choose_level, warn_of_level
from adk_skills_agent.sandbox.output import PathMapping
from adk_skills_agent.sandbox.policy import check_policy
from adk_skills_agent.sandbox.process.command import check_interpreter
from adk_skills_agent.sandbox.process.supervise import EndReport, ExitWatch, LiveStdin, has_ended
from adk_skills_agent.sandbox.process.tree import bound_running
from adk_skills_agent.sandbox.process.watchdog import DiskLimit, Watched, watchdog, works_here
from adk_skills_agent.sandbox.streaming import ResourceSample
from adk_skills_agent.sandbox.supervisor.channel import SandboxEnd
from adk_skills_agent.sandbox.supervisor.program import program_text
from adk_skills_agent.sandbox.threads import RUNNING, Step, uninterrupted

_CHUNK = 1 << 14  # bytes are much work where each frame has one
_UNKILLABLE_SECONDS = 5.0  # a process that survives SIGKILL so long hangs in the kernel
_SAID_BYTES = 2000

_logger = logging.getLogger("adk_skills_agent.sandbox")


class LocalSessions:
    """Starts sessions in the strongest level that works here and fits their policy; see ``SessionHost``."""

    async def start(self, policy: SandboxPolicy) -> LocalChannel:
        """Start the program in a sandbox of its own, of which the deadline is each execution's; see ``SessionHost``."""
        # What is one execution's is enforced by the supervisor inside; here it would be the session's.
        policy = replace(
            check_policy(policy), wall_seconds=None, cpu_seconds=None, output_flood_bytes=None, warm_slots=0
        )
        check_interpreter(policy)
        python = policy.python if policy.python is not None else sys.executable
        here, there = socket.socketpair()
        try:
            here.setblocking(False)
            request = ExecutionRequest(
                (python, "-I", "-c", program_text()),
                policy,
                stdin=LiveStdin(there.fileno()),
                label="session",
                share=threads.WHOSE.get(),  # of whoever's code makes it begin: its look-ups are theirs (row 353)
            )
            return await _start(request, policy, here)
        except BaseException:
            here.close()
            raise
        finally:
            there.close()


async def _start(request: ExecutionRequest, policy: SandboxPolicy, here: socket.socket) -> LocalChannel:
    loop = asyncio.get_running_loop()
    bound_running(policy.pids)
    # A place while it starts, and none for as long as it lasts: sessions must not keep scripts waiting.
    async with RUNNING.turn(request.share):
        with Step("choose an isolation level", ValueError):
            choice = await choose_level(request, policy)
        warn_of_level(choice.level.level)
        run = choice.level.new_run(request, policy)

        def abandon() -> None:  # the loop was closed and the session was not
            try:
                run.abandon()
            finally:
                here.close()

        watched = Watched(loop.is_closed, abandon, user="".join(request.share[:1]))
        watchdog().add(watched)
        try:
            with Step("start the session", ValueError):
                await threads.in_worker(run.start)
        except BaseException:
            watchdog().remove(watched)
            run.abandon()  # no effect when it was not started
            raise
    enforcement = choice.level.report(policy)
    report = IsolationReport(choice.level.level, enforcement.enforced, enforcement.degraded, choice.reasons, run.maker)
    return LocalChannel(run, report, enforcement.hard, here, watched)


@dataclass(slots=True)
class _Rest:
    """The time between two executions: processor time that may be used in it, and what was used before."""

    most: float
    before: float | None = None


class LocalChannel:
    """A session's sandbox, started; see :class:`~adk_skills_agent.sandbox.sessions.session.Channel`."""

    def __init__(
        self,
        run: LocalRun,
        isolation: IsolationReport,
        hard: frozenset[str],
        connection: socket.socket,
        watched: Watched,
    ) -> None:
        self.isolation = isolation
        self._run = run
        self._connection = connection
        self._watched = watched
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._exited = False
        self._lock = threading.Lock()
        self._killed = False
        self._cause: tuple[Status, str] | None = None
        self._closing: asyncio.Future[SandboxEnd] | None = None
        self._rest: _Rest | None = None
        os.set_blocking(run.child.stdout, False)
        self._exit = ExitWatch(self._loop, run.child, self._on_exit)
        if works_here():
            watched.limits = run.limits(hard, self._breach, self._look_at_rest)

    @property
    def view(self) -> PathMapping:
        """What host paths in its output are replaced by."""
        return self._run.view

    @property
    def is_open(self) -> bool:
        """Whether its first process is there."""
        if self._exited or self._killed or self._closing is not None or has_ended(self._run.child):
            return False
        poll = select.poll()
        poll.register(self._run.child.stdout, 0)
        if self._run.child.pidfd is not None:
            poll.register(self._run.child.pidfd, select.POLLIN)
        return not poll.poll(0)

    async def keeps_limits(self, cpu_seconds: float | None) -> bool:
        """Whether the disk holds no more than it may: code can end between two looks of the watchdog (row 80).

        The watchdog sees to the processor time of what is left running.
        """
        self._rest = None if cpu_seconds is None else _Rest(cpu_seconds)
        walked = [limit for limit in self._run.disk if limit.folder is not None]
        if not walked or self._watched.limits is None:
            return True  # a file system of its own is full at its limit
        excess = await threads.in_worker(lambda: self._excess(walked))
        if excess is not None:
            self._breach(Status.DISK_LIMIT, f"Stopped: {excess}.")
        return excess is None

    @staticmethod
    def _excess(walked: list[DiskLimit]) -> str | None:
        for limit in walked:
            with contextlib.suppress(OSError):  # the code removed it
                if (found := limit.excess_at_end()) is not None:
                    return found
        return None

    async def send(self, data: bytes) -> None:
        """Pass bytes to the program."""
        self._rest = None  # an execution begins
        with contextlib.suppress(ConnectionError):
            await self._loop.sock_sendall(self._connection, data)

    async def receive(self) -> bytes:
        """The next bytes from the program; none at its end."""
        output = self._run.child.stdout
        while self._closing is None:
            try:
                return os.read(output, _CHUNK)
            except BlockingIOError:
                if self._exited:
                    break
            self._waiter = waiter = self._loop.create_future()
            self._loop.add_reader(output, self._wake)
            try:
                await waiter
            finally:
                self._waiter = None
                self._loop.remove_reader(output)
        return b""

    def kill(self) -> None:
        """End it at once."""
        with self._lock:
            if self._killed:
                return
            self._killed = True
        self._run.kill()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._loop.call_later, _UNKILLABLE_SECONDS, self._on_exit)

    async def close(self) -> SandboxEnd:
        """End it, and leave nothing."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
            self._wake()
        return await uninterrupted(self._closing)

    async def _close(self) -> SandboxEnd:
        self.kill()
        self._exit.close()
        self._watched.limits = None
        try:
            end = await self._finish()
        except SandboxError as error:
            return SandboxEnd(None if self._cause is None else self._cause[0], (error.message,))
        finally:
            watchdog().remove(self._watched)
            self._connection.close()
        self._log_last_words(end)
        cause = self._cause
        note = end.limit_note if cause is None else cause[1]
        return SandboxEnd(
            end.cause if cause is None else cause[0],
            tuple(dict.fromkeys(filter(None, [note, *end.notes]))),
            None if end.cpu_seconds is None else end.cpu_seconds * 1000,
            end.max_rss,
        )

    async def _finish(self) -> EndReport:
        with Step("end the session", ValueError):
            return await threads.in_worker_or_here(lambda: self._run.finish(wanted=False))

    def _log_last_words(self, end: EndReport) -> None:
        said = end.rest[1][-_SAID_BYTES:].decode("utf-8", "replace").strip()
        if said:
            _logger.warning("The program of a session ended with: %s", said)

    def _breach(self, status: Status, sentence: str) -> None:
        """A limit was passed; called by the watchdog's thread."""
        self._cause = (status, sentence)
        self.kill()

    def _look_at_rest(self, sample: ResourceSample) -> None:
        """End the session when what it left running uses too much processor time (row 211); the watchdog's thread."""
        rest = self._rest
        if rest is None:
            return
        exact = self._run.cpu_seconds()
        used = sample.cpu_seconds if exact is None else exact
        if rest.before is None:
            rest.before = used
        elif used - rest.before > rest.most:
            _logger.warning("A session was ended: what its code had left running used much processor time.")
            self._breach(
                Status.TIMEOUT, f"Stopped: what was left running used more than {rest.most:g} s of processor time."
            )

    def _on_exit(self) -> None:
        self._exited = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
