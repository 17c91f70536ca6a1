"""Rows 4 to 8, 20, 21, 29, 31, 32: what a script starts in numbers, or so that it outlives its end."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import IsolationLevel, Status

MIB = 1 << 20


def processes_with(word: str) -> list[int]:
    return [process.pid for process in psutil.process_iter(["cmdline"]) if word in (process.info["cmdline"] or [])]


def is_above(process: psutil.Process, word: str) -> bool:
    """Whether a process below this one has the word in its command line."""
    try:
        return any(word in below.cmdline() for below in process.children(recursive=True))
    except psutil.NoSuchProcess:
        return False


def keepers_of(word: str, *, is_local: bool) -> list[psutil.Process]:
    """What stands between a run and the agent, or, where the run is no child of it, process 1 of the container."""
    if is_local:
        return [child for child in psutil.Process().children() if is_above(child, word)]
    found = {above for pid in processes_with(word) for above in psutil.Process(pid).parents()}
    return [above for above in found if is_process_1_inside(above.pid)]


def is_process_1_inside(pid: int) -> bool:
    """Whether a process is the first of a process namespace below this one's."""
    numbers = re.search(r"^NSpid:(.*)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return numbers is not None and len(numbers[1].split()) > 1 and numbers[1].split()[-1] == "1"


def threads_of(user: int) -> int:
    found = 0
    for process in psutil.process_iter(["uids", "num_threads"]):
        if process.info["uids"] is not None and process.info["uids"].real == user:
            found += process.info["num_threads"] or 0
    return found


@pytest.mark.level("landlock")
@pytest.mark.requirement("S0-91")
async def test_row_4_a_fork_bomb_stays_inside_its_limit_and_ends_at_the_deadline(box, backend):
    """S0-91. Bounded three times: by the run's limit of processes, by its user, who is not root, by its deadline."""
    own = backend.level.strength >= IsolationLevel.NAMESPACES.strength
    # Below namespaces the kernel counts per user, so the run gets a user nobody else has; who is no root cannot give it
    # one, and what its other processes free by ending, between the count for the limit and the bomb, comes on top.
    alone = {"run_as": 62_000 + os.getpid() % 1000} if os.geteuid() == 0 and not own else {}
    room = 0 if own or alone else threads_of(os.geteuid())
    bomb = ":(){ :|:& }; :; sleep 60"
    result = await box.bash(bomb, pids=30, wall_seconds=1.0, term_grace_seconds=0, **alone)
    assert result.timed_out
    # At a time there are no more than 30; below namespaces one that is killed makes room for another one meanwhile.
    assert result.processes_killed <= (30 if own else 300) + room
    assert result.survivors == 0
    assert result.wall_ms < 30_000
    assert (await box.bash("echo next")).stdout == b"next\n"


@pytest.mark.level("landlock")
async def test_row_5_threads_run_out_in_the_script_only(box, backend):
    code = """
import threading, time
started = 0
try:
    for _ in range(500):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        started += 1
except RuntimeError:
    print("refused after", started)
import os; os._exit(0)
"""
    result = await box.python(code, pids=20)
    assert result.stdout.startswith(b"refused after")
    started = int(result.stdout.split()[-1])
    if backend.level.strength >= IsolationLevel.NAMESPACES.strength:
        assert started <= 20
    else:  # counted per user, whose other processes come and go
        assert started < 400


async def test_row_8_many_children_inside_their_own_limits_are_stopped_together(box):
    code = """
import os, time
for _ in range(8):
    if os.fork() == 0:
        x = bytearray(60 << 20)
        time.sleep(60)
time.sleep(60)
"""
    result = await box.python(code, memory_bytes=200 * MIB)
    assert result.status is Status.OUT_OF_MEMORY
    assert not result.timed_out


async def test_row_7_memory_that_is_in_no_process_is_counted_too(box, backend):
    code = """
import os, time
for _ in range(8):
    file = os.memfd_create("x")
    os.write(file, bytes(40 << 20))
time.sleep(60)
"""
    result = await box.python(code, memory_bytes=200 * MIB)
    assert result.status is Status.OUT_OF_MEMORY
    if backend.level.strength < IsolationLevel.LANDLOCK.strength:
        return
    code = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print(libc.shmget(0, 1 << 30, 0o1600) < 0)
"""
    assert (await box.python(code, memory_bytes=200 * MIB)).stdout == b"True\n"


@pytest.mark.level("landlock")
async def test_row_20_a_daemon_that_gave_up_everything_dies_with_the_run(box):
    word = f"adk-row-20-daemon-{os.getpid()}"
    code = f"""
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 1000)
        os.chdir("/")
        os.execve("/bin/sh", ["sh", "-c", "sleep 60; :", "{word}"], {{}})
    os._exit(0)
