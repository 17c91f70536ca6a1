"""LocalSandboxCodeExecutor (S0-71 to S0-74, S0-86, S0-92, S0-93, S1-1 to S1-3)."""

from __future__ import annotations

import asyncio
import base64
import gc
import multiprocessing
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from executing import gone, run
from google.adk.code_executors import BaseCodeExecutor
from google.adk.code_executors import code_execution_utils as google

from adk_skills_agent import SandboxPolicy
from adk_skills_agent.errors import ConfigError, SandboxUnavailable
from adk_skills_agent.executors import (
    CodeExecutionInput,
    ContainerCodeExecutor,
    File,
    LocalSandboxCodeExecutor,
    UnsafeLocalCodeExecutor,
)
from adk_skills_agent.sandbox.contract import Sandbox, Status
from adk_skills_agent.sandbox.policy import policy_of
from adk_skills_agent.sandbox.secrets import Secret


@pytest.mark.requirement("S0-86")
def test_it_is_a_google_adk_executor_with_the_documented_defaults() -> None:
    """S0-86."""
    executor = LocalSandboxCodeExecutor()
    assert isinstance(executor, BaseCodeExecutor)
    assert (executor.default_timeout_seconds, executor.max_memory_mb, executor.max_cpu_seconds) == (30, 256, 30)
    assert executor.allowed_env_vars == []
    assert executor.effective_policy().min_isolation == "landlock"
    assert executor.effective_policy().memory_bytes == 256 << 20


def test_success_has_stdout_and_an_empty_stderr(executor: LocalSandboxCodeExecutor) -> None:
    result = run(executor, "import sys; print('hello'); print('careful', file=sys.stderr)")
    assert (result.stdout, result.stderr, result.exit_code) == ("hello\n", "", 0)
    assert result.execution is not None
    assert result.execution.stderr == b"careful\n"


@pytest.mark.requirement("S0-58")
def test_a_failure_has_its_traceback_without_our_frames_but_with_the_line(executor: LocalSandboxCodeExecutor) -> None:
    """S0-58: what was printed before the exception stays."""
    result = run(executor, "print('before')\ndef go():\n    raise ValueError('bad')\ngo()\n")
    assert result.stdout == "before\n"
    assert result.exit_code == 1
    assert "    raise ValueError('bad')" in result.stderr
    assert result.stderr.endswith("ValueError: bad")
    assert "<string>" not in result.stderr


@pytest.mark.parametrize(
    ("code", "status", "stderr"),
    [
        ("import sys; sys.exit()", 0, ""),
        ("import sys; sys.exit(0)", 0, ""),
        ("import sys; sys.exit(3)", 3, "Exit code 3"),
        ("import sys; sys.exit('no input')", 1, "no input"),
        ("import os; os._exit(7)", 7, "Exit code 7"),
        ("import os; os.kill(os.getpid(), 9)", -9, "killed by signal 9"),
        ("def f(:", 1, "SyntaxError: invalid syntax"),
        ("print(1)\0", 1, "null bytes"),
        ("x = '\ud800'", 1, "lone surrogate at character 5"),
    ],
)
@pytest.mark.requirement("S0-56", "S0-68", "S0-69", "S0-70")
def test_how_code_ends_is_a_result(executor: LocalSandboxCodeExecutor, code: str, status: int, stderr: str) -> None:
    """S0-56, S0-68 to S0-70."""
    result = run(executor, code)
    assert result.exit_code == status
    assert stderr in result.stderr
    assert bool(result.stderr) == (status != 0)


def test_code_runs_as_main_and_its_functions_can_be_pickled(executor: LocalSandboxCodeExecutor) -> None:
    code = "import pickle\ndef f(): return 5\nif __name__ == '__main__':\n    print(pickle.loads(pickle.dumps(f))())\n"
    assert run(executor, code).stdout == "5\n"


@pytest.mark.requirement("S0-46")
def test_code_larger_than_an_argument_can_be(executor: LocalSandboxCodeExecutor) -> None:
    """GOOGLE_ADK row 16: code does not go into an argument."""
    assert run(executor, f"x = {'y' * 3_000_000!r}\nprint(len(x))").stdout == "3000000\n"


