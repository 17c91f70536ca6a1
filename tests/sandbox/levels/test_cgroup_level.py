"""What control groups add to namespaces: limits over a whole run, told exactly, and groups that are never left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from adk_skills_agent.errors import SandboxUnavailable
from adk_skills_agent.platforms import PAGE_BYTES
from adk_skills_agent.sandbox.contract import (
    ExecutionRequest,
    ExecutionResult,
    IsolationLevel,
    SandboxPolicy,
    Status,
)
from adk_skills_agent.sandbox.local import local_sandbox
from adk_skills_agent.sandbox.local.cgroup import PREFIX, group_pool
from adk_skills_agent.sandbox.local.levels.namespaces import NamespacesLevel
from adk_skills_agent.sandbox.local.warm_pool import close_warm_pool, warm_pool
from adk_skills_agent.sandbox.process.watchdog import UNCHARGED_MEMORY
from level_table import missing

MIB = 1 << 20
LACKING, COULD_BE_INSTALLED = missing(NamespacesLevel())
LACKING = LACKING or NamespacesLevel().no_groups()
pytestmark = [
    pytest.mark.warm_pool,
    pytest.mark.skipif(LACKING is not None and not COULD_BE_INSTALLED, reason=str(LACKING)),
]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to start something as another user")

AGENT = """
import asyncio, os, sys
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.local import local_sandbox
async def run(code, **policy):
    return await local_sandbox().run(ExecutionRequest(("bash", "-c", code), SandboxPolicy(**policy)))
"""


async def run(*argv: str, **policy: object) -> ExecutionResult:
    settings = {"isolation": "namespaces", "min_isolation": "namespaces", "wall_seconds": 20.0, **policy}
    return await local_sandbox().run(ExecutionRequest(argv, SandboxPolicy(**settings)))  # type: ignore[arg-type]


async def python(code: str, **policy: object) -> ExecutionResult:
    return await run("python3", "-I", "-c", code, **policy)


def groups_of(pid: int) -> list[str]:
    """The folders of an agent's groups."""
    return [
        f"{parent}/{name}"
        for parent in group_pool()._hierarchy.folders
        for name in os.listdir(parent)
        if name.startswith(f"{PREFIX}.") and name.split(".")[2] == str(pid)
    ]


