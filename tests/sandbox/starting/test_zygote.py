"""Sandboxes that are forked: the same as bubblewrap's, which the conformance suite shows; here, what is special."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import level_table
from adk_skills_agent.sandbox.contract import ExecutionRequest, ExecutionResult, ReadOnlyMount, SandboxPolicy, Status
from adk_skills_agent.sandbox.local import local_sandbox
from adk_skills_agent.sandbox.local.namespaces import zygote as zygote_module
from adk_skills_agent.sandbox.local.namespaces.zygote import Zygote, ZygoteLife
from adk_skills_agent.sandbox.process import command
from adk_skills_agent.sandbox.threads import OnePerProcess

pytestmark = pytest.mark.warm_pool

POLICY = SandboxPolicy(isolation="namespaces", min_isolation="namespaces", warm_slots=0, wall_seconds=20)


@pytest.fixture
def life(monkeypatch: pytest.MonkeyPatch) -> Iterator[ZygoteLife]:
    """A life of its own for the test, in which the first sandbox is forked already."""
    level_table.require("namespaces")
    fresh = ZygoteLife()
    monkeypatch.setattr(zygote_module, "_FIRST_OF_USE", 1)
    monkeypatch.setattr(zygote_module, "zygote_life", OnePerProcess(lambda: fresh))
    yield fresh
    fresh.end()


async def run(*argv: str, **settings: object) -> ExecutionResult:
    return await local_sandbox().run(ExecutionRequest(argv, POLICY, **settings))  # type: ignore[arg-type]


async def forked(life: ZygoteLife) -> Zygote:
    """Run once, so that there is a zygote."""
    assert (await run("true")).status is Status.OK
    assert life.wait(20)
    found = life.ready(65534 if os.geteuid() == 0 else None)
    assert found is not None
    return found


async def test_the_third_sandbox_of_a_process_starts_one_and_later_ones_come_from_it(life, monkeypatch):
    monkeypatch.setattr(zygote_module, "_FIRST_OF_USE", 3)
    made = []
    real = Zygote.start
    monkeypatch.setattr(Zygote, "start", lambda self, *args: made.append(1) or real(self, *args))
    for _ in range(2):
        await run("true")
    assert not life.wait(0)
    await run("true")
    assert life.wait(20)
    assert made == []
    assert (await run("true")).status is Status.OK
    assert made == [1]


async def test_a_zygote_that_is_killed_is_replaced_and_no_run_fails(life, caplog):
    zygote = await forked(life)
    os.kill(zygote._child.pid, signal.SIGKILL)
    with caplog.at_level(logging.WARNING):
        assert (await run("sh", "-c", "echo x")).stdout == b"x\n"
    assert "bubblewrap" in caplog.text
    assert (await run("true")).status is Status.OK
    assert life.wait(20)
    assert life.ready(zygote._uid) not in {None, zygote}


async def test_a_folder_that_was_mounted_after_its_start_is_still_shown(life, tmp_path):
    """A tree of mounts of its own is no reason to show another folder than the agent sees."""
    await forked(life)
    if os.geteuid() != 0:
        pytest.skip("only root mounts")
    for name in ("skill", "above"):
        (tmp_path / name).mkdir(mode=0o755)
        (tmp_path / name / "which").write_text(name)
    subprocess.run(["mount", "--bind", tmp_path / "above", tmp_path / "skill"], check=True)
    try:
        mounts = (ReadOnlyMount(tmp_path / "skill", copied=False),)
        assert (await run("cat", "/skill/which", mounts=mounts)).stdout == b"above"
    finally:
        subprocess.run(["umount", tmp_path / "skill"], check=True)


async def test_nothing_of_a_run_is_in_the_memory_of_a_later_one(life, tmp_path):
    """A fork inherits memory, so the zygote must never have read what belongs to a run."""
    await forked(life)
    secret = "a-name-only-the-first-run-knows"
    folder = tmp_path / secret
    folder.mkdir(mode=0o755)
    mounts = (ReadOnlyMount(folder, copied=False),)
    assert (await run("echo", secret, mounts=mounts, env={"X": secret}, stdin=secret.encode())).status is Status.OK
    code = """
import re
found = 0
for line in open("/proc/self/maps"):
    where, rights, *_ = line.split()
    start, end = (int(part, 16) for part in where.split("-"))
    if "r" in rights and "[v" not in line:
        with open("/proc/self/mem", "rb", 0) as memory:
            memory.seek(start)
            found += len(re.findall(b"-only-the-[f]irst-run-knows", memory.read(end - start)))
print(found)
"""
    own = tmp_path / "own"
    own.mkdir(mode=0o755)
    (own / "look.py").write_text(code)
    result = await run("python3", "/skill/look.py", mounts=(ReadOnlyMount(own),))
    assert (result.stdout, result.stderr) == (b"0\n", b"")


async def test_runs_at_the_same_time_have_networks_of_their_own(life, tmp_path):
    await forked(life)
    code = """
import socket, time
with socket.create_server(("127.0.0.1", 8765)) as server, socket.create_connection(("127.0.0.1", 8765)):
    time.sleep(0.3)