os.wait()
time.sleep(0.1)
"""
    result = await box.python(code)
    assert (result.exit_code, result.survivors) == (0, 0)
    assert result.processes_killed >= 1
    assert processes_with(word) == []


@pytest.mark.level("landlock")
@pytest.mark.requirement("S0-88", "S1-12")
async def test_row_21_children_in_sessions_of_their_own_die_at_the_deadline(box):
    """S0-88, S1-12; GOOGLE_ADK row 5."""
    word = f"adk-row-21-{os.getpid()}"
    code = f"for i in 1 2 3; do setsid sh -c 'sleep 60; :' {word} & done; trap '' TERM; sleep 60; sleep 60"
    result = await box.bash(code, wall_seconds=0.5, term_grace_seconds=0.2)
    assert result.timed_out
    assert processes_with(word) == []


async def test_row_32_a_run_started_by_a_thread_that_ends_is_not_ended_with_it(box):
    # The loop's own worker threads live on; a loop in a thread of its own is the case that differs.
    results = []

    def other() -> None:
        async def one() -> None:
            results.append(await box.bash("sleep 0.3; echo whole"))

        asyncio.run(one())

    thread = threading.Thread(target=other)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert results[0].stdout == b"whole\n"


AGENT_THAT_IS_PROCESS_1 = """
import asyncio, json, os, sys, warnings
warnings.simplefilter("ignore")
from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.local import local_sandbox
async def main():
    box = local_sandbox()
    policy = SandboxPolicy(**json.loads(sys.argv[1]), drain_seconds=0.05)
    for n in range(34):
        for line in ("true", "(setsid sleep 60 &) ; exit 3", "kill -9 $$"):
            await box.run(ExecutionRequest(("bash", "-c", line), policy))
    assert os.getpid() == 1
    await box.close()
asyncio.run(main())
print([p for p in os.listdir("/proc") if p.isdigit()])
"""


@pytest.mark.slow
@pytest.mark.local("a container is no child of the agent")
def test_row_31_an_agent_that_is_process_1_keeps_no_zombies_after_100_runs(backend):
    namespace = ["unshare", "-p", "-f", "--mount-proc"]
    if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to make a PID namespace")
    line = [*namespace, sys.executable, "-c", backend.agent(AGENT_THAT_IS_PROCESS_1)]
    line.append(json.dumps(backend.policy))
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout, done.stderr) == ("['1']\n", "")


@pytest.mark.level("landlock")
async def test_row_29_a_run_whose_keeper_is_killed_is_an_error_of_the_sandbox_and_clean(box, backend):
    """The script cannot do it (row 25); the system can, when it has no memory left."""
    told, nap = asyncio.Event(), f"77.{os.getpid()}"
    running = asyncio.create_task(
        # A deadline that comes before the kill, on a busy machine, would be the end of the run.
        box.bash(f"echo up; setsid sleep {nap} & sleep {nap}", on_output=lambda *_: told.set(), wall_seconds=70)
    )
    async with asyncio.timeout(30):
        await told.wait()
        while not (keepers := keepers_of(nap, is_local=backend.is_local)):
            await asyncio.sleep(0.01)  # "up" comes a moment before the sleepers do
    for keeper in keepers:
        keeper.kill()
    with pytest.raises(SandboxError, match=r"supervisor|ended|killed"):
        await running
    assert processes_with(nap) == []