def wait_until(is_so: object, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so() and time.monotonic() < deadline:  # type: ignore[operator]
        time.sleep(0.01)


def assert_no_group_is_left() -> None:
    close_warm_pool()
    wait_until(lambda: groups_of(os.getpid()) == [])
    assert groups_of(os.getpid()) == []


def assert_out_of_memory(result: ExecutionResult) -> None:
    assert result.status is Status.OUT_OF_MEMORY
    assert result.oom_killed
    assert result.timed_out is False
    assert (result.exit_code, result.signal) == (None, 9)
    assert len([note for note in result.notes if "memory_bytes" in note]) == 1


@pytest.mark.slow
async def test_row_8_thirty_children_each_below_the_limit_are_over_it_together():
    code = """
import os, time
for _ in range(30):
    if os.fork() == 0:
        x = bytearray(100 << 20)
        time.sleep(60)
print("all started", flush=True)
time.sleep(60)
"""
    result = await python(code, memory_bytes=512 * MIB)
    assert_out_of_memory(result)
    assert result.max_rss_bytes is not None
    assert result.max_rss_bytes <= 512 * MIB * 1.1
    assert result.survivors == 0


@pytest.mark.parametrize(
    "memory",
    [
        "open(os.memfd_create('bomb'), 'r+b', buffering=0)",
        "open('/dev/shm/bomb', 'w+b', buffering=0)",
        "open('/work/bomb', 'w+b', buffering=0)",
    ],
    ids=["memfd", "shm", "workspace"],
)
async def test_row_7_memory_in_files_counts(memory):
    code = f"import os\nf = {memory}\nwhile f.write(bytes(1 << 20)): pass"
    result = await python(
        code, memory_bytes=128 * MIB, shm_bytes=1 << 30, workspace_bytes=1 << 30, file_bytes=None, drain_seconds=0.1
    )
    assert_out_of_memory(result)
    assert result.files == () or result.files[0].size < 140 * MIB


async def test_row_7_shared_mappings_of_many_processes_count_once():
    code = """
import mmap, os
m = mmap.mmap(-1, 100 << 20)
for offset in range(0, len(m), 4096): m[offset] = 1
pids = []
for _ in range(8):
    if (pid := os.fork()) == 0:
        sum(m[::4096])
        os._exit(0)
    pids.append(pid)
print([os.waitpid(pid, 0)[1] for pid in pids])
"""
    result = await python(code, memory_bytes=200 * MIB)
    assert result.stdout == b"[0, 0, 0, 0, 0, 0, 0, 0]\n"
    assert result.oom_killed is False
    assert result.max_rss_bytes is not None
    assert 100 * MIB < result.max_rss_bytes < 160 * MIB


async def test_memory_that_runs_out_in_a_child_ends_the_run_as_a_whole():
    code = """
import mmap, os, time
if os.fork() == 0:
    m = mmap.mmap(-1, 400 << 20)
    for offset in range(0, len(m), 4096): m[offset] = 1
os.wait()
time.sleep(10)
print("survived")
"""
    result = await python(code, memory_bytes=128 * MIB)
    assert_out_of_memory(result)
    assert b"survived" not in result.stdout


async def test_a_script_that_kills_itself_did_not_run_out_of_memory():
    result = await run("bash", "-c", "kill -9 $$", memory_bytes=128 * MIB)
    assert (result.status, result.signal, result.oom_killed) == (Status.ERROR, 9, False)


@pytest.mark.slow
@pytest.mark.parametrize("slots", [0, 1], ids=["made for the run", "made ahead"])
async def test_what_a_program_reserves_and_does_not_use_is_no_memory(slots):
    """Fifty threads beside data of 200 MiB: their stacks are 400 MiB that nobody touches."""
    code = """
import threading
data, done = bytearray(200 << 20), threading.Event()
threads = [threading.Thread(target=done.wait, daemon=True) for _ in range(50)]
for thread in threads: thread.start()
done.set()
try:
    bytearray(2 << 30)
except MemoryError:
    print("fifty threads, and no two gigabytes")
"""
    for _ in range(2):  # the second one may find a sandbox that was made ahead
        result = await python(code, memory_bytes=512 * MIB, warm_slots=slots)
        assert (result.status, result.stdout) == (Status.OK, b"fifty threads, and no two gigabytes\n"), result


async def test_limits_of_none_are_none_and_the_smallest_ones_hold():
    code = "import mmap; m = mmap.mmap(-1, 600 << 20); m[::4096] = b'x' * len(m[::4096]); print('done')"
    assert (await python(code, memory_bytes=None, pids=None)).stdout == b"done\n"
    assert (await run("sh", "-c", "echo one", pids=1)).stdout == b"one\n"
    result = await run("sh", "-c", "while :; do x=$x$x$(printf %10000s); done", memory_bytes=MIB)
    assert result.status is not Status.OK


FORK_UNTIL_REFUSED = """
import os, sys, time
children = 0
while True:
    try:
        pid = os.fork()
    except OSError as error:
        print(children, error.errno)
        break
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    children += 1
"""


@pytest.mark.parametrize("pids", [2, 30])
async def test_row_4_the_number_of_processes_is_exact(pids):
    result = await python(FORK_UNTIL_REFUSED, pids=pids)
    assert result.stdout == f"{pids - 1} 11\n".encode()
    assert result.processes_killed == pids - 1


async def test_row_5_threads_count_as_processes_do():
    code = """
import threading, time
started = 0
try:
    while True:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        started += 1
except RuntimeError:
    print(started, flush=True)
import os
os._exit(0)
"""
    assert (await python(code, pids=20)).stdout == b"19\n"


async def test_processes_that_were_refused_are_told():
    """Seen: Chromium needs more than 64 threads, ends, and says nothing that names the limit."""
    code = """
import os, signal
for _ in range(9):
    try:
        os.fork() or signal.pause()
    except BlockingIOError:
        print("x")
"""
    result = await python(code, pids=8)
    assert result.notes == ("The kernel refused it 2 new processes or threads: pids is 8.",), result
    assert result.stdout.split() == [b"x"] * 2
    assert (await python("print(1)", pids=8)).notes == ()


@needs_root
async def test_row_4_processes_of_others_with_the_same_user_id_do_not_count():
    line = ["sh", "-c", "for each in $(seq 40); do sleep 60 & done; echo; wait"]
    to_become = {"user": 54_321, "group": 54_321, "extra_groups": [], "process_group": 0}
    with subprocess.Popen(line, stdout=subprocess.PIPE, **to_become) as others:  # type: ignore[call-overload]
        assert others.stdout is not None
        others.stdout.readline()
        try:
            result = await python(FORK_UNTIL_REFUSED, pids=30, run_as=54_321)
        finally:
            os.killpg(others.pid, signal.SIGKILL)
    assert result.stdout == b"29 11\n"


@pytest.mark.slow
async def test_limits_that_were_put_on_a_sandbox_beforehand_are_never_another_policy_s():
    code = "for i in $(seq 12); do sleep 1 & done; jobs -p | wc -l"
    ample = {"pids": 40, "memory_bytes": 256 * MIB}
    for _ in range(4):
        enough = await run("bash", "-c", code, **ample)
        assert (enough.stdout, enough.stderr) == (b"12\n", b"")
    wait_until(lambda: warm_pool().idle() > 0)
    assert warm_pool().idle() > 0
    few = await run("bash", "-c", code, **(ample | {"pids": 6}))
    assert b"fork: retry" in few.stderr  # until others have ended
    one = "import time; a = bytearray(30 << 20); time.sleep(1)"
    together = f"for i in 1 2 3 4; do python3 -I -c '{one}' & done; wait; echo enough"
    assert (await run("bash", "-c", together, **ample)).stdout == b"enough\n"
    assert_out_of_memory(await run("bash", "-c", together, **(ample | {"memory_bytes": 64 * MIB})))
    enough = await run("bash", "-c", code, **ample)
    assert (enough.stdout, enough.stderr) == (b"12\n", b"")


async def test_two_runs_at_the_same_time_share_no_limit():
    memory = "import time; x = bytearray(150 << 20); time.sleep(0.5); print(len(x) >> 20)"
    results = await asyncio.gather(
        *(python(memory, memory_bytes=220 * MIB) for _ in range(2)),
        *(python(FORK_UNTIL_REFUSED, pids=25) for _ in range(2)),
    )
    assert [result.stdout for result in results] == [b"150\n", b"150\n", b"24 11\n", b"24 11\n"]


@pytest.mark.slow
async def test_row_16_processor_time_is_of_everything_in_the_run():
    code = """
import os, time
def stat_of(pid):
    return open(f"/proc/{pid}/stat").read()
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True: pass
        os._exit(0)
time.sleep(1.5)
ticks = [line.rpartition(")")[2].split()[11:13] for line in map(stat_of, filter(str.isdigit, os.listdir("/proc")))]
os.write(1, b"%d" % (sum(int(part) for pair in ticks for part in pair) * 1000 // os.sysconf("SC_CLK_TCK")))
os._exit(0)
"""
    result = await python(code)
    used = int(result.stdout)
    assert result.cpu_ms is not None
    assert 200 < used - 50 < result.cpu_ms < used + 1000  # what the script saw of all, and what came after that
    idle = await run("sleep", "0.5")
    assert idle.cpu_ms is not None
    assert idle.cpu_ms < result.cpu_ms / 4


async def test_the_report_says_who_enforces_memory_and_processes():
    result = await run("true")
    assert result.isolation.level is IsolationLevel.NAMESPACES
    by = f"cgroup v{group_pool().version}"
    assert (result.isolation.enforced["memory"], result.isolation.enforced["pids"]) == (by, by)
    assert "watchdog" in result.isolation.enforced["disk"]
    told = [sentence for sentence in result.isolation.degraded if sentence.startswith(("memory", "pids"))]
    assert told == [UNCHARGED_MEMORY]


async def test_a_script_sees_nothing_of_the_groups_on_the_host():
    result = await run("bash", "-c", "ls /sys/fs/cgroup 2>/dev/null; cat /proc/self/cgroup")
    paths = {line.split(":", 2)[2] for line in result.stdout.decode().splitlines()}
    # Version 1: it was born in its group, which is the root of what it sees. Version 2: it was moved one level down.
    expected = "/" if group_pool()._hierarchy.version == 1 else f"/{PREFIX}."
    assert all(path.startswith(expected) and path.count("/") == 1 for path in paths)


async def test_a_group_is_never_used_twice_and_starts_from_nothing(nothing_left):
    pool = group_pool()
    groups = [pool.take() for _ in range(12)]
    try:
        assert len({group.name for group in groups}) == len(groups)
        assert [group.tasks() for group in groups] == [0] * len(groups)
        assert {group.ended() for group in groups} == {0}
    finally:
        for group in groups:
            pool.give_back(group)

    def left() -> set[str]:
        return {path.rpartition("/")[2] for path in groups_of(os.getpid())}

    wait_until(lambda: left().isdisjoint(group.name for group in groups))
    assert left().isdisjoint(group.name for group in groups)


@pytest.mark.slow
async def test_two_hundred_runs_leave_no_group(nothing_left):
    lines = ("true", "exit 3", "(setsid sleep 60 &); true", "kill -9 $$", "sleep 60")
    for _ in range(10):
        await asyncio.gather(
            *(
                run("bash", "-c", lines[n % 5], wall_seconds=0.3 if n % 5 == 4 else 20, term_grace_seconds=0)
                for n in range(20)
            )
        )
    assert_no_group_is_left()


async def test_cancelled_and_refused_runs_leave_no_group():
    for delay in (0, 0.001, 0.003, 0.006, 0.01, 0.02):
        task = asyncio.create_task(run("sleep", "60"))
        await asyncio.sleep(delay)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    with pytest.raises(ValueError, match="NUL"):
        await run("echo", "\0")
    assert_no_group_is_left()


def start_agent(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", AGENT + code], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("runs", [1, 3])
def test_an_agent_removes_its_groups_when_it_ends(runs):
    code = f"""
for _ in range({runs}):
    asyncio.run(run("true", isolation="namespaces"))
print(os.getpid())
"""
    with start_agent(code) as agent:
        out, _ = agent.communicate(timeout=60)
    assert agent.returncode == 0
    assert groups_of(int(out)) == []


def test_the_groups_of_an_agent_that_was_killed_are_removed_by_the_next_one(tmp_path):
    flag = tmp_path / "flag"
    code = f"""
async def main():
    await asyncio.gather(*(run("true", isolation="namespaces") for _ in range(3)))
    task = asyncio.create_task(run("sleep 60", isolation="namespaces"))
    await asyncio.sleep(0)
    open({str(flag)!r}, "w").close()
    await task
asyncio.run(main())
"""
    with start_agent(code) as agent:
        wait_until(flag.exists, 30)
        wait_until(lambda: groups_of(agent.pid) != [], 30)
        stale = groups_of(agent.pid)
        agent.send_signal(signal.SIGKILL)
    assert stale
    assert groups_of(agent.pid) != []
    with start_agent('print(asyncio.run(run("echo next", isolation="namespaces")).stdout)') as other:
        out, _ = other.communicate(timeout=60)
    assert out == "b'next\\n'\n"
    assert groups_of(agent.pid) == []


def test_an_agent_does_not_touch_the_groups_of_another_that_lives(tmp_path):
    code = """
asyncio.run(run("true", isolation="namespaces"))
print("ready", flush=True)
sys.stdin.read()
print(asyncio.run(run("echo still", isolation="namespaces")).stdout)
"""
    with subprocess.Popen(
        [sys.executable, "-c", AGENT + code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == "ready\n"
        with start_agent('asyncio.run(run("true", isolation="namespaces"))') as other:
            other.communicate(timeout=60)
        out, _ = agent.communicate("", timeout=60)
    assert out == "b'still\\n'\n"


def test_a_forked_agent_has_groups_of_its_own():
    code = """
asyncio.run(run("true", isolation="namespaces"))
asyncio.run(run("true", isolation="namespaces"))
sys.stdout.flush()
pid = os.fork()
result = asyncio.run(run("echo fine", isolation="namespaces"))
print(result.stdout, flush=True)
if pid:
    os.waitpid(pid, 0)
"""
    with start_agent(code) as agent:
        out, _ = agent.communicate(timeout=60)
    assert out == "b'fine\\n'\n" * 2
    assert groups_of(agent.pid) == []


@needs_root
def test_row_72_where_control_groups_are_read_only_runs_have_none_and_the_reason_is_told():
    code = """
result = asyncio.run(run("echo fine"))
report = result.isolation
print(report.level.value, result.stdout, report.enforced["memory"], report.enforced["pids"])
print(*(sentence for sentence in report.degraded if "control group" in sentence))
"""
    mounts = "grep -E '^[^ ]+ [^ ]+ cgroup2? ' /proc/self/mounts | cut -d ' ' -f 2"
    read_only = f"for m in $({mounts}); do mount -o remount,ro,bind $m || exit; done; "
    line = ["unshare", "-m", "sh", "-c", read_only + 'exec "$@"', "sh", sys.executable, "-c", AGENT + code]
    probe = subprocess.run([*line[:4], read_only + "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("needs the right to mount")
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
    chosen, why = done.stdout.splitlines()
    assert chosen == "namespaces b'fine\\n' rlimit+watchdog rlimit+watchdog"
    assert "there is no control group for the run (control groups are not writable here: " in why
    assert "Read-only file system" in why


async def test_a_policy_the_level_cannot_meet_is_refused_with_the_reason():
    with pytest.raises(SandboxUnavailable, match="run_as"):
        await run("true", run_as=os.geteuid() + 1 if os.geteuid() else 0)


def test_the_starting_thread_is_in_no_group_afterwards():
    code = """
asyncio.run(run("true", isolation="namespaces"))
paths = {line for thread in os.listdir("/proc/self/task") for line in open(f"/proc/self/task/{thread}/cgroup")}
print([line for line in paths if "adk-skills" in line])
print(asyncio.run(run("cat /proc/self/cgroup", isolation="process", min_isolation="process")).stdout.count(b"adk-sk"))
"""
    with start_agent("import warnings; warnings.simplefilter('ignore')\n" + code) as agent:
        out, _ = agent.communicate(timeout=60)
    assert out == "[]\n0\n"


@pytest.mark.parametrize("wanted", [1 << 20, 1 << 40])
def test_row_218_a_run_has_no_more_than_a_quarter_of_the_memory_of_all_tcp(wanted: int) -> None:
    if group_pool().version != 1:
        pytest.skip("version 2 counts the buffers of TCP with the rest")
    all_tcp = int(Path("/proc/sys/net/ipv4/tcp_mem").read_text().split()[2]) * PAGE_BYTES
    group = group_pool().take()
    try:
        group.limit(wanted, None)
        limit = int(Path(f"{group.memory}/memory.kmem.tcp.limit_in_bytes").read_text())
    finally:
        group_pool().give_back(group)
    most = min(wanted, all_tcp // 4)
    assert most - PAGE_BYTES < limit <= most
