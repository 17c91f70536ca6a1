"""What is special to the namespaces level: the agent around it, what it needs, what it says when that is missing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from adk_skills_agent.errors import SandboxError, SandboxUnavailable
from adk_skills_agent.sandbox.contract import SERVED_FOLDERS, ExecutionRequest, ReadOnlyMount, SandboxPolicy, Status
from adk_skills_agent.sandbox.local import local_sandbox
from adk_skills_agent.sandbox.local.levels import base
from adk_skills_agent.sandbox.local.levels.namespaces import NamespacesLevel
from adk_skills_agent.sandbox.local.namespaces import bubblewrap, zygote
from adk_skills_agent.sandbox.process.command import OWN_IDS
from level_table import missing

POLICY = SandboxPolicy(isolation="namespaces", wall_seconds=20.0)
LACKING, COULD_BE_INSTALLED = missing(NamespacesLevel())
needs_namespaces = pytest.mark.skipif(LACKING is not None and not COULD_BE_INSTALLED, reason=str(LACKING))
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only an agent that is root gives up a user id")

AGENT = """
import asyncio, os, sys
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.local import local_sandbox
def request(code, **policy):
    return ExecutionRequest(("bash", "-c", code), SandboxPolicy(isolation="namespaces", **policy))
box = local_sandbox()
"""


def run_in(*argv: str, **settings: object) -> ExecutionRequest:
    return ExecutionRequest(argv, POLICY, **settings)  # type: ignore[arg-type]


def processes_called(*line: str) -> list[int]:
    return [p.pid for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == list(line)]


@needs_namespaces
def test_row_31_nothing_outlives_an_agent_that_is_killed(tmp_path):
    flag = tmp_path / "flag"
    naps = f"63.{os.getpid()}", f"64.{os.getpid()}"  # by which this process knows its own
    code = f"""
def write(name, data):
    os.close(os.open({str(flag)!r}, os.O_CREAT))
policy = SandboxPolicy(isolation="namespaces")
line = ("bash", "-c", "setsid sleep {naps[0]} & echo go; trap '' TERM HUP; sleep {naps[1]}; sleep {naps[1]}")
asyncio.run(box.run(ExecutionRequest(line, policy, on_output=write)))
"""
    with subprocess.Popen([sys.executable, "-W", "ignore", "-c", AGENT + code]) as agent:
        deadline = time.monotonic() + 20
        while not (flag.exists() and processes_called("sleep", naps[0])) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert processes_called("sleep", naps[0])
        agent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 30  # a second where nobody else wants the processors
    while (left := [pid for nap in naps for pid in processes_called("sleep", nap)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert left == []


@needs_namespaces
@needs_root
async def test_an_agent_that_is_root_runs_scripts_as_another_user_of_the_host():
    result = await local_sandbox().run(run_in("sh", "-c", "id -u; sleep 0.4; cat /proc/self/uid_map"))
    # Only bubblewrap's sandboxes know root at all.
    known, *others = result.stdout.splitlines()[::-1]
    inside, outside, count = map(int, known.split())
    # On the host each run has a user id of its own (row 77).
    assert (inside, outside in OWN_IDS, count) == (65534, True, 1)
    assert [line.split() for line in others] in ([[b"65534"]], [[b"0", b"0", b"1"], [b"65534"]])
    policy = SandboxPolicy(isolation="namespaces", run_as=54_321)
    result = await local_sandbox().run(ExecutionRequest(("sh", "-c", "id -u; touch x; ls -ln x"), policy))
    assert b"54321 54321" in result.stdout


@needs_namespaces
@needs_root
async def test_a_skill_in_a_private_home_works_for_an_agent_that_is_root(tmp_path):
    skill = tmp_path / "private" / "skill"
    skill.mkdir(parents=True)
    (skill / "x.sh").write_text("echo from a private home")
    (tmp_path / "private").chmod(0o700)
    result = await local_sandbox().run(run_in("sh", "/skill/x.sh", mounts=(ReadOnlyMount(skill, copied=False),)))
    assert result.stdout == b"from a private home\n"


@needs_namespaces
@needs_root
async def test_a_folder_the_scripts_user_cannot_read_is_refused_in_a_sentence(tmp_path):
    skill = tmp_path / "skill"
    skill.mkdir(mode=0o700)
    with pytest.raises(SandboxError, match="cannot be read by user 65534") as caught:
        await local_sandbox().run(run_in("true", mounts=(ReadOnlyMount(skill, copied=False),)))
    assert str(tmp_path) not in str(caught.value)


@needs_namespaces
async def test_row_4_a_fork_bomb_stays_inside_its_limit_and_ends_at_the_deadline():
    code = ":(){ :|:& }; :; sleep 60"
    policy = SandboxPolicy(isolation="namespaces", pids=30, wall_seconds=1.0, term_grace_seconds=0)
    result = await local_sandbox().run(ExecutionRequest(("bash", "-c", code), policy))
    assert result.timed_out
    assert result.processes_killed <= 30
    assert result.wall_ms < 30_000
    assert (await local_sandbox().run(run_in("echo", "next"))).stdout == b"next\n"


@needs_namespaces
async def test_a_policy_the_level_cannot_meet_is_refused_with_the_reason():
    other = os.geteuid() + 1 if os.geteuid() else 0
    policy = SandboxPolicy(isolation="namespaces", run_as=other)
    with pytest.raises(SandboxUnavailable, match="run_as"):
        await local_sandbox().run(ExecutionRequest(("true",), policy))


async def test_row_72_without_bubblewrap_the_next_level_runs_and_says_why(monkeypatch):
    monkeypatch.setattr(bubblewrap, "features", lambda: None)
    monkeypatch.setattr(base, "_answers", {})
    problem = NamespacesLevel().problem()
    assert problem is not None
    assert "not installed" in problem
    assert "bubblewrap" in str(NamespacesLevel().remedy())
    with pytest.raises(SandboxUnavailable, match="apt-get install bubblewrap"):
        await local_sandbox().run(run_in("true"))


async def test_row_72_a_bubblewrap_that_is_too_old_is_not_used(monkeypatch):
    old = bubblewrap.Features("/usr/bin/bwrap", frozenset({"--args", "--seccomp"}))
    monkeypatch.setattr(bubblewrap, "features", lambda: old)
    monkeypatch.setattr(base, "_answers", {})
    assert "too old" in str(NamespacesLevel().problem())


def test_row_72_where_namespaces_are_forbidden_the_trial_run_finds_out(tmp_path):
    bwrap = tmp_path / "bwrap"
    bwrap.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    bwrap.chmod(0o755)
    code = f"""