def test_standard_input_is_at_its_end(executor: LocalSandboxCodeExecutor) -> None:
    assert run(executor, "import sys; print(repr(sys.stdin.read()), sys.argv)").stdout == "'' ['-c']\n"


@pytest.mark.requirement("S0-71", "S0-72", "S0-84", "S1-1", "S1-2", "S1-3")
def test_the_timeout_of_the_call_comes_first_then_the_executors(executor: LocalSandboxCodeExecutor) -> None:
    """S0-71, S0-72, S0-84, S1-1 to S1-3; GOOGLE_ADK row 1."""
    loop = "import time\nprint('partial', flush=True)\nwhile True: time.sleep(1)"
    result = run(executor, loop, timeout_seconds=2.5)
    assert (result.stdout, result.stderr, result.exit_code) == ("partial\n", "timed out after 2.5 s", -1)
    by_field = LocalSandboxCodeExecutor(min_isolation="process", timeout_seconds=1)
    assert run(by_field, loop).stderr == "timed out after 1 s"
    by_default = LocalSandboxCodeExecutor(min_isolation="process", default_timeout_seconds=0.5)
    assert run(by_default, loop).stderr == "timed out after 0.5 s"
    assert by_default.execute_code(None, google.CodeExecutionInput(code=loop)).stderr == "timed out after 0.5 s"  # type: ignore[arg-type]


@pytest.mark.requirement("S0-73")
def test_zero_is_a_timeout_and_an_explicit_none_is_no_limit() -> None:
    """S0-73."""
    executor = LocalSandboxCodeExecutor(min_isolation="process", default_timeout_seconds=None)
    assert executor.effective_policy().wall_seconds is None
    assert run(executor, "print(1)").stdout == "1\n"
    assert run(executor, "import time; time.sleep(5)", timeout_seconds=0).stderr == "timed out after 0 s"


@pytest.mark.requirement("S0-72")
def test_a_policy_holds_where_the_executors_fields_were_not_given() -> None:
    """S0-72: the executor's own fields come before its policy, the policy before the defaults."""
    policy = SandboxPolicy(min_isolation="process", memory_bytes=1 << 30, wall_seconds=7, cpu_seconds=3)
    of_policy = LocalSandboxCodeExecutor(policy=policy).effective_policy()
    assert (of_policy.memory_bytes, of_policy.wall_seconds, of_policy.cpu_seconds) == (1 << 30, 7, 3)
    own = LocalSandboxCodeExecutor(policy=policy, max_memory_mb=64, timeout_seconds=2).effective_policy()
    assert (own.memory_bytes, own.wall_seconds, own.min_isolation) == (64 << 20, 2, "process")


@pytest.mark.requirement("S0-72")
def test_the_same_order_holds_for_every_executor() -> None:
    """S0-72, also for the class without a level of its own and the one with containers."""
    policy = SandboxPolicy(memory_bytes=1 << 30, wall_seconds=7, inherit_env=("LANG",))
    local = LocalSandboxCodeExecutor
    for kind, seconds in ((local, 30), (UnsafeLocalCodeExecutor, 300), (ContainerCodeExecutor, 300)):
        assert kind().effective_policy().wall_seconds == seconds
        assert kind(policy=policy).effective_policy().wall_seconds == 7
        assert kind(policy=policy).effective_policy().memory_bytes == 1 << 30
        assert kind(policy=policy, allowed_env_vars=["TZ"]).effective_policy().inherit_env == ("LANG", "TZ")
        own = kind(policy=policy, timeout_seconds=3, max_memory_mb=None)
        assert (own.effective_policy().wall_seconds, own.effective_policy().memory_bytes) == (3, None)
        assert own.effective_policy(0).wall_seconds == 0


def test_a_policy_can_be_a_presets_name() -> None:
    assert LocalSandboxCodeExecutor(policy="strict").policy == policy_of("strict")
    with pytest.raises(ConfigError, match="strictest"):
        LocalSandboxCodeExecutor(policy="strictest")


