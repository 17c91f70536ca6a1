"""What is special to the process level: platforms it has to cope with, and the agent around it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import psutil
import pytest

import preloaded
from adk_skills_agent.errors import ConfigError, SandboxError, SecurityWarning
from adk_skills_agent.sandbox import threads
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy, Status
from adk_skills_agent.sandbox.local import local_sandbox
from adk_skills_agent.sandbox.process.supervise import Launch, start
from plain_user import SOURCES, readable_copy

POLICY = SandboxPolicy(isolation="process", min_isolation="process", wall_seconds=20.0)
HEAD = """
import asyncio, os, sys, tempfile, warnings
warnings.simplefilter("ignore")
tempfile.tempdir = sys.argv[1]
{before}
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.local import local_sandbox
def request(code, **policy):
    limits = {{"isolation": "process", "min_isolation": "process", **policy}}
    return ExecutionRequest(("bash", "-c", code), SandboxPolicy(**limits))
box = local_sandbox()
"""


def agent(code: str, base: Path, *, before: str = "", **options: object) -> subprocess.CompletedProcess[str]:
    """Run an agent of its own; its standard output and error."""
    base = base / "agent-tmp"
    base.mkdir()
    line = [sys.executable, "-c", HEAD.format(before=before) + code, str(base)]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=60, **options)  # type: ignore[call-overload, no-any-return]


def processes_called(*line: str) -> list[int]:
    return [p.pid for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == list(line)]


async def test_it_says_once_that_it_is_no_protection(monkeypatch):
    monkeypatch.setattr(threads, "_said", set())
    with pytest.warns(SecurityWarning, match="files of this user"):
        await local_sandbox().run(ExecutionRequest(("true",), POLICY))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await local_sandbox().run(ExecutionRequest(("true",), POLICY))


async def test_the_agents_own_interpreter_is_meant_literally():
    result = await local_sandbox().run(ExecutionRequest((sys.executable, "-c", "print(1)"), POLICY))
    assert result.stdout == b"1\n"


async def test_an_interpreter_of_the_host_that_cannot_be_started_is_named_without_its_path(tmp_path, nothing_left):
    interpreter = tmp_path / "acme" / "bin" / "python3"
    policy = SandboxPolicy(isolation="process", min_isolation="process", python=str(interpreter))
    not_usable = (ConfigError, "'python3', is not an executable file")
    not_startable = (SandboxError, "The command 'python3' cannot be started: .*'gone', which does not exist")
    for mode, (kind, problem) in {None: not_usable, 0o644: not_usable, 0o755: not_startable}.items():
        if mode is not None:
            interpreter.parent.mkdir(parents=True, exist_ok=True)
            interpreter.write_text(f"#!{tmp_path}/gone\n")
            interpreter.chmod(mode)
        with pytest.raises(kind, match=problem) as caught:
            await local_sandbox().run(ExecutionRequest((str(interpreter), "-c", ""), policy))
        assert str(tmp_path) not in str(caught.value)
        assert any(str(interpreter) in note for note in caught.value.__notes__)


async def test_a_command_beside_the_interpreter_that_cannot_be_started_is_named_without_its_path(tmp_path):
    (tmp_path / "acme-tool").write_text(f"#!{tmp_path}/gone\n")
    (tmp_path / "acme-tool").chmod(0o755)
    (tmp_path / "python3").symlink_to(sys.executable)
    policy = SandboxPolicy(isolation="process", min_isolation="process", python=str(tmp_path / "python3"))
    with pytest.raises(SandboxError, match=r"no command 'acme-tool'.*'gone', which does not exist") as caught:
        await local_sandbox().run(ExecutionRequest(("acme-tool",), policy))
    assert str(tmp_path) not in str(caught.value)
    assert any(str(tmp_path / "acme-tool") in note for note in caught.value.__notes__)


@pytest.mark.parametrize(("missing", "said"), [("cwd", "the working directory"), ("argv", "'no-shell'")])
def test_what_the_system_refuses_to_start_is_named_without_its_path(missing, said, tmp_path):
    path = os.fsencode(tmp_path / "no-shell")
    launch = Launch((path if missing == "argv" else b"/bin/sh",), {}, path if missing == "cwd" else b"/")
    with pytest.raises(SandboxError, match=f"{said} does not exist") as caught:
        start(launch)
    assert str(tmp_path) not in str(caught.value)
    assert os.fsdecode(path) in caught.value.__notes__[0]


async def test_a_process_that_left_session_environment_and_pipes_is_still_found_by_its_folder(nothing_left):
    code = "env -i setsid sleep 60 > /dev/null 2>&1 & sleep 0.05; echo done"
    result = await local_sandbox().run(ExecutionRequest(("bash", "-c", code), POLICY))
    assert result.stdout == b"done\n"
    assert (result.processes_killed, result.survivors) == (1, 0)


async def test_a_daemon_that_forked_twice_is_found_by_its_environment(nothing_left):
    code = """
    up=$PWD/up
    (cd / && setsid sh -c "sleep 60 & echo > $up; sleep 60" > /dev/null 2>&1 < /dev/null &)
    until [ -e up ]; do sleep 0.01; done
    """
    result = await local_sandbox().run(ExecutionRequest(("bash", "-c", code), POLICY))
    assert result.status is Status.OK
    assert result.processes_killed >= 2


async def test_other_processes_of_the_agent_are_left_alone(tmp_path):
    other = subprocess.Popen(["sleep", "60"], cwd=tmp_path)
    forked = os.fork()
    if forked == 0:
        time.sleep(60)
        os._exit(0)
    try:
        request = ExecutionRequest(("bash", "-c", "setsid sleep 60 & sleep 0.2"), POLICY)
        result = await local_sandbox().run(request)
        assert result.processes_killed == 1
        assert other.poll() is None
        assert os.waitpid(forked, os.WNOHANG) == (0, 0)
    finally:
        os.kill(forked, signal.SIGKILL)
        os.waitpid(forked, 0)
        other.kill()
        other.wait()


@pytest.mark.requirement("S0-91")
async def test_a_flood_of_processes_is_stopped_by_the_watchdog_where_no_limit_holds(nothing_left):
    if os.geteuid() != 0:
        pytest.skip("only root has no RLIMIT_NPROC")
    policy = SandboxPolicy(isolation="process", min_isolation="process", pids=10, wall_seconds=20.0)
    result = await local_sandbox().run(
        ExecutionRequest(("bash", "-c", "for i in {1..100}; do sleep 60 & done; wait"), policy)
    )
    assert result.status is Status.ERROR
    assert not result.timed_out
    assert any("processes" in note for note in result.notes)


WITHOUT = {
    "no pidfd": "del os.pidfd_open",
    "no pidfd and no waitid": "del os.pidfd_open, os.waitid",
    "no memfd": "del os.memfd_create",
    "no resource": "sys.modules['resource'] = None",
}


@pytest.mark.parametrize("missing", WITHOUT.values(), ids=WITHOUT.keys())
@pytest.mark.requirement("S0-94")
def test_it_works_where_the_system_offers_less(missing, tmp_path):
    """S0-94."""
    code = """
