"""Row 31: what ends a sandbox whose agent was killed while bubblewrap was making it.

That an agent killed at any moment leaves nothing is a row of the conformance suite; here the moments are provoked.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import level_table
from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import ExecutionRequest, ExecutionResult, SandboxPolicy, Status
from adk_skills_agent.sandbox.local import local_sandbox
from adk_skills_agent.sandbox.local.namespaces import bubblewrap
from adk_skills_agent.sandbox.local.namespaces.bubblewrap import kept_group
from adk_skills_agent.sandbox.local.namespaces.zygote import ZygoteLife
from adk_skills_agent.sandbox.process.supervise import Child, Launch
from adk_skills_agent.sandbox.process.tree import children_of

pytestmark = pytest.mark.warm_pool

POLICY = SandboxPolicy(isolation="namespaces", min_isolation="namespaces", warm_slots=0, wall_seconds=30)
GONE_SECONDS = 30.0
HANG_SECONDS = 60.0

AGENT = """
import asyncio, os, signal, sys, time, warnings
warnings.simplefilter("ignore")
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.local import local_sandbox
from adk_skills_agent.sandbox.local.namespaces.bubblewrap import kept_group
from adk_skills_agent.sandbox.local.namespaces.zygote import ZygoteLife
ZygoteLife.ready = lambda *_: None  # all sandboxes are bubblewrap's
policy = SandboxPolicy(isolation="namespaces", min_isolation="namespaces", warm_slots=0, wall_seconds=30)
def run(code="true", **settings):
    return asyncio.run(local_sandbox().run(ExecutionRequest(("sh", "-c", code), policy, **settings)))
"""

# Bubblewrap has cloned the sandbox's first process and cannot say where: that process waits for bubblewrap's word.
HALF_MADE = """
import fcntl, stat
from adk_skills_agent.sandbox.local.namespaces import bubblewrap
launch = bubblewrap.Launch
def with_full_pipes(*given, **named):
    made = launch(*given, **named)
    for descriptor in made.pass_fds:
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, 4096)
            os.write(descriptor, bytes(4096))
    return made
def wait(info, child):
    while not bubblewrap.children_of(child.pid):
        time.sleep(0.001)
    print("up", flush=True)
    time.sleep(60)
bubblewrap.Launch, bubblewrap._first_pid = with_full_pipes, wait
run()
"""

# Bubblewrap itself waits until the agent has mapped the user ids.
UNMAPPED = """
from adk_skills_agent.sandbox.local.namespaces import bubblewrap
def wait(pid, uid):
    print("up", flush=True)
    time.sleep(60)
