"""Rows 65 and 81: many runs at once, the loop and the turns they share."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from dataclasses import replace

import pytest

from adk_skills_agent.errors import TooManyRuns
from adk_skills_agent.sandbox.contract import Status
from adk_skills_agent.sandbox.threads import MAX_WAITING, Semaphore
from own_process import unhindered


# What 500 runs share is the host's: its loop, threads, descriptors and folders. On every backend `make test` has
# the hundred runs below in four threads, and those of test_leaks.
@pytest.mark.host_side
@pytest.mark.parametrize("runs", [80, pytest.param(500, marks=pytest.mark.slow)])
async def test_row_65_parallel_runs_do_not_mix_and_leave_nothing(box, private_tmp, runs):
    script = box.script('echo "$1"; echo "$1" > id.txt; cat id.txt; echo "$1" >&2', ".sh")

    async def one(number: int) -> None:
        result = await box.run("bash", script, str(number))
        expected = f"{number}\n".encode()
        assert result.status is Status.OK
        assert (result.stdout, result.stderr) == (expected * 2, expected)
        assert [(file.path, file.content) for file in result.files] == [("id.txt", expected)]

    await asyncio.gather(*(one(n) for n in range(32)))
    await box.sandbox.close()  # what is started ahead is not held between runs that are compared
    gc.collect()
    descriptors, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    places = asyncio.Semaphore(32)

    async def in_turn(number: int) -> None:
        async with places:
            await one(number)

    await asyncio.gather(*(in_turn(n) for n in range(runs)))
    await box.sandbox.close()

    def more() -> tuple[int, int]:
        gc.collect()
        now = len(os.listdir("/proc/self/fd")), threading.active_count()
        return max(0, now[0] - descriptors), max(0, now[1] - threads - 1)  # the watchdog

    deadline = time.monotonic() + 30  # what was being started ahead, and its threads, end in the background
    while more() != (0, 0) and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    assert more() == (0, 0)
    assert list(private_tmp.iterdir()) == []


@pytest.mark.slow
def test_several_event_loops_in_several_threads_at_once(box):
    script = box.script('echo "$1"', ".sh")
    answers: list[bytes] = []

    async def some(base: int) -> None:
        results = await asyncio.gather(*(box.run("bash", script, str(base + n)) for n in range(12)))
        answers.extend(result.stdout for result in results)

    threads = [threading.Thread(target=lambda base=base: asyncio.run(some(base))) for base in (0, 100, 200, 300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == sorted(f"{base + n}\n".encode() for base in (0, 100, 200, 300) for n in range(12))


def test_row_32_a_run_outlives_the_thread_that_asked_for_it_and_the_first_one_the_sandbox_saw(box):
    """The kernel ends what a thread has started with it, if told to; nothing of a run may hang on the caller's."""
    loop = asyncio.new_event_loop()
    keeper = threading.Thread(target=loop.run_forever)
    keeper.start()
    asked = []

    def ask() -> None:
        asked.append(asyncio.run_coroutine_threadsafe(box.bash("sleep 0.3; echo whole"), loop))

    try:
        for _ in range(2):
            thread = threading.Thread(target=ask)
            thread.start()
            thread.join()
        assert [future.result(20).stdout for future in asked] == [b"whole\n"] * 2
    finally:
        loop.call_soon_threadsafe(loop.stop)
        keeper.join()
        loop.close()


@pytest.mark.slow
@pytest.mark.host_side  # the queue is in the host
async def test_more_runs_than_places_take_turns_and_all_end(box):
    results = await asyncio.gather(*(box.run("bash", "-c", "sleep 0.05") for _ in range(100)))
    assert {result.status for result in results} == {Status.OK}


@pytest.mark.slow
@pytest.mark.level("landlock")
async def test_runs_at_the_same_time_do_not_take_each_other_the_right_to_start_a_process(box):
    """Where they share a user the kernel counts the processes of all of them."""
    code = """
import os, time
child = os.fork()
time.sleep(0.4)
if not child:
    os._exit(0)
os.wait()
print("both")
"""
    results = await asyncio.gather(*(box.python(code, pids=10) for _ in range(24)))
    assert {(result.status, result.stdout) for result in results} == {(Status.OK, b"both\n")}


async def test_the_event_loop_stays_free_while_scripts_run(box):
    late = 0.0
    running = True

    async def heartbeat() -> None:
        nonlocal late
        while running:
            before = unhindered()
            await asyncio.sleep(0.005)
            late = max(late, unhindered() - before)

    beat = asyncio.create_task(heartbeat())
    await asyncio.gather(*(box.bash("yes | head -c 3000000; mkdir d; touch d/{1..300}") for _ in range(16)))
    running = False
    await beat
    # Not a bound of performance: a blocked loop would be late by the length of a run or more.
    assert late < 2.0


async def test_row_73_a_spill_folder_that_cannot_be_written_costs_the_spill_only(box, tmp_path):
    (tmp_path / "file").write_text("in the way")
    result = await box.bash("head -c 5000 /dev/zero", output_bytes=100, spill_dir=tmp_path / "file" / "spill")
    assert result.status is Status.OK
    assert result.stdout_truncated
    assert result.stdout_spill is None
    assert any("full text could not be kept" in note for note in result.notes)


@pytest.mark.host_side  # the queue is in the host
@pytest.mark.local("the turns of this machine")
async def test_row_81_the_sleeping_runs_of_one_user_keep_nobody_waiting_and_too_many_are_refused(box, monkeypatch):
    # Below namespaces the kernel counts all processes of a plain user together, those of other tests included.
    started = []
    sleeping = box.request("sh", "-c", "echo; sleep 200", pids=1000, wall_seconds=200, warm_slots=0)
    sleeping = replace(sleeping, on_output=lambda *_: started.append(1))
    quick = box.request("true", pids=1000, warm_slots=0)
    places, too_many = 32, 40  # a busy machine takes minutes to start all that it may run at once
    own = Semaphore(places, fair=True, most_waiting=MAX_WAITING)  # of which no test before has taken a place
    monkeypatch.setattr("adk_skills_agent.sandbox.local.sandbox.RUNNING", own)
    asked = [replace(sleeping, share=("evil", str(one))) for one in range(places * 3 // 4 + MAX_WAITING[0] + too_many)]
    evil = [asyncio.create_task(box.sandbox.run(one)) for one in asked]
    try:
        async with asyncio.timeout(100):
            while len(started) < places * 3 // 4:
                await asyncio.sleep(0.05)
        refused = [task for task in evil if task.done()]
        assert len(refused) == too_many
        for task in refused:
            with pytest.raises(TooManyRuns, match="256 of this user already"):
                task.result()
        for share in (("good", "a"), ("good", "b"), ()):
            assert (await box.sandbox.run(replace(quick, share=share))).status is Status.OK
        assert len(started) == places * 3 // 4  # nobody had to end for it
    finally:
        for task in evil:
            task.cancel()
        await asyncio.gather(*evil, return_exceptions=True)
    assert own.free == places
