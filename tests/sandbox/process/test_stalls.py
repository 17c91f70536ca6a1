"""Rows 309, 311 and 349: a script that holds a lock of the kernel keeps neither the agent nor the machine waiting."""

from __future__ import annotations

import platform
import sys

import pytest

import level_table
from adk_skills_agent.sandbox.contract import ExecutionRequest, ExecutionResult, InputFile, SandboxPolicy, Status
from adk_skills_agent.sandbox.local import local_sandbox

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the attack is written for x86_64")

# Gigabytes of one page of zeros: what changes their protection holds the lock of the process's memory for long, and
# every page fault of the process waits for it, also one in the middle of a system call that holds another lock.
HOLDS = """
import ctypes, mmap, os, sys, threading, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
size = 12 << 30
def program(code, *arguments):
    place = libc.mmap(None, 4096, 7, 0x22, -1, 0)
    ctypes.memmove(place, bytes.fromhex(code), len(code) // 2)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(place)
    threading.Thread(target=call, args=arguments, daemon=True).start()
def hold():
    area = libc.mmap(None, size, 1, 0x4022, -1, 0)  # PROT_READ; MAP_PRIVATE, MAP_ANONYMOUS, MAP_NORESERVE
    libc.madvise(area, size, 15)  # MADV_NOHUGEPAGE
    if libc.madvise(area, size, 22):  # MADV_POPULATE_READ
        sys.exit("this kernel cannot fill in pages ahead")
    libc.madvise(area, 1 << 30, 4)  # MADV_DONTNEED: each page of the first gigabyte is a fault
    program("83f201b80a0000000f05ebf4", area, size, 1)  # for ever: mprotect(area, size, protection ^= 1)
    return area
"""
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
    # For ever: lseek(folder, 0, 0); getdents64(folder, there, 4096); there += 8192
    again = "4c89e731f631d2b8080000000f05" + "4c89e74c89eeba00100000b8d90000000f05"
    program("4989fc4989f5" + again + "4981c500200000" + "ebd7", folder, there, 0)
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
    again = "4c89e731f631d2b8080000000f05" + "4c89e74c89eeba00100000b8d90000000f05"
    program("4989fc4989f5" + again + "4981c500200000" + "ebd7", folder, there, 0)
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


STALLED = "Stopped: it kept the agent waiting for a lock of the kernel that it held."
