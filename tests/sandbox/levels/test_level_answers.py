"""Whether a level works is found out once per process, whoever asks and however many at once."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from adk_skills_agent.sandbox.contract import IsolationLevel
from adk_skills_agent.sandbox.local.levels import base
from adk_skills_agent.sandbox.local.levels.base import answered_once


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch):
    monkeypatch.setattr(base, "_answers", {})


def test_of_many_that_ask_at_once_one_tries_and_all_get_its_answer():
    askers = 8
    tried: list[int] = []
    all_there = threading.Barrier(askers)

    def attempt() -> str | None:
        tried.append(1)
        return "because"

    def ask() -> str | None:
        all_there.wait(20)
        return answered_once(IsolationLevel.LANDLOCK, attempt)

    with ThreadPoolExecutor(askers) as pool:
        answers = [future.result(20) for future in [pool.submit(ask) for _ in range(askers)]]
    assert (answers, tried) == (["because"] * askers, [1])


def test_each_level_has_an_answer_of_its_own_and_none_is_one_too():
    assert answered_once(IsolationLevel.LANDLOCK, lambda: None) is None
    assert answered_once(IsolationLevel.PROCESS, lambda: "no") == "no"
    assert answered_once(IsolationLevel.LANDLOCK, lambda: "asked again") is None


def test_an_attempt_that_fails_is_no_answer():
    with pytest.raises(OSError, match="no descriptor left"):
        answered_once(IsolationLevel.LANDLOCK, lambda: fail(OSError("no descriptor left")))
    assert answered_once(IsolationLevel.LANDLOCK, lambda: "no") == "no"


def fail(error: Exception) -> str:
    raise error


def test_a_forked_child_finds_out_for_itself_also_while_another_thread_was_trying():
    begun, end = threading.Event(), threading.Event()
    answered_once(IsolationLevel.PROCESS, lambda: "the parent's")
    trying = threading.Thread(
        target=answered_once, args=(IsolationLevel.LANDLOCK, lambda: str(begun.set() or end.wait(20)))
    )
    trying.start()
    assert begun.wait(20)
    child = os.fork()
    if child == 0:
        own = [answered_once(level, lambda: "its own") for level in (IsolationLevel.PROCESS, IsolationLevel.LANDLOCK)]
        os._exit(0 if own == ["its own"] * 2 else 1)
    assert os.waitpid(child, 0)[1] == 0
    end.set()
    trying.join()
