"""Rows 65, 73: many runs at once, and an agent that has run out of something."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from adk_skills_agent.sandbox.contract import Status


async def test_row_65_parallel_runs_do_not_mix_and_leave_nothing(box, private_tmp):
    script = box.script('echo "$1"; echo "$1" > id.txt; cat id.txt; echo "$1" >&2', ".sh")

    async def one(number: int) -> None:
        result = await box.run("bash", script, str(number))
        expected = f"{number}\n".encode()
        assert result.status is Status.OK
        assert (result.stdout, result.stderr) == (expected * 2, expected)
        assert [(file.path, file.content) for file in result.files] == [("id.txt", expected)]

    await asyncio.gather(*(one(n) for n in range(32)))
    gc.collect()
    descriptors, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    places = asyncio.Semaphore(32)

    async def in_turn(number: int) -> None:
        async with places:
            await one(number)

    await asyncio.gather(*(in_turn(n) for n in range(500)))
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert threading.active_count() == threads
    assert list(private_tmp.iterdir()) == []
    assert [c for c in psutil.Process().children() if c.status() == psutil.STATUS_ZOMBIE] == []


def test_several_event_loops_in_several_threads_at_once(box):
    script = box.script('echo "$1"', ".sh")
    answers: list[bytes] = []

    async def some(base: int) -> None:
        results = await asyncio.gather(*(box.run("bash", script, str(base + n)) for n in range(25)))
        answers.extend(result.stdout for result in results)

    threads = [threading.Thread(target=lambda base=base: asyncio.run(some(base))) for base in (0, 100, 200, 300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == sorted(f"{base + n}\n".encode() for base in (0, 100, 200, 300) for n in range(25))


async def test_more_runs_than_places_take_turns_and_all_end(box):
    results = await asyncio.gather(*(box.run("bash", "-c", "sleep 0.05") for _ in range(150)))
    assert {result.status for result in results} == {Status.OK}


async def test_the_event_loop_stays_free_while_scripts_run(box):
    late = 0.0
    running = True

    async def heartbeat() -> None:
        nonlocal late
        loop = asyncio.get_running_loop()
        while running:
            before = loop.time()
            await asyncio.sleep(0.005)
            late = max(late, loop.time() - before)

    beat = asyncio.create_task(heartbeat())
    await asyncio.gather(*(box.bash("yes | head -c 3000000; mkdir d; touch d/{1..300}") for _ in range(16)))
    running = False
    await beat
    # Not a bound of performance: a blocked loop would be late by the length of a run or more.
    assert late < 2.0


EXHAUSTED = """
import asyncio, os, resource, sys, tempfile, warnings
warnings.simplefilter("ignore")
tempfile.tempdir = sys.argv[1]
from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.local import local_sandbox

request = ExecutionRequest(("bash", "-c", "echo fine"), SandboxPolicy(min_isolation="process"), stdin=b"x")
box = local_sandbox()

async def main():
    assert (await box.run(request)).stdout == b"fine\\n"
    import gc; gc.collect()
    used = len(os.listdir("/proc/self/fd")) - 1
    highest = max(int(fd) for fd in os.listdir("/proc/self/fd"))
    seen = set()
    for spare in range(0, 24):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        # Fill the gaps, then leave exactly so many descriptors.
        fill = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + 40, hard))
        try:
            while True:
                fill.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        for _ in range(spare):
            os.close(fill.pop())
        try:
            result = await box.run(request)
            seen.add("ok")
            assert result.stdout == b"fine\\n", result
        except SandboxError as error:
            seen.add("error")
            assert str(error).endswith("."), error
        finally:
            for fd in fill:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        gc.collect()
        assert len(os.listdir("/proc/self/fd")) - 1 == used, (spare, os.listdir("/proc/self/fd"))
        assert os.listdir(sys.argv[1]) == [], spare
    print(sorted(seen))

asyncio.run(main())
try:
    os.waitpid(-1, os.WNOHANG)
    print("child left")
except ChildProcessError:
    print("no child")
"""


def test_row_73_an_agent_without_descriptors_gets_a_typed_error_at_every_step_and_leaks_nothing(tmp_path):
    (tmp_path / "base").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", EXHAUSTED, str(tmp_path / "base")], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout == "['error', 'ok']\nno child\n"


FULL_DISK = """
import asyncio, os, sys, tempfile, warnings
warnings.simplefilter("ignore")
tempfile.tempdir = sys.argv[1]
from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import ExecutionRequest, InputFile, SandboxPolicy
from adk_skills_agent.sandbox.local import local_sandbox
policy = SandboxPolicy(isolation="process", min_isolation="process")
box = local_sandbox()

async def main():
    for files in ((InputFile("big", bytes(1 << 20)),), tuple(InputFile(f"f{n}", b"") for n in range(100))):
        try:
            await box.run(ExecutionRequest(("true",), policy, input_files=files))
            print("ran")
        except SandboxError as error:
            print(error)
        print(os.listdir(sys.argv[1]))
    result = await box.run(ExecutionRequest(("bash", "-c", "head -c 1M /dev/zero > x; echo after"), policy))
    print(result.stdout, os.listdir(sys.argv[1]))

asyncio.run(main())
"""


def test_row_73_an_agent_with_a_full_disk_gets_a_typed_error_and_leaves_nothing(tmp_path):
    folder: Path = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200k,nr_inodes=40", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("needs the right to mount a small tmpfs")
    try:
        done = subprocess.run(
            [sys.executable, "-c", FULL_DISK, str(folder)], capture_output=True, text=True, check=False
        )
    finally:
        subprocess.run(["umount", str(folder)], check=True)
    assert done.stderr == ""
    refusal = "The sandbox could not be set up: No space left on device.\n[]\n"
    assert done.stdout == f"{refusal}{refusal}b'after\\n' []\n"


async def test_row_73_a_spill_folder_that_cannot_be_written_costs_the_spill_only(box, tmp_path):
    (tmp_path / "file").write_text("in the way")
    result = await box.bash("head -c 5000 /dev/zero", output_bytes=100, spill_dir=tmp_path / "file" / "spill")
    assert result.status is Status.OK
    assert result.stdout_truncated
    assert result.stdout_spill is None
    assert any("full text could not be kept" in note for note in result.notes)