def test_a_secret_reaches_the_code_and_not_the_result() -> None:
    executor = LocalSandboxCodeExecutor(min_isolation="process", env={"WEATHER_KEY": Secret("hunter2-hunter2")})
    result = run(executor, "import os; print(len(os.environ['WEATHER_KEY']), os.environ['WEATHER_KEY'])")
    assert result.stdout.startswith("15 ")
    assert "hunter2" not in f"{result} {executor}"


@pytest.mark.requirement("S0-90", "S1-16")
def test_memory_beyond_the_limit_is_a_failure(executor: LocalSandboxCodeExecutor) -> None:
    """S0-90, S1-16."""
    result = run(executor, "x = bytearray(600 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint('got it')")
    assert result.exit_code != 0
    assert "MemoryError" in result.stderr or "out of memory" in result.stderr


def test_a_flood_is_stopped_and_said() -> None:
    policy = SandboxPolicy(output_flood_bytes=1 << 20)
    executor = LocalSandboxCodeExecutor(min_isolation="process", policy=policy)
    result = run(executor, "while True: print('x' * 1000)")
    assert result.exit_code != 0
    assert "killed: too much output" in result.stderr
    assert result.stderr.endswith("output truncated")
    assert len(result.stdout) < 25_000


def test_long_output_is_cut_and_whole_in_an_output_file(executor: LocalSandboxCodeExecutor) -> None:
    result = run(executor, "print('start' + 'x' * 700_000 + 'end')")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert len(result.stdout) < 21_000
    assert result.stdout.startswith("start")
    assert result.stdout.endswith("end\n")
    assert "the full text is the artifact 'stdout.txt'" in result.stdout
    (whole,) = result.output_files
    assert (whole.name, len(whole.content)) == ("stdout.txt", 700_009)


@pytest.mark.requirement("S0-22", "S0-44", "S0-45", "S0-93")
def test_input_files_are_there_and_output_files_come_back(executor: LocalSandboxCodeExecutor) -> None:
    """S0-44, S0-45, S0-93: binary and empty files, at their paths."""
    files: list[google.File] = [
        File(name="a.bin", content=b"\0\1", path="deep/a.bin"),
        google.File(name="empty.txt", content=b""),
        google.File(name="data.csv", content=base64.b64encode(b"a,b\n").decode(), mime_type="text/csv"),
        google.File(name="note.txt", content="plain text"),
    ]
    code = """
import os, pathlib
print(sorted(str(p) for p in pathlib.Path('.').rglob('*') if p.is_file()))
p = pathlib.Path
print(p('deep/a.bin').read_bytes(), p('data.csv').read_text(), p('note.txt').read_text())
pathlib.Path('out').mkdir(); pathlib.Path('out/plot.png').write_bytes(b'png')
"""
    result = run(executor, code, input_files=files)
    assert result.stdout.splitlines()[0] == "['data.csv', 'deep/a.bin', 'empty.txt', 'note.txt']"
    assert "b'\\x00\\x01' a,b\n plain text" in result.stdout
    (out,) = result.output_files
    assert (out.name, out.content, out.mime_type) == ("out/plot.png", b"png", "image/png")


@pytest.mark.parametrize("folder", ["sub/dir", "/work/sub/dir"])
@pytest.mark.requirement("S0-23", "S0-93")
def test_the_working_directory_is_made_and_holds_the_input_files(
    executor: LocalSandboxCodeExecutor, folder: str
) -> None:
    """S0-93."""
    file = File(name="x.txt", content=b"x")
    result = run(executor, "import os; print(os.getcwd(), os.listdir())", working_dir=folder, input_files=[file])
    assert result.stdout == "/work/sub/dir ['x.txt']\n"
    assert run(executor, "import os; print(os.getcwd())", working_dir=folder).stdout == "/work/sub/dir\n"


@pytest.mark.parametrize("folder", ["..", "/etc", "a/../../b", "a\0b"])
def test_a_working_directory_outside_is_refused(executor: LocalSandboxCodeExecutor, folder: str) -> None:
    with pytest.raises(ValueError, match="working_dir"):
        run(executor, "pass", working_dir=folder)


