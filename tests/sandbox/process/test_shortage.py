"""Which runs end, or wait, when the machine or the container around the agent runs short of something."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from adk_skills_agent.platforms import PAGE_BYTES
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy, Status
from adk_skills_agent.sandbox.local import local_sandbox
from adk_skills_agent.sandbox.local.levels.namespaces import NamespacesLevel
from adk_skills_agent.sandbox.process import tree
from adk_skills_agent.sandbox.process.shortage import (
    TCP_SCARCE,
    Connections,
    crowd_of,
    first_to_go_for_tcp,
    first_to_go_of,
    tcp_of_run,
)
from adk_skills_agent.sandbox.process.tree import (
    EVERYTHING,
    MachineMemory,
    RunMarks,
    all_processes,
    bound_running,
    places_for,
    tasks_left,
    tcp_of_machine,
)
from adk_skills_agent.sandbox.process.watchdog import Limits
from adk_skills_agent.sandbox.threads import MAX_RUNNING, RUNNING
from level_table import missing

LACKING, _ = missing(NamespacesLevel())
MARKS = RunMarks("shortage", 0, 0.0)
PLACE = "adk_skills_agent.sandbox.process.shortage"


def a_run(name: str, user: str = "") -> Limits:
    run = Limits(replace(MARKS, run_id=name), 512 << 20, None, (), lambda *_: None, lambda: None)
    run.seen.user = user
    return run


def test_row_404_a_run_that_shows_the_memory_goes_first_when_all_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: three runs with 10 MiB that had worked for a while were ended before the six that had 420 MiB each."""
    now = MachineMemory(available=40 << 20, is_scarce=True)
    monkeypatch.setattr(f"{PLACE}.most_in_kernel", lambda *_, **__: 0)
    monkeypatch.setattr(f"{PLACE}.hiding_places", lambda *_: 0)
    process = next(one for one in all_processes() if one.pid == os.getpid())
    runs, members = [], {}
    for name, ticks, mib in (("small", 50, 10), ("large", 1, 420), ("other", 1, 400)):
        run = a_run(name)
        run.seen.before = MachineMemory(available=(900 if name == "small" else 600) << 20)
        runs.append(run)
        members[name] = [replace(process, system_ticks=ticks, rss_pages=(mib << 20) // PAGE_BYTES)]
    assert first_to_go_of(runs, members, now) is runs[1]


def test_row_443_the_run_with_most_in_its_connections_ends_of_the_user_who_has_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen: eleven runs of one user, each within its limits, and connections of everybody were reset."""
    process = next(one for one in all_processes() if one.pid == os.getpid())
    # Mebibytes in its connections, and how many closed ones still send.
    there = {"v": ("victim", 90, 0), "h1": ("hostile", 60, 9), "h2": ("hostile", 70, 5000), "few": ("", 2, 100)}
    runs = [a_run(name, user) for name, (user, *_) in there.items()]
    members = {name: [replace(process, shown=number)] for number, name in enumerate(there)}
    held = [Connections(queued << 20, 0, closed) for _, queued, closed in there.values()]
    monkeypatch.setattr(f"{PLACE}.tcp_of_run", lambda pids: held[next(iter(pids))])
    monkeypatch.setattr(f"{PLACE}.kernel_setting", lambda name, _: {"net/ipv4/tcp_mem": 900}.get(name, 1000))

    def ended(pages: int, orphans: int) -> str | None:
        monkeypatch.setattr(f"{PLACE}.tcp_of_machine", lambda: (pages, orphans))
        run = first_to_go_for_tcp(runs, members)
        return None if run is None else run.marks.run_id

    assert ended(600, 500) is None
    assert ended(601, 0) == "h2"
    assert ended(0, 501) == "h2"
    runs[2].seen.over = True  # it takes a moment to go, and what it has goes with it
    assert ended(600 + (70 << 20) // PAGE_BYTES, 0) is None
    assert ended(601 + (70 << 20) // PAGE_BYTES, 0) == "v"  # who has most now
    assert ended(0, 500 + 5000) is None
    assert ended(0, 501 + 5000) is None  # those of nobody here


@pytest.mark.skipif(LACKING is not None, reason=str(LACKING))
async def test_row_443_a_run_with_much_in_its_connections_ends_when_the_machine_has_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = """
import socket, sys, time
door = socket.create_server(("127.0.0.1", 0))
kept, sent = [], 0
while sent < 10 << 20:
    kept.append(socket.create_connection(door.getsockname()))
    kept[-1].setblocking(False)
    try:
        while True:
            sent += kept[-1].send(b"x" * 65536)
    except BlockingIOError:
        pass
print(sent, flush=True)
time.sleep(30)
"""
    seen: list[bytes] = []
    policy = SandboxPolicy(isolation="namespaces", min_isolation="namespaces", wall_seconds=30)
    request = ExecutionRequest(("python3", "-c", code), policy, on_output=lambda _, data: seen.append(data))
    running = asyncio.create_task(local_sandbox().run(request))
    while not seen:
        await asyncio.sleep(0.01)
        assert not running.done()
    queued = [tcp_of_run([info.pid]).queued for info in all_processes() if b"create_server" in argv_of(info.pid)]
    assert int(seen[0]) <= max(queued) < 2 * int(seen[0])  # what is not acknowledged is in both queues
    assert tcp_of_machine()[0] * PAGE_BYTES > int(seen[0]) // 2  # the kernel counts by and by; others come on top
    assert tcp_of_run([os.getpid()]) == Connections()  # the network of the machine is nobody's
    pages = (12 << 20) // PAGE_BYTES
    monkeypatch.setattr(f"{PLACE}.tcp_of_machine", lambda: (pages, 0))
    monkeypatch.setattr(f"{PLACE}.kernel_setting", lambda name, default: pages if "tcp_mem" in name else default)
    result = await running
    assert (result.status, result.timed_out) == (Status.OUT_OF_MEMORY, False)
    assert TCP_SCARCE in result.notes


def test_row_448_the_run_ends_that_takes_most_memory_and_not_the_one_with_most_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen: five runs held 1.8 GiB with 531 KiB of data each, and another user's run with 12 MiB was ended for it."""
    process = next(one for one in all_processes() if one.pid == os.getpid())
    there = {"alice": Connections(12 << 20, 4), "hostile": Connections(531 << 10, 80), "few": Connections(9 << 20, 40)}
    runs = [a_run(name, name) for name in there]
    members = {name: [replace(process, shown=number)] for number, name in enumerate(there)}
    monkeypatch.setattr(f"{PLACE}.tcp_of_run", lambda pids: list(there.values())[next(iter(pids))])
    monkeypatch.setattr(f"{PLACE}.kernel_setting", lambda *_: (300 << 20) // PAGE_BYTES)
    monkeypatch.setattr(f"{PLACE}.tcp_of_machine", lambda: ((400 << 20) // PAGE_BYTES, 0))

    def ended() -> str | None:
        run = first_to_go_for_tcp(runs, members)
        return None if run is None else run.marks.run_id

    assert ended() == "hostile"  # nothing counts memory: most connections with data
    runs[0].tcp_bytes = lambda: 13 << 20
    assert ended() == "hostile"
    runs[1].tcp_bytes = lambda: 380 << 20
    assert ended() == "hostile"
    runs[1].seen.over = True
    assert ended() is None
    runs[1].seen.over = False
    runs[1].tcp_bytes = lambda: 0
    assert ended() == "few"  # it counts, and that run has none
    runs[2].tcp_bytes = lambda: 9 << 20
    assert ended() is None  # somebody else's


def test_row_448_a_list_of_connections_that_is_cut_off_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    line = b" 0: 0100007F:0016 0100007F:0017 06 00000000:00000000 03:00001770 00000000 0 0 0 3 0000000000000000\n"
    monkeypatch.setattr(f"{PLACE}._network_of", lambda pid: 1 if pid == "self" else 2)
    monkeypatch.setattr(f"{PLACE}.text_of", lambda _, most: (line * (most // len(line) + 1))[:most])
    assert tcp_of_run([1]).queued >= 1 << 30
    monkeypatch.setattr(f"{PLACE}.text_of", lambda *_: line * 100)
    assert tcp_of_run([1]) == Connections()


def argv_of(pid: int) -> bytes:
    return tree.text_of(f"/proc/{pid}/cmdline")


@pytest.mark.parametrize(("kind", "line"), [("cgroup", "4:pids:/above/agent"), ("cgroup2", "0::/above/agent")])
def test_row_411_the_limit_of_processes_around_the_agent_is_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, line: str
) -> None:
    group = tmp_path / "groups" / "above" / "agent"
    group.mkdir(parents=True)
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text(f"{line}\n")
    (tmp_path / "self" / "mountinfo").write_text(f"3 2 0:26 / {tmp_path}/groups rw - {kind} {kind} rw,pids\n")
    monkeypatch.setattr(tree, "PROC", str(tmp_path))
    monkeypatch.setattr(tree, "_groups_with_pids", tree._groups_with_pids.__wrapped__)
    assert tasks_left() == (EVERYTHING, EVERYTHING)
    for folder, most, there in ((group, "max", 900), (group.parent, "1024", 1000)):
        (folder / "pids.max").write_text(f"{most}\n")
        (folder / "pids.current").write_text(f"{there}\n")
    assert tasks_left() == (24, 1024)
    (tmp_path / "self" / "cgroup").write_text("what is this?\n")
    assert tasks_left() == (EVERYTHING, EVERYTHING)


def test_row_411_fewer_runs_go_on_at_a_time_where_there_is_no_room_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [places_for(most, 64) for most in (EVERYTHING, 4915, 2048, 1024, 100)] == [
        MAX_RUNNING,
        MAX_RUNNING,
        26,
        11,
        1,
    ]
    monkeypatch.setattr(tree, "tasks_left", lambda: (900, 1024))
    try:
        bound_running(None)
        assert RUNNING.places == MAX_RUNNING
        bound_running(64)
        assert RUNNING.places == 11
        bound_running(192)  # a browser: as many of these have room
        bound_running(64)
        assert RUNNING.places == 3
    finally:
        RUNNING.resize(MAX_RUNNING)


def test_row_411_the_runs_with_most_processes_end_of_the_user_who_has_most(monkeypatch: pytest.MonkeyPatch) -> None:
    process = next(one for one in all_processes() if one.pid == os.getpid())
    there = {"v": ("victim", 40), "h1": ("hostile", 60), "h2": ("hostile", 30), "h3": ("hostile", 30), "few": ("", 8)}
    runs = [a_run(name, user) for name, (user, _) in there.items()]
    members = {name: [replace(process, threads=number)] for name, (_, number) in there.items()}

    def ended(left: int) -> list[str]:
        monkeypatch.setattr(f"{PLACE}.tasks_left", lambda: (left, 1024))
        return [run.marks.run_id for run in crowd_of(runs, members)]

    assert ended(128) == []
    assert ended(127) == ["h1"]
    assert ended(60) == ["h1", "h2"]
    runs[1].seen.over = True  # it takes a moment to go
    assert ended(60) == ["h2"]
    assert ended(0) == ["h2", "v"]  # who has most now


HOSTILE = """
import os, time
children = 0
end = time.monotonic() + 5
while time.monotonic() < end:
    try:
        if children < 60:
            if os.fork() == 0:
                time.sleep(max(0, end - time.monotonic()))
                os._exit(0)
            children += 1
        else:
            time.sleep(0.1)
    except OSError:
        time.sleep(0.01)
"""
AGENT = """
import asyncio, sys, threading, time
from adk_skills_agent.sandbox import ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.local import cgroup
from adk_skills_agent.sandbox.local.sandbox import LocalSandbox

def none():
    raise cgroup.NoControlGroups("switched off for the test")

cgroup.group_pool = none
level, hostile = sys.argv[1:]
sandbox, problems = LocalSandbox(), []

async def run(code, user):
    policy = SandboxPolicy(min_isolation=level, wall_seconds=30)
    request = ExecutionRequest(("python3", "-c", code), policy, share=(user,))
    return (await sandbox.run(request)).status.value

async def main():
    assert await run("pass", "victim") == "ok"
    over = time.monotonic() + 6
    async def again():
        while time.monotonic() < over:
            await run(hostile, "hostile")
    tasks = [asyncio.create_task(again()) for _ in range(20)]
    await asyncio.sleep(1.5)
    tried = 0
    while time.monotonic() < over:
        tried += 1
        thread = threading.Thread(target=int)
        thread.start()
        assert await run("pass", "victim") == "ok"
    await asyncio.gather(*tasks)
    assert tried > 1
    print("held")

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("level", ["namespaces", "landlock"])
def test_row_411_one_users_runs_do_not_have_all_processes_of_a_container(level: str, tmp_path: Path) -> None:
    """Seen: "the limit of processes is reached" for everybody, and no thread for the agent."""
    group = Path("/sys/fs/cgroup/pids", f"adk-test-{os.getpid()}-{level}")
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"needs a control group of version 1 for processes: {error}")
    try:
        (group / "pids.max").write_text("512")
        program = tmp_path / "agent.py"
        program.write_text(AGENT)
        line = f"echo $$ > {group}/cgroup.procs; exec {sys.executable} {program} {level} '{HOSTILE}'"
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
        assert (done.stdout, done.returncode) == ("held\n", 0), done.stderr[-2000:]
    finally:
        group.rmdir()
