"""Row 71 and S0-163: sandboxes kept started for the next run, each used once, never noticed but by their speed."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox.contract import (
    ExecutionRequest,
    ExecutionResult,
    InputFile,
    Network,
    ReadOnlyMount,
    SandboxPolicy,
    Status,
)
from adk_skills_agent.sandbox.local import local_sandbox
from adk_skills_agent.sandbox.local.init.control import USUAL_FLAGS
from adk_skills_agent.sandbox.local.warm_pool import warm_pool
from adk_skills_agent.sandbox.policy import check_policy, resolve_policy
from adk_skills_agent.sandbox.secrets import Secret
from adk_skills_agent.sandbox.warm_pool import MAKERS, MOST_IDLE, WarmPool

pytestmark = [pytest.mark.warm_pool, pytest.mark.usefixtures("needs_namespaces")]

PYTHON = (sys.executable, *USUAL_FLAGS)


def policy(**settings: object) -> SandboxPolicy:
    given = {"isolation": "namespaces", "wall_seconds": 20.0, "warm_slots": 2, **settings}
    return SandboxPolicy(**given)  # type: ignore[arg-type]


async def run(*argv: str, mounts: tuple[ReadOnlyMount, ...] = (), **settings: object) -> ExecutionResult:
    own = {key: settings.pop(key) for key in ("env", "stdin", "input_files", "workspace") if key in settings}
    return await local_sandbox().run(
        ExecutionRequest(argv, policy(**settings), mounts=mounts, **own)  # type: ignore[arg-type]
    )


async def until_ready(count: int = 1) -> None:
    deadline = time.monotonic() + 30
    while warm_pool().idle() < count and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    assert warm_pool().idle() >= count


async def warmed(*argv: str, **settings: object) -> ExecutionResult:
    """The result of a run that found a sandbox of its kind."""
    for _ in range(3):
        await run(*argv, **settings)
        await run(*argv, **settings)
        await until_ready()
        result = await run(*argv, **settings)
        if result.warm:
            return result
    raise AssertionError("no run was warm")


def own_children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "bwrap" in " ".join(child.cmdline()[:1])]


def own_mounts() -> list[str]:
    """Of sandboxes; others mount things of their own meanwhile."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if re.search(r"adk-skills|bwrap|newroot|oldroot", line)]


@pytest.fixture
def skill(tmp_path: Path) -> Path:
    folder = tmp_path / "skill"
    folder.mkdir()
    return folder


@pytest.fixture(autouse=True)
async def nothing_kept(nothing_left: None) -> AsyncIterator[None]:
    yield
    await local_sandbox().close()
    assert warm_pool().idle() == 0


async def test_the_first_run_of_a_process_is_cold_and_starts_no_sandbox():
    await local_sandbox().close()  # what another test has kept
    result = await run("sh", "-c", "echo one")
    assert not result.warm
    await asyncio.sleep(0.1)
    assert (warm_pool().idle(), warm_pool().starting()) == (0, 0)


async def test_from_the_second_run_on_sandboxes_are_made_and_used(skill):
    (skill / "x.py").write_text("import sys\nprint('py', *sys.argv[1:])")
    (skill / "x.sh").write_text("echo sh $1")
    mounts = (ReadOnlyMount(skill),)
    script = await warmed(*PYTHON, "/skill/x.py", "a", mounts=mounts)
    shell = await warmed("bash", "/skill/x.sh", "b", mounts=mounts)
    assert (script.stdout, shell.stdout) == (b"py a\n", b"sh b\n")


async def test_zero_warm_slots_means_none():
    for _ in range(3):
        assert not (await run("true", warm_slots=0)).warm
    assert (warm_pool().idle(), warm_pool().starting()) == (0, 0)


def test_values_that_make_no_sense_are_refused():
    with pytest.raises(ConfigError, match="warm_slots"):
        check_policy(SandboxPolicy(warm_slots=-1))
    with pytest.raises(ConfigError, match="preload"):
        check_policy(SandboxPolicy(preload=("os; evil",)))
    assert resolve_policy({"preload": ["json", "email.message"]}).preload == ("json", "email.message")


async def test_row_71_what_a_run_leaves_anywhere_is_not_there_for_the_next(skill):
    (skill / "x.py").write_text(
        "import builtins, json, os\n"
        "print(hasattr(builtins, 'mark'), hasattr(json, 'mark'), os.environ.get('MARK'), os.getpid())\n"
        "print([n for d in ('/tmp', '/dev/shm', '/work') for n in os.listdir(d) if 'mark' in n])\n"
        "builtins.mark = json.mark = 1; os.environ['MARK'] = 'x'\n"
        "for d in ('/tmp', '/dev/shm', '/work'): open(d + '/mark', 'w').close()\n"
        "if os.fork() == 0:\n    os.setsid(); os.close(1); os.close(2)\n    import time; time.sleep(60)\n"
    )
    seen = {(await warmed(*PYTHON, "/skill/x.py", mounts=(ReadOnlyMount(skill),), preload=("json",))).stdout}
    seen.add((await warmed(*PYTHON, "/skill/x.py", mounts=(ReadOnlyMount(skill),), preload=("json",))).stdout)
    assert seen == {b"False False None 2\n[]\n"}