def test_an_input_file_outside_is_refused(executor: LocalSandboxCodeExecutor) -> None:
    with pytest.raises(ValueError, match="must be relative"):
        run(executor, "pass", input_files=[File(name="x", content=b"", path="../x")])


@pytest.mark.requirement("S0-92", "S1-11")
def test_the_hosts_environment_is_not_seen_but_what_is_allowed_and_given_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """S0-92, S1-11."""
    monkeypatch.setenv("GOOGLE_API_KEY", "hunter2")
    monkeypatch.setenv("PLAIN", "seen")
    executor = LocalSandboxCodeExecutor(min_isolation="process", allowed_env_vars=["PLAIN"], env={"GIVEN": "too"})
    result = run(executor, "import os; print(dict(os.environ))")
    assert "hunter2" not in result.stdout
    assert "'PLAIN': 'seen'" in result.stdout
    assert "'GIVEN': 'too'" in result.stdout


def test_a_variable_that_looks_secret_is_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match=r"^allowed_env_vars .*looks like a secret"):
        LocalSandboxCodeExecutor(min_isolation="process", allowed_env_vars=["GOOGLE_API_KEY"])
    assert LocalSandboxCodeExecutor(policy=SandboxPolicy(allow_secrets=True), allowed_env_vars=["GOOGLE_API_KEY"])


def test_a_variable_that_cannot_be_granted_is_refused_when_it_is_made() -> None:
    for env, said in ({"LD_PRELOAD": "x"}, "LD_PRELOAD"), ({"A": 1}, "'A'"), ({"PATH": "rel"}, "'rel'"):
        with pytest.raises(ConfigError, match=said):
            LocalSandboxCodeExecutor(env=env)
    with pytest.raises(ConfigError, match="allowed_env_vars: 'A B'"):
        LocalSandboxCodeExecutor(allowed_env_vars=["A B"])


def test_a_setting_that_does_not_exist_is_refused_and_google_adks_own_are_taken() -> None:
    with pytest.raises(ValueError, match="min_isolation_level"):
        LocalSandboxCodeExecutor(min_isolation_level="namespaces")
    assert LocalSandboxCodeExecutor(error_retry_attempts=5, execution_result_delimiters=("a", "b"))


def test_impossible_limits_are_refused_when_it_is_made() -> None:
    for bad in ({"default_timeout_seconds": -1}, {"max_memory_mb": 0}, {"timeout_seconds": "x"}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            LocalSandboxCodeExecutor(**bad)
    with pytest.raises(ConfigError, match="min_isolation"):
        LocalSandboxCodeExecutor(min_isolation="strong")


class _Refusing(Sandbox):
    """A machine on which nothing works."""

    name = "refusing"

    async def run(self, request: Any) -> Any:
        raise SandboxUnavailable("Isolation 'landlock' is required and does not work here.", ("no kernel",))

    async def probe(self) -> Any:
        raise NotImplementedError


def test_a_sandbox_that_cannot_be_is_an_exception_and_no_result() -> None:
    with pytest.raises(SandboxUnavailable, match="landlock"):
        run(LocalSandboxCodeExecutor(sandbox=_Refusing()), "print(1)")


@pytest.mark.requirement("S0-98")
def test_builtins_can_be_restricted() -> None:
    """S0-98."""
    executor = LocalSandboxCodeExecutor(min_isolation="process", restrict_builtins=True)
    assert run(executor, "import json, math; print(json.dumps(math.floor(2.5)))").stdout == "2\n"
    for code, name in [
        ("open('x')", "open"),
        ("eval('1')", "eval"),
        ("import os", "os"),
        ("import urllib.request", "urllib"),
    ]:
        result = run(executor, code)
        assert result.exit_code == 1
        assert name in result.stderr
        assert "not allowed" in result.stderr


@pytest.mark.requirement("S0-19")
def test_it_works_in_the_thread_of_a_running_loop(executor: LocalSandboxCodeExecutor) -> None:
    """S0-19."""

    async def inside() -> str:
        return run(executor, "print('direct')").stdout

    assert asyncio.run(inside()) == "direct\n"


@pytest.mark.slow
@pytest.mark.requirement("S0-52")
def test_many_threads_at_once_do_not_mix(executor: LocalSandboxCodeExecutor) -> None:
    """S0-52."""
    code = "import os, pathlib; pathlib.Path('me').write_text('{0}'); print('{0}', os.listdir(), os.getcwd())"
    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(lambda number: run(executor, code.format(number)), range(24)))
    assert [result.stdout for result in results] == [f"{number} ['me'] /work\n" for number in range(24)]


