"""Which session a call gets, and for how long one is kept: one Python state for each id, bounded in every way.

A session ends when it was not used for a while, is old, has run very much, or its place is needed; when code breaks it;
and when the owner resets it. Whatever the reason, the next execution under its id begins in a new one and says so in
``session_reset`` and in a sentence: nothing is ever run again (S0-112, S0-113).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field, replace

from adk_skills_agent.errors import ConfigError, SandboxError, TooManyRuns
from adk_skills_agent.sandbox.contract import ExecutionResult, SandboxPolicy
from adk_skills_agent.sandbox.policy import check_policy
from adk_skills_agent.sandbox.sessions.session import PythonSession, SessionHost, SessionRequest, SessionState
from adk_skills_agent.sandbox.threads import MAX_WAITING, Semaphore, of_who_has_most, uninterrupted

_FIRST_PAUSE_SECONDS = 0.1
_MOST_DOUBLINGS = 4
_LONG_IDLE_SECONDS = 5.0  # then a sandbox is asked whether it is there before it gets code
_MOST_REMEMBERED = 10_000  # ids without a session of which the next one is to be told why
_LEAST_LOOK_SECONDS, _MOST_LOOK_SECONDS = 0.05, 30.0

_logger = logging.getLogger("adk_skills_agent.sandbox")


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """How long sessions are kept, and how many.

    Attributes:
        idle_seconds: Without an execution.
        age_seconds: Since its start.
        executions: In one session.
        sessions: At the same time; for one more, of the user with the most, the one not used for longest ends, or the
            code waits, while all others have fewer than its user. Code of one user runs in at most three quarters of
            them at the same time, of all users together in all (attack rows 81, 131 and 445).
        restarts: New starts of one session after it broke, within ``restart_seconds``; then it is refused for a while.
        restart_seconds: See there.

    Raises:
        ConfigError: A limit with which no session could ever run, or end.
    """

    idle_seconds: float = 900.0
    age_seconds: float = 3600.0
    executions: int = 1000
    sessions: int = 32
    restarts: int = 3
    restart_seconds: float = 60.0

    def __post_init__(self) -> None:
        for name in ("idle_seconds", "age_seconds", "executions", "sessions", "restarts", "restart_seconds"):
            value = getattr(self, name)
            least = 0 if name == "restarts" else 1 if name in {"executions", "sessions"} else None
            fits = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not fits or not (value > 0 if least is None else value >= least):
                wanted = "greater than 0" if least is None else f"{least} or greater"
                raise ConfigError(f"SessionLimits: {name}={value!r} must be a number that is {wanted}.")


@dataclass(frozen=True, slots=True)
class SessionHealth:
    """What the owner can see of one session.

    Attributes:
        state: See :class:`~.session.SessionState`; ``new`` when there is none now.
        idle_seconds: Since the last execution; 0 while one runs.
        lost: Why there is none any more.
        restarts: How often it was started again after it broke, lately.
    """

    session_id: str
    state: SessionState
    executions: int
    idle_seconds: float
    lost: str | None
    restarts: int


@dataclass(slots=True)
class _Place:
    """An id: its session, if there is one, and what was before."""

    user: str = ""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    wanted: int = 0
    runs: bool = False
    session: PythonSession | None = None
    policy: SandboxPolicy | None = None
    lost: str | None = None
    breaks: deque[float] = field(default_factory=deque)
    must_wait: bool = False


class Sessions:
    """Keeps sessions of one host by id. Belongs to the event loop it is first used in."""

    def __init__(self, host: SessionHost, limits: SessionLimits | None = None) -> None:
        self._host = host
        self._limits = SessionLimits() if limits is None else limits
        self._forget()

    def _forget(self) -> None:
        self._owner = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._places: OrderedDict[str, _Place] = OrderedDict()
        self._turns = Semaphore(self._limits.sessions, fair=True, most_waiting=MAX_WAITING)
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None
        self._freed = asyncio.Event()
        self._promised: Counter[str] = Counter()  # places of sessions that are being ended for a user

    async def execute(self, session_id: str, request: SessionRequest) -> ExecutionResult:
        """Run code in the session of that id, which is started when there is none. Calls of one id take turns.

        Raises:
            SandboxUnavailable: The policy cannot be met.
            TooManyRuns: Too much code of the same user or session waits already.
            SandboxError: The sandbox could not be started, broke the protocol, or broke too often lately.
            ConfigError: The policy has impossible values.
            ValueError: The request cannot be expressed.
            CancelledError: The code was stopped.
        """
        policy = check_policy(request.policy)
        self._belong_here()
        place = self._places.get(session_id)
        if place is None:
            place = self._places[session_id] = _Place(request.share[0] if request.share else "")
        self._places.move_to_end(session_id)
        if request.share and place.wanted > MAX_WAITING[1]:
            raise TooManyRuns(
                f"Too many runs are waiting: {place.wanted - 1} of this session already. Wait until some of them have "
                "ended, then try again."
            )
        place.wanted += 1
        try:
            # One's own turn first: who waits for another execution of the same session needs no place meanwhile.
            among_all = self._turns.turn(request.share) if request.share else contextlib.nullcontext()
            async with place.turn, among_all:
                place.runs = True
                try:
                    lost, result = await self._execute(session_id, place, policy, request)
                finally:
                    place.runs = False
        finally:
            place.wanted -= 1
            self._freed.set()
        if lost is None:
            return result
        sentence = f"This code ran in a new session: variables, imports and files of the one before are lost ({lost})."
        return replace(result, session_reset=True, notes=(sentence, *result.notes))

    async def _execute(
        self, session_id: str, place: _Place, policy: SandboxPolicy, request: SessionRequest
    ) -> tuple[str | None, ExecutionResult]:
        lost = await self._make_ready(session_id, place, policy)
        session = place.session
        assert session is not None  # noqa: S101  # just made ready
        try:
            return lost, await session.execute(request)
        finally:
            if session.lost is not None:
                self._broke(place, session.lost)

    async def reset_state(self, session_id: str | None = None) -> None:
        """End a session now, with what runs in it; the next execution begins anew (S0-114)."""
        self._belong_here()
        chosen = list(self._places) if session_id is None else [session_id]
        for name in chosen:
            place = self._places.get(name)
            if place is None or (place.session is None and place.lost is None):
                continue
            if place.session is not None:
                place.session.kill("it was reset")  # what runs in it ends, and gives up its turn
            await self._end(place, "it was reset")
            place.lost = "it was reset"

    def health(self) -> tuple[SessionHealth, ...]:
        """Every id there is or was lately, the one used last comes last."""
        now = time.monotonic()
        return tuple(
            SessionHealth(
                name,
                SessionState.NEW if place.session is None else place.session.state,
                0 if place.session is None else place.session.executions,
                0.0 if place.session is None or place.turn.locked() else now - place.session.used,
                place.lost,
                len(place.breaks),
            )
            for name, place in self._places.items()
        )

    async def close(self) -> None:
        """End all sessions; new ones may be started afterwards."""
        if self._owner != os.getpid():
            return
        places = list(self._places.values())
        self._stop_timer()
        for place in places:
            if place.session is not None:
                place.session.kill("the sessions were closed")
        # Together: each may wait for an engine that does not answer.
        ended = await asyncio.gather(
            *(self._end(place, "the sessions were closed") for place in places), return_exceptions=True
        )
        self._stop_timer()
        for problem in ended:
            if problem is not None:
                raise problem

    async def _end(self, place: _Place, why: str) -> None:
        async with place.turn:
            await self._drop(place, why)
            place.must_wait = False
            place.breaks.clear()  # the code did not break it

    # ---- the way to a session that can run code

    async def _make_ready(self, session_id: str, place: _Place, policy: SandboxPolicy) -> str | None:
        """Why what was there before is lost, when it is."""
        session, wanted = place.session, sandbox_policy(policy)
        if session is not None:
            why = self._why_over(session)
            if why is None and place.policy != wanted:
                why = "the limits of its sandbox were changed"
            if why is not None:
                await self._drop(place, why)
            elif not session.is_usable or (
                time.monotonic() - session.used > _LONG_IDLE_SECONDS and not await session.is_alive()
            ):
                self._broke(place, session.lost or "its sandbox ended while it was idle")
                await session.close()
        if place.session is not None:
            return None
        await self._wait_after_breaks(place)
        await self._make_room(place.user)
        place.session = session = PythonSession(session_id, self._host)
        place.policy = wanted
        try:
            await session.start(wanted)
        except BaseException:
            place.session = None
            if place.lost is not None:  # it was to be started again; that counts
                place.breaks.append(time.monotonic())
            raise
        self._start_timer()
        lost, place.lost = place.lost, None
        return lost

    def _why_over(self, session: PythonSession) -> str | None:
        limits, now = self._limits, time.monotonic()
        if session.state is not SessionState.READY:
            return None
        if now - session.used > limits.idle_seconds:
            return f"it was not used for {limits.idle_seconds:,g} s"
        if now - session.born > limits.age_seconds:
            return f"it was older than {limits.age_seconds:,g} s"
        if session.executions >= limits.executions:
            return f"it had run {limits.executions:,} executions"
        return None

    def _broke(self, place: _Place, why: str) -> None:
        place.session, place.lost = None, why
        place.breaks.append(time.monotonic())
        place.must_wait = True

    async def _wait_after_breaks(self, place: _Place) -> None:
        limits, now = self._limits, time.monotonic()
        while place.breaks and now - place.breaks[0] > limits.restart_seconds:
            place.breaks.popleft()
        if len(place.breaks) > limits.restarts:
            seconds = limits.restart_seconds - (now - place.breaks[0])
            raise SandboxError(
                f"This session broke {len(place.breaks)} times within {limits.restart_seconds:g} s (the last time: "
                f"{place.lost}). It can be started again in {seconds:.0f} s; change the code before that."
            )
        if place.must_wait and len(place.breaks) > 1:
            doubled = min(len(place.breaks) - 2, _MOST_DOUBLINGS)
            await asyncio.sleep(_FIRST_PAUSE_SECONDS * 2**doubled)
        place.must_wait = False

    async def _make_room(self, user: str) -> None:
        """Wait until a user may start one more session; an idle one may end for it.

        Of the user with the most sessions, or one user could end those of all others (row 131); and only of one who has
        as many as the user who asks, whose own code may be running in all of them (row 445).
        """
        while True:
            self._freed.clear()
            running = [place for place in self._places.values() if place.session is not None]
            if len(running) + self._promised.total() < self._limits.sessions:
                return
            of_user = Counter(place.user for place in running) + self._promised
            equal = [place for place in running if place.user == user or of_user[place.user] >= of_user[user]]
            idle = [place for place in equal if not place.wanted]
            # Without an idle one: its code has no turn before others have ended theirs, and has not looked at it yet.
            waiting = (place for place in equal if not place.runs)
            chosen = next(of_who_has_most(idle, lambda place: place.user, of_user), None) or next(waiting, None)
            if chosen is None:
                await self._freed.wait()
                continue
            promised = self._promised  # not that of a loop or a process that begins anew meanwhile
            promised[user] += 1  # or somebody else who waits would have the place, and one more would end
            try:
                async with chosen.turn if not chosen.wanted else contextlib.nullcontext():
                    await self._drop(chosen, "its place was needed for another session")
            finally:
                promised[user] -= 1

    async def _drop(self, place: _Place, why: str) -> None:
        session, place.session = place.session, None
        if session is None:
            return
        place.lost = why
        try:
            await uninterrupted(session.close())
        except SandboxError as error:
            _logger.warning("A session could not be ended properly: %s", error.message)
        finally:
            self._freed.set()

    # ---- time

    def _start_timer(self) -> None:
        if self._timer is None:
            limits = self._limits
            shortest = min(limits.idle_seconds, limits.age_seconds) / 4
            seconds = min(max(shortest, _LEAST_LOOK_SECONDS), _MOST_LOOK_SECONDS)
            self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        self._looking = asyncio.get_running_loop().create_task(self._end_what_is_over())

    async def _end_what_is_over(self) -> None:
        for place in list(self._places.values()):
            if place.session is not None and not place.wanted and (why := self._why_over(place.session)) is not None:
                async with place.turn:
                    if place.session is not None and self._why_over(place.session) is not None:
                        await self._drop(place, why)
        for name in [name for name, place in self._places.items() if place.session is None and not place.wanted]:
            if len(self._places) <= _MOST_REMEMBERED:
                break
            del self._places[name]
        if any(place.session is not None for place in self._places.values()):
            self._start_timer()

    # ---- where it belongs

    def _belong_here(self) -> None:
        """Begin anew in a forked child, and after the loop was closed; the next code is told."""
        loop = asyncio.get_running_loop()
        if self._owner != os.getpid():
            self._begin_anew("it belongs to the process this one was forked from")
        elif self._loop is not None and self._loop is not loop:
            if not self._loop.is_closed():
                raise SandboxError(
                    "These sessions belong to another event loop, which is still open. Use them from that loop, or "
                    "make Sessions of your own for this one."
                )
            self._begin_anew("the event loop it lived in was closed")  # the watch over loops ends the sandboxes
        self._loop = loop

    def _begin_anew(self, why: str) -> None:
        lost = {name: place.user for name, place in self._places.items() if place.session is not None or place.lost}
        self._forget()
        for name, user in lost.items():
            self._places[name] = _Place(user, lost=why)


def sandbox_policy(policy: SandboxPolicy) -> SandboxPolicy:
    """What of a policy holds for a session's sandbox as a whole, the rest at its default.

    Two executions whose policies differ cannot share a sandbox.
    """
    own = SandboxPolicy()
    return replace(policy, **{name: getattr(own, name) for name in _OF_ONE_EXECUTION})


_OF_ONE_EXECUTION = (
    "wall_seconds",
    "term_grace_seconds",
    "drain_seconds",
    "cpu_seconds",
    "output_bytes",
    "output_flood_bytes",
    "max_files",
    "max_file_bytes",
    "max_total_file_bytes",
    "warm_slots",
)
