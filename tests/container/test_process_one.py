"""Row 68 where the supervisor is process 1: at worst code ends its own session, and the next code gets a new one."""

from __future__ import annotations

import asyncio

import pytest

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.container import ContainerSandbox
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy, Status
from adk_skills_agent.sandbox.sessions.session import SessionRequest
from adk_skills_agent.sandbox.sessions.sessions import SessionLimits, Sessions

pytestmark = pytest.mark.slow
POLICY = SandboxPolicy(warm_slots=0, wall_seconds=20.0)

SIGNALS = """
import os
kept = "kept"
for number in range(1, 65):
    try:
        os.kill(1, number)
    except OSError:
        pass
"""
LOOKS = """
import os
def may(what):
    try:
        what()
        return True
    except OSError:
        return False
files = [name for name in ("mem", "environ", "maps", "fd/60", "oom_score_adj")
         if may(lambda: open(f"/proc/1/{name}", "r+b").close())]
print(files, may(lambda: os.listdir("/proc/1/root")), may(lambda: os.listdir("/proc/1/fd")))
import ctypes
library = ctypes.CDLL(None, use_errno=True)
print(library.ptrace(16, 1, 0, 0), library.syscall(438, library.syscall(434, 1, 0), 60, 0))  # attach; pidfd_getfd
"""
LIMITS = {
    "files": "import resource; resource.prlimit(1, resource.RLIMIT_NOFILE, (3, 3))",
    "memory": "import resource; resource.prlimit(1, resource.RLIMIT_DATA, (1, 1))",
    "time": "import resource; resource.prlimit(1, resource.RLIMIT_CPU, (1, 1))",
}


LEAVES = """
import os, socket, time
kept = "kept"
if {writes} and os.fork() == 0:
    os.setsid()
    time.sleep(0.5)
    while True:
        os.write(1, bytes(1 << 16))
if os.fork() == 0:
    os.setsid()
    for number in range(3):
        os.dup2(os.open("/dev/null", os.O_RDWR), number)
    time.sleep(0.5)
    while os.fork() == 0:
        held = [{takes} for _ in range(50)]
    time.sleep(60)
    os._exit(0)
"""
TAKES = {"terminals": "os.openpty()", "sockets": "socket.socketpair()"}


async def test_row_170_a_command_with_too_many_terminals_is_ended(sandbox: ContainerSandbox) -> None:
    code = "import os, time\nheld = [os.openpty() for _ in range(100)]\ntime.sleep(30)"
    result = await sandbox.run(ExecutionRequest(("python3", "-c", code), POLICY))
    assert (result.status, result.timed_out) == (Status.ERROR, False)
    assert "more terminals than are allowed" in str(result.notes)


@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("what", TAKES)
async def test_rows_170_and_325_what_is_taken_between_two_executions_ends_the_session(
    sandbox: ContainerSandbox, what: str, writes: bool
) -> None:
    """Seen: 2.6 GB of sockets and all terminals of the machine, for as long as the session lasted.

    And again while something wrote: the program waited until its output was read, and looked at nothing.
    """
    sessions = Sessions(sandbox.session_host())
    first = await sessions.execute("a", SessionRequest(LEAVES.format(takes=TAKES[what], writes=writes), POLICY))
    assert first.status == "ok", first
    await asyncio.sleep(10)
    after = await sessions.execute("a", SessionRequest("'kept' in globals()", POLICY))
    assert (after.stdout, after.session_reset) == (b"False\n", True), after
    await sessions.close()


async def test_row_68_no_signal_of_its_code_reaches_it(sandbox: ContainerSandbox) -> None:
    sessions = Sessions(sandbox.session_host())
    assert (await sessions.execute("a", SessionRequest(SIGNALS, POLICY))).status == "ok"
    after = await sessions.execute("a", SessionRequest("kept", POLICY))
    assert (after.stdout, after.session_reset) == (b"'kept'\n", False)
    await sessions.close()


async def test_row_68_its_code_cannot_look_into_it(sandbox: ContainerSandbox) -> None:
    sessions = Sessions(sandbox.session_host())
    result = await sessions.execute("a", SessionRequest(LOOKS, POLICY))
    assert result.stdout == b"[] False False\n-1 -1\n", result
    await sessions.close()


@pytest.mark.parametrize("what", LIMITS)
async def test_row_68_limits_put_on_it_cost_the_session_only(sandbox: ContainerSandbox, what: str) -> None:
    sessions = Sessions(sandbox.session_host(), SessionLimits(restarts=100))
    await sessions.execute("a", SessionRequest("mine = 1", POLICY))
    await sessions.execute("a", SessionRequest(LIMITS[what], POLICY))
    seen = []
    for step in range(4):  # it may go on for a while
        try:
            result = await sessions.execute("a", SessionRequest(f"print({step}, 'mine' in globals())", POLICY))
        except SandboxError as error:
            seen.append(error.message)
            continue
        seen.append(result.stdout.decode())
        assert seen[-1] in {f"{step} True\n", f"{step} False\n"} or "lost" in str(result.notes), result
    assert seen[-1] in {"3 True\n", "3 False\n"}, seen
    other = await sessions.execute("b", SessionRequest("'other'", POLICY))
    assert other.stdout == b"'other'\n"
    await sessions.close()