print(socket.gethostname())
"""
    tmp_path.joinpath("net.py").write_text(code)
    tmp_path.chmod(0o755)
    runs = (run("python3", "/skill/net.py", mounts=(ReadOnlyMount(tmp_path),)) for _ in range(4))
    assert [(result.stdout, result.stderr) for result in await asyncio.gather(*runs)] == [(b"sandbox\n", b"")] * 4


async def test_row_293_what_the_kernel_counts_for_a_user_is_not_taken_from_an_agent_that_is_root(life):
    """Seen: four runs with 32 instances of inotify each took all 128 that root may have."""
    if not command.is_own_id(command.own_id(command.NOBODY)) or os.geteuid():
        pytest.skip("the runs of this agent have no user ids of their own")
    await forked(life)
    pending = re.compile(r"^SigQ:\t(\d+)/", re.MULTILINE)  # timers, which unlike watches can be looked up

    def look(name: str, data: bytes) -> None:
        seen.append(int(pending.findall(Path("/proc/self/status").read_text())[0]))

    seen: list[int] = []
    look("", b"")
    result = await run("python3", "-c", _TIMERS, on_output=look)
    assert (result.stdout, result.stderr) == (b"200\n", b"")
    assert max(seen) < seen[0] + 100


_TIMERS = """
import ctypes
library = ctypes.CDLL(None)
print(sum(library.timer_create(1, None, ctypes.byref(ctypes.c_void_p())) == 0 for _ in range(200)), flush=True)
"""


async def test_row_396_signals_of_one_run_are_not_taken_from_another(life):
    """Seen: 24 runs of one user had all that the runs of everybody may have, whose sandboxes one user makes."""
    if not command.is_own_id(command.own_id(command.NOBODY)) or os.geteuid():
        pytest.skip("the runs of this agent have no user ids of their own")
    rights = re.search(r"^CapEff:\t(\w+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    if rights is None or not int(rights[1], 16) & 1 << 24:
        pytest.skip("this root may not raise limits (CAP_SYS_RESOURCE); a run has 256 of them")
    zygote = await forked(life)
    limits = Path(f"/proc/{zygote._child.pid}/limits").read_text()
    assert re.search(r"^Max pending signals +unlimited", limits, re.MULTILINE)


async def test_a_sandbox_has_no_rights_and_can_make_no_namespaces(life):
    await forked(life)
    code = "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status; cat /proc/sys/user/max_user_namespaces; ls /sys"
    lines = (await run("sh", "-c", code)).stdout.decode().split("\n")
    assert {line.split()[1] for line in lines if line.startswith("Cap")} == {"0" * 16}
    assert [line.split()[1] for line in lines if line.startswith(("NoNew", "Sec"))] == ["1", "2"]
    assert lines[-2] == "0"


AGENT = """
import asyncio, os, psutil, sys, time, warnings
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.local import local_sandbox
from adk_skills_agent.sandbox.local.namespaces.zygote import zygote_life
policy = SandboxPolicy(isolation="namespaces")
async def main(end):
    for _ in range(4):
        await local_sandbox().run(ExecutionRequest(("true",), policy))
        zygote_life().wait(20)
    end()
    await asyncio.sleep(0)
def children():
    return [str(child.pid) for child in psutil.Process().children()]
"""


def agent(code: str) -> subprocess.CompletedProcess[str]:
    level_table.require("namespaces")
    line = [sys.executable, "-W", "ignore", "-c", AGENT + code]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)


def test_it_ends_when_all_sandboxes_are_closed_and_leaves_nothing():
    code = """
def held():
    return {"descriptors": len(os.listdir("/proc/self/fd")), "threads": len(os.listdir("/proc/self/task"))}
def once():
    asyncio.run(main(lambda: print(zygote_life().wait(0), children() != [])))
    asyncio.run(local_sandbox().close())
    print(children(), zygote_life().wait(0))
once()
before, over = held(), time.monotonic() + 30
once()
while any(number > before[what] for what, number in held().items()) and time.monotonic() < over:
    time.sleep(0.01)  # threads may still be ending
print({what: number - before[what] for what, number in held().items() if number > before[what]})
"""
    done = agent(code)
    assert (done.stdout, done.stderr) == ("True True\n[] False\n" * 2 + "{}\n", "")


def test_a_forked_child_does_not_use_its_parents():
    code = """
def forked():
    pid = os.fork()
    if pid == 0:
        print("child", zygote_life().wait(0), flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
    print("parent", zygote_life().wait(0), flush=True)
asyncio.run(main(forked))
"""
    done = agent(code)
    assert (done.stdout, done.stderr) == ("child False\nparent True\n", "")


def test_an_agent_that_is_killed_takes_it_and_its_sandboxes_along(tmp_path: Path):
    code = """
def lines_below():
    for process in psutil.Process().children(recursive=True):
        try:
            yield process.cmdline()
        except psutil.Error:  # it has ended
            pass
async def sleep():
    await main(lambda: None)
    run = asyncio.create_task(local_sandbox().run(ExecutionRequest(("sleep", "60"), policy)))
    while not any(line[-1:] == ["60"] for line in lines_below()):
        await asyncio.sleep(0.05)
    print("ready", flush=True)
    await run
asyncio.run(sleep())
"""
    level_table.require("namespaces")
    line = [sys.executable, "-W", "ignore", "-c", AGENT + code]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        below = psutil.Process(process.pid).children(recursive=True)
        assert len(below) >= 3  # the one that forks, the first process of a sandbox, and the command
        process.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(below, timeout=30)
    assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []


async def test_an_agent_that_has_other_limits_by_now_gets_another_one(life, monkeypatch):
    zygote = await forked(life)
    now = zygote_module._inherited()
    assert len(now) > 10
    monkeypatch.setattr(zygote_module, "_inherited", lambda: (*now[:-1], now[-1] - 1))
    assert (await run("true")).status is Status.OK
    assert life.wait(20)
    assert life.ready(zygote._uid) not in {None, zygote}
