"""A kernel that never comes back from a system call filter: levels are refused in a sentence, nothing waits for ever.

Linux 6.18 gets there when a thousand filters are freed at once (attack row 117). Here programs that sleep stand for
those that hang in it: nobody can bring a kernel into that state and back.
"""

from __future__ import annotations

import os
import signal
import time

import psutil
import pytest

import level_table
from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.local.levels import base
from adk_skills_agent.sandbox.local.namespaces import zygote

STUCK = "the kernel does not answer"


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch):
    monkeypatch.setattr(base, "_answers", {})
    monkeypatch.setattr(base, "_LONG_SECONDS", 0.3)


@pytest.fixture
def hanging(monkeypatch):
    """Asking for a filter takes for ever, and only the kernel could end it."""
    monkeypatch.setattr(base, "_ASK_FOR_A_FILTER", "import time; time.sleep(60)")
    monkeypatch.setattr(base, "_waits_in_the_kernel", lambda _pid: True)


def run(level: str, *argv: str):
    [found] = [one for one in base.local_levels() if one.level.value == level]
    policy = SandboxPolicy(isolation=level, min_isolation=level, wall_seconds=20, warm_slots=0)
    return found.new_run(ExecutionRequest(argv, policy), policy)


def test_a_machine_in_order_answers_and_nothing_is_left(monkeypatch):
    level_table.require("landlock")
    monkeypatch.setattr(base, "_LONG_SECONDS", 30.0)
    others = set(psutil.Process().children())
    assert base.filters_stuck() is None
    assert set(psutil.Process().children()) <= others


def test_a_program_that_is_only_slow_says_nothing_about_the_kernel(monkeypatch):
    monkeypatch.setattr(base, "_ASK_FOR_A_FILTER", "import time; time.sleep(60)")
    assert base.filters_stuck() is None


def test_a_trial_that_hangs_is_given_up_early_and_the_next_one_is_not_begun(hanging, monkeypatch):
    began = time.monotonic()
    with pytest.raises(SandboxError, match=STUCK):
        base.trial_run(run("process", "sleep", "60"))
    assert time.monotonic() - began < base.TRIAL_SECONDS / 2
    started = []
    monkeypatch.setattr(base.LocalRun, "start", lambda self: started.append(self))
    with pytest.raises(SandboxError, match=STUCK):
        base.trial_run(run("process", "true"))
    assert started == []


def test_a_sandbox_that_was_never_ready_is_explained_by_the_kernel(hanging, monkeypatch):
    def start(_run):
        time.sleep(0.5)
        raise SandboxError("The sandbox was not ready after 20 seconds.")

    monkeypatch.setattr(base.LocalRun, "start", start)
    with pytest.raises(SandboxError, match=STUCK):
        base.trial_run(run("process", "true"))


def test_a_trial_that_fails_at_once_says_why_itself(hanging, monkeypatch):
    def start(_run):
        raise SandboxError("There is no bubblewrap.")

    monkeypatch.setattr(base.LocalRun, "start", start)
    with pytest.raises(SandboxError, match="There is no bubblewrap"):
        base.trial_run(run("process", "true"))


def test_a_child_that_cannot_be_ended_holds_nobody_up(monkeypatch):
    monkeypatch.setattr(zygote, "_END_SECONDS", 0.2)
    child = os.posix_spawn("/bin/sleep", ["sleep", "60"], {})
    real = os.kill
    monkeypatch.setattr(os, "kill", lambda *_: None)  # no signal reaches it
    monkeypatch.setattr("adk_skills_agent.sandbox.process.supervise.signal_group", lambda *_: None)
    began = time.monotonic()
    zygote._end(child)
    assert time.monotonic() - began < 50  # the child sleeps for 60
    real(child, signal.SIGKILL)