async def test_row_71_a_sandbox_that_was_killed_while_idle_is_replaced_without_an_error():
    await warmed("sh", "-c", "echo x")
    await until_ready(2)
    for sandbox in warm_pool().ready():
        for pid in (sandbox.command, sandbox.first_pid):
            os.kill(pid, signal.SIGKILL)
    result = await run("sh", "-c", "echo still fine")
    assert (result.status, result.stdout) == (Status.OK, b"still fine\n")
    assert (await warmed("sh", "-c", "echo x")).warm


async def test_row_71_a_sandbox_that_dies_between_the_look_and_the_job_is_no_error_either(monkeypatch):
    await warmed("sh", "-c", "echo x")
    await until_ready(2)
    real = WarmPool.take

    def take(pool, spec, wanted):
        sandbox = real(pool, spec, wanted)
        if sandbox is not None:
            child = psutil.Process(sandbox.child.pid)
            sandbox.end()
            psutil.wait_procs([child], timeout=30)
        return sandbox

    monkeypatch.setattr(WarmPool, "take", take)
    result = await run("sh", "-c", "echo still fine")
    assert (result.stdout, result.warm) == (b"still fine\n", False)


async def test_a_sandbox_knows_nothing_before_its_job_and_gets_all_of_it_then(skill, tmp_path):
    (skill / "x.py").write_text("import os, sys\nprint(os.environ['KEY'], sys.stdin.read(), open('in.txt').read())")
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "old.txt").write_text("old")
    value = os.urandom(12).hex()  # tests beside this one have secrets, too
    settings = {
        "mounts": (ReadOnlyMount(skill),),
        "env": {"KEY": Secret(value)},
        "stdin": b"typed",
        "input_files": (InputFile("in.txt", b"given"),),
        "workspace": kept,
    }
    result = await warmed(*PYTHON, "/skill/x.py", **settings)
    assert result.stdout == b"[secret KEY] typed given\n"
    assert (kept / "old.txt").read_text() == "old"
    await until_ready()
    for process in psutil.process_iter(["cmdline", "environ"]):
        told = f"{process.info['cmdline']} {process.info['environ']}"
        assert value not in told or process.pid == os.getpid()


async def test_limits_count_from_the_job_and_hold_exactly(skill):
    await warmed("sh", "-c", "true")
    await until_ready(2)
    await asyncio.sleep(3.0)
    late = await run("sh", "-c", "echo x; sleep 0.3", wall_seconds=3.0)
    assert (late.warm, late.timed_out) == (True, False)
    stuck = await run("sh", "-c", "sleep 30", wall_seconds=0.4, term_grace_seconds=0)
    assert stuck.timed_out
    (skill / "x.py").write_text(
        "import resource as r\nprint(*(r.getrlimit(n)[0] for n in (r.RLIMIT_NPROC, r.RLIMIT_NOFILE, r.RLIMIT_CPU)))"
    )
    limits = {"pids": 9, "open_files": 33, "cpu_seconds": 7}
    told = await warmed(*PYTHON, "/skill/x.py", mounts=(ReadOnlyMount(skill),), **limits)
    assert told.stdout in {b"10 33 7\n", b"17 33 7\n"}  # without a control group, and with one, which refuses first


async def test_how_a_command_ends_is_as_exact_in_a_sandbox_that_waited(skill):
    (skill / "x.py").write_text("import os, sys\nos.kill(os.getpid(), int(sys.argv[1]))")
    assert (await warmed(*PYTHON, "/skill/x.py", "11", mounts=(ReadOnlyMount(skill),))).signal == 11
    assert (await warmed("sh", "-c", "exit 137")).exit_code == 137
    assert (await warmed("sh", "-c", "(sleep 0.2; echo late) & echo now")).stdout == b"now\nlate\n"


async def test_a_skill_that_changed_gets_another_sandbox(skill):
    (skill / "x.sh").write_text("echo one")
    assert (await warmed("bash", "/skill/x.sh", mounts=(ReadOnlyMount(skill),))).stdout == b"one\n"
    (skill / "x.sh").write_text("echo two")
    result = await run("bash", "/skill/x.sh", mounts=(ReadOnlyMount(skill),))
    assert result.stdout == b"two\n"


async def test_a_run_gets_only_a_sandbox_of_its_own_description():
    await warmed("sh", "-c", "true")
    await until_ready(2)
    for other in ({"tmp_bytes": 1 << 20}, {"network": Network.loopback()}, {"memory_bytes": None}):
        (await run("sh", "-c", "df -B1 /tmp | tail -1", **other)).stdout.decode()
    result = await run("sh", "-c", "df -B1 --output=size /tmp | tail -1", tmp_bytes=1 << 20)
    assert result.stdout.split() == [b"1048576"]


