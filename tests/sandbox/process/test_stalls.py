"""Rows 309, 311 and 349: a script that holds a lock of the kernel keeps neither the agent nor the machine waiting."""

from __future__ import annotations

import platform
import sys

import pytest

import level_table
from adk_skills_agent.sandbox.contract import ExecutionRequest, ExecutionResult, InputFile, SandboxPolicy, Status
from adk_skills_agent.sandbox.local import local_sandbox
from adk_skills_agent.sandbox.process import stalls
from adk_skills_agent.sandbox.process import watchdog as watchdog_module
from adk_skills_agent.sandbox.process.stalls import Wait, wait_of
from adk_skills_agent.sandbox.process.system_calls import NUMBERS
from adk_skills_agent.sandbox.process.watchdog import Watchdog, Watched
from stall_programs import HOLDS

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the attack is written for x86_64")

# For ever: 20,000 times write(1, there, 1), so that the loop reads all the time, then write(1, area, 1); area += 4096.
WRITES_FROM_PAGES_THAT_ARE_NOT_THERE = (
    HOLDS
    + """
area, there = hold(), libc.mmap(None, 4096, 3, 0x22, -1, 0)
one = "ba01000000b8010000000f05"
many = "4989fc4989f54989d6bb204e00004c89e74c89ee" + one + "ffcb75ea4c89e74c89f6" + one
program(many + "4981c600100000ebca", 1, there, area)
time.sleep(20)
"""
)
# Two processes share what they have, so that it is looked at how much that is together.
IS_LOOKED_AT = (
    HOLDS
    + """
shared = mmap.mmap(-1, 200 << 20)
shared[:] = bytes(200 << 20)
if os.fork() == 0:
    len(bytes(shared))
    hold()
time.sleep(20)
"""
)
# One process lists a folder into pages that are not there, another one makes folders in it and waits for its lock, and
# whoever lists it then, as the watchdog does to measure it, waits behind that one.
LISTS_INTO_PAGES_THAT_ARE_NOT_THERE = (
    HOLDS
    + """
os.mkdir("d")
for number in range(10):
    open(f"d/{number}", "w").close()
ready, go = os.pipe()
if os.fork() == 0:
    folder, there = os.open("d", os.O_RDONLY), libc.mmap(None, 4000 * 8192, 3, 0x4022, -1, 0)
    hold()
    program(LISTS, folder, there, 0)
    os.write(go, b"1")
    time.sleep(40)
os.read(ready, 1)
for _ in range(8):
    if os.fork() == 0:
        while True:
            try:
                os.mkdir("d/x"), os.rmdir("d/x")
            except OSError:
                pass
time.sleep(40)
"""
)

# The same with a folder that all programs of the machine list, and which the agent does not look at.
LISTS_A_FOLDER_OF_THE_MACHINE = (
    HOLDS
    + """
shared = os.path.dirname(os.__file__)
ready, go = os.pipe()
if os.fork() == 0:
    folder, there = os.open(shared, os.O_RDONLY), libc.mmap(None, 4000 * 8192, 3, 0x4022, -1, 0)
    hold()
    program(LISTS, folder, there, 0)
    os.write(go, b"1")
    time.sleep(20)
    os._exit(0)
os.read(ready, 1)
for _ in range(40):
    if os.fork() == 0:
        end = time.monotonic() + 20
        while time.monotonic() < end:
            pass
        os._exit(0)
end = time.monotonic() + 20
while time.monotonic() < end:
    try:
        os.mkdir(shared + "/x")
    except OSError:
        pass
"""
)


async def run(level: str, code: str, **policy: object) -> ExecutionResult:
    level_table.require(level)
    settings = SandboxPolicy(isolation=level, min_isolation=level, wall_seconds=60.0, **policy)  # type: ignore[arg-type]
    script = InputFile("s.py", code.encode())
    return await local_sandbox().run(ExecutionRequest((sys.executable, "/work/s.py"), settings, input_files=(script,)))


