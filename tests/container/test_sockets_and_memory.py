"""Rows 333 and 334: memory that an engine's limit does not count, and whom the kernel ends when there is none."""

from __future__ import annotations

import contextlib
import platform
import socket
from pathlib import Path

import pytest

from adk_skills_agent.sandbox.container import ContainerSandbox
from adk_skills_agent.sandbox.contract import ExecutionRequest, InputFile, SandboxPolicy, Status
from stall_programs import HOLDS

pytestmark = pytest.mark.slow
POLICY = SandboxPolicy(warm_slots=0, wall_seconds=30.0, memory_bytes=256 << 20)
_SYS_RESOURCE = 1 << 24

CONNECTIONS = """
import socket, time
there = socket.socket()
there.bind(("127.0.0.1", 0))
there.listen(1000)
held = []
for number in range(120):
    held.append(socket.create_connection(there.getsockname()))
    held[-1].setblocking(False)
    try:
        while {sends}:
            held[-1].send(bytes(1 << 16))
    except BlockingIOError:
        pass
time.sleep(1)
print("all of it")
"""
DATAGRAMS = """
import socket, time
held = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(200)]
for one in held:
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
    one.bind(("127.0.0.1", 0))
    for _ in range(200):
        one.sendto(bytes(60_000), one.getsockname())
time.sleep(1)
print("all of it")
"""
LIMITS = """
import os, resource
path = "/proc/self/oom_score_adj"
before = open(path).read()
try:
    os.write(os.open(path, os.O_WRONLY), b"0")
except OSError:
    pass
print(int(before), int(open("/proc/1/oom_score_adj").read()), int(open(path).read()))
print(resource.getrlimit(resource.RLIMIT_SIGPENDING), resource.getrlimit(resource.RLIMIT_STACK))
"""


# One process lists the terminals into pages that are not there, others would make one and wait for the folder's lock.
HOLDS_THE_TERMINALS = (
    HOLDS
    + """
ready, go = os.pipe()
if os.fork() == 0:
    folder, there = os.open("/dev/pts", os.O_RDONLY), libc.mmap(None, 4000 * 8192, 3, 0x4022, -1, 0)
    hold()
    program(LISTS, folder, there, 0)
    os.write(go, b"1")
    time.sleep(20)
    os._exit(0)
os.read(ready, 1)
for number in range(16):
    if os.fork() == 0:
        end = time.monotonic() + 20
        while time.monotonic() < end:
            if number < 4:
                try:
                    os.mkdir("/dev/pts/x")
                except OSError:
                    pass
        os._exit(0)
time.sleep(2)
"""
    + DATAGRAMS.replace("time.sleep(1)", "time.sleep(20)")
)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the attack is written for x86_64")
async def test_row_368_sockets_count_while_the_list_of_terminals_cannot_be_had(sandbox: ContainerSandbox) -> None:
    """Seen: the program that watches waited for it, and the machine had 1,052 MiB less, for ten seconds."""
    request = ExecutionRequest(
        ("python3", "attack.py"), POLICY, input_files=(InputFile("attack.py", HOLDS_THE_TERMINALS.encode()),)
    )
    result = await sandbox.run(request)
    assert result.status in {Status.OUT_OF_MEMORY, Status.ERROR}, (result.status, result.notes, result.stderr)
    assert not result.timed_out
    assert any("sockets" in note or "waiting" in note for note in result.notes)


@pytest.mark.parametrize("code", [CONNECTIONS.format(sends=True), DATAGRAMS], ids=["connections", "datagrams"])
async def test_row_333_what_sockets_hold_counts(sandbox: ContainerSandbox, code: str) -> None:
    """Seen: 1.3 GiB in connections and 2.3 GiB in datagrams beside a limit of 256 MiB, and ``ok``."""
    script = InputFile("script.py", code.encode())
    result = await sandbox.run(ExecutionRequest(("python3", "script.py"), POLICY, input_files=(script,)))
    assert (result.status, result.stdout) == (Status.OUT_OF_MEMORY, b""), result
    assert "in those for TCP and UDP" in str(result.notes)


async def test_row_333_what_others_on_the_machine_hold_does_not_count(sandbox: ContainerSandbox) -> None:
    script = InputFile("script.py", CONNECTIONS.format(sends=False).encode())
    with contextlib.ExitStack() as held:
        assert fill(held) > POLICY.memory_bytes // 4
        result = await sandbox.run(ExecutionRequest(("python3", "script.py"), POLICY, input_files=(script,)))
    assert (result.status, result.stdout) == (Status.OK, b"all of it\n"), result


async def test_row_334_a_script_is_the_first_to_go_and_has_the_limits_of_a_local_one(sandbox: ContainerSandbox) -> None:
    result = await sandbox.run(ExecutionRequest(("python3", "-c", LIMITS), POLICY))
    scores, limits = result.stdout.decode().splitlines()
    before, supervisors, after = map(int, scores.split())
    assert (before, supervisors) == (1000, 500)
    if may_forbid():
        assert after == 1000
    assert limits == f"(256, 256) ({8 << 20}, {256 << 20})"


async def test_row_334_the_program_in_it_is_there_when_files_fill_the_memory(sandbox: ContainerSandbox) -> None:
    """Seen: with a score of 1,000 for all, the kernel ended that program, too, and what a script wrote was lost."""
    fill = "for n in 1 2 3 4; do head -c 40000000 /dev/zero >/tmp/$n; head -c 40000000 /dev/zero >$n; done"
    policy = SandboxPolicy(warm_slots=0, wall_seconds=30.0, memory_bytes=64 << 20)
    result = await sandbox.run(ExecutionRequest(("bash", "-c", fill), policy))
    assert result.status is Status.OUT_OF_MEMORY, result
    assert "lost" not in str(result.notes)


def fill(held: contextlib.ExitStack) -> int:
    """Connections of this machine's own that nobody reads, and the bytes in them."""
    there = held.enter_context(socket.create_server(("127.0.0.1", 0), backlog=100))
    sent = 0
    for _ in range(100):
        one = held.enter_context(socket.create_connection(there.getsockname()))
        one.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                sent += one.send(bytes(1 << 16))
    return sent


def may_forbid() -> bool:
    """Whether an engine that the tests start has the right with which a score cannot be lowered any more."""
    mine = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff:"))
    return bool(int(mine.split()[1], 16) & _SYS_RESOURCE)
