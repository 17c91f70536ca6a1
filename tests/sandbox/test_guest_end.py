"""Process 1 tells that a script has ended before its memory is taken away, and never before it has ended (ADR 0010)."""

from __future__ import annotations

import ast
import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from adk_skills_agent.sandbox.contract import ExecutionRequest, ExecutionResult, InputFile, SandboxPolicy, Status
from adk_skills_agent.sandbox.local import guest_control, local_sandbox
from adk_skills_agent.sandbox.local.namespaces_level import NamespacesLevel

without_namespaces = pytest.mark.skipif(
    NamespacesLevel().problem() is not None, reason=str(NamespacesLevel().problem())
)
FORGED = "import os, signal, time\nfor _ in range(3): os.kill(os.getppid(), signal.SIGUSR1); time.sleep(.02)\n"
HERE = Path(guest_control.__file__)

# A process 1 that is not one: it looks at a child that ends when it is told to, with or without somebody else there.
LOOKING = """\
import os, sys, threading, time
names = {"__name__": "guest"}
exec(compile(open(sys.argv[1]).read(), "guest_end", "exec"), names)
beside, ending, kept = sys.argv[2:5]
told, tell = os.pipe()
alive, end = os.pipe()
def another():
    if os.fork() == 0:
        os.close(end)
        os.read(alive, 1)  # until the first process has ended
        os._exit(0)
if beside == "a child of ours":
    another()
payload = os.fork()
if payload == 0:
    if beside == "a child of its own":
        another()
    if beside == "a child that was waited for":
        if os.fork() == 0:
            os._exit(0)
        os.wait()
    if beside == "a thread":
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    os.read(told, 1)
    data = bytearray(int(kept) << 20)
    time.sleep(.05)
    exec(ending)
seen = names["_Ending"](payload)
assert seen.look(2) is None, "it has not ended"
os.write(tell, b"x")
print(seen.look(20_000))
"""


def look(beside: str = "nobody", ending: str = "os._exit(7)", kept: int = 0) -> tuple[int, float, int] | None:
    command = [sys.executable, "-c", LOOKING, str(HERE.with_name("guest_end.py")), beside, ending, str(kept)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert said.returncode == 0, said.stderr
    return ast.literal_eval(said.stdout)


def test_the_status_of_a_process_is_known_when_it_begins_to_end() -> None:
    found = look(kept=100)
    assert found is not None
    status, seconds, largest = found
    assert status == 7 << 8
    assert 0 < seconds < 30
    assert largest > 100 << 10


def test_the_signal_that_ended_a_process_is_known_when_it_begins_to_end() -> None:
    found = look(ending="os.kill(os.getpid(), 9)", kept=100)
    assert found is not None
    assert found[0] == 9


@pytest.mark.parametrize("beside", ["a child of ours", "a child of its own", "a child that was waited for"])
def test_with_other_processes_only_their_end_or_their_usage_counts(beside: str) -> None:
    assert look(beside, kept=100) is None


def test_a_thread_that_ends_with_its_process_is_waited_for() -> None:
    found = look("a thread", ending="import posix; posix._exit(3)", kept=100)
    assert found is None or found[0] == 3 << 8  # it may be there for another moment


async def run(code: str, *, level: str = "auto", slots: int = 0, times: int = 1) -> ExecutionResult:
    policy = SandboxPolicy(isolation=level, warm_slots=slots, wall_seconds=30.0)
    request = ExecutionRequest(
        (sys.executable, "script.py"), policy, input_files=(InputFile("script.py", code.encode()),)
    )
    sandbox = local_sandbox()
    for _ in range(times):
        result = await sandbox.run(request)
    await sandbox.close()
    return result


@without_namespaces
@pytest.mark.parametrize("slots", [0, 2])
async def test_a_script_that_says_it_ends_and_does_not_is_waited_for(slots: int) -> None:
    code = f"{FORGED}print('still here', flush=True)\ntime.sleep(.3)\nprint('the end')\nraise SystemExit(5)"
    result = await run(code, slots=slots, times=3)
    assert result.exit_code == 5
    assert result.stdout == b"still here\nthe end\n"


@without_namespaces
async def test_a_child_that_ends_like_a_script_disturbs_nobody() -> None:
    code = "import os\nif os.fork() == 0: print('child', flush=True)\nelse:\n  print(os.wait()[1], flush=True)"
    result = await run(code, times=3)
    assert result.status is Status.OK
    assert result.stdout == b"child\n0\n"


@without_namespaces
async def test_what_a_script_left_running_is_waited_for() -> None:
    code = "import os, time\nif os.fork() == 0:\n  time.sleep(.3)\n  print('later', flush=True)\n  os._exit(0)"
    result = await run(code, times=3)
    assert result.stdout == b"later\n"


@without_namespaces
@pytest.mark.parametrize("level", ["namespaces", "auto"])
async def test_the_most_memory_and_the_time_of_a_script_are_told_in_spite_of_that(level: str) -> None:
    code = "x = bytearray(60 << 20)\ndel x\nfor _ in range(2_000_000): pass"
    result = await run(code, level=level, times=3)
    assert result.max_rss_bytes is not None
    assert 60 << 20 <= result.max_rss_bytes < 200 << 20
    assert result.cpu_ms is not None
    assert result.cpu_ms > 10


@without_namespaces
async def test_memory_that_only_the_last_destructor_takes_is_counted() -> None:
    code = "class A:\n  def __del__(self): self.x = bytearray(60 << 20)\na = A()"
    result = await run(code, level="namespaces", times=3)
    assert result.max_rss_bytes is not None
    assert result.max_rss_bytes >= 60 << 20


@without_namespaces
async def test_the_time_of_children_a_script_waited_for_is_counted() -> None:
    burn = "import time\nwhile time.process_time() < .3: pass"
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}], check=True)"
    result = await run(code, level="namespaces", times=3)
    assert result.cpu_ms is not None
    assert result.cpu_ms >= 300


@without_namespaces
async def test_runs_with_much_memory_leave_none_of_it(nothing_left: None) -> None:
    results = await asyncio.gather(*(run("x = bytearray(80 << 20)\nprint('done')") for _ in range(3)))
    assert [result.stdout for result in results] == [b"done\n"] * 3
