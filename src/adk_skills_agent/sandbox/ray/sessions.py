"""Python sessions in workers of a cluster: each stays in the worker it began in.

The program of a session runs in the local sandbox of its worker's node; what is sent to it and what it says are calls.
A session whose worker is lost is over: its state is gone, its next code begins in a new one and says so.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from adk_skills_agent.errors import SandboxError, SandboxUnavailable
from adk_skills_agent.sandbox.contract import IsolationReport, SandboxPolicy
from adk_skills_agent.sandbox.output import PathMapping
from adk_skills_agent.sandbox.policy import check_policy
from adk_skills_agent.sandbox.ray.cluster import sentence_of
from adk_skills_agent.sandbox.ray.pool import Worker, WorkerPool
from adk_skills_agent.sandbox.ray.sandbox import check_level, result_of, sent_policy
from adk_skills_agent.sandbox.ray.wire import pack
from adk_skills_agent.sandbox.supervisor.channel import SandboxEnd
from adk_skills_agent.sandbox.threads import WHOSE

_CLOSE_SECONDS = 20.0


class RaySessions:
    """Starts sessions in the workers of a pool; see ``SessionHost``."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool

    async def start(self, policy: SandboxPolicy) -> RayChannel:
        """Start the program in the worker with the least to do; see ``SessionHost``."""
        policy = check_policy(policy)
        check_level(policy)
        await self._pool.ready()
        # A place while it starts, and none for as long as it lasts: sessions must not keep scripts waiting.
        share = WHOSE.get()
        async with self._pool.turns.turn(share):
            worker = self._pool.take()
            worker.sessions += 1
            number = self._pool.begin(worker, "close_session")
            try:
                head, secrets = pack((sent_policy(policy), share))
                opened = await result_of(worker.actor.open_session.remote(number, head, *secrets))
                if isinstance(opened, Exception):
                    raise opened
            except BaseException as error:
                worker.sessions -= 1
                self._pool.finished(number)
                with contextlib.suppress(Exception):
                    worker.actor.close_session.remote(number)
                if isinstance(error, self._pool.ray.exceptions.RayError):
                    self._pool.lose(worker, f"is gone ({sentence_of(error)})")
                    raise SandboxUnavailable(
                        "The machine for the session was lost before it had begun. Try again.", (sentence_of(error),)
                    ) from error
                raise
            finally:
                self._pool.give_back(worker)
        return RayChannel(self._pool, worker, number, *opened)


class RayChannel:
    """A session in a worker; see :class:`~adk_skills_agent.sandbox.sessions.session.SessionChannel`."""

    def __init__(
        self, pool: WorkerPool, worker: Worker, number: int, isolation: IsolationReport, view: PathMapping | None
    ) -> None:
        self.isolation = isolation
        self.view = view
        self._pool = pool
        self._worker = worker
        self._number = number
        self._next: asyncio.Future[bytes] | None = None
        self._ended = False
        self._end: asyncio.Future[SandboxEnd] | None = None

    @property
    def is_open(self) -> bool:
        """Whether nobody has said yet that it is over."""
        over = self._ended or self._worker.lost or self._end is not None
        return not over and not (self._next is not None and self._next.done() and self._said_end(self._next))

    async def keeps_limits(self, cpu_seconds: float | None) -> bool:
        """Whether it does, as its worker says."""
        try:
            return bool(await self._ask("keeps_limits", cpu_seconds))
        except SandboxError:
            return False

    async def send(self, data: bytes) -> None:
        """Pass bytes to the program; without effect when its worker is gone, which ``receive`` tells."""
        with contextlib.suppress(SandboxError):
            await self._ask("send", data)

    async def receive(self) -> bytes:
        """The next bytes of the program; none at its end, or when its worker is gone."""
        if self._ended:
            return b""
        if self._next is None:
            self._next = self._receiving()
        data = b""
        with contextlib.suppress(SandboxError):
            data = await asyncio.shield(self._next)
        if data:
            self._next = self._receiving()  # asked ahead: so it is known of an idle one when it ends
        else:
            self._ended = True
        return data

    def kill(self) -> None:
        """End it at once, from any thread."""
        with contextlib.suppress(Exception):
            self._worker.actor.kill_session.remote(self._number)

    async def close(self) -> SandboxEnd:
        """End it; nothing of it is left in its worker."""
        if self._end is None:
            self._end = asyncio.ensure_future(self._close())
        return await asyncio.shield(self._end)

    async def _close(self) -> SandboxEnd:
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                end: SandboxEnd = await self._ask("close_session")
        except TimeoutError:
            self._pool.lose(self._worker, "did not end a session")
            end = SandboxEnd(notes=("The machine of the session did not answer, and was given up.",))
        except SandboxError as error:
            end = SandboxEnd(notes=(error.message,))
        finally:
            self._pool.finished(self._number)
            self._worker.sessions -= 1
        if self._next is not None:
            if not self._next.done():
                self._next.cancel()
            elif not self._next.cancelled():
                self._next.exception()  # taken, so that it is not reported as lost
        return end

    def _receiving(self) -> asyncio.Future[bytes]:
        return asyncio.ensure_future(self._ask("receive"))

    async def _ask(self, method: str, *arguments: Any) -> Any:
        """Call the worker; a SandboxError when it is gone."""
        if self._worker.lost:
            raise SandboxError("The machine of the session was lost, and the session with it.")
        try:
            return await result_of(getattr(self._worker.actor, method).remote(self._number, *arguments))
        except self._pool.ray.exceptions.RayTaskError as error:
            raise SandboxError(f"The worker of the session failed: {type(error.cause).__name__}.") from error
        except self._pool.ray.exceptions.RayError as error:
            self._pool.lose(self._worker, f"is gone ({sentence_of(error)})")
            raise SandboxError("The machine of the session was lost, and the session with it.") from error

    @staticmethod
    def _said_end(answer: asyncio.Future[bytes]) -> bool:
        return answer.cancelled() or answer.exception() is not None or not answer.result()
