"""What all runs share: places to run, worker threads, the time of event loops; and who gets how much of it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import heapq
import inspect
import logging
import os
import sys
import threading
import time
import warnings
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar

from adk_skills_agent.errors import SandboxError, SecurityWarning, SkillsError, TooManyRuns
from adk_skills_agent.platforms import after_fork_in_child

_Result = TypeVar("_Result")
_Thing = TypeVar("_Thing")
_Arguments = ParamSpec("_Arguments")


async def uninterrupted(work: Awaitable[_Result]) -> _Result:
    """Wait for work to its end; a cancellation comes out after it.

    Raises:
        CancelledError: The wait was cancelled; the work has ended nevertheless.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # taken, so that it is not reported as lost
        raise cancelled
    return task.result()


_logger = logging.getLogger("adk_skills_agent.sandbox")


class Step:
    """``with Step("end the run"):`` turns an unforeseen exception into a :class:`SandboxError` that names the step.

    A bug here must not end an agent's run. Errors of this package, cancellations and warnings made errors pass.
    """

    __slots__ = ("_doing", "_passing")

    def __init__(self, doing: str, *passing: type[Exception]) -> None:
        self._doing = doing
        self._passing = (SkillsError, Warning, *passing)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, Exception) or isinstance(error, self._passing):
            return
        _logger.error("The sandbox could not %s.", self._doing, exc_info=error)
        # Only the class: the text may hold a path of the host, and the sentence may reach a model.
        reason = error.strerror if isinstance(error, OSError) and error.strerror else f"an unexpected {kind.__name__}"  # type: ignore[union-attr]
        raise SandboxError(
            f"The sandbox could not {self._doing}: {reason}. The agent's log has the details."
        ) from error


MAX_RUNNING = 64
"""Runs at the same time in one agent process: each holds three descriptors and at least one process."""


MAX_WAITING = (256, 64)
"""Runs of one user that wait, and runs of one session: further ones are refused (attack row 81)."""

Share = tuple[str, ...]
"""Whose a run is, the widest first: its user, then the session. Empty for the owner's own, which nothing bounds."""

WHOSE: contextvars.ContextVar[Share] = contextvars.ContextVar("WHOSE", default=())
"""For whom this task or worker thread works: what it asks the worker threads for counts as theirs."""


def more_for(own: int, free: int, size: int = 1, *, times: int = 3) -> int:
    """How many pieces of a size somebody gets one after the other, of what is free; below 1 for none.

    Whoever has some gets more only while that is at most so many times what is then left for others. So one user alone
    has at most three quarters (with ``times=1`` half), several have less each, and one who has none finds a free piece.
    """
    return (times * (free - size) - own) // ((times + 1) * max(size, 1)) + 1


def of_who_has_most(
    things: Iterable[_Thing],
    user_of: Callable[[_Thing], str],
    held: Counter[str],
    size_of: Callable[[_Thing], int] = lambda _: 1,
) -> Iterator[_Thing]:
    """Things in the order in which they go to make room: the first one of the user who has most, again and again.

    ``held`` says what users have, with what is not among the things, and is counted down as these go.
    """
    left: dict[str, deque[tuple[int, _Thing]]] = {}
    for number, thing in enumerate(things):
        left.setdefault(user_of(thing), deque()).append((number, thing))
    firsts = [(-held[user], own[0][0], user) for user, own in left.items()]  # of equals the first
    heapq.heapify(firsts)  # there may be thousands, and event loops wait meanwhile
    while firsts:
        user = heapq.heappop(firsts)[2]
        _, thing = left[user].popleft()
        held[user] -= size_of(thing)
        if left[user]:
            heapq.heappush(firsts, (-held[user], left[user][0][0], user))
        yield thing


class _Waiter:
    __slots__ = ("granted", "path", "then")

    def __init__(self, path: list[_Holder], then: Callable[[], object]) -> None:
        self.path = path
        self.then = then
        self.granted: bool | None = False  # None when its loop is closed and the place went to somebody else


