"""Process 1 tells that a script has ended before its memory is taken away, and never before it has ended (ADR 0010)."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from adk_skills_agent.sandbox.contract import ExecutionRequest, ExecutionResult, InputFile, SandboxPolicy, Status
from adk_skills_agent.sandbox.local import guest_control, local_sandbox
from adk_skills_agent.sandbox.local.namespaces_level import NamespacesLevel
from adk_skills_agent.sandbox.local.zygote_life import ZygoteLife

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


def seen_as(tmp_path: Path, *shown: dict[int, int], hidden: bool = False) -> tuple[int, float, int] | None:
    """What process 1 makes of what the kernel shows it, look by look: numbers of /proc/PID/stat by their place."""
    names: dict[str, Any] = {"__name__": "guest_end"}
    exec(compile(HERE.with_name("guest_end.py").read_text(), "guest_end", "exec"), names)
    looks = iter(shown)
    usual = {names["_FLAGS"]: names["_EXITING"], names["_THREADS"]: 1}

    def fields(_stat: int) -> list[bytes]:
        given = {**usual, **next(looks)}
        return [b"%d" % given.get(at, 0) for at in range(50)]

    names["_fields"] = fields
    with contextlib.ExitStack() as opened:
        ending = names["_Ending"](os.getpid())
        for descriptor in ending._files:
            opened.callback(os.close, descriptor)
        for number, text in enumerate(("Name:\tx\nVmHWM:\t100 kB\n", "", "", f"{os.getpid()}")):
            file = tmp_path / str(number)
            file.write_text(text)
            ending._files[number] = os.open(file, os.O_RDONLY)
            opened.callback(os.close, ending._files[number])
        if hidden:
            ending._files[-1] = -1
        found: tuple[int, float, int] | None = ending.look()
        return found


MEMORY, EXIT_CODE = 20, 49


def test_a_process_whose_memory_goes_has_ended(tmp_path: Path) -> None:
    found = seen_as(tmp_path, {MEMORY: 5}, {MEMORY: 5}, {}, {EXIT_CODE: 7 << 8})
    assert found is not None
    assert found[0] == 7 << 8


def test_a_thread_that_comes_while_its_process_is_looked_at_is_waited_for(tmp_path: Path) -> None:
    assert seen_as(tmp_path, {MEMORY: 5}, {17: 2}) is None


def test_the_time_of_a_child_without_page_faults_is_left_to_wait(tmp_path: Path) -> None:
    assert seen_as(tmp_path, {}, {13: 30}) is None


def test_an_exit_code_that_is_hidden_is_not_taken_for_0(tmp_path: Path) -> None:
    assert seen_as(tmp_path, {}, {}) is not None
    assert seen_as(tmp_path, {}, {}, hidden=True) is None


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
    assert b"guest" not in here.stderr


@without_namespaces
@pytest.mark.parametrize(
    ("code", "early"), [("", True), ("__import__('ctypes').CDLL(None).prctl(4, 0, 0, 0, 0)", False)]
)
async def test_the_end_is_told_early_in_a_sandbox_of_what_process_1_may_see(
    monkeypatch: pytest.MonkeyPatch, code: str, early: bool
) -> None:
    """What is told early is marked by an amount of memory here."""
    mark = 424_242
    read = Path.read_bytes

    def marked(path: Path) -> bytes:
        text = read(path)
        if path != HERE.with_name("guest.py"):
            return text
        assert text.count(b"*seen[1:]") == 1
        return text.replace(b"*seen[1:]", b"seen[1], %d" % mark)

    def forget() -> None:
        guest_control.guest_code.cache_clear()
        guest_control.guest_program.cache_clear()

    monkeypatch.setattr(ZygoteLife, "ready", lambda *_: None)
    monkeypatch.setattr(Path, "read_bytes", marked)
    forget()
    try:
        for _ in range(100 if early else 10):  # on a busy machine process 1 often looks too late
            seen = (await run(code, level="namespaces")).max_rss_bytes == mark << 10
            if seen:
                break
    finally:
        forget()
    assert seen is early
