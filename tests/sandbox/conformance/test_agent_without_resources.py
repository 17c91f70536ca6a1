"""Row 73: an agent without descriptors, memory or disk: every step of a start is a typed error, and nothing leaks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from adk_skills_agent.sandbox.contract import IsolationLevel

pytestmark = pytest.mark.local("what the local launcher needs; containers: tests/container/test_engine_failures.py")

HEAD = """
import asyncio, errno, gc, json, logging, os, resource, subprocess, sys, tempfile, threading, time, warnings
warnings.simplefilter("ignore")
tempfile.tempdir = sys.argv[2]
from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import ExecutionRequest, InputFile, ReadOnlyMount, SandboxPolicy
from adk_skills_agent.sandbox.local import local_sandbox
from adk_skills_agent.sandbox.local.warm_pool import warm_pool
from pathlib import Path

box = local_sandbox()
logging.disable()  # what cannot be started ahead is only logged
# Below namespaces the kernel counts all processes of a plain user together, those of other tests included.
policy = SandboxPolicy(**json.loads(sys.argv[1]), wall_seconds=20, pids=1000)
mounts = (ReadOnlyMount(Path(sys.argv[3])),)
files = (InputFile("folder/given", b"content"),)

def request(code="cat; cat folder/given; cat SKILL.md", **settings):
    return ExecutionRequest(("bash", "-c", code), policy, stdin=b"in ", **settings)

GOOD = b"in contentof the skill"
whole = request(mounts=mounts, input_files=files)

def descriptors():
    gc.collect()
    return sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:-1]

async def settled(kept):
    # What machinery keeps, and what is ended in the background, is the same again after a moment.
    before, same, deadline = None, 0, time.monotonic() + 30
    while same < 50 and time.monotonic() < deadline:
        children, zombies = [], 0
        for thread in os.listdir("/proc/self/task"):
            try:
                with open(f"/proc/self/task/{thread}/children") as file:
                    children += file.read().split()
            except OSError:  # the thread has ended
                pass
        for child in children:  # one nobody waits for hides while fewer sandboxes wait than usual
            try:
                with open(f"/proc/{child}/stat") as file:
                    zombies += file.read().rpartition(")")[2].split()[0] == "Z"
            except OSError:
                pass
        found = {"descriptors": len(descriptors()), "children": len(children), "folders": len(os.listdir(sys.argv[2]))}
        found["zombies"] = zombies
        if kept is not None and all(found[kind] <= kept[kind] for kind in kept):
            return True
        if kept is None:  # also what is started ahead is there
            same = same + 1 if found == before and not warm_pool().starting() else 0
        before = found
        await asyncio.sleep(0.01)
    return found if kept is None else f"{kept} -> {found}"

async def attempt(seen):
    try:
        result = await box.run(whole)
    except SandboxError as error:
        assert str(error).endswith("."), error
        seen["errors"].add(str(error))
    else:
        assert result.stdout == GOOD, result
        seen["ok"] += 1

async def warmed():
    seen = {"errors": set(), "ok": 0}
    await asyncio.gather(*(attempt(seen) for _ in range(20)))
    assert seen == {"errors": set(), "ok": 20}, seen
    return await settled(None), {"errors": set(), "ok": 0}

def tell(seen):
    print(json.dumps({"errors": sorted(seen["errors"]), "ok": seen["ok"]}))
"""

# For each number of free descriptors: the limit of the agent is set so that exactly so many are left.
SPARE = """
async def main():
    kept, seen = await warmed()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for spare in json.loads(sys.argv[4]):
        fill = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(descriptors()) + 100, hard))
        try:
            while True:
                fill.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        for _ in range(spare):
            os.close(fill.pop())
        try:
            await attempt(seen)
        finally:
            for fd in fill:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert (left := await settled(kept)) is True, (spare, left)
    await attempt(seen)
    await box.close()
    tell(seen)
asyncio.run(main())
"""

# Each call of these that a start makes fails once, with each error: the first of a first run, the second of a second...
# A start that finds a sandbox waiting makes fewer calls than one that does not: only several runs without a failure say
# that no start makes so many.
INJECTED = """
TRIES = 5
CALLS = {"EMFILE": ("open", "pipe", "memfd_create", "pidfd_open", "dup", "eventfd"),
         "ENOMEM": ("open", "mkdir", "memfd_create", "pidfd_open", "symlink", "fork_exec"),
         "ENOSPC": ("open", "mkdir", "write", "symlink", "chown", "chmod", "utime")}
number, countdown, struck, where = None, 0, None, threading.Lock()

def in_start():
    frame = sys._getframe(2)
    found = False
    while frame is not None:
        code = frame.f_code
        if "/sandbox/local/" in code.co_filename:
            if code.co_name in ("finish", "abandon", "_end_processes", "_drop_workspace", "undo", "_end_all"):
                return False
            found = found or code.co_name == "start"
        frame = frame.f_back
    return found