from dataclasses import replace
async def main():
    for _ in range(20):
        r = await box.run(request("cat; exit 3"))
        assert r.exit_code == 3, r
    r = await box.run(replace(request("cat"), stdin=b"data"))
    assert r.stdout == b"data", r
    r = await box.run(request("sleep 60 & sleep 60", wall_seconds=0.3))
    assert r.timed_out and r.survivors == 0, r
    r = await box.run(request("setsid sleep 60 & exit 0", drain_seconds=0.1))
    assert r.exit_code == 0 and r.survivors == 0, r
    task = asyncio.create_task(box.run(request("sleep 60")))
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
asyncio.run(main())
print(os.listdir(sys.argv[1]))
"""
    done = agent(code, tmp_path, before=missing)
    assert (done.stderr, done.stdout) == ("", "[]\n")


@pytest.mark.requirement("S0-94")
def test_without_the_module_resource_only_the_time_holds_and_the_report_says_so(tmp_path):
    """S0-94. Seen: "The sandbox could not choose an isolation level", whatever was demanded."""
    code = """
from dataclasses import replace
from adk_skills_agent import SandboxPolicy
async def main():
    r = await box.run(request("sleep 60", wall_seconds=0.3))
    assert r.timed_out, r
    report = r.isolation
    assert (report.enforced["cpu"], report.enforced["pids"]) == ("none", "watchdog"), report
    assert any("no module 'resource'" in sentence for sentence in report.degraded), report
    try:
        await box.run(replace(request("true"), policy=SandboxPolicy()))
    except Exception as error:
        print(type(error).__name__, "no module 'resource'" in " ".join(error.reasons))
asyncio.run(main())
"""
    done = agent(code, tmp_path, before="sys.modules['resource'] = None")
    assert (done.stderr, done.stdout) == ("", "SandboxUnavailable True\n")


@pytest.mark.requirement("S0-97")
def test_the_unsafe_executor_warns_once_and_not_twice():
    """S0-97: its own sentence covers that of the level."""
    code = """
import warnings
from adk_skills_agent.executors import CodeExecutionInput, UnsafeLocalCodeExecutor
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    executor = UnsafeLocalCodeExecutor()
    for _ in range(2):
        executor.execute_code(None, CodeExecutionInput(code="print(1)"))
print([str(one.message)[:23] for one in said])
"""
    done = subprocess.run(
        [preloaded.program("python"), "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stderr, done.stdout) == ("", "['UnsafeLocalCodeExecutor']\n")


def test_a_forked_agent_has_machinery_of_its_own_and_touches_nothing_of_its_parents(tmp_path):
    code = """
async def main():
    task = asyncio.create_task(box.run(request("sleep 0.6; echo parent")))
    await asyncio.sleep(0.2)
    pid = os.fork()
    if pid == 0:
        import atexit, threading
        answer = []
        thread = threading.Thread(target=lambda: answer.append(asyncio.run(box.run(request("echo child")))))
        thread.start()
        thread.join()
        os.write(1, answer[0].stdout)
        task.cancel()
        try:
            task.get_coro().close()  # what the end of an interpreter does to a coroutine
        except RuntimeError:
            pass
        atexit._run_exitfuncs()
        os._exit(0)
    await asyncio.to_thread(os.waitpid, pid, 0)
    os.write(1, (await task).stdout)
