"""Places that are handed out over event loops, to each user and session in turn (row 81)."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections import Counter

import pytest

from adk_skills_agent.errors import TooManyRuns
from adk_skills_agent.sandbox.threads import MAX_RUNNING, Semaphore, of_who_has_most


async def test_places_are_given_first_come_first_served_and_come_back():
    semaphore = Semaphore(2)
    order: list[int] = []
    inside = most = 0

    async def one(number: int) -> None:
        nonlocal inside, most
        async with semaphore:
            order.append(number)
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(one(n) for n in range(20)))
    assert order == list(range(20))
    assert most == 2
    assert semaphore.free == 2


async def test_a_cancelled_wait_loses_no_place_also_when_it_was_its_turn():
    semaphore = Semaphore(1)
    for steps in range(6):
        holder = semaphore
        await holder.__aenter__()
        waiting = asyncio.create_task(semaphore.__aenter__())
        await asyncio.sleep(0)
        if steps % 2:
            await holder.__aexit__(None, None, None)  # the place is on its way to the waiting task
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        if not steps % 2:
            await holder.__aexit__(None, None, None)
        assert semaphore.free == 1


def test_a_waiter_of_a_closed_loop_does_not_keep_the_place():
    semaphore = Semaphore(1)

    async def hold() -> None:
        async with semaphore:
            loop = asyncio.new_event_loop()
            waiter = loop.create_task(semaphore.__aenter__())
            waiter._log_destroy_pending = False
            thread = threading.Thread(target=loop.run_until_complete, args=(_step(),))
            thread.start()
            thread.join()
            loop.close()

    async def _step() -> None:
        await asyncio.sleep(0.01)

    asyncio.run(hold())
    assert semaphore.free == 1


def test_row_212_a_waiter_of_a_closed_loop_gives_no_place_back_that_it_never_had():
    semaphore = Semaphore(1)
    here, closed = asyncio.new_event_loop(), asyncio.new_event_loop()
    here.run_until_complete(semaphore.__aenter__())
    waiter = closed.create_task(semaphore.turn(("user", "session")).__aenter__())
    waiter._log_destroy_pending = False
    closed.run_until_complete(asyncio.sleep(0))
    closed.close()
    here.run_until_complete(semaphore.__aexit__())
    here.close()
    del waiter
    gc.collect()  # only now the wait is over
    assert (semaphore.held, semaphore.waiting) == (0, 0)


def test_many_loops_share_the_places():
    semaphore = Semaphore(3)
    inside = most = 0
    lock = threading.Lock()

    async def one() -> None:
        nonlocal inside, most
        async with semaphore:
            with lock:
                inside += 1
                most = max(most, inside)
            await asyncio.sleep(0.001)
            with lock:
                inside -= 1

    async def some() -> None:
        await asyncio.gather(*(one() for _ in range(30)))

    threads = [threading.Thread(target=lambda: asyncio.run(some())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most <= 3
    assert semaphore.free == 3


class Holding:
    """Runs that have a place, or wait for one, until they are told to end."""

    def __init__(self, semaphore: Semaphore) -> None:
        self.semaphore = semaphore
        self.having: list[tuple[str, ...]] = []
        self._end = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []

    async def ask(self, *share: str, times: int = 1) -> None:
        self.tasks += [asyncio.create_task(self._hold(share)) for _ in range(times)]
        await asyncio.sleep(0)

    async def _hold(self, share: tuple[str, ...]) -> None:
        async with self.semaphore.turn(share):
            self.having.append(share)
            await self._end.wait()

    async def end(self) -> None:
        self._end.set()
        await asyncio.gather(*self.tasks)

    def held_by(self, *share: str) -> int:
        return sum(one[: len(share)] == share for one in self.having)


def fair() -> Semaphore:
    return Semaphore(MAX_RUNNING, fair=True)


async def test_row_81_whoever_has_no_place_gets_one_at_once_whatever_one_user_does():
    holding = Holding(fair())
    for session in range(100):
        await holding.ask("evil", str(session), times=3)
    assert holding.held_by("evil") == 48  # three quarters
    await holding.ask("good", "a")
    assert holding.held_by("good") == 1
    await holding.ask("good", "a", times=20)
    assert holding.held_by("good", "a") == 9  # three quarters of three quarters of the rest
    assert holding.semaphore.free >= 1
    await holding.end()
    assert (holding.semaphore.free, holding.semaphore.wanted) == (MAX_RUNNING, 0)


async def test_row_81_one_session_leaves_room_for_the_others_of_its_user():
    holding = Holding(fair())
    await holding.ask("user", "long", times=200)
    assert holding.held_by("user", "long") == 36
    for session in ("a", "b", "c"):
        await holding.ask("user", session)
        assert holding.held_by("user", session) == 1
    await holding.end()
    assert len(holding.having) == 203


async def test_row_81_many_hostile_users_together_leave_a_place():
    holding = Holding(fair())
    for _ in range(10):
        for user in range(20):
            await holding.ask(f"evil{user}", "a")
    before = len(holding.having)
    assert before <= MAX_RUNNING - 1
    await holding.ask("good", "a")
    assert holding.held_by("good") == 1
    await holding.end()


async def test_row_81_those_who_wait_get_places_in_turn_and_each_of_them_in_order():
    semaphore = Semaphore(1, fair=True)
    order: list[str] = []

    async def one(name: str, *share: str) -> None:
        async with semaphore.turn(share):
            order.append(name)

    async with semaphore.turn(("first",)):
        tasks = [asyncio.create_task(one(f"evil{n}", "evil", str(n % 2))) for n in range(4)]
        tasks += [asyncio.create_task(one(f"good{n}", "good", "a")) for n in range(2)]
        tasks += [asyncio.create_task(one("owner"))]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert order == ["evil0", "good0", "owner", "evil1", "good1", "evil2", "evil3"]


async def test_row_81_too_many_that_wait_are_refused_for_a_user_for_a_session_and_never_for_the_owner(caplog):
    semaphore = Semaphore(1, fair=True, most_waiting=(5, 3))
    holding = Holding(semaphore)
    await holding.ask("first", "a")
    await holding.ask("user", "a", times=3)
    with pytest.raises(TooManyRuns, match=r"3 of this session already\. Wait until some of them have ended"):
        await semaphore.turn(("user", "a")).__aenter__()
    await holding.ask("user", "b", times=2)
    with pytest.raises(TooManyRuns, match="5 of this user already"):
        await semaphore.turn(("user", "c")).__aenter__()
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    await holding.ask("other", "a", times=3)
    await holding.ask(times=50)
    holding.tasks[1].cancel()  # the first that waits
    with pytest.raises(asyncio.CancelledError):
        await holding.tasks.pop(1)
    await holding.ask("user", "a")
    assert semaphore.wanted == 1
    await holding.end()
    assert len(holding.having) == 59
    assert not semaphore._all.parts


async def test_row_81_whoever_asks_alone_is_never_kept_from_the_last_place():
    for places in (1, 2, 3, 4):
        holding = Holding(Semaphore(places, fair=True))
        for user in range(places):
            await holding.ask(f"user{user}", "a")
        assert len(holding.having) == places
        await holding.end()


async def test_more_places_wake_those_who_wait_and_fewer_take_none_away():
    semaphore = Semaphore(0)
    entered: list[int] = []
    leave = asyncio.Event()

    async def one(number: int) -> None:
        async with semaphore:
            entered.append(number)
            await leave.wait()

    tasks = [asyncio.create_task(one(number)) for number in range(4)]
    await asyncio.sleep(0)
    assert (entered, semaphore.waiting) == ([], 4)
    semaphore.resize(3)
    async with asyncio.timeout(30):
        while len(entered) < 3:
            await asyncio.sleep(0)
    semaphore.resize(1)
    assert (entered, semaphore.held, semaphore.waiting) == ([0, 1, 2], 3, 1)
    leave.set()
    await asyncio.gather(*tasks)
    assert (entered, semaphore.free) == ([0, 1, 2, 3], 1)


async def test_more_than_may_wait_in_all_are_refused():
    semaphore = Semaphore(0, most_in_all=2)
    waiting = [asyncio.create_task(semaphore.turn((f"user{number}",)).__aenter__()) for number in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(TooManyRuns, match="2 in all"):
        async with semaphore.turn(("another",)):
            pass
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert semaphore.waiting == 0


async def test_row_433_a_place_that_is_kept_is_given_back_once_or_when_its_time_is_over() -> None:
    semaphore = Semaphore(2)
    async with semaphore.turn(("ann",)) as place:
        place.keep(60.0)
    assert semaphore.held == 1
    place.give_back()
    place.give_back()
    assert semaphore.held == 0
    async with semaphore.turn(("ann",)) as place:
        place.keep(0.01)
    assert semaphore.held == 1
    while semaphore.held:
        await asyncio.sleep(0.01)
    place.give_back()
    assert semaphore.held == 0


def test_of_thousands_of_things_those_of_who_has_most_go_first_and_nobody_waits_long() -> None:
    """Seen: 3.6 s for 5,000 things, with a lock held that event loops wait for."""
    held = Counter({"ann": 5, "bob": 7, "eve": 7})
    things = [("ann", 1), ("eve", 2), ("bob", 3), ("eve", 1), ("bob", 1)]
    order = list(of_who_has_most(things, lambda thing: thing[0], held, lambda thing: thing[1]))
    assert order == [("eve", 2), ("bob", 3), ("ann", 1), ("eve", 1), ("bob", 1)]
    assert held == {"ann": 4, "bob": 3, "eve": 4}
    many = [(f"user-{number % 20}", number) for number in range(5_000)]
    began = time.thread_time()
    assert len(list(of_who_has_most(many, lambda thing: thing[0], Counter(user for user, _ in many)))) == 5_000
    assert time.thread_time() - began < 1