async def test_modules_are_preloaded(skill):
    (skill / "x.py").write_text("import sys\nprint('email.message' in sys.modules)")
    settings = {"mounts": (ReadOnlyMount(skill),)}
    assert (await warmed(*PYTHON, "/skill/x.py", **settings, preload=("email.message",))).stdout == b"True\n"


async def test_a_module_that_is_not_there_is_refused_by_name():
    with pytest.raises(ConfigError, match="no_such_module"):
        await run("sh", "-c", "true", preload=("no_such_module",))


async def test_the_number_of_idle_sandboxes_is_bounded_over_all_kinds():
    for size in range(12):
        await run("true", tmp_bytes=(size + 1) << 20)
    deadline = time.monotonic() + 20
    while warm_pool().starting() and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
        assert warm_pool().idle() <= MOST_IDLE
    assert 0 < warm_pool().idle() <= MOST_IDLE


async def test_what_waits_is_kept_until_the_last_object_in_use_is_closed():
    one, other = local_sandbox(), local_sandbox()
    request = ExecutionRequest(("true",), SandboxPolicy(isolation="namespaces"))
    for _ in range(2):
        await one.run(request)
    await other.run(request)
    await until_ready()
    await one.close()
    assert warm_pool().idle() >= 1
    assert (await other.run(request)).warm
    await other.close()
    assert warm_pool().idle() == 0


@pytest.mark.slow
async def test_many_runs_over_few_sandboxes_leave_nothing(skill):
    await warmed("sh", "-c", "true")
    await local_sandbox().close()
    await asyncio.sleep(0.3)
    descriptors, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    mounts = own_mounts()
    for number in range(40):
        code = ("true", "exit 3", "sleep 60 & true", "sleep 60")[number % 4]
        await run("sh", "-c", code, wall_seconds=0.1, term_grace_seconds=0)
    deadline = time.monotonic() + 10
    await local_sandbox().close()
    while (own_children() or warm_pool().starting()) and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    assert own_children() == []
    assert own_mounts() == mounts
    assert len(os.listdir("/proc/self/fd")) <= descriptors
    assert threading.active_count() <= threads + MAKERS + 1


AGENT = """
import asyncio, os, psutil, sys, time
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.local import local_sandbox
from adk_skills_agent.sandbox.local.warm_pool import warm_pool
from adk_skills_agent.sandbox.local.namespaces.zygote import ZygoteLife
ZygoteLife.ready = lambda *_: None  # bubblewrap makes them; see test_zygote
async def main(end):
    for _ in range(3):
        await local_sandbox().run(ExecutionRequest(("true",), SandboxPolicy(isolation="namespaces")))
    while warm_pool().idle() < 2:
        await asyncio.sleep(0.01)
    end()
def children():
    return len(psutil.Process().children())  # whichever thread made them, and one may be ending
"""


def agent(code: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-W", "ignore", "-c", AGENT + code]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)


def test_sandboxes_serve_event_loops_that_follow_one_another_and_end_when_all_is_closed():
    code = """
asyncio.run(main(lambda: print(children())))
async def another():
    request = ExecutionRequest(("true",), SandboxPolicy(isolation="namespaces"))
    print((await local_sandbox().run(request)).warm)
    await local_sandbox().close()
asyncio.run(another())
print(children(), warm_pool().idle())
"""
    done = agent(code)
    assert (done.stdout, done.stderr) == ("2\nTrue\n0 0\n", "")


def test_sandboxes_do_not_delay_the_end_of_the_agent_nor_outlive_it():
    code = "children = lambda: [child.pid for child in psutil.Process().children()]\n"
    code += "asyncio.new_event_loop().run_until_complete(main(lambda: print(*children(), flush=True)))"
    done = agent(code)
    pids = [int(pid) for pid in done.stdout.split()]
    assert (len(pids), done.stderr) == (2, "")
    deadline = time.monotonic() + 30  # whoever adopts them has to wait for them
    while (left := [pid for pid in pids if psutil.pid_exists(pid)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert left == []


def test_row_31_an_agent_that_is_killed_takes_its_sandboxes_along():
    code = "asyncio.run(main(lambda: (print('ready', flush=True), time.sleep(60))))"
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", AGENT + code], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        below = psutil.Process(process.pid).children(recursive=True)
        assert len(below) >= 4
        process.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(below, timeout=30)
    assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []


def test_a_forked_child_has_none_of_its_parents_sandboxes_and_leaves_them_alone():
    code = """
def forked():
    pid = os.fork()
    if pid == 0:
        print("child", warm_pool().idle(), len([f for f in os.listdir("/proc/self/fd")]) < before, flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
    print("parent", warm_pool().idle(), children(), flush=True)
def end():
    global before
    before = len(os.listdir("/proc/self/fd"))
    forked()
asyncio.run(main(end))
"""
    done = agent(code)
    assert (done.stdout, done.stderr) == ("child 0 True\nparent 2 2\n", "")
