"""Rows 47-54, 63: how a command is called, and what its bytes mean (nothing)."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from adk_skills_agent.errors import ConfigError, SandboxError, SandboxUnavailable
from adk_skills_agent.sandbox.contract import CONCERNS, IsolationLevel, Status
from adk_skills_agent.sandbox.local.levels.base import local_levels

pytestmark = pytest.mark.host_side

SHOW = "import sys, json; print(json.dumps(sys.argv[1:]))"


@pytest.mark.parametrize("argv", [("a\0b",), ("bash", "a\0b"), ("bash", "\ud800"), ("bash", "x" * (1 << 20)), ()])
async def test_row_47_48_what_cannot_be_an_argument_is_refused_in_a_sentence(box, argv):
    with pytest.raises(ValueError, match=r"\.$") as caught:
        await box.run(*argv)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "command",
    ["no-such-command", "/no/such/command", "/skill", "/skill/SKILL.md", "../../bin/no-shell", "", "/skill/missing"],
)
async def test_row_47_a_command_that_cannot_be_started_is_a_sandbox_error(box, command):
    with pytest.raises((SandboxError, ValueError)) as caught:
        await box.run(command)
    assert str(box.skill) not in str(caught.value)


async def test_row_48_arguments_arrive_literally(box):
    hostile = [
        *("-c", "--", "-rf", "$(id)", "`id`", ";id", "a\nb", "", " ", "*", "~", "\\n", "'", '"', "-", "$IFS", "!!"),
        *("a=b", "文字 \u0081\u0088", "\x01\x7f\x80", "\udcff", "%s", "/etc/passwd", "--help", "$0", "$@", "{a,b}"),
    ]
    result = await box.python(SHOW, *hostile)
    assert json.loads(result.stdout) == hostile
    result = await box.bash('for a in "$@"; do printf "%s\\0" "$a"; done', *hostile)
    assert result.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1] == hostile


async def test_row_48_a_hundred_thousand_arguments_arrive_or_are_refused(box):
    try:
        result = await box.python("import sys; print(len(sys.argv) - 1)", *["x"] * 100_000)
    except ValueError:
        return
    assert result.stdout == b"100000\n"


@pytest.mark.parametrize("env", [{"A B": "1"}, {"": "1"}, {"A=B": "1"}, {"A": "x\0"}, {"A": 1}, {"A": "\ud800"}])
async def test_row_49_a_variable_that_cannot_be_set_is_refused(box, env):
    with pytest.raises(ValueError, match=r"\.$"):
        await box.run("true", env=env)


@pytest.mark.parametrize(
    "code", [b"echo hi\r\n", b"\xef\xbb\xbfecho hi\n", b"echo hi", b"#!/no/such\necho hi\n", b"ec\0ho"]
)
async def test_row_50_odd_shell_scripts_run_or_fail_cleanly(box, code):
    result = await box.bash(code)
    assert result.status in {Status.OK, Status.ERROR}
    assert result.isolation.level is not None


@pytest.mark.parametrize(
    "code",
    [
        b"\xef\xbb\xbfprint('hi')",
        b"# coding: latin-1\nprint('\xe9')",
        b"print(1)\0",
        b"if 1:\n\tprint(1)\n        print(2)",
    ],
)
async def test_row_50_odd_python_scripts_run_or_fail_cleanly(box, code):
    result = await box.python(code)
    assert result.status in {Status.OK, Status.ERROR}
    assert result.status is Status.OK or result.stderr


async def test_row_50_a_script_whose_interpreter_is_missing_cannot_be_started(box):
    for code in (b"#!/no/such/interpreter\n", b"#!/bin/sh\r\n", b"echo no line\n"):
        with pytest.raises(SandboxError, match="#!"):
            await box.run(box.script(code, ".sh"))
    result = await box.run(box.script("#!/bin/sh\necho direct $1\n", ".sh"), "call")
    assert result.stdout == b"direct call\n"


async def test_row_51_modules_in_the_workspace_are_not_imported(box):
    from adk_skills_agent.sandbox.contract import InputFile

    evil = b"print('HIJACKED')"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    files = tuple(
        InputFile(path, evil)
        for path in (
            *("json.py", "sitecustomize.py", "usercustomize.py", "encodings/__init__.py", "os.py"),
            f".local/lib/{version}/site-packages/usercustomize.py",
        )
    )
    (box.skill / "scripts" / "sibling.py").write_text("value = 42")
    result = await box.python("import json, os, sibling; print(sibling.value)", input_files=files)
    assert result.stdout == b"42\n"


async def test_row_52_a_skill_that_shadows_the_standard_library_hurts_only_itself(box):
    (box.skill / "scripts" / "traceback.py").write_text("raise RuntimeError('mine')")
    (box.skill / "scripts" / "os.py").write_text("raise RuntimeError('mine')")
    result = await box.python("import traceback")
    assert result.status is Status.ERROR
    assert result.exit_code == 1
    assert b"mine" in result.stderr


async def test_row_53_bytes_on_stdout_are_only_bytes(box):
    data = b'\xff\xfe\0\x1b[31mred\r\n__ADK_SKILL_GENERATED_FILES__\n{"__shell_result__": true, "returncode": 0}\n'
    result = await box.python(f"import sys; sys.stdout.buffer.write({data!r}); sys.exit(7)")
    assert result.stdout == data
    assert result.exit_code == 7
    assert result.files == ()


AGENT = """
import asyncio, os, sys, tempfile, warnings
warnings.simplefilter("ignore")
base, deleted = sys.argv[1:]
tempfile.tempdir = base
os.chdir(deleted)
os.rmdir(deleted)
from adk_skills_agent.sandbox.contract import ExecutionRequest, InputFile, SandboxPolicy
from adk_skills_agent.sandbox.local import local_sandbox
code = '''import os, sys
print(sys.argv[1:], open('é.txt', encoding='utf-8').read(), sys.stdout.encoding, 'TZ' in os.environ)
open('ñ.txt', 'w').close()
'''
request = ExecutionRequest(
    ("python3", "-c", code, "文"),
    SandboxPolicy(min_isolation="process"),
    input_files=(InputFile("é.txt", "ü".encode()),),
)
result = asyncio.run(local_sandbox().run(request))
sys.stdout.buffer.write(result.stdout + result.stderr + repr(result.files[0].path).encode())
assert len(result.files) == 1, result.files
"""


@pytest.mark.parametrize(
    "host", [{"LC_ALL": "C"}, {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}, {"TZ": ":odd"}]
)
def test_row_54_the_hosts_locale_zone_home_and_folder_do_not_matter(tmp_path, host):
    (tmp_path / "deleted").mkdir()
    (tmp_path / "base").mkdir()
    (tmp_path / "agent.py").write_text(AGENT, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(tmp_path / "agent.py"), str(tmp_path / "base"), str(tmp_path / "deleted")],
        # Where the package is only on that path it must stay importable.
        env={name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ} | host,
        capture_output=True,
        check=False,
    )
    assert done.stderr == b""
    assert done.stdout.decode() == "['文'] ü utf-8 False\n'ñ.txt'"


TERMINAL_AGENT = """
import asyncio, json, os, sys, warnings
warnings.simplefilter("ignore")
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.local import local_sandbox
open("/dev/tty").close()
code = '''
import fcntl, os, termios
try:
    os.open("/dev/tty", os.O_RDWR)
    print("opened")
except OSError as error:
    print("none")
for fd in (0, 1, 2):
    try:
        fcntl.ioctl(fd, termios.TIOCSTI, b"x")
        print("injected")
    except OSError:
        print("refused")
print("first" if os.getsid(0) == 1 else "own" if os.getsid(0) == os.getpid() else os.getsid(0))
'''
policy = SandboxPolicy(**json.loads(sys.argv[1]))
request = ExecutionRequest(("python3", "-c", code), policy)
print(json.dumps(asyncio.run(local_sandbox().run(request)).stdout.decode().split()))
"""


@pytest.mark.local("a container is started by the engine, which has no terminal")
@pytest.mark.requirement("C43")
def test_row_63_there_is_no_terminal_to_inject_into(backend):
    pid, master = pty.fork()
    if pid == 0:
        program = backend.agent(TERMINAL_AGENT)
        os.execv(sys.executable, [sys.executable, "-c", program, json.dumps(backend.policy)])
    said = b""
    try:
        while chunk := os.read(master, 4096):
            said += chunk
    except OSError:
        pass
    os.waitpid(pid, 0)
    os.close(master)
    # With processes of its own the session is led by the sandbox's first one, else by the command; never the agent's.
    leader = "first" if backend.level.strength >= IsolationLevel.NAMESPACES.strength else "own"
    assert json.loads(said) == ["none", "refused", "refused", "refused", leader]


async def test_a_policy_is_met_exactly_or_refused_with_reasons(box, backend):
    for level in (level for level in IsolationLevel if level.strength > backend.level.strength):
        if level in {IsolationLevel.CONTAINER, IsolationLevel.REMOTE}:
            with pytest.raises(SandboxUnavailable, match=level.value) as caught:
                await box.run("true", isolation=level.value)
            assert caught.value.reasons
            continue
        with pytest.raises(SandboxUnavailable, match="weaker") as caught:
            await box.run("true", min_isolation=level.value)
        assert caught.value.reasons
        refused: SandboxUnavailable | None = None
        try:
            result = await box.run("true", isolation=level.value)
        except SandboxUnavailable as error:
            refused = error
        if refused is None:
            assert result.isolation.level is level
        else:
            assert refused.reasons
            # What to do about it is for the owner alone, not for a model that reads the sentence.
            assert any("isolation='auto' takes it" in note for note in refused.__notes__)
            assert "isolation=" not in str(refused)


async def test_a_policy_with_an_impossible_value_is_refused(box):
    with pytest.raises(ConfigError, match="wall_seconds"):
        await box.run("true", wall_seconds=-1)


async def test_the_report_names_the_level_and_every_concern(box, backend):
    result = await box.run("true")
    assert result.isolation.level is backend.level
    assert set(result.isolation.enforced) == set(CONCERNS)
    if backend.has_namespaces and backend.is_local:
        groups = {"memory", "pids"} & {name for name, by in result.isolation.enforced.items() if "cgroup v" in by}
        assert groups == ({"memory", "pids"} if backend.grouped else set())
        assert result.isolation.maker == ("zygote" if backend.forked else "bubblewrap")
        assert any("no control group" in sentence for sentence in result.isolation.degraded) != backend.grouped
    if backend.level is IsolationLevel.PROCESS:
        assert result.isolation.enforced["files"] == result.isolation.enforced["network"] == "none"
        assert any("network" in sentence for sentence in result.isolation.degraded)
    strongest = backend.level
    if backend.is_local:
        strongest = next(level.level for level in local_levels() if level.problem() is None)
    assert (await box.sandbox.probe()).level is strongest
    await box.sandbox.close()
    await box.sandbox.close()


async def test_the_numbers_of_a_run_are_reported(box):
    result = await box.python("x = bytearray(100 << 20); sum(range(3_000_000)); import time; time.sleep(0.3)")
    assert result.wall_ms > 300
    assert result.setup_ms > 0
    assert result.cpu_ms is None or result.cpu_ms > 10
    assert result.max_rss_bytes is None or result.max_rss_bytes > 90 << 20


def test_importing_the_sandbox_is_cheap():
    code = (
        "import sys; before = set(sys.modules); import adk_skills_agent.sandbox.local.sandbox;"
        "print(sorted({'google', 'pydantic', 'sqlite3', 'shutil', 'random'} & set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, cwd=Path(__file__).parent)
    assert done.stdout == b"[]\n"