from adk_skills_agent.sandbox.local.namespaces import bubblewrap
from adk_skills_agent.sandbox.local.levels.namespaces import NamespacesLevel
real = bubblewrap.features()
if real is not None:
    bubblewrap.features = lambda: bubblewrap.Features({str(bwrap)!r}, real.options)
print(NamespacesLevel().problem())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    if not Path("/usr/bin/bwrap").exists():
        pytest.skip("bubblewrap is not installed")
    assert "No permissions to create new namespace" in done.stdout


@needs_namespaces
async def test_a_command_that_is_not_there_is_an_error_and_not_a_result():
    for argv in (("no-such-command",), ("/usr/bin/no-such-command",), ("./missing",)):
        with pytest.raises(SandboxError):
            await local_sandbox().run(run_in(*argv))
    for code in (126, 127):
        result = await local_sandbox().run(run_in("sh", "-c", f"exit {code}"))
        assert (result.status, result.exit_code) == (Status.ERROR, code)


@needs_namespaces
async def test_more_arguments_than_bubblewrap_takes_reach_the_command(monkeypatch):
    monkeypatch.setattr(zygote.ZygoteLife, "ready", lambda _life, _uid: None)
    request = replace(run_in("sh", "-c", "echo $#", "sh", *["x"] * 9001), policy=replace(POLICY, warm_slots=0))
    assert (await local_sandbox().run(request)).stdout == b"9001\n"


@needs_root
@needs_namespaces
async def test_a_program_that_only_root_may_run_says_what_to_change(tmp_path):
    """Seen: an agent of root, installed with the umask 077."""
    tmp_path.chmod(0o755)
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho ran\n")
    program.chmod(0o700)
    policy = replace(POLICY, extra_ro=(str(tmp_path),))
    with pytest.raises(SandboxError, match=r"scripts run as another user: .*chmod -R o\+rX"):
        await local_sandbox().run(ExecutionRequest((str(program),), policy))


def test_row_341_the_report_says_what_a_folder_that_is_shown_as_it_is_may_lead_to(tmp_path):
    level = NamespacesLevel()
    assert SERVED_FOLDERS in level.report(SandboxPolicy(extra_ro=(str(tmp_path),))).degraded
    assert SERVED_FOLDERS not in level.report(SandboxPolicy()).degraded