@pytest.mark.parametrize("level", [pytest.param("namespaces", marks=pytest.mark.slow), "landlock"])
async def test_row_311_a_script_that_holds_the_lock_of_its_pipe_is_ended(level):
    """Seen: the event loop stood still for 8.6 s, with both the pipe and the watchdog blocked for 24 s."""
    result = await run(level, WRITES_FROM_PAGES_THAT_ARE_NOT_THERE)
    assert (result.status, result.notes) == (Status.ERROR, (STALLED,)), result.stderr


@pytest.mark.slow
async def test_row_309_a_script_whose_memory_cannot_be_looked_at_is_ended():
    """Seen: 2,316 MiB with a limit of 512 MiB, and status ok; no limit of any other run was watched meanwhile."""
    result = await run("landlock", IS_LOOKED_AT, memory_bytes=400 << 20)
    # On a busy machine the watchdog may get to look in between, and sees what is too much.
    ended = result.status is Status.OUT_OF_MEMORY or (result.status is Status.ERROR and result.notes[0] == STALLED)
    assert ended, (result.status, result.notes, result.stderr)


@pytest.mark.slow
async def test_row_309_a_script_whose_folder_cannot_be_measured_is_ended():
    """Seen: 780 MiB of disk with a limit of 256 MiB, and status ok."""
    result = await run("landlock", LISTS_INTO_PAGES_THAT_ARE_NOT_THERE)
    assert (result.status, result.notes[:1]) == (Status.ERROR, (STALLED,)), result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("level", ["landlock", "namespaces"])
async def test_row_349_a_script_that_holds_the_lock_of_a_folder_of_all_is_ended(level):
    """Seen: whoever lists the interpreter's folder, as each new one does, waited for 10 s, on the host as well."""
    result = await run(level, LISTS_A_FOLDER_OF_THE_MACHINE)
    assert (result.status, result.notes[:1]) == (Status.ERROR, (STALLED,)), result.stderr


@pytest.mark.parametrize(
    ("users", "are_ended"), [(["a"], True), (["a", "b", "c", "d", "e", "f"], False), ([""], False)]
)
def test_row_377_what_the_runs_of_a_user_keep_waiting_together_is_bounded(monkeypatch, users, are_ended):
    """Seen: 36 runs of a user took turns, each within its share, and the loop stood still for 11 of 15 s.

    Each of thirty runs here keeps the agent waiting for 0.1 s in three seconds, one after the other.
    """
    runs = [Watched(lambda: False, lambda: None, thread=1, user=users[number % len(users)]) for number in range(30)]
    ended: list[Watched] = []
    watchdog = Watchdog()
    monkeypatch.setattr(watchdog_module, "wait_of", lambda thread: Wait(None, "") if thread == 1 else None)
    monkeypatch.setattr(watchdog, "_run_behind", lambda *_: (turn[0], 1.0))
    monkeypatch.setattr(watchdog, "_end_stalled", ended.append)
    for look in range(100):
        turn = [runs[look % len(runs)]]
        watchdog._count_stalls(runs, 0.1)
    assert bool(ended) == are_ended
    assert len(ended) <= 20


STALLED = "Stopped: it kept the agent waiting for a lock of the kernel that it held."


def test_a_wait_for_what_two_processes_have_in_common_is_one_for_the_first_of_them(monkeypatch, tmp_path):
    thread = tmp_path / "self" / "task" / "7"
    thread.mkdir(parents=True)
    (thread / "stat").write_text("7 (x) D 1 1 1")
    (thread / "syscall").write_text(f"{NUMBERS[platform.machine()]['kcmp']} 0x1a 0x5 0x1 0x0 0x0 0x0 0x7f 0x7f\n")
    monkeypatch.setattr(stalls, "PROC", str(tmp_path))
    assert wait_of(7) == Wait(None, f"{tmp_path}/26/")