class _Holder:
    """Somebody who has places or waits for some: everybody, a user, a session of a user."""

    __slots__ = ("held", "key", "line", "parts", "refused", "waiting")

    def __init__(self, key: str) -> None:
        self.key = key
        self.held = 0
        self.waiting = 0  # of all its parts
        self.refused = 0  # since its line became full
        self.line: deque[_Waiter] = deque()
        self.parts: OrderedDict[str, _Holder] = OrderedDict()  # whose turn it is comes first


class Place:
    """A place of a :class:`Semaphore` that somebody has, for a block or for longer."""

    def __init__(self, give_back: Callable[[], None]) -> None:
        self.is_kept = False
        self._give_back = give_back
        self._lock = threading.Lock()

    def keep(self, most_seconds: float) -> None:
        """Have it beyond the block, because what was begun in it goes on: until :meth:`give_back`, and while the event
        loop is there for so many seconds at most.
        """
        self.is_kept = True
        with contextlib.suppress(RuntimeError):  # the loop is gone
            asyncio.get_running_loop().call_later(most_seconds, self.give_back)

    def give_back(self) -> None:
        """Give a place back that was kept. From any thread, and safe to call twice."""
        with self._lock:
            give_back, self._give_back = self._give_back, _nothing
        give_back()


def _nothing() -> None:
    pass


