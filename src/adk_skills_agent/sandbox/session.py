"""A Python session: variables, imports and files that last from one execution to the next, in one box (SANDBOX.md 4.4).

Whatever can start the program of :mod:`.box_program` somewhere and pass bytes to it can host sessions: it is a
:class:`~.session_channel.SessionHost`. :class:`PythonSession` is one such box and what is known about its health; which
session a call gets, and for how long one is kept, is :class:`~.sessions.Sessions`' business.

Nothing is ever run twice: when a box is lost, so is what was in it, and the next execution begins anew and says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from dataclasses import replace
from enum import StrEnum

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox import frames
from adk_skills_agent.sandbox.contract import ExecutionResult, SandboxPolicy
from adk_skills_agent.sandbox.secrets import Secret
from adk_skills_agent.sandbox.session_channel import BoxEnd, Channel, SessionHost
from adk_skills_agent.sandbox.session_exchange import Exchange
from adk_skills_agent.sandbox.session_request import SessionRequest, request_frames
from adk_skills_agent.sandbox.uninterrupted import uninterrupted

_READY_SECONDS = 20.0
_PING_SECONDS = 2.0
_LATE_SECONDS = 5.0
"""After the deadline and its grace: how long the box may take to say that it has ended what ran. It may itself wait two
seconds for the code to begin, and two for the traceback of code that has ended."""
_CANCEL_SECONDS = 1.0


class SessionState(StrEnum):
    """What a session is doing; ``unhealthy`` and everything after it is final."""

    NEW = "new"
    STARTING = "starting"
    READY = "ready"
    BUSY = "busy"
    INTERRUPTING = "interrupting"
    UNHEALTHY = "unhealthy"
    CLOSING = "closing"
    CLOSED = "closed"


class PythonSession:
    """One box and the Python state in it. For one event loop, and one execution at a time.

    Args:
        session_id: Whose it is; for results.
        host: Starts its box.

    Attributes:
        state: See :class:`SessionState`.
        lost: Why its state is gone, as a clause; None while it is there.
        executions: How many have begun.
        used: ``time.monotonic()`` when the last one ended.
        born: ``time.monotonic()`` when the box was ready.
    """

    def __init__(self, session_id: str, host: SessionHost) -> None:
        self.session_id = session_id
        self.state = SessionState.NEW
        self.lost: str | None = None
        self.executions = 0
        self.used = self.born = time.monotonic()
        self._host = host
        self._channel: Channel | None = None
        self._reader = frames.FrameReader()
        self._frames: deque[frames.Frame] = deque()
        self._late = ""
        self._secrets: dict[Secret, str] = {}
        self._killed: str | None = None

    async def start(self, policy: SandboxPolicy) -> None:
        """Start the box and wait until its program answers.

        Raises:
            SandboxUnavailable: The policy cannot be met.
            SandboxError: The box did not start, or its program speaks another protocol.
        """
        self.state = SessionState.STARTING
        try:
            self._channel = channel = await self._host.start(policy)
            if self._killed is not None:
                channel.kill()
            late = False

            def give_up() -> None:
                nonlocal late
                late = True
                channel.kill()

            limit = asyncio.get_running_loop().call_later(_READY_SECONDS, give_up)
            try:
                await channel.send(frames.encode({"t": "hello", "proto": frames.PROTOCOL}))
                first = await self._next()
            finally:
                limit.cancel()
            if first is None and self._killed is not None:
                raise SandboxError(f"The session was ended before it was ready: {self._killed}.")
            if first is None and late:
                raise SandboxError(
                    f"The program of the session did not answer within {_READY_SECONDS:g} s: the machine is overloaded."
                )
            _check_ready(first)
        except BaseException as error:
            with contextlib.suppress(SandboxError):
                await self.close()
            if isinstance(error, frames.FrameError):
                raise SandboxError(f"The program in the box does not speak our protocol: {error}") from error
            raise
        self.state = SessionState.READY
        self.used = self.born = time.monotonic()

    async def execute(self, request: SessionRequest) -> ExecutionResult:
        """Run code in the session.

        A result with ``session_reset`` in it is the keeper's to make; here a lost state is in ``notes`` and ``lost``.

        Raises:
            SandboxError: The session is busy or not usable, or the box broke the protocol.
            ValueError: The request cannot be expressed.
            CancelledError: The code was interrupted, and killed when it did not heed that.
        """
        if self.state is not SessionState.READY or self._channel is None:
            raise SandboxError(f"The session cannot run code now: it is {self.state.value}.")
        channel, policy = self._channel, request.policy
        self.executions += 1
        redact = self._secrets_until(request)
        if redact != request.redact:
            request = replace(request, redact=redact)
        sent = request_frames(self.executions, request)
        exchange = Exchange(self.executions, request, channel.view, self._late)
        self._late = ""
        self.state = SessionState.BUSY
        limit: asyncio.TimerHandle | None = None
        try:
            for data in sent:
                await channel.send(data)
            exchange.is_sent = True
            if policy.wall_seconds is not None:
                seconds = policy.wall_seconds + policy.term_grace_seconds + _LATE_SECONDS
                limit = asyncio.get_running_loop().call_later(seconds, self._overdue, exchange)
            await self._listen(exchange)
        except BaseException as error:
            exchange.discard()
            if isinstance(error, asyncio.CancelledError):
                await uninterrupted(self._give_up(exchange))
            else:
                await uninterrupted(self._break("it failed"))
            if isinstance(error, frames.FrameError):
                raise SandboxError(f"The session broke its protocol and was ended: {error}") from error
            raise
        finally:
            if limit is not None:
                limit.cancel()
        self.used = time.monotonic()
        end = BoxEnd()
        if exchange.lost is not None:
            end = await uninterrupted(self._break(exchange.lost))
        else:
            self.state = SessionState.READY
        if exchange.failure is not None:
            exchange.discard()
            raise exchange.failure
        return exchange.result(channel.isolation, end, self.session_id)

    async def interrupt(self) -> None:
        """SIGINT to what runs; its state stays when it heeds that. No effect when nothing runs."""
        if self.state is SessionState.BUSY and self._channel is not None:
            self.state = SessionState.INTERRUPTING
            await self._channel.send(frames.encode({"t": "interrupt", "id": self.executions}))

    async def is_alive(self) -> bool:
        """Ask the box for an answer, and wait two seconds for it; a session that gives none is unhealthy."""
        if self.state is not SessionState.READY or self._channel is None:
            return False
        if not self._channel.is_open:
            await self._break("its sandbox ended while it was idle")
            return False
        channel = self._channel
        limit = asyncio.get_running_loop().call_later(_PING_SECONDS, channel.kill)
        try:
            await channel.send(frames.encode({"t": "ping", "n": self.executions}))
            while (frame := await self._next()) is not None and frame["t"] != "pong":
                self._keep_late(frame)
        except frames.FrameError:
            frame = None
        finally:
            limit.cancel()
        if frame is None:
            await self._break("its sandbox did not answer any more")
        return frame is not None

    @property
    def is_usable(self) -> bool:
        """Whether it could run code now, as far as can be told without asking the box."""
        return self.state is SessionState.READY and self._channel is not None and self._channel.is_open

    async def close(self) -> None:
        """End the box and everything in it; leaves nothing behind. Safe to call twice."""
        if self.state is SessionState.CLOSED:
            return
        self.state = SessionState.CLOSING
        try:
            await self._close_channel()
        finally:
            self.state = SessionState.CLOSED

    def kill(self, why: str) -> None:
        """End the box at once, from any thread; what is left is for :meth:`close`.

        Args:
            why: For the results of what runs in it, as a clause.
        """
        self._killed = why
        if self._channel is not None:
            self._channel.kill()

    # ----

    def _secrets_until(self, request: SessionRequest) -> tuple[tuple[str, Secret], ...]:
        """This execution's and those of earlier ones, which code may have kept."""
        for name, value in (*request.env.items(), *request.redact):
            if isinstance(value, Secret):
                self._secrets.setdefault(value, name)
        return tuple((name, secret) for secret, name in self._secrets.items())

    async def _listen(self, exchange: Exchange) -> None:
        while not exchange.is_over:
            frame = await self._next()
            if frame is None:
                exchange.lose(self._killed or "its sandbox ended")
                return
            if frame["t"] == "out" and frame.get("late"):
                exchange.add_late(frame)
            else:
                exchange.take(frame)
            if exchange.failure is not None or exchange.is_too_much:
                exchange.lose("it was ended")
                return

    async def _next(self) -> frames.Frame | None:
        while not self._frames:
            assert self._channel is not None  # noqa: S101  # only called with a box
            data = await self._channel.receive()
            if not data:
                return None
            self._frames.extend(self._reader.feed(data))
        return self._frames.popleft()

    def _keep_late(self, frame: frames.Frame) -> None:
        if frame["t"] == "out":
            self._late = (self._late + frames.content(frame).decode("utf-8", "replace"))[-4000:]

    def _overdue(self, exchange: Exchange) -> None:
        """The box should have ended it long ago: it hangs, or was stopped by what runs in it."""
        exchange.is_overdue = True
        if self._channel is not None:
            self._channel.kill()

    async def _give_up(self, exchange: Exchange) -> None:
        """The caller was cancelled: what runs is interrupted; when it goes on, so does nothing."""
        channel = self._channel
        if channel is None:
            return
        limit = asyncio.get_running_loop().call_later(_CANCEL_SECONDS, channel.kill)
        try:
            if exchange.is_sent:
                await self.interrupt()
                await self._listen(exchange)
            else:
                exchange.lose("it got half of the code")
        except (frames.FrameError, SandboxError):
            exchange.lose("it failed")
        finally:
            limit.cancel()
        if exchange.lost is not None:
            await self._break("what ran in it was cancelled and did not stop")
        else:
            self.state = SessionState.READY
            self.used = time.monotonic()

    async def _break(self, why: str) -> BoxEnd:
        """The state is gone; so is the box, now."""
        self.lost = self.lost or why
        self.state = SessionState.UNHEALTHY
        return await self._close_channel()

    async def _close_channel(self) -> BoxEnd:
        channel = self._channel
        if channel is None:
            return BoxEnd()
        channel.kill()
        return await channel.close()


def _check_ready(frame: frames.Frame | None) -> None:
    """Raises SandboxError or FrameError unless the program in the box is ours."""
    if frame is None:
        raise SandboxError(
            "The program of the session ended before it was ready: its sandbox was ended, or its Python is older than "
            "3.8."
        )
    if frame["t"] == "failed":
        raise SandboxError(f"The program in the box refused to work: {frames.text(frame, 'reason')}")
    if frame["t"] != "ready" or frames.number(frame, "proto") != frames.PROTOCOL:
        raise SandboxError(
            f"The program in the box speaks protocol {frame.get('proto')!r}, this agent {frames.PROTOCOL}: it comes "
            "from another version of adk-skills-agent."
        )
