"""UnsafeLocalCodeExecutor: google-adk's name, with limits; in_process for debugging.

S0-76, S0-97, S0-98, S1-4 to S1-14.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import pytest
from executing import run
from google.adk.code_executors import UnsafeLocalCodeExecutor as GoogleExecutor

import preloaded
from adk_skills_agent import SandboxPolicy
from adk_skills_agent.errors import ConfigError, SandboxError
from adk_skills_agent.executors import CodeExecutionInput, File, UnsafeLocalCodeExecutor


@pytest.fixture
def debugging() -> UnsafeLocalCodeExecutor:
    return UnsafeLocalCodeExecutor(in_process=True)


@pytest.mark.requirement("S1-7", "S1-8")
def test_it_takes_what_google_adks_takes_and_refuses_what_that_refuses() -> None:
    """S1-7, S1-8."""
    assert UnsafeLocalCodeExecutor().timeout_seconds == GoogleExecutor().timeout_seconds == 300
    assert UnsafeLocalCodeExecutor(timeout_seconds=None).effective_policy().wall_seconds is None
    for setting in ("stateful", "optimize_data_file"):
        for kind in (GoogleExecutor, UnsafeLocalCodeExecutor):
            with pytest.raises(ValueError, match=f"Cannot set `{setting}=True` in UnsafeLocalCodeExecutor"):
                kind(**{setting: True})


@pytest.mark.parametrize(
    "code",
    [
        "print('hello')",
        "import sys; print('out'); print('warn', file=sys.stderr)",
        "import sys; print('out'); sys.exit(3)",
        "import sys; sys.exit('text')",
        "raise ValueError('bad')",
        "import os; os._exit(4)",
        "if __name__ == '__main__':\n    print(__name__)",
        "print('héllo')",
        "def f(:",
    ],
)
def test_it_answers_like_google_adks_own(code: str) -> None:
    """stdout, exit code and whether it failed; only the words of a failure may differ."""
    theirs, ours = GoogleExecutor().execute_code(None, _input(code)), run(UnsafeLocalCodeExecutor(), code)
    assert (ours.stdout, ours.exit_code, bool(ours.stderr)) == (theirs.stdout, theirs.exit_code, bool(theirs.stderr))


def _input(code: str):
    from google.adk.code_executors.code_execution_utils import CodeExecutionInput

    return CodeExecutionInput(code=code)


@pytest.mark.requirement("S1-13")
def test_the_level_is_process_whatever_the_policy_says() -> None:
    """S1-13: the files of the user are open; the class says so, and nobody can choose otherwise by mistake."""
    policy = SandboxPolicy(isolation="namespaces", min_isolation="landlock", memory_bytes=1 << 30, wall_seconds=4)
    effective = UnsafeLocalCodeExecutor(policy=policy).effective_policy()
    assert (effective.isolation, effective.min_isolation) == ("process", "process")
    assert (effective.memory_bytes, effective.wall_seconds) == (1 << 30, 4)


@pytest.mark.requirement("S1-9", "S1-10", "S1-11", "S1-12")
def test_the_child_has_limits_and_a_clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """S1-9 to S1-12."""
    monkeypatch.setenv("GOOGLE_API_KEY", "hunter2")
    result = run(UnsafeLocalCodeExecutor(), "import os; print(dict(os.environ))")
    assert "hunter2" not in result.stdout
    assert run(UnsafeLocalCodeExecutor(), "while True: pass", timeout_seconds=0.3).stderr == "timed out after 0.3 s"
    assert run(UnsafeLocalCodeExecutor(max_memory_mb=64), "x = b'1' * (200 << 20)").exit_code == 1


def test_modules_of_the_application_can_be_imported_but_hide_no_standard_one(tmp_path, monkeypatch) -> None:
    (tmp_path / "my_application.py").write_text("ANSWER = 42")
    (tmp_path / "colorsys.py").write_text("raise RuntimeError('hijacked')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert (
        run(UnsafeLocalCodeExecutor(), "import my_application, colorsys; print(my_application.ANSWER)").stdout == "42\n"
    )


@pytest.mark.requirement("S0-50", "S0-51", "S0-93")
def test_files_and_a_working_directory_are_in_a_private_folder_that_goes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S0-50, S0-51, S0-93: google-adk's own ignores input files and works in the agent's folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    files = [File(name="in.txt", content=b"given")]
    code = "import os; print(open('in.txt').read(), os.getcwd()); open('out.txt', 'w').write('made')"
    result = run(UnsafeLocalCodeExecutor(), code, input_files=files, working_dir="sub")
    assert result.stdout == "given /work/sub\n"
    assert [(file.name, file.content) for file in result.output_files] == [("sub/out.txt", b"made")]
    assert Path.cwd() == tmp_path
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requirement("S0-97", "S1-14")
def test_the_warning_is_said_once() -> None:
    """S0-97, S1-14."""
    code = """
