"""How a script ended, and what it used, is told exactly, whatever it does at its end (ADR 0010)."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from adk_skills_agent.sandbox.contract import ExecutionRequest, ExecutionResult, InputFile, SandboxPolicy, Status
from adk_skills_agent.sandbox.local import local_sandbox
from adk_skills_agent.sandbox.local.levels.namespaces import NamespacesLevel

pytestmark = pytest.mark.warm_pool

without_namespaces = pytest.mark.skipif(
    NamespacesLevel().problem() is not None, reason=str(NamespacesLevel().problem())
)
FORGED = "import os, signal, time\nfor _ in range(3): os.kill(os.getppid(), signal.SIGUSR1); time.sleep(.02)\n"


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
async def test_signals_to_process_1_change_nothing(slots: int) -> None:
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
async def test_the_most_memory_and_the_time_of_a_script_are_told(level: str) -> None:
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


@pytest.mark.slow
@without_namespaces
async def test_the_time_of_children_a_script_waited_for_is_counted() -> None:
    burn = "import time\nwhile time.process_time() < .3: pass"
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}], check=True)"
    result = await run(code, level="namespaces", times=3)
    assert result.cpu_ms is not None
    assert result.cpu_ms >= 300


@pytest.mark.slow
@without_namespaces
async def test_runs_with_much_memory_leave_none_of_it(nothing_left: None) -> None:
    results = await asyncio.gather(*(run("x = bytearray(80 << 20)\nprint('done')") for _ in range(3)))
    assert [result.stdout for result in results] == [b"done\n"] * 3


@without_namespaces
async def test_a_script_nobody_may_look_into_keeps_its_exit_code() -> None:
    code = "import ctypes, sys\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE\nsys.exit(7)"
    results = [await run(code, slots=2) for _ in range(5)]
    assert [result.exit_code for result in results] == [7] * 5


@without_namespaces
@pytest.mark.parametrize(
    ("raised", "exit_code"),
    [
        ("import enum\nclass Code(enum.IntEnum): BAD = 6\nraise SystemExit(Code.BAD)", 6),
        ("class I(int):\n  __and__ = lambda *_: 3\nraise SystemExit(I(9))", 9),
        ("class I(int):\n  __and__ = lambda *_: 1/0\nraise SystemExit(I(9))", 9),
        ("class E(SystemExit):\n  code = property(lambda _: 1/0)\nraise E(4)", 1),
        ("class E(SystemExit):\n  code = property(lambda _: print('asked') or 5)\nraise E(4)", 5),
        ("class N:\n  __class__ = property(lambda _: int)\n  __str__ = lambda _: ''\nraise SystemExit(N())", 1),
    ],
)
async def test_an_odd_exit_code_is_read_as_by_the_interpreter(raised: str, exit_code: int) -> None:
    here = await run(raised)
    alone = subprocess.run([sys.executable, "-c", raised], capture_output=True, timeout=60, check=False)
    assert here.exit_code == alone.returncode == exit_code
    assert here.stdout == alone.stdout
    assert b"adk_skills" not in here.stderr
