"""Places that are handed out over event loops."""

from __future__ import annotations

import asyncio
import threading

import pytest

from adk_skills_agent.sandbox.threads import Semaphore


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
