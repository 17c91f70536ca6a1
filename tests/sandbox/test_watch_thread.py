"""The thread that looks after runs: awake while there are any and a moment longer, asleep otherwise."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from adk_skills_agent.sandbox.local import watch_thread
from adk_skills_agent.sandbox.local.watch_thread import WatchThread

SECONDS = 20.0


class Rounds(WatchThread[str]):
    def __init__(self) -> None:
        self.seen: list[set[str]] = []
        super().__init__("rounds")

    def _round(self) -> None:
        self.seen.append(set(self._runs))
        time.sleep(0.005)

    def sleeps(self) -> bool:
        return bool(self._changed._waiters)  # type: ignore[attr-defined]


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def looked_at(watch: Rounds, run: str) -> None:
    watch.add(run)
    until(lambda: {run} in watch.seen)
    watch.remove(run)
    before = len(watch.seen)
    until(lambda: set() in watch.seen[before:])


def test_runs_that_follow_one_another_find_it_awake():
    watch = Rounds()
    until(watch.sleeps)
    looked_at(watch, "first")
    for number in range(20):
        assert not watch.sleeps()
        looked_at(watch, f"run {number}")


def test_it_sleeps_when_nothing_has_run_for_a_while_and_wakes_for_the_next(monkeypatch):
    monkeypatch.setattr(watch_thread, "_LINGER_SECONDS", 0.05)
    watch = Rounds()
    for run in ("first", "second"):
        until(watch.sleeps)
        looked_at(watch, run)
    until(watch.sleeps)


def test_it_does_not_keep_a_program_from_ending():
    Rounds()
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "rounds")
