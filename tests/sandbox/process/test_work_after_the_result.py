"""What is left to a worker thread, so that a result need not wait for it."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import NoReturn

import pytest

from adk_skills_agent.sandbox import threads

SECONDS = 20.0


async def test_whoever_asks_for_the_end_of_late_work_gets_it_and_an_error_stops_nothing():
    done: list[int] = []

    def fail() -> None:
        raise OSError("gone")

    for number in range(50):
        threads.later(lambda number=number: (time.sleep(0.001), done.append(number)))
        threads.later(fail)
    await threads.finished(SECONDS)
    assert sorted(done) == list(range(50))
    await threads.finished(SECONDS)  # nothing is left


async def test_nobody_waits_for_late_work_longer_than_he_wants_to():
    stuck = threading.Event()
    threads.later(lambda: stuck.wait(SECONDS))
    began = time.monotonic()
    await threads.finished(0.05)
    assert time.monotonic() - began < SECONDS / 2
    stuck.set()
    await threads.finished(SECONDS)


def test_late_work_is_done_although_its_loop_was_closed_before_it_began():
    began = threading.Event()
    loop = asyncio.new_event_loop()
    loop.call_soon(lambda: (loop.stop(), threads.later(began.set)))
    loop.run_forever()
    loop.close()
    assert began.wait(SECONDS)


def test_late_work_is_done_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch):
    def pool() -> NoReturn:
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr(threads, "_pool", pool)
    done: list[int] = []
    threads.later(lambda: done.append(1))
    assert done == [1]


def test_a_forked_child_waits_for_no_work_of_its_parents():
    stuck = threading.Event()
    threads.later(lambda: stuck.wait(SECONDS))
    child = os.fork()
    if child == 0:
        began = time.monotonic()
        asyncio.run(threads.finished(SECONDS))
        os._exit(0 if time.monotonic() - began < SECONDS / 2 else 1)
    status = os.waitpid(child, 0)[1]
    stuck.set()
    assert status == 0