def failing(name, real):
    def call(*arguments, **settings):
        global countdown, struck
        if number is not None and in_start():
            with where:
                countdown -= 1
                strike = countdown == 0
                if strike:
                    frame = sys._getframe(1)
                    struck = f"{name} in {os.path.basename(frame.f_code.co_filename)}:{frame.f_code.co_name}"
            if strike:
                raise OSError(number, os.strerror(number))
        return real(*arguments, **settings)
    return call

async def main():
    global number, countdown, struck
    kept, seen = await warmed()
    steps = set()
    for name, calls in CALLS.items():
        real = {call: getattr(os, call) for call in calls if hasattr(os, call)}
        real_fork_exec = subprocess._fork_exec
        for call, function in real.items():
            setattr(os, call, failing(call, function))
        if "fork_exec" in calls:
            subprocess._fork_exec = failing("fork_exec", real_fork_exec)
        for step in range(1, 400):
            for _ in range(TRIES):
                struck, countdown, number = None, step, getattr(errno, name)
                await attempt(seen)
                number = None
                assert (left := await settled(kept)) is True, (name, step, struck, left)
                if struck is not None:
                    break
            if struck is None:
                break
            steps.add(f"{name} {struck}")
        for call, function in real.items():
            setattr(os, call, function)
        subprocess._fork_exec = real_fork_exec
    await attempt(seen)
    await box.close()
    seen["errors"] |= {f"step: {step}" for step in steps}
    tell(seen)
asyncio.run(main())
"""

# Its temporary folder is a file system that is full, of bytes or of files.
FULL = """
async def main():
    seen = {"errors": set(), "ok": 0}
    for files in ((InputFile("big", bytes(1 << 20)),), tuple(InputFile(f"f{n}", b"") for n in range(100))):
        try:
            await box.run(ExecutionRequest(("true",), policy, input_files=files))
            seen["ok"] += 1
        except SandboxError as error:
            seen["errors"].add(str(error))
        assert os.listdir(sys.argv[2]) == []
    result = await box.run(ExecutionRequest(("bash", "-c", "head -c 1M /dev/zero > x; echo after"), policy))
    assert result.stdout == b"after\\n", result
    assert os.listdir(sys.argv[2]) == []
    await box.close()
    tell(seen)
asyncio.run(main())
"""


@pytest.fixture
def skill(tmp_path: Path) -> Path:
    folder = tmp_path / "skill"
    folder.mkdir()
    (folder / "SKILL.md").write_text("of the skill")
    return folder


def agent(
    program: str, backend: Any, folder: Path, skill: Path, *more: str, before: Sequence[str] = ()
) -> dict[str, list[str]]:
    line = [*before, sys.executable, "-c", backend.agent(HEAD + program)]
    line += [json.dumps(backend.policy), str(folder), str(skill), *more]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=300)
    assert (done.stderr, done.returncode) == ("", 0)
    told: dict[str, list[str]] = json.loads(done.stdout)
    return told


FEW = [0, 1, 2, 3, 5, 7, 7, 7, 8, 13, 13, 14, 21, 50]
"""With 7, and with a control group 13, a sandbox is forked that no descriptor is left to wait for with."""


@pytest.mark.parametrize("spare", [FEW, pytest.param(list(range(60)), marks=pytest.mark.slow)], ids=["few", "every"])
def test_row_73_too_few_descriptors_are_a_typed_error_and_leak_nothing(backend, spare, private_tmp, skill):
    told = agent(SPARE, backend, private_tmp, skill, json.dumps(spare))
    assert told["ok"]
    assert told["errors"]


@pytest.mark.slow
def test_row_73_every_call_of_a_start_that_can_fail_is_a_typed_error_and_leaks_nothing(backend, private_tmp, skill):
    told = agent(INJECTED, backend, private_tmp, skill)
    steps = [error for error in told["errors"] if error.startswith("step: ")]
    print(*told["errors"], sep="\n")
    assert len(steps) > 10


SMALL = "size=200k,nr_inodes=40,mode=0711"


def test_row_73_a_full_disk_is_a_typed_error_and_leaves_nothing(backend, tmp_path, skill):
    folder = tmp_path / "small"
    folder.mkdir()
    # In a mount namespace of its own, so that no other test sees it.
    small = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o {SMALL} tmpfs "{folder}" && exec "$@"', "sh"]
    if subprocess.run([*small, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount a small tmpfs")
    told = agent(FULL, backend, folder, skill, before=small)
    if backend.level.strength >= IsolationLevel.NAMESPACES.strength:
        assert (told["ok"], told["errors"]) == (2, [])  # nothing of such a run is on the agent's disk
    else:
        assert (told["ok"], told["errors"]) == (0, ["The sandbox could not be set up: No space left on device."])