async def test_cancelling_the_task_that_waits_kills_the_code(executor: LocalSandboxCodeExecutor) -> None:
    """google-adk calls it exactly like this; rows E3 and 18."""
    mark = f"cancel-{os.getpid()}-{time.monotonic_ns()}"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)', '{mark}'])"

    async def turn() -> object:
        return await asyncio.to_thread(executor.execute_code, None, CodeExecutionInput(code=code))  # type: ignore[arg-type]

    task = asyncio.create_task(turn())
    for _ in range(500):
        await asyncio.sleep(0.02)
        if not gone(mark, 0):
            break
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(gone, mark)


def test_output_can_be_followed_and_calling_back_is_no_deadlock(executor: LocalSandboxCodeExecutor) -> None:
    seen: list[tuple[str, bytes, str]] = []
    live = LocalSandboxCodeExecutor(
        min_isolation="process",
        on_output=lambda name, chunk: seen.append((name, chunk, threading.current_thread().name)),
    )
    run(live, "print('one', flush=True)")
    assert seen == [("stdout", b"one\n", "adk-skills-executors")]

    def again(_name: str, _chunk: bytes) -> None:
        run(executor, "print(1)")

    with pytest.raises(RuntimeError, match="wait for itself"):
        run(LocalSandboxCodeExecutor(min_isolation="process", on_output=again), "print('x')")


def _in_child(connection: Any) -> None:
    connection.send(run(LocalSandboxCodeExecutor(min_isolation="process"), "print('child')").stdout)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_it_works_in_a_forked_child_after_the_parent_used_it(executor: LocalSandboxCodeExecutor) -> None:
    run(executor, "pass")
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_in_child, args=(there,))
    child.start()
    assert here.poll(20)
    assert here.recv() == "child\n"
    child.join()
    assert run(executor, "print('parent')").stdout == "parent\n"


@pytest.mark.requirement("S0-50")
def test_nothing_is_left_behind(
    executor: LocalSandboxCodeExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S0-50."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def mixed() -> None:
        for code in ("print(1)", "1/0", "print('x' * 400_000)"):
            run(executor, code)
        result = run(executor, "import time; time.sleep(9)", timeout_seconds=0.1)
        assert result.execution is not None
        assert result.execution.status is Status.TIMEOUT

    mixed()  # what is permanent is there after this
    before = settled()
    for _ in range(4):
        mixed()
    after = settled()
    assert max(now - then for then, now in zip(before, after, strict=True)) < 10  # 16 runs would show
    assert list(tmp_path.iterdir()) == []


def settled() -> tuple[int, int]:
    """What is held when sandboxes that are started ahead are there, and what is over has been let go."""
    deadline = time.monotonic() + 30
    seen = [held()]
    while len(seen) < 5 and time.monotonic() < deadline:
        time.sleep(0.3)
        now = held()
        seen = [*seen, now] if now == seen[-1] else [now]
    return seen[-1]


def held() -> tuple[int, int]:
    """Open descriptors and threads of this process."""
    gc.collect()
    return psutil.Process().num_fds(), threading.active_count()


def test_an_agent_with_it_can_be_copied(executor: LocalSandboxCodeExecutor) -> None:
    from google.adk.agents import LlmAgent

    agent = LlmAgent(name="coder", model="gemini-2.5-flash", code_executor=executor)
    copy = agent.clone()
    assert run(copy.code_executor, "print(2)").stdout == "2\n"
    assert run(executor.model_copy(deep=True), "print(3)").stdout == "3\n"