import warnings
from pathlib import Path
warnings.simplefilter("always")
from adk_skills_agent.executors import CodeExecutionInput, UnsafeLocalCodeExecutor
from adk_skills_agent.errors import SecurityWarning
for in_process in (False, True):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(2):
            UnsafeLocalCodeExecutor(in_process=in_process).execute_code(None, CodeExecutionInput(code="1"))
        own = [str(w.message) for w in seen if issubclass(w.category, SecurityWarning)]
        print(sum("UnsafeLocalCodeExecutor" in text for text in own), sum("in_process" in text for text in own))
"""
    done = subprocess.run([preloaded.program("python"), "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1 0\n0 1\n"


# In the process


@pytest.mark.requirement("S1-4", "S1-8")
def test_in_process_code_runs_here_and_its_output_is_kept(debugging: UnsafeLocalCodeExecutor) -> None:
    """S1-4, S1-8."""
    result = run(debugging, "import threading; print(threading.current_thread().name, __name__)")
    assert (result.stdout, result.stderr, result.exit_code) == ("adk-skills-in-process __main__\n", "", 0)


@pytest.mark.parametrize(
    ("code", "status", "stderr"),
    [
        ("raise SystemExit", 0, ""),
        ("raise SystemExit(0)", 0, ""),
        ("raise SystemExit(3)", 3, "Exit code 3"),
        ("raise SystemExit('text')", 1, "text"),
        ("1/0", 1, "ZeroDivisionError"),
        ("def f(:", 1, "SyntaxError"),
        ("raise KeyboardInterrupt", 1, "KeyboardInterrupt"),
        ("import sys; print('warn', file=sys.stderr)", 0, ""),
    ],
)
def test_in_process_code_cannot_end_the_agent(
    debugging: UnsafeLocalCodeExecutor, code: str, status: int, stderr: str
) -> None:
    result = run(debugging, code)
    assert result.exit_code == status
    assert stderr in result.stderr
    assert bool(result.stderr) == (status != 0)
    assert debugging.healthy


@pytest.mark.requirement("S0-76")
def test_a_timeout_leaves_it_unhealthy_until_the_thread_has_ended(debugging: UnsafeLocalCodeExecutor) -> None:
    """S0-76: fail fast with a hint; reinitialize() refuses while the thread is alive."""
    release = threading.Event()
    sys.modules["release_of_test"] = release  # type: ignore[assignment]
    code = "print('begun')\nimport sys; sys.modules['release_of_test'].wait(60)\nprint('late')"
    result = run(debugging, code, timeout_seconds=1.5)
    assert (result.stdout, result.stderr, result.exit_code) == ("begun\n", "timed out after 1.5 s", -1)
    assert not debugging.healthy
    with pytest.raises(SandboxError, match=r"reinitialize\(\)"):
        run(debugging, "print(1)")
    with pytest.raises(RuntimeError, match="still running"):
        debugging.reinitialize()
    release.set()
    deadline = time.monotonic() + 30
    while not debugging.healthy and time.monotonic() < deadline:
        time.sleep(0.02)
        try:
            debugging.reinitialize()
        except RuntimeError:
            continue
    assert run(debugging, "print('again')").stdout == "again\n"
    del sys.modules["release_of_test"]


def test_a_call_that_waited_for_the_one_that_hangs_is_refused(debugging: UnsafeLocalCodeExecutor) -> None:
    """The double check after the lock."""
    begun, release = threading.Event(), threading.Event()
    sys.modules["release_of_test"] = release  # type: ignore[assignment]
    sys.modules["begun_of_test"] = begun  # type: ignore[assignment]
    hang = "import sys; sys.modules['begun_of_test'].set(); sys.modules['release_of_test'].wait(60)"
    first = threading.Thread(target=run, args=(debugging, hang), kwargs={"timeout_seconds": 1.5})
    first.start()
    assert begun.wait(30)
    with pytest.raises(SandboxError, match="did not end in time"):
        run(debugging, "print(1)")
    first.join()
    release.set()
    del sys.modules["release_of_test"], sys.modules["begun_of_test"]


def test_what_other_threads_print_is_not_taken(debugging: UnsafeLocalCodeExecutor, capsys) -> None:
    stop = threading.Event()

    def talk() -> None:
        while not stop.wait(0.01):
            print("host")

    talker = threading.Thread(target=talk)
    talker.start()
    result = run(debugging, "import time; time.sleep(0.2); print('own')")
    stop.set()
    talker.join()
    assert result.stdout == "own\n"
    assert "host\n" in capsys.readouterr().out


def test_in_process_output_is_bounded(debugging: UnsafeLocalCodeExecutor) -> None:
    result = run(debugging, "for _ in range(100): print('x' * 100_000)\nraise ValueError")
    assert len(result.stdout) < 25_000
    assert result.stderr.endswith("output truncated")


@pytest.mark.requirement("S0-51")
def test_in_process_takes_no_files(debugging: UnsafeLocalCodeExecutor) -> None:
    """S0-51: files go into a folder of their own, which code in the agent cannot have."""
    with pytest.raises(ValueError, match="in_process=False"):
        run(debugging, "pass", input_files=[File(name="a", content=b"")])
    with pytest.raises(ValueError, match="in_process=False"):
        run(debugging, "pass", working_dir="x")


@pytest.mark.requirement("S0-98")
def test_restricted_builtins_are_friction_and_no_boundary() -> None:
    """S0-98."""
    for executor in (
        UnsafeLocalCodeExecutor(in_process=True, restrict_builtins=True),
        UnsafeLocalCodeExecutor(restrict_builtins=True),
    ):
        for code in (
            "open('x')",
            "exec('1')",
            "compile('1', '', 'eval')",
            "breakpoint()",
            "import socket",
            "import ctypes",
        ):
            assert "not allowed here" in run(executor, code).stderr
        assert run(executor, "import json; print(json.dumps([1]))").stdout == "[1]\n"
        around = "print([c for c in ().__class__.__base__.__subclasses__() if c.__name__ == '_wrap_close'][0].__name__)"
        assert run(executor, f"import json\n{around}").stdout == "_wrap_close\n"


def test_a_deep_copy_has_an_interpreter_of_its_own(debugging: UnsafeLocalCodeExecutor) -> None:
    with warnings.catch_warnings():
        copy = debugging.model_copy(deep=True)
    assert run(copy, "print(1)").stdout == "1\n"


def test_in_process_an_impossible_timeout_is_refused_and_none_at_all_is_already_over() -> None:
    executor = UnsafeLocalCodeExecutor(in_process=True)
    with pytest.raises(ConfigError, match="wall_seconds"):
        executor.execute_code(None, CodeExecutionInput(code="1", timeout_seconds=-1))  # type: ignore[arg-type]
    none = executor.execute_code(None, CodeExecutionInput(code="print(1)", timeout_seconds=0))  # type: ignore[arg-type]
    assert (none.stdout, none.stderr, none.exit_code) == ("", "timed out after 0 s", -1)
    assert executor.healthy


@pytest.mark.parametrize(
    "setting", [{"env": {"A": "b"}}, {"max_memory_mb": 10}, {"max_cpu_seconds": 1}, {"allowed_env_vars": ["HOME"]}]
)
def test_in_process_a_setting_without_effect_is_refused(setting: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(setting))):
        UnsafeLocalCodeExecutor(in_process=True, **setting)


def test_in_process_a_refused_builtin_shows_no_file_of_this_package() -> None:
    executor = UnsafeLocalCodeExecutor(in_process=True, restrict_builtins=True)
    for code in ("open('x')", "import os"):
        said = executor.execute_code(None, CodeExecutionInput(code=f"def f():\n  {code}\nf()")).stderr  # type: ignore[arg-type]
        assert "not allowed" in said
        assert 'File "<code>", line 2, in f' in said
        assert "adk_skills_agent" not in said