class Semaphore(contextlib.AbstractAsyncContextManager[None]):
    """``async with semaphore:`` waits for one of its places, first come first served, whatever event loop it is in.

    (An asyncio semaphore belongs to a single loop.) ``async with semaphore.turn(share):`` is the same for somebody: all
    who wait get a place in turn, and so do the sessions of each user.

    Args:
        places: How many there are.
        fair: Whether :func:`more_for` bounds what a user has, and the sessions of a user within what the user may have.
        most_waiting: How many may wait for one user, and for one session; None for any number.
        most_in_all: How many may wait together; None for any number.
    """

    def __init__(
        self,
        places: int,
        *,
        fair: bool = False,
        most_waiting: tuple[int, int] | None = None,
        most_in_all: int | None = None,
    ) -> None:
        self._places = places
        self._fair = fair
        self._most_waiting = most_waiting
        self._most_in_all = most_in_all
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._all = _Holder("")

    @property
    def places(self) -> int:
        """How many there are."""
        return self._places

    @property
    def free(self) -> int:
        """Places nobody has."""
        return self._places - self._all.held

    @property
    def wanted(self) -> int:
        """Places somebody has, or waits for; never more than there are."""
        return min(self._places, self._all.held + self._all.waiting)

    @property
    def held(self) -> int:
        """Places somebody has."""
        return self._all.held

    @property
    def waiting(self) -> int:
        """How many wait for a place."""
        return self._all.waiting

    def resize(self, places: int) -> None:
        """Have another number of places; whoever has one that is no longer there keeps it to the end."""
        with self._lock:
            self._places = places
            self._hand_out()

    @contextlib.asynccontextmanager
    async def turn(self, share: Share) -> AsyncIterator[Place]:
        """A place for somebody; their file work while they have it is done in turn, too (see :func:`submit`).

        To enter it raises TooManyRuns when too many wait already for the same user or session.
        """
        await self.take(share)
        place = Place(functools.partial(self.give_back, share))
        try:
            with acting_for(share):
                yield place
        finally:
            if not place.is_kept:
                place.give_back()

    async def __aenter__(self) -> None:
        await self.take(())

    async def __aexit__(self, *error: object) -> None:
        self.give_back(())

    async def take(self, share: Share) -> None:
        """Wait for a place that is given back elsewhere, in a thread perhaps; see :meth:`turn`."""
        with self._lock:
            path = self._path(share)
            if self._took(path):
                return
            try:
                self._check_line(path[1:] if share else [])
            except TooManyRuns:
                self._forget_idle(path)
                raise
            loop = asyncio.get_running_loop()
            future: asyncio.Future[None] = loop.create_future()
            waiter = self._stand_in_line(path, functools.partial(loop.call_soon_threadsafe, _wake, future))
        try:
            await future
        except BaseException:
            with self._lock:
                granted = waiter.granted
                if granted is False:
                    path[-1].line.remove(waiter)
                    for holder in path:
                        holder.waiting -= 1
                    self._forget_idle(path)
            if granted:  # the place was ours already when the wait was cancelled
                self.give_back(share)
            raise

    def ask(self, share: Share, then: Callable[[], object]) -> bool:
        """Whether there is a place at once; if not, ``then`` is called when there is. Needs no event loop.

        ``then`` is called by the thread that gives a place back, and must be short. Nobody is refused.
        """
        with self._lock:
            path = self._path(share)
            if self._took(path):
                return True
            self._stand_in_line(path, then)
            return False

    def give_back(self, share: Share) -> None:
        """Give back a place that :meth:`take` or :meth:`ask` gave; from any thread."""
        with self._lock:
            path = self._path(share)
            for holder in path:
                holder.held -= 1
            self._forget_idle(path)
            self._hand_out()

    def _hand_out(self) -> None:
        """Give the free places to those who wait; the lock is held."""
        while (
            self._all.waiting
            and self._all.held < self._places
            and (waiter := self._next(self._all, self._places)) is not None
        ):
            waiter.granted = True
            for holder in waiter.path:
                holder.waiting -= 1
                holder.held += 1
                holder.refused = 0
            try:
                waiter.then()
            except RuntimeError:  # its loop is closed; nobody waits any more
                waiter.granted = None
                for holder in waiter.path:
                    holder.held -= 1
                self._forget_idle(waiter.path)

    def _path(self, share: Share) -> list[_Holder]:
        """Everybody, the user and the session; made when they are new. Without a share it is a user without a name."""
        path = [self._all]
        for key in share or ("",):
            holder = path[-1].parts.get(key)
            if holder is None:
                holder = path[-1].parts[key] = _Holder(key)
            path.append(holder)
        return path

    def _forget_idle(self, path: list[_Holder]) -> None:
        for place in range(len(path) - 1, 0, -1):
            holder, parts = path[place], path[place - 1].parts
            if not (holder.held or holder.waiting) and parts.get(holder.key) is holder:
                del parts[holder.key]

    def _took(self, path: list[_Holder]) -> bool:
        room = self._places - self._all.held
        if path[1].held:  # else one that is free is theirs
            for holder in path[1:]:
                room = self._room(holder, room)
        if room <= 0:
            return False
        for holder in path:
            holder.held += 1
        return True

    def _stand_in_line(self, path: list[_Holder], then: Callable[[], object]) -> _Waiter:
        waiter = _Waiter(path, then)
        path[-1].line.append(waiter)
        for holder in path:
            holder.waiting += 1
        return waiter

    def _room(self, holder: _Holder, free: int) -> int:
        """How many more of the free places somebody may have now."""
        return more_for(holder.held, free) if free > 0 and self._fair else free

    def _next(self, above: _Holder, free: int) -> _Waiter | None:
        """The next one of those who wait and may have a place; who got one comes last the next time."""
        room = free - above.held if above is self._all else free
        for key, holder in above.parts.items():
            if not holder.waiting:
                continue
            its_room = self._room(holder, room)
            if its_room <= 0:
                continue
            found = holder.line.popleft() if holder.line else self._next(holder, its_room)
            if found is not None:
                above.parts.move_to_end(key)
                return found
        return None

    def _check_line(self, path: list[_Holder]) -> None:
        if self._most_in_all is not None and self._all.waiting >= self._most_in_all:
            raise TooManyRuns(
                f"Too many runs are waiting: {self._all.waiting} in all. Wait until some of them have ended, then try "
                "again."
            )
        for holder, most, whose in zip(path, self._most_waiting or (), ("user", "session"), strict=False):
            if holder.waiting >= most:
                holder.refused += 1
                if holder.refused == 1:  # a client must not fill the log
                    _logger.warning("A run was refused: %d runs of the same %s wait already.", holder.waiting, whose)
                raise TooManyRuns(
                    f"Too many runs are waiting: {holder.waiting} of this {whose} already. Wait until some of them "
                    "have ended, then try again."
                )


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


RUNNING = Semaphore(MAX_RUNNING, fair=True, most_waiting=MAX_WAITING)
after_fork_in_child(RUNNING._reset)  # what the parent runs is not the child's