bubblewrap.map_users = wait
run()
"""


@pytest.fixture(autouse=True)
def no_keeper(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """None is left; bubblewrap makes all sandboxes."""
    level_table.require("namespaces")
    monkeypatch.setattr(ZygoteLife, "ready", lambda *_: None)
    yield
    deadline = time.monotonic() + GONE_SECONDS  # what a run leaves is waited for by a thread
    while (left := [child for child in psutil.Process().children() if is_keeper(child)]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.005)
    assert left == []


def is_keeper(process: psutil.Process) -> bool:
    """Or was one and was not waited for."""
    return process.status() == psutil.STATUS_ZOMBIE or process.cmdline()[-1:] == ["adk-skills-keeper"]


def started(pid: int) -> psutil.Process:
    """A keeper that reads."""
    process = psutil.Process(pid)
    while process.status() != psutil.STATUS_SLEEPING or process.num_fds() > 3:
        time.sleep(0.005)
    return process


def run(*argv: str) -> ExecutionResult:
    return asyncio.run(local_sandbox().run(ExecutionRequest(argv, POLICY)))


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def is_soon_gone(pid: int) -> bool:
    deadline = time.monotonic() + GONE_SECONDS
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.005)
    return not is_alive(pid)


def agent(program: str, **settings: object) -> subprocess.Popen[str]:
    """An agent of its own."""
    line = [sys.executable, "-c", AGENT + textwrap.dedent(program)]
    return subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **settings)  # type: ignore[call-overload, no-any-return]


def said_by(program: str) -> list[str]:
    """What an agent prints until it ends well."""
    with agent(program) as process:
        said, _ = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 0
    return said.split()


@pytest.mark.parametrize(
    ("program", "stop"),
    [(HALF_MADE, ""), (HALF_MADE, "bubblewrap"), (UNMAPPED, "agent")],
    ids=["half-made", "half-made-and-stopped", "unmapped-by-a-stopped-agent"],
)
def test_row_31_a_sandbox_that_is_being_made_dies_with_the_agent(program, stop):
    if program is UNMAPPED and os.geteuid() != 0:
        pytest.skip("only the sandboxes of root have user ids the agent maps")
    with agent(program) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        below = psutil.Process(process.pid).children(recursive=True)
        names = [one.name() for one in below]
        assert sorted(names) == ["bwrap", "bwrap", "sh"]
        if stop:
            os.kill(process.pid if stop == "agent" else below[names.index("bwrap")].pid, signal.SIGSTOP)
        process.kill()
    _, alive = psutil.wait_procs(below, timeout=GONE_SECONDS)
    assert [one.cmdline() for one in alive if one.status() != psutil.STATUS_ZOMBIE] == []


def test_each_start_has_a_keeper_that_holds_nothing_of_the_agent():
    read, write = os.pipe()
    os.set_inheritable(write, True)
    try:
        with kept_group() as first, kept_group() as second:
            assert first != second
            assert first == os.getpgid(first)
            assert os.getsid(first) == os.getsid(0)
            process = started(first)
            assert (process.environ(), process.cwd()) == ({}, "/")
            held = {name: os.readlink(f"/proc/{first}/fd/{name}") for name in os.listdir(f"/proc/{first}/fd")}
            assert all(target.startswith("pipe:") for target in held.values())
            assert f"pipe:[{os.fstat(read).st_ino}]" not in held.values()
        assert not is_alive(first)
    finally:
        os.close(read)
        os.close(write)


def test_it_lives_through_what_a_terminal_or_a_service_manager_sends_to_everybody():
    with kept_group() as group:
        process = started(group)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP):
            os.kill(group, number)
        time.sleep(0.1)
        assert process.status() == psutil.STATUS_SLEEPING


def test_one_that_was_killed_keeps_no_sandbox_from_being_made():
    with kept_group() as group:
        os.kill(group, signal.SIGKILL)
        assert is_soon_gone(group)
        assert run("true").status is Status.OK
    with pytest.raises(ChildProcessError):
        os.waitpid(group, os.WNOHANG)  # it was waited for


def test_its_end_kills_nothing_that_is_ready():
    with kept_group() as group:
        child = subprocess.Popen(["sleep", "60"], process_group=group)
        assert is_alive(group)
    assert not is_alive(group)
    assert child.poll() is None
    child.kill()
    child.wait()


@pytest.mark.parametrize("end", ["pass", "os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_it_ends_with_the_agent_however_that_ends(end):
    with agent(f"with kept_group() as group:\n    print(group, flush=True)\n    {end}") as process:
        said, _ = process.communicate(timeout=HANG_SECONDS)
    assert is_soon_gone(int(said))


def test_a_child_the_agent_forked_neither_keeps_it_nor_uses_it():
    program = """
    with kept_group() as mine:
        if os.fork() == 0:
            run()
            with kept_group() as its:
                print(mine, its, os.getpid(), flush=True)
                time.sleep(60)
        time.sleep(60)
    """
    with agent(program) as process:
        assert process.stdout is not None
        parents, childs, child = map(int, process.stdout.readline().split())
        try:
            assert parents != childs
            process.kill()
            process.wait()
            assert is_soon_gone(parents)
            assert is_alive(childs)
        finally:
            os.kill(child, signal.SIGKILL)
        assert is_soon_gone(childs)


def test_an_agent_that_changes_its_session_or_leads_one_runs_scripts():
    program = """
    codes = []
    for change in (lambda: None, os.setsid):
        change()
        codes.append(run("exit 3").exit_code)
        with kept_group() as group:
            codes.append(os.getsid(group) == os.getsid(0))
    print(*codes)
    """
    assert said_by(program) == ["3", "True", "3", "True"]


def test_between_two_sandboxes_an_agent_holds_nothing_that_it_could_close_by_mistake():
    """As daemons do, or what embeds an agent: they close all descriptors, and others get their numbers."""
    assert run("true").status is Status.OK
    assert bubblewrap._alive == set()
    with kept_group():
        assert len(bubblewrap._alive) == 1
    assert bubblewrap._alive == set()


def test_what_a_terminal_sends_to_its_foreground_reaches_no_sandbox():
    """Ctrl-C and Ctrl-Z are the agent's to answer, and bubblewrap has the agent's terminal."""
    program = """
    import fcntl, termios
    heard = []
    for number in (signal.SIGINT, signal.SIGTSTP, signal.SIGQUIT):
        signal.signal(number, lambda number, _: heard.append(number))
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    def tell(name, data):
        os.write(1, data)
    result = run("printf up; sleep 1", on_output=tell)
    os.write(1, f" {result.status.value} {sorted(set(heard))} {len(result.stdout)}".encode())
    """
    master, terminal = os.openpty()
    line = [sys.executable, "-c", AGENT + textwrap.dedent(program)]
    read, write = os.pipe()
    try:
        process = subprocess.Popen(line, stdin=terminal, stdout=write)
        os.close(write)
        assert os.read(read, 2) == b"up"
        os.write(master, b"\x03\x1a\x1c")
        process.wait(timeout=HANG_SECONDS)
        said = os.read(read, 1000)
    finally:
        for descriptor in (read, master, terminal):
            os.close(descriptor)
    numbers = sorted(map(int, (signal.SIGINT, signal.SIGTSTP, signal.SIGQUIT)))
    assert said.decode() == f" ok {numbers} 2"


def test_a_start_that_fails_half_way_leaves_no_clone(monkeypatch):
    """While the agent lives nobody else would end it."""
    clones: list[int] = []

    def no_first_pid(info: int, child: Child) -> int:
        while not clones:
            clones.extend(children_of(child.pid))
        raise SandboxError("Bubblewrap said nothing.")

    monkeypatch.setattr(bubblewrap, "Launch", with_full_pipes)
    monkeypatch.setattr(bubblewrap, "_first_pid", no_first_pid)
    with pytest.raises(SandboxError, match="said nothing"):
        run("true")
    assert is_soon_gone(clones[0])


def test_a_start_without_descriptors_left_leaves_no_clone(monkeypatch):
    clones: list[int] = []
    first_pid = bubblewrap._first_pid

    def none_left(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def and_no_descriptors(info: int, child: Child) -> int:
        clones.append(first_pid(info, child))
        monkeypatch.setattr(os, "pidfd_open", none_left)
        monkeypatch.setattr(bubblewrap, "children_of", lambda _: [])
        return clones[0]

    monkeypatch.setattr(bubblewrap, "_first_pid", and_no_descriptors)
    with pytest.raises(SandboxError):
        run("true")
    assert is_soon_gone(clones[0])


def with_full_pipes(*given: Any, **named: Any) -> Launch:
    """Bubblewrap waits for a reader, when it has cloned and before it lets that go on."""
    import fcntl

    made = Launch(*given, **named)
    for descriptor in made.pass_fds:
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, 4096)
            os.write(descriptor, bytes(4096))
    return made


def test_the_watchdog_counts_what_runs_in_a_sandbox_of_bubblewrap(tmp_path: Path):
    """It leads no session by which the processes of the run could be told."""
    samples = []
    code = "x=$(head -c 50000000 /dev/zero | tr '\\0' x); sleep 1; echo ${#x}"
    request = ExecutionRequest(("bash", "-c", code), POLICY, on_sample=samples.append)
    result = asyncio.run(local_sandbox().run(request))
    assert result.stdout == b"50000000\n"
    assert max(sample.memory_bytes for sample in samples) > 50_000_000
    assert max(sample.processes for sample in samples) >= 3