asyncio.run(main())
os.write(1, str(os.listdir(sys.argv[1])).encode())
"""
    done = agent(code, tmp_path)
    assert done.stdout == "child\nparent\n[]"


def test_an_agent_that_ends_in_the_middle_of_a_run_ends_the_run(tmp_path):
    code = f"""
import threading, time
flag = os.path.join(sys.argv[1], "flag")
asked = request(f"echo > {{flag}}; sleep 61.{os.getpid()}")
threading.Thread(target=lambda: asyncio.run(box.run(asked)), daemon=True).start()
while not os.path.exists(flag):
    time.sleep(0.01)
"""
    agent(code, tmp_path)
    assert [path.name for path in (tmp_path / "agent-tmp").iterdir()] == ["flag"]
    assert processes_called("sleep", f"61.{os.getpid()}") == []


@pytest.mark.slow
def test_an_agent_that_is_process_1_keeps_no_zombies(tmp_path):
    probe = subprocess.run(["unshare", "-p", "-f", "--mount-proc", "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("needs the right to make a PID namespace")
    code = """
async def main():
    for n in range(30):
        r = await box.run(request("(sleep 60 & setsid sleep 60 & sleep 0 & exit 0) > /dev/null 2>&1"))
        assert r.survivors == 0, r
    assert os.getpid() == 1
    await asyncio.sleep(0.1)
asyncio.run(main())
print([p for p in os.listdir("/proc") if p.isdigit()])
"""
    (tmp_path / "t").mkdir()
    line = ["unshare", "-p", "-f", "--mount-proc", sys.executable, "-c", HEAD.format(before="") + code]
    done = subprocess.run([*line, str(tmp_path / "t")], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == ("['1']\n", "")


def test_an_interrupt_from_the_keyboard_ends_the_run(tmp_path):
    code = f"""
import signal, threading
flag = os.path.join(sys.argv[1], "flag")
async def main():
    task = asyncio.create_task(box.run(request(f"echo > {{flag}}; sleep 62.{os.getpid()}")))
    while not os.path.exists(flag):
        await asyncio.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
    await task
try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", os.listdir(sys.argv[1]))
"""
    done = agent(code, tmp_path)
    assert (done.stdout, done.stderr) == ("interrupted ['flag']\n", "")
    assert processes_called("sleep", f"62.{os.getpid()}") == []


def test_a_status_taken_by_other_code_is_an_error_and_not_a_success(tmp_path):
    code = """
import time
from adk_skills_agent.errors import SandboxError
async def main():
    for _ in range(20):
        task = asyncio.create_task(box.run(request("sleep 0.5; exit 5")))
        def take():
            while not task.done():
                try:
                    return os.waitpid(-1, 0)
                except ChildProcessError:  # not started yet
                    time.sleep(0.01)
        if await asyncio.to_thread(take):
            break  # else the run's own wait was quicker
    try:
        print(await task)
    except SandboxError as error:
        print(error)
asyncio.run(main())
print(os.listdir(sys.argv[1]))
"""
    done = agent(code, tmp_path)
    assert done.stdout.startswith("The exit status of the command was taken by other code")
    assert done.stdout.endswith("[]\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_an_ordinary_user_has_a_process_limit_and_cleans_up_folders_without_permission(tmp_path):
    alone = (
        61_235  # runs nothing else: the limit counts all processes of a user, and scripts of other tests are nobody's
    )
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chown(folder, alone, alone)
        code = f"""
sys.path.insert(0, {str(readable_copy(SOURCES, Path(folder, "src")))!r})
import adk_skills_agent
"""
        body = """
async def main():
    r = await box.run(request("mkdir -p a/b; echo x > a/b/c; chmod 000 a/b/c a/b a .; echo done"))
    print(r.stdout, r.isolation.enforced["pids"])
    r = await box.run(request("for i in {1..60}; do sleep 5 & done; echo all", pids=20, wall_seconds=2.0))
    print(b"esource" in r.stderr)
asyncio.run(main())
print([name for name in os.listdir(sys.argv[1]) if name != "src"])
"""
        python = next((p for p in ("/usr/bin/python3", "/usr/local/bin/python3") if usable(p, alone)), None)
        if python is None:
            pytest.skip("no Python 3.11 that other users may run")
        line = [python, "-c", HEAD.format(before=code) + body, folder]
        done = subprocess.run(
            line,
            capture_output=True,
            text=True,
            user=alone,
            group=alone,
            extra_groups=[],
            cwd="/",
            env={},
            check=False,
            timeout=60,
        )
        assert (done.stdout.splitlines(), done.stderr) == (["b'done\\n' rlimit", "True", "[]"], "")


def usable(python: str, uid: int) -> bool:
    try:
        test = "import sys; sys.exit(sys.version_info < (3, 11))"
        return subprocess.run([python, "-c", test], user=uid, cwd="/", check=False).returncode == 0
    except OSError:
        return False