class OnePerProcess(Generic[_Thing]):
    """Call it to get the one thing of a process, such as a pool of threads; ``make`` makes it at the first use.

    A forked child gets one of its own, because threads do not survive a fork and the parent's locks may have been held;
    ``let_go`` closes in the child what is its parent's.
    """

    def __init__(self, make: Callable[[], _Thing], let_go: Callable[[_Thing], None] | None = None) -> None:
        self._make = make
        self._let_go = let_go
        self._made: list[_Thing] = []
        self._lock = threading.Lock()
        after_fork_in_child(self._forget)

    def __call__(self) -> _Thing:
        """The thing."""
        if not self._made:
            with self._lock:
                if not self._made:
                    self._made.append(self._make())
        return self._made[0]

    @property
    def made(self) -> _Thing | None:
        """The one of this process, if anybody has asked for it."""
        return self._made[0] if self._made else None

    def _forget(self) -> None:
        made, self._made = self._made, []
        self._lock = threading.Lock()
        if self._let_go is not None:
            for thing in made:
                self._let_go(thing)


# A few permanent threads for the file work of runs. Their number is also the bound of runs that are being started at
# the same time. asyncio's own pool is left alone: an agent's other work must not wait behind scripts. Four at least:
# of fewer a user alone would have but one. Eight at most: with each that works in Python, event loops wait longer for
# the interpreter's lock (row 426).
WORKERS = max(4, min(8, 2 * (os.cpu_count() or 1)))


