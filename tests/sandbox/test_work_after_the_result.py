"""What is left to others, or to later, so that a result need not wait for it."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from adk_skills_agent.sandbox.local import at_once
from adk_skills_agent.sandbox.local.at_once import QuickLooks
from adk_skills_agent.sandbox.local.late_close import do_late, wait_for_late, when_idle


async def test_late_work_begins_only_when_the_task_waits_for_something():
    began = threading.Event()
    wait_for_late(5)
    do_late(began.set)
    time.sleep(0.1)  # the task is at work
    assert not began.is_set()
    await asyncio.sleep(0)
    assert wait_for_late(5)
    assert began.is_set()


def test_outside_of_an_event_loop_late_work_begins_at_once():
    began = threading.Event()
    do_late(began.set)
    assert began.wait(5)


def test_late_work_is_done_although_its_loop_was_closed_before_it_began():
    began = threading.Event()
    loop = asyncio.new_event_loop()
    loop.call_soon(lambda: (loop.stop(), do_late(began.set)))
    loop.run_forever()
    loop.close()
    assert wait_for_late(5)
    assert began.is_set()


def test_late_work_is_done_in_the_order_it_was_given_and_an_error_stops_nothing():
    done: list[int] = []

    def fail() -> None:
        raise OSError("gone")

    for number in range(5):
        do_late(lambda number=number: done.append(number))
        do_late(fail)
    assert wait_for_late(5)
    assert done == [0, 1, 2, 3, 4]


async def test_what_wakes_others_is_called_after_the_step_of_the_task():
    order: list[str] = []
    when_idle(lambda: order.append("others"))
    order.append("task")
    await asyncio.sleep(0)
    assert order == ["task", "others"]


def test_only_a_look_that_took_no_time_a_moment_ago_is_done_in_the_loop(monkeypatch: pytest.MonkeyPatch):
    looks = QuickLooks()
    assert not looks.was_quick("skill")
    looks.remember("skill", 0.0001)
    assert looks.was_quick("skill")
    looks.remember("skill", 0.2)  # a disk that became slow
    assert not looks.was_quick("skill")
    looks.remember("skill", 0.0001)
    monkeypatch.setattr(at_once, "_REMEMBERED_SECONDS", 0.0)
    assert not looks.was_quick("skill")


def test_few_looks_are_remembered():
    looks = QuickLooks()
    for number in range(1000):
        looks.remember(number, 0.0)
    assert len(looks._looked) == at_once._MOST_REMEMBERED
    assert looks.was_quick(999)
    assert not looks.was_quick(0)