class _Work:
    """What a worker thread is to do, and for whom.

    Without a loop that waits for its answer it is only known to be over.
    """

    __slots__ = ("answer", "loop", "share", "work")

    def __init__(
        self,
        work: Callable[[], object],
        answer: asyncio.Future[Any] | Future[Any],
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        self.work = work
        self.answer = answer
        self.loop = loop
        self.share = WHOSE.get()

    def do(self) -> None:
        if self.answer.cancelled():  # before it was its turn
            return
        result: object = None
        problem: BaseException | None = None
        _served.loop = self.loop
        WHOSE.set(self.share)
        try:
            result = self.work()
        except BaseException as error:  # noqa: BLE001  # raised where it is waited for
            problem = error
            _let_go(error)
        _served.loop = None
        if self.loop is None:
            self.answer.set_result(None)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                self.loop.call_soon_threadsafe(tell, self.answer, result, problem)
        del self, problem  # the error knows this frame, which must not know the error


_MAY_GO_ON = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def _let_go(error: BaseException | None) -> None:
    """Forget the local variables of the functions that raised an error: the error, its future and the frames form a
    cycle, which kept a file of 8 MB each until the garbage collector ran (row 425).
    """
    while error is not None:
        place = error.__traceback__
        while place is not None:
            if not place.tb_frame.f_code.co_flags & _MAY_GO_ON:
                with contextlib.suppress(RuntimeError):  # it is going on in another thread
                    place.tb_frame.clear()
            place = place.tb_next
        error = error.__context__


def tell(answer: asyncio.Future[Any] | Future[Any], result: object, problem: BaseException | None) -> None:
    """Give a thread's answer to whoever waits for it, if somebody still does; in the thread of their event loop."""
    if answer.done():  # cancelled meanwhile
        return
    if problem is None:
        answer.set_result(result)
    else:
        answer.set_exception(problem)


class Workers:
    """Some threads, had in turn as the places of a fair :class:`Semaphore` (row 337).

    One user's runs with thousands of files each leave a thread for everybody else.
    """

    def __init__(self, number: int, prefix: str) -> None:
        self._threads = ThreadPoolExecutor(number, thread_name_prefix=prefix)
        self._places = Semaphore(number, fair=True)
        self._due: deque[_Work] = deque()  # they have a place, and no thread yet

    def begin(self, work: Callable[[], object]) -> None:
        """Call ``work`` when it is the turn of whoever has one here; it tells itself what came of it.

        A RuntimeError when no thread can be started.
        """
        over: Future[None] = Future()
        self.submit(_Work(work, over, None))

    def submit(self, one: _Work) -> None:
        """Have it done when it is its turn; a RuntimeError when no thread can be started."""
        if not self._places.ask(one.share, functools.partial(self._due.append, one)):
            return  # who gives the place back does it
        self._due.append(one)
        try:
            self._threads.submit(self._serve)
        except RuntimeError:
            try:
                self._due.remove(one)
            except ValueError:  # a thread that was there has taken it
                return
            self._places.give_back(one.share)
            self._call_threads(len(self._due))
            raise

    def _serve(self) -> None:
        while self._due:
            try:
                one = self._due.popleft()
            except IndexError:  # another thread was faster
                return
            share = one.share
            one.do()
            del one  # an error that it raised knows this frame, too
            self._places.give_back(share)
            if len(self._due) > 1:
                self._call_threads(len(self._due) - 1)  # this one goes on itself

    def _call_threads(self, number: int) -> None:
        for _ in range(number):
            with contextlib.suppress(RuntimeError):  # at the interpreter's end those that are there do everything
                self._threads.submit(self._serve)


_pool = OnePerProcess(lambda: Workers(WORKERS, "adk-skills-files"))
_served = threading.local()
_later: set[Future[None]] = set()
after_fork_in_child(_later.clear)


def submit(loop: asyncio.AbstractEventLoop, work: Callable[[], _Result]) -> asyncio.Future[_Result]:
    """Run ``work`` in a worker thread; the future belongs to ``loop``. A SandboxError when no thread can be started.

    It counts for whoever has a :meth:`Semaphore.turn` here: users get threads in turn, and so do the sessions of each.
    """
    answer: asyncio.Future[_Result] = loop.create_future()
    try:
        _pool().submit(_Work(work, answer, loop))
    except RuntimeError as error:
        raise SandboxError(f"The sandbox could not start its work: {error}.") from error
    return answer


async def in_worker(
    work: Callable[_Arguments, _Result], /, *args: _Arguments.args, **named: _Arguments.kwargs
) -> _Result:
    """Blocking work in a worker thread; it is not left half done when the wait for it is cancelled.

    It counts for whoever has a turn here, or for whom :func:`acting_for` says it is. The few threads of the event
    loop's own pool are had by whoever comes first, and all tools of all users wait for them (row 375).
    """
    return await uninterrupted(submit(asyncio.get_running_loop(), functools.partial(work, *args, **named)))


async def in_worker_or_here(work: Callable[[], _Result]) -> _Result:
    """The same, and in this thread, whatever that costs, when there is no worker any more."""
    try:
        done = submit(asyncio.get_running_loop(), work)
    except SandboxError:
        return work()
    return await uninterrupted(done)


@contextlib.contextmanager
def acting_for(share: Share) -> Iterator[None]:
    """What is asked of the worker threads in this block, and in tasks that begin there, counts for somebody."""
    before = WHOSE.set(share)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # the loop is gone, and somebody else ends what ran in it
            WHOSE.reset(before)


def later(work: Callable[[], object]) -> None:
    """Call ``work`` soon in a worker thread; nobody waits for it but :func:`finished`.

    It is called here when the interpreter is shutting down, or no thread can be started.
    """
    over: Future[None] = Future()
    over.set_running_or_notify_cancel()  # it is not cancelled
    over.add_done_callback(_later.discard)
    _later.add(over)
    try:
        _pool().submit(_Work(work, over, None))
    except RuntimeError:
        _later.discard(over)
        work()


async def finished(seconds: float) -> None:
    """Wait until all that was left for :func:`later` is done, at most so long."""
    left = [asyncio.wrap_future(future) for future in tuple(_later)]
    if left:
        await asyncio.wait(left, timeout=seconds)


def served_loop() -> asyncio.AbstractEventLoop:
    """The event loop this thread works for: the one that runs in it, or the one a worker thread has its work from."""
    loop: asyncio.AbstractEventLoop | None = getattr(_served, "loop", None)
    return asyncio.get_running_loop() if loop is None else loop


# The time of an event loop, of which those whose scripts make it work have parts.

CALL_SECONDS, _MORE_SECONDS = 0.001, 0.5
_TURN_SECONDS = 5.0  # who did nothing for so long takes no part
_EVENT_SECONDS, _LEAST_REST_SECONDS = 0.0001, 0.01
_FEW_TIMES, _FEW_BYTES = 10, 4096  # a read of fewer bytes counts so many times


class Patience:
    """How long calls for one run may keep the loop's thread: a millisecond each, and half a second more all together.

    Whoever reads from a full pipe, or sends, wakes in the kernel everybody who watches the other end, and a script can
    make a million watches of one (row 294).
    """

    def __init__(self) -> None:
        self._left = _MORE_SECONDS

    def take(self, began: float) -> None:
        """A call is over that began then, by ``time.thread_time()``."""
        self._left = min(self._left + CALL_SECONDS - (time.thread_time() - began), _MORE_SECONDS)

    @property
    def is_over(self) -> bool:
        """Whether calls took longer than that."""
        return self._left < 0


class Turns:
    """Work that scripts make an event loop do takes a part of its time at most, in all runs of this process together.

    Whoever made some rests before the next; users have equal parts. Whoever is alone need not rest.

    Args:
        share: The part.
        ahead: Of what nobody has used, so many seconds are kept for each user.
    """

    def __init__(self, share: float, ahead: float = 0.0) -> None:
        self._share = share
        self._ahead = ahead
        self._when: dict[int, float] = {}
        self._until: dict[str, float] = {}  # of each user: all that was done so far has had its rest
        self._next: dict[str, float] = {}  # of each user: what was done last has had its rest
        self._looked = 0.0

    def rest_of(self, one: object, took: float, user: str = "") -> float:
        """How many seconds nothing is done for it now, after work that took so long."""
        now = time.monotonic()
        self._when[id(one)] = now
        if len(self._when) > 1 and now - self._looked >= _TURN_SECONDS:
            self._looked = now
            self._when = {known: when for known, when in list(self._when.items()) if now - when < _TURN_SECONDS}
            self._until = {name: until for name, until in list(self._until.items()) if until > now - self._ahead}
            self._next = {name: when for name, when in list(self._next.items()) if when > now}
        if len(self._when) == 1:
            return 0.0
        users = sum(until > now for name, until in list(self._until.items()) if name != user) + 1
        own = users * took / self._share
        self._next[user] = now + own
        self._until[user] = until = max(self._until.get(user, 0.0), now - self._ahead) + own
        return max(until - now, 0.0)

    def more_rest(self, user: str) -> float:
        """How many seconds something that has rested still waits, because another one of its user was just read.

        When the loop is late, all that have rested would otherwise be read in a row (row 442).
        """
        return self._next.get(user, 0.0) - time.monotonic()


OUTPUT_TURNS = Turns(0.5)
"""Of output that is long to search for secrets (row 415)."""
_turns = OnePerProcess(lambda: Turns(0.5, ahead=1.0))


class Turn:
    """The turns of one connection from which an event loop reads what a script sends (rows 421 and 424).

    To send a byte costs a script a tenth of what it costs the loop, so that is how much few bytes count more: with
    hundreds of busy processes on the machine, the loop has no more of a processor than each of them.
    """

    def __init__(self, user: str) -> None:
        self.user = user
        self._until = 0.0

    def took(self, seconds: float, size: int) -> float:
        """The loop has read so many bytes, for so long beside what each event takes; for how long it should rest."""
        took = (_EVENT_SECONDS + seconds) * (_FEW_TIMES if size < _FEW_BYTES else 1)
        rest = _turns().rest_of(self, took, self.user)
        self._until = time.monotonic() + rest
        return rest

    async def come(self) -> None:
        """Wait until it may read again, and let others go on in any case: there may always be something to read.

        A short rest is taken with the next one, because a timer is work, too.
        """
        rest = self._until - time.monotonic()
        await asyncio.sleep(rest if rest > _LEAST_REST_SECONDS else 0)


_PACKAGE = str(Path(__file__).resolve().parents[1]) + "/"
_said: set[str] = set()


def warn_insecure_once(sentence: str, *, also_of: str = "") -> None:
    """Warn with a :class:`SecurityWarning`, once per process and sentence, at the nearest caller outside this package.

    How many frames of ours lie between differs from way to way, so they are looked through.

    Args:
        sentence: What is insecure; nothing is said when it has been, or when it is a subject that another one covered.
        also_of: A further subject that need not be warned of any more (S0-97: one warning at the first use).
    """
    if sentence in _said:
        return
    _said.update({sentence, also_of})
    frame = sys._getframe(1)
    level = 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
        level += 1
    warnings.warn(sentence, SecurityWarning, stacklevel=level)
