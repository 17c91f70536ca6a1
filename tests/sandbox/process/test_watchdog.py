"""The thread that watches limits: one run's trouble is that run's only, and a run that cannot be watched is stopped."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import logging
import mmap
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from adk_skills_agent.platforms import PAGE_BYTES
from adk_skills_agent.sandbox.contract import Status
from adk_skills_agent.sandbox.process import open_files, tree
from adk_skills_agent.sandbox.process.open_files import (
    SURE_PLACE,
    Held,
    _tells_what_is_on_the_way,
    deleted_files,
    held,
    hidden_sockets,
    hiding_places,
    may_hide_files,
    most_in_kernel,
)
from adk_skills_agent.sandbox.process.tree import (
    MAPS_BYTES,
    MachineMemory,
    ProcessInfo,
    RunMarks,
    all_processes,
    machine_memory,
    process_info,
    proportional,
    used_together,
)
from adk_skills_agent.sandbox.process.watchdog import (
    DiskLimit,
    Limits,
    Seen,
    Watchdog,
    Watched,
    _disk_problem,
    _held_problem,
    _hidden_memory,
    _other_memory,
    _processes_problem,
    works_here,
)
from adk_skills_agent.sandbox.streaming import ResourceSample
from own_process import in_a_fork

pytestmark = pytest.mark.skipif(not works_here(), reason="needs /proc")

SHORTAGE = "adk_skills_agent.sandbox.process.shortage"
MARKS = RunMarks(os.getpid(), "0123456789abcdef", "/nowhere")


class Told:
    """A run under watch, and what the watchdog says about it."""

    def __init__(self, marks: RunMarks, *, beyond=lambda: None, disk=()) -> None:
        self.breaches: list[tuple[Status, str]] = []
        self.samples: list[ResourceSample] = []
        self.heard = threading.Event()
        limits = Limits(marks, None, None, disk, self.breached, beyond, self.looked)
        self.run = Watched(lambda: False, lambda: None, limits=limits)

    def breached(self, status: Status, sentence: str) -> None:
        self.breaches.append((status, sentence))
        self.heard.set()

    def looked(self, sample: ResourceSample) -> None:
        self.samples.append(sample)
        self.heard.set()


def fail(*_: object) -> tuple[int, int]:
    raise ValueError("not foreseen")


@pytest.mark.parametrize("broken", ["beyond", "disk"])
def test_a_run_that_cannot_be_looked_at_is_stopped_and_the_others_stay_watched(broken, caplog):
    watchdog = Watchdog()
    trouble = {"beyond": fail} if broken == "beyond" else {"disk": (DiskLimit(fail, 1, None),)}
    unwatchable, other = Told(MARKS, **trouble), Told(replace(MARKS, run_id="f" * 16))
    with caplog.at_level(logging.ERROR):
        watchdog.add(unwatchable.run)
        assert unwatchable.heard.wait(20)
        watchdog.add(other.run)
        assert other.heard.wait(20)
    watchdog.remove(unwatchable.run)
    watchdog.remove(other.run)
    assert unwatchable.breaches == [
        (Status.ERROR, "Stopped: its limits could not be watched any longer; the agent's log says why.")
    ]
    assert other.breaches == []
    assert [record.exc_info[1].args for record in caplog.records] == [("not foreseen",)]


def test_where_the_machine_cannot_be_looked_at_one_run_is_stopped_and_the_others_stay_watched(monkeypatch):
    first, other = Told(MARKS), Told(replace(MARKS, run_id="f" * 16))
    watchdog = Watchdog()
    monkeypatch.setattr(watchdog._shortages, "to_go", fail)
    watchdog._look([run for told in (first, other) if (run := told.run.limits) is not None])
    assert [status for status, _ in first.breaches] == [Status.ERROR]
    assert other.breaches == []


def test_row_250_files_that_take_long_to_count_keep_no_other_look_waiting():
    """Seen: with four runs of 38,000 files each nobody looked at memory for 6.7 s."""
    counted = 0

    def usage(*_: object) -> tuple[int, int]:
        nonlocal counted
        counted += 1
        until = time.thread_time() + 0.05
        while time.thread_time() < until:
            pass
        return 0, 0

    watchdog, told = Watchdog(), Told(MARKS, disk=(DiskLimit(usage, 1, None),))
    watchdog.add(told.run)
    while counted < 3:
        time.sleep(0.01)
    watchdog.remove(told.run)
    assert len(told.samples) > counted  # before, one look for each time that files were counted


def test_row_452_runs_that_cost_nothing_prolong_nobodys_rest():
    """Seen: ten runs that slept made the rest after a slow look eleven times as long; 2,300 MiB came meanwhile."""
    seen = Seen(shared_by=11)

    def work(seconds: float) -> None:
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            pass

    before = time.monotonic()
    with seen.dear("memory") as is_due:
        assert is_due
        work(0.02)
    (then, soon), cost = seen._next["memory"], seen.costs["memory"]
    assert before + 10 * cost <= then <= time.monotonic() + 10 * cost  # 110 times before
    assert soon < then  # some rest there is in any case
    later = time.monotonic() + 60
    for at_once, times, due in (
        (False, (later, 0.0), False),
        (True, (later, later), False),
        (True, (later, 0.0), True),
    ):
        seen._next["memory"] = times
        with seen.dear("memory", at_once=at_once) as is_due:
            assert is_due is due
    seen.cost_of_others = 60.0  # never more than an equal part of the time for each
    with seen.dear("files") as is_due:
        work(0.02)
    assert seen._next["files"][0] - time.monotonic() < 11 * 10 * 0.1


def test_row_452_files_in_memory_that_may_have_grown_are_looked_at_at_once(monkeypatch):
    looks: list[int] = []
    place = "adk_skills_agent.sandbox.process.watchdog"
    monkeypatch.setattr(f"{place}.memory_in_files", lambda pids: looks.append(1) or 100 << 20)
    monkeypatch.setattr(f"{place}.swapped_out", lambda pids: 0)
    run = Limits(MARKS, 512 << 20, None, (), lambda *_: None, lambda: None)
    run.seen._next["memory"] = time.monotonic() + 60, 0.0

    def look(mebibytes: int) -> int:
        now = MachineMemory(shared=mebibytes << 20)
        _other_memory(run, 512 << 20, [], now, MachineMemory(), alone=False)
        return len(looks)

    run.seen.in_files = 100 << 20, 1000 << 20
    assert look(1400) == 0  # with what it had it would be below the limit
    assert look(1420) == 1
    run.seen._next["memory"] = time.monotonic() + 60, 0.0
    assert look(1500) == 1


def test_row_451_a_disk_that_goes_fast_is_looked_at_at_once(tmp_path, monkeypatch):
    free, looks = [1 << 40], []
    monkeypatch.setattr("adk_skills_agent.sandbox.process.watchdog._free", lambda _: free[0])
    place = DiskLimit(lambda *_: looks.append(1) or (0, 0), 256 << 20, None, str(tmp_path))
    run = Limits(MARKS, None, None, (place,), lambda *_: None, lambda: None)
    assert (_disk_problem(run, []), len(looks)) == (None, 1)
    run.seen._next["disk"] = time.monotonic() + 60, 0.0
    free[0] -= 250 << 20
    assert (_disk_problem(run, []), len(looks)) == (None, 1)
    free[0] -= 10 << 20
    assert (_disk_problem(run, []), len(looks)) == (None, 2)


def test_two_runs_whose_commands_had_the_same_process_id_are_both_looked_at():
    """One has ended, and its id is the next one's, before the watchdog was told."""
    watchdog = Watchdog()
    runs = [Told(replace(MARKS, run_id=letter * 16)) for letter in "ab"]
    for told in runs:
        watchdog.add(told.run)
    assert all(told.heard.wait(20) for told in runs)
    for told in runs:
        watchdog.remove(told.run)
        assert told.breaches == []


def test_row_253_a_child_with_a_lower_number_than_its_parent_is_found(monkeypatch):
    """Numbers start over; who hides behind that has a session and an environment of its own."""
    parent, child, other = (
        ProcessInfo(pid, "S", of, pid, pid, 1, 7, 0, 0, 0, pid) for pid, of in ((9, 8), (5, 9), (6, 2))
    )
    command = ProcessInfo(8, "S", 2, 8, 8, 1, 6, 0, 0, 0, 8)
    place = "adk_skills_agent.sandbox.process.watchdog"
    monkeypatch.setattr(f"{place}.all_processes", lambda: iter((child, other, command, parent)))
    monkeypatch.setattr(f"{place}._mark_of", lambda _: "")
    run = Limits(replace(MARKS, pid=8), None, None, (), lambda *_: None, lambda: None)
    for _ in range(2):
        found = Watchdog()._members([run])[MARKS.run_id]
        assert {info.pid for info in found} == {5, 8, 9}


def test_it_sleeps_while_nothing_runs_and_wakes_for_the_next_run():
    watchdog = Watchdog()
    for letter in "ab":
        deadline = time.monotonic() + 20
        while not watchdog._changed._waiters and time.monotonic() < deadline:  # type: ignore[attr-defined]
            time.sleep(0.001)
        told = Told(replace(MARKS, run_id=letter * 16))
        watchdog.add(told.run)
        assert told.heard.wait(20)
        watchdog.remove(told.run)


def test_it_does_not_keep_a_program_from_ending():
    Watchdog()
    watchdogs = [thread for thread in threading.enumerate() if thread.name == "adk-skills-watchdog"]
    assert watchdogs
    assert all(thread.daemon for thread in watchdogs)


def test_the_memory_of_the_machine_is_read_only_for_a_run_whose_memory_is_watched():
    def limits(memory_bytes: int | None) -> Limits:
        return Limits(MARKS, memory_bytes, None, (), lambda *_: None, lambda: None)

    assert limits(None).seen.before is None
    before = limits(1 << 20).seen.before
    assert before is not None
    assert before.kernel > 0


def test_row_216_memory_that_another_run_had_when_one_began_counts_as_growth(monkeypatch):
    """Seen: 1.8 GiB in buffers of sockets with a limit of 512 MiB, and the status ``ok``: the third run of a chain."""
    memory, may_hold = [0], [1 << 40]
    place = "adk_skills_agent.sandbox.process.watchdog"
    monkeypatch.setattr(f"{place}.machine_memory", lambda: MachineMemory(kernel=memory[0] << 20))
    monkeypatch.setattr(f"{SHORTAGE}.most_in_kernel", lambda *_, **__: may_hold[0])
    monkeypatch.setattr(f"{place}.kernel_setting", lambda *_: 1 << 40)  # as on a large machine
    ended: list[str] = []
    watchdog = Watchdog()

    def limits(name: str) -> Limits:
        marks = replace(MARKS, run_id=name)
        return Limits(
            marks, 512 << 20, None, (), lambda *_: ended.append(name), lambda: None, guarded=tuple, bounded=True
        )

    first, second, third = limits("first"), limits("second"), limits("third")
    watchdog._look([first])
    memory[0] = 600
    watchdog._look([first, second])
    memory[0] = 1300  # of both together, each may have 768
    watchdog._look([first, second])
    assert ended == []
    watchdog._look([second])
    assert ended == ["second"]
    watchdog._look([second, third])  # the first one is on its way out, and its memory, too
    watchdog._look([third])
    watchdog._look([third])  # it is gone and the memory is not: it was the machine's
    assert ended == ["second"]


def test_row_308_what_a_run_took_before_its_first_look_counts_after_another_run_was_ended(monkeypatch):
    """Seen: a look at a million locks took so long that the next one came after two seconds, in the next run: a third
    run of a chain had 440 MiB with a control group of 96 MiB and the status ``ok``.
    """
    memory, ended = [0], []
    place = "adk_skills_agent.sandbox.process.watchdog"
    monkeypatch.setattr(f"{place}.machine_memory", lambda: MachineMemory(kernel=memory[0] << 20))
    monkeypatch.setattr(f"{SHORTAGE}.most_in_kernel", lambda *_, **__: 1 << 40)

    def limits(name: str) -> Limits:
        end = lambda *_: ended.append(name)  # noqa: E731
        marks = replace(MARKS, run_id=name)
        return Limits(marks, 512 << 20, None, (), end, lambda: None, guarded=tuple, bounded=True)

    watchdog, second = Watchdog(), limits("second")
    first = limits("first")
    watchdog._look([first])
    memory[0] = 1000
    watchdog._look([first])
    memory[0] = 0
    watchdog._is_late = True  # it is slow
    run = Watched(lambda: False, lambda: None)
    watchdog.add(run)
    memory[0] = 1000
    run.limits = second
    deadline = time.monotonic() + 20
    while "second" not in ended and time.monotonic() < deadline:
        time.sleep(0.01)
    watchdog.remove(run)
    assert ended == ["first", "second"]


def test_row_416_what_a_run_takes_before_the_first_look_is_its_own(monkeypatch):
    """Seen: 1.7 GB in connections with a limit of 512 MiB and a control group, status ``ok``."""
    memory, ended = [0], []
    place = "adk_skills_agent.sandbox.process.watchdog"
    monkeypatch.setattr(f"{place}.machine_memory", lambda: MachineMemory(kernel=memory[0] << 20))
    monkeypatch.setattr(f"{SHORTAGE}.machine_memory", lambda: MachineMemory(kernel=memory[0] << 20))
    monkeypatch.setattr(f"{SHORTAGE}.most_in_kernel", lambda *_, **__: 1 << 40)
    watchdog, run = Watchdog(), Watched(lambda: False, lambda: None)
    watchdog.add(run)
    deadline = time.monotonic() + 20
    while watchdog._shortages.lowest is None and time.monotonic() < deadline:
        time.sleep(0.001)
    memory[0] = 1000
    end = lambda *_: ended.append("run")  # noqa: E731
    run.limits = Limits(MARKS, 512 << 20, None, (), end, lambda: None, guarded=tuple, bounded=True)
    while not ended and time.monotonic() < deadline:
        time.sleep(0.01)
    watchdog.remove(run)
    assert ended == ["run"]


def test_row_204_when_the_machine_has_lost_its_memory_the_run_the_kernel_worked_most_for_ends(monkeypatch):
    """Each round of attackers found memory that no count shows; here nothing shows it."""
    left, scarce = [8000], [False]
    place = "adk_skills_agent.sandbox.process.watchdog"
    monkeypatch.setattr(f"{place}.machine_memory", lambda: MachineMemory(available=left[0] << 20, is_scarce=scarce[0]))
    monkeypatch.setattr(f"{SHORTAGE}.most_in_kernel", lambda *_, **__: 0)
    monkeypatch.setattr(f"{SHORTAGE}.hiding_places", lambda *_: 0)  # those of this process, if it takes long to count
    ended: list[str] = []

    def limits(name: str) -> Limits:
        end = lambda *_: ended.append(name)  # noqa: E731
        marks = replace(MARKS, run_id=name)
        return Limits(marks, 512 << 20, None, (), end, lambda: None, guarded=tuple, bounded=True)

    watchdog, runs, late = Watchdog(), [limits("idle"), limits("busy")], limits("late")
    ticks = {"idle": 5, "busy": 50, "late": 500}
    process = next(one for one in all_processes() if one.pid == os.getpid())
    monkeypatch.setattr(
        watchdog,
        "_members",
        lambda runs: {
            run.marks.run_id: [replace(process, system_ticks=ticks[run.marks.run_id])] for run in runs
        },
    )  # fmt: skip
    watchdog._look(runs)
    left[0] = 200
    watchdog._look([*runs, late])
    assert ended == []  # there is memory left
    scarce[0] = True
    watchdog._look([*runs, late])
    assert ended == ["busy"]  # not the one that began when it was gone already
    scarce[0] = False
    watchdog._look([*runs, late])
    assert ended == ["busy"]
    scarce[0], left[0] = True, 7600  # the machine's own
    watchdog._look([*runs, late])
    assert ended == ["busy"]


def test_row_277_who_can_hide_memory_goes_before_one_that_began_earlier_and_worked_more(monkeypatch):
    """Seen in a container of 900 MiB: the watchdog ended the run beside one that kept 720 MiB in private mappings of
    files in memory, which children had filled that nobody waited for.
    """
    place = "adk_skills_agent.sandbox.process.watchdog"
    left = [800]
    monkeypatch.setattr(
        f"{place}.machine_memory", lambda: MachineMemory(available=left[0] << 20, is_scarce=left[0] < 50)
    )
    monkeypatch.setattr(f"{SHORTAGE}.most_in_kernel", lambda *_, **__: 0)
    for each in (place, SHORTAGE):
        monkeypatch.setattr(f"{each}.hiding_places", lambda pids, *_: SURE_PLACE * (pids[0] > 1))
    ended: list[str] = []

    def limits(name: str) -> Limits:
        end = lambda *_: ended.append(name)  # noqa: E731
        return Limits(replace(MARKS, run_id=name), 512 << 20, None, (), end, lambda: None)

    watchdog, first = Watchdog(), limits("first")
    left[0] = 500
    runs = [first, limits("hider"), limits("shows all")]
    ticks, shown = {"first": 50, "hider": 1, "shows all": 5}, {"first": 1, "hider": 2, "shows all": 3}
    pages = {"first": 0, "hider": 0, "shows all": (400 << 20) // PAGE_BYTES}
    process = next(one for one in all_processes() if one.pid == os.getpid())
    monkeypatch.setattr(
        watchdog,
        "_members",
        lambda runs: {
            (name := run.marks.run_id): [
                replace(process, system_ticks=ticks[name], shown=shown[name], rss_pages=pages[name])
            ]
            for run in runs
        },
    )
    watchdog._look(runs)
    assert ended == []
    left[0] = 40
    watchdog._look(runs)
    assert ended == ["hider"]
    watchdog._look(runs)
    assert ended == ["hider", "first"]


def test_row_216_what_no_run_can_have_caused_is_the_machines_and_of_several_the_one_that_can_most_ends(monkeypatch):
    memory, may_hold = [0], {"small": 0, "large": 0}
    place = "adk_skills_agent.sandbox.process.watchdog"
    monkeypatch.setattr(f"{place}.machine_memory", lambda: MachineMemory(kernel=memory[0] << 20))
    monkeypatch.setattr(f"{SHORTAGE}.most_in_kernel", lambda _, guarded, **__: may_hold[guarded[0]] << 30)
    ended: list[str] = []

    def limits(name: str) -> Limits:
        marks = replace(MARKS, run_id=name)
        end = lambda *_: ended.append(name)  # noqa: E731
        return Limits(marks, 512 << 20, None, (), end, lambda: None, guarded=lambda: (name,), bounded=True)

    watchdog, runs = Watchdog(), [limits("small"), limits("large")]
    watchdog._look(runs)
    memory[0] = 4000
    watchdog._look(runs)
    may_hold.update(small=1, large=2)
    watchdog._look(runs)
    assert ended == []
    memory[0] = 8000
    watchdog._look(runs)
    watchdog._look(runs)
    assert ended == ["large", "small"]


def test_row_274_who_hides_shared_memory_is_ended_and_not_the_one_beside_it(monkeypatch):
    """Seen: the kernel ended an honest run for 2 GiB that another one kept in private mappings of files in memory."""
    shared = [0]
    place = "adk_skills_agent.sandbox.process.watchdog"
    monkeypatch.setattr(f"{place}.machine_memory", lambda: MachineMemory(shared=shared[0] << 20))
    monkeypatch.setattr(f"{SHORTAGE}.shared_memory", lambda _: 0)
    monkeypatch.setattr(f"{SHORTAGE}.hiding_places", lambda _, guarded: guarded[0])
    ended: list[str] = []

    def limits(name: str, places: int) -> Limits:
        marks = replace(MARKS, run_id=name)
        limits = Limits(marks, 512 << 20, None, (), lambda *_: ended.append(name), lambda: None)
        limits.guarded = lambda: (places,)
        return limits

    watchdog, runs = Watchdog(), [limits("sockets", 40), limits("none", 0), limits("hider", 3000)]
    watchdog._look(runs)
    shared[0] = 700
    watchdog._look(runs)
    assert ended == []
    shared[0] = 900
    watchdog._look(runs)
    assert ended == ["hider"]
    watchdog._look(runs)
    assert ended == ["hider"]  # which takes a moment to let go of it
    watchdog._look(runs[:2])
    watchdog._look(runs[:2])
    assert ended == ["hider", "sockets"]


@pytest.mark.usefixtures("time_to_count")
@in_a_fork
def test_row_274_each_place_where_shared_memory_can_be_counts():
    before = hiding_places([os.getpid()])
    here, there = socket.socketpair()
    unsure = 0 if _tells_what_is_on_the_way() else 1
    assert hiding_places([os.getpid()]) == before + 2 * unsure
    memory = os.memfd_create("x /dev/shm/sem.x")
    os.truncate(memory, PAGE_BYTES)
    socket.send_fds(here, [b"x"], [memory, memory])
    assert hiding_places([os.getpid()]) == before + unsure + 2 * SURE_PLACE
    with mmap.mmap(memory, PAGE_BYTES, flags=mmap.MAP_PRIVATE):
        os.close(memory)
        assert hiding_places([os.getpid()]) == before + unsure + 3 * SURE_PLACE
    here.close()
    there.close()
    assert hiding_places([os.getpid()]) == before
    assert hiding_places([os.getpid()], {os.getpid()}) == 0


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.usefixtures("time_to_count")
@in_a_fork
def test_row_395_a_socket_with_nothing_on_its_way_is_no_place_where_the_kernel_says_so(monkeypatch, tells):
    """Seen: two scripts that sleep in asyncio were ended ("it used 1627 MiB"), for files of another agent."""
    monkeypatch.setattr(open_files, "_tells_what_is_on_the_way", lambda: tells)
    before = hiding_places([os.getpid()])
    sockets = [*socket.socketpair(), socket.socket()]
    assert hiding_places([os.getpid()]) == before + (0 if tells else 3)
    for one in sockets:
        one.close()


@pytest.mark.usefixtures("time_to_count")
@in_a_fork
def test_a_semaphore_in_the_small_file_system_of_a_run_hides_no_memory(monkeypatch):
    """Every ``multiprocessing.Pool`` has some, mapped and without a name."""
    before = hiding_places([os.getpid()])
    path = Path(f"/dev/shm/sem.{os.urandom(8).hex()}")
    path.write_bytes(bytes(32))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 32):
        path.unlink()
        assert hiding_places([os.getpid()]) == before + SURE_PLACE
        monkeypatch.setattr(open_files, "_device_of_shm", lambda: b"00:01")
        assert hiding_places([os.getpid()]) == before


@pytest.mark.parametrize("own_network", [True, False])
@in_a_fork
def test_row_413_a_socket_that_only_a_call_holds_is_a_place(monkeypatch, own_network):
    """Seen: 4.8 GB of files in memory with a limit of 512 MiB, status ``ok``."""
    if own_network:
        monkeypatch.setattr("adk_skills_agent.sandbox.process.open_files._has_own_network", lambda _: True)
        place = "adk_skills_agent.sandbox.process.open_files._sockets_inside"
        monkeypatch.setattr(place, lambda _: [str(os.fstat(one.fileno()).st_ino).encode() for one in kept])
    here, there = socket.socketpair()
    with there:
        kept = [here.dup(), there]
        waits = select.poll()
        waits.register(here.fileno(), 0)
        ends = os.pipe()
        waits.register(ends[0], select.POLLIN)
        thread = threading.Thread(target=waits.poll)
        thread.start()
        while "poll" not in Path(f"/proc/self/task/{thread.native_id}/wchan").read_text():
            time.sleep(0.01)
        there.send(b"x")
        mine = [os.getpid()]
        assert hidden_sockets(mine) == 0
        before = most_in_kernel(mine)
        number = str(os.fstat(here.fileno()).st_ino).encode()
        kept[0].close()
        here.close()
        if own_network:
            monkeypatch.setattr(place, lambda _: [number, b"0"])
        assert hidden_sockets(mine) == 1
        assert hiding_places(mine) >= SURE_PLACE
        assert own_network or most_in_kernel(mine) == before  # it counts as it did when it was open
        assert may_hide_files(mine, "/nowhere")
        os.write(ends[1], b"x")
        thread.join()
        assert own_network or hidden_sockets(mine) == 0
        for end in ends:
            os.close(end)


@contextlib.contextmanager
def socket_that_only_a_call_holds() -> Iterator[None]:
    """One of this process with something to read, which no list of open files has."""
    here, there = socket.socketpair()
    with there:
        waits, ends = select.poll(), os.pipe()
        waits.register(here.fileno(), 0)
        waits.register(ends[0], select.POLLIN)
        thread = threading.Thread(target=waits.poll)
        thread.start()
        while "poll" not in Path(f"/proc/self/task/{thread.native_id}/wchan").read_text():
            time.sleep(0.01)
        there.send(b"x")
        here.close()
        yield
        os.write(ends[1], b"x")
        thread.join()
        for end in ends:
            os.close(end)


@in_a_fork
def test_sockets_that_were_there_before_the_first_run_are_other_programs(monkeypatch):
    """Seen: a script that sleeps was ended for a gigabyte that another program wrote, because a program of the same
    user that hides itself, as ``ssh-agent`` and browsers do, had an unread message.
    """
    monkeypatch.setattr(open_files, "_noted", (-1e9, frozenset()))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    watchdog, mine = Watchdog(), [os.getpid()]
    first, second = Watched(lambda: False, lambda: None), Watched(lambda: False, lambda: None)
    with socket_that_only_a_call_holds():
        assert hidden_sockets(mine) == 1
        watchdog.add(first)
        assert hidden_sockets(mine) == 0
        with socket_that_only_a_call_holds():
            monkeypatch.setattr(open_files, "_NOTED_SECONDS", 0.0)
            watchdog.add(second)
            assert hidden_sockets(mine) == 1
    watchdog.remove(first)
    watchdog.remove(second)


@pytest.mark.usefixtures("time_to_count")
@in_a_fork
def test_row_274_connections_that_nobody_accepts_are_places_where_shared_memory_can_be(monkeypatch):
    here, client = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    with here, client:
        here.bind(f"\0adk-skills-{os.urandom(8).hex()}")
        before = hiding_places([os.getpid()])
        here.listen(1)
        client.connect(here.getsockname())
        monkeypatch.setattr("adk_skills_agent.sandbox.process.open_files._has_own_network", lambda _: True)
        assert hiding_places([os.getpid()]) >= before + SURE_PLACE


def test_row_274_a_program_holds_its_own_file(tmp_path):
    """Without a descriptor, and where the program is elsewhere in memory without a mapping, too."""
    program = tmp_path / "program"
    shutil.copy("/bin/sleep", program)
    size = program.stat().st_blocks * 512
    child = subprocess.Popen([program, "60"])
    try:
        program.unlink()
        while deleted_files([child.pid], str(tmp_path), too_deep=False) != size:
            time.sleep(0.01)
    finally:
        child.kill()
        child.wait()


def test_row_216_a_connection_may_hold_what_it_received(monkeypatch):
    """Seen: 33 MiB in one, of which 4 MiB counted."""
    place = "adk_skills_agent.sandbox.process.open_files"
    monkeypatch.setattr(
        f"{place}.kernel_setting", lambda name, usual: 1 << 25 if name == "net/ipv4/tcp_rmem" else usual
    )
    monkeypatch.setattr(f"{place}._sockets_in_namespace", lambda _: 16)
    assert most_in_kernel([os.getpid()]) >= 16 << 25


def test_row_217_free_pages_that_processors_keep_are_nobodys_memory(monkeypatch, tmp_path):
    """Seen: 1.7 GiB of them, of what other programs had let go of, which then counted as taken by a run."""
    (tmp_path / "meminfo").write_text("MemTotal: 1000 kB\nMemFree: 300 kB\nSlab: 100 kB\nSUnreclaim: 60 kB\n")
    zone = "Node 0, zone Normal\n  pages free     75\n  pagesets\n    cpu: 0\n{}              high:  90\n"
    counts = "".join(f"              count:    {pages}\n" for pages in (64, 11))
    (tmp_path / "zoneinfo").write_text(zone.format(counts))
    monkeypatch.setattr("adk_skills_agent.sandbox.process.tree.PROC", str(tmp_path))
    assert machine_memory().kernel == (60 + 600 << 10) - 75 * PAGE_BYTES


@pytest.mark.parametrize("version", [1, 2])
def test_row_276_memory_is_scarce_where_the_agents_control_group_has_none_left(monkeypatch, tmp_path, version):
    """Seen in a container of 1 GiB: the kernel ended another run, while the machine had 20 GiB."""
    place = "adk_skills_agent.sandbox.process.tree"
    group = tmp_path / "groups" / "above" / "agent"
    group.mkdir(parents=True)
    kind, line, names, prefix = {
        1: ("cgroup", "4:memory:/above/agent", ("limit_in_bytes", "usage_in_bytes"), "total_"),
        2: ("cgroup2", "0::/above/agent", ("max", "current"), ""),
    }[version]
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text(f"{line}\n")
    (tmp_path / "self" / "mountinfo").write_text(f"3 2 0:26 / {tmp_path}/groups rw - {kind} {kind} rw,memory\n")
    (tmp_path / "meminfo").write_text(f"MemTotal: {8 << 20} kB\nMemAvailable: {7 << 20} kB\n")
    monkeypatch.setattr(f"{place}.PROC", str(tmp_path))
    monkeypatch.setattr(f"{place}._limited_groups", tree._limited_groups.__wrapped__)
    monkeypatch.setattr(f"{place}._pinned_at_first", {})
    assert (machine_memory().available, machine_memory().is_scarce) == (7 << 30, False)

    def limited(folder: Path, most: int | str, used: int) -> None:
        (folder / f"memory.{names[0]}").write_text(f"{most}\n")
        (folder / f"memory.{names[1]}").write_text(f"{used}\n")
        (folder / "memory.stat").write_text(f"anon 5\n{prefix}inactive_file {20 << 20}\n{prefix}active_file 0\n")

    limited(group, 1 << 63 if version == 1 else "max", 900 << 20)
    limited(group.parent, 1 << 30, 900 << 20)
    assert (machine_memory().available, machine_memory().is_scarce) == (144 << 20, False)
    limited(group.parent, 1 << 30, 1000 << 20)
    assert (machine_memory().available, machine_memory().is_scarce) == (44 << 20, True)
    # Row 392: names of files that were asked for. Seen: runs of everybody else were ended, and memory was not short.
    if version == 2:
        stat = group.parent / "memory.stat"
        stat.write_text(f"{stat.read_text()}slab_reclaimable {300 << 20}\nslab_unreclaimable {500 << 20}\n")
        assert (machine_memory().available, machine_memory().is_scarce) == (344 << 20, False)
        return
    (group.parent / "memory.kmem.usage_in_bytes").write_text(f"{300 << 20}\n")
    assert (machine_memory().available, machine_memory().is_scarce) == (344 << 20, False)
    lines = {"MemTotal": (8 << 10) + 390, "MemAvailable": 7 << 10, "Slab": 300, "SUnreclaim": 200, "PageTables": 90}
    text = "".join(f"{name}: {size << 10} kB\n" for name, size in lines.items())
    (tmp_path / "meminfo").write_text(text)  # what the kernel cannot give back is 290 MiB more
    assert (machine_memory().available, machine_memory().is_scarce) == (54 << 20, True)


def test_row_251_memory_that_was_swapped_out_counts(monkeypatch, tmp_path):
    """A process of 400 MiB of which 10 are resident, four times; without a control group nothing else bounds them."""
    for pid in range(5, 9):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "status").write_text(f"VmRSS:\t {10 << 10} kB\nVmSwap:\t {400 << 10} kB\n")
        (tmp_path / str(pid) / "statm").write_text(f"{410 << 8} {10 << 8} 0 0 0 0 0\n")
    (tmp_path / "meminfo").write_text(f"MemTotal: 100 kB\nSwapTotal: {2000 << 10} kB\nSwapFree: {400 << 10} kB\n")
    monkeypatch.setattr("adk_skills_agent.sandbox.process.tree.PROC", str(tmp_path))
    assert machine_memory().swapped == 1600 << 20
    members = [ProcessInfo(pid, "S", 1, pid, pid, 1, 0, 10 << 8, 0, 0, pid) for pid in range(5, 9)]
    monkeypatch.setattr(Watchdog, "_members", lambda *_: {MARKS.run_id: members})
    ended: list[tuple[Status, str]] = []
    run = Limits(MARKS, 512 << 20, None, (), lambda *told: ended.append(told), lambda: None, bounded=False)
    run.seen.before = MachineMemory()
    Watchdog()._look([run])
    assert [status for status, _ in ended] == [Status.OUT_OF_MEMORY]
    assert "1640 MiB" in ended[0][1]


@contextlib.contextmanager
def forked_workers(number: int, of_their_own: int = 0) -> Iterator[list[ProcessInfo]]:
    """A program of 120 MiB and so many forks of it, each with more bytes of its own."""
    code = (
        f"import os, time; kept = bytearray(b'x') * (100 << 20)\nfor _ in range({number}):\n"
        f"  if os.fork() == 0:\n    more = bytearray(b'x') * {of_their_own}; print(flush=True); time.sleep(60)\n"
        "time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE, process_group=0) as parent:
        try:
            assert parent.stdout is not None
            for _ in range(number):
                parent.stdout.readline()
            members = [info for info in tree.all_processes() if info.group == parent.pid]
            assert len(members) == number + 1
            yield sorted(members, key=lambda info: info.pid != parent.pid)
        finally:
            os.killpg(parent.pid, signal.SIGKILL)


@pytest.mark.parametrize("hints", [{}, {"shared": 1 << 40}, {"page_tables": 1 << 40}])
def test_what_forked_workers_share_counts_once(hints):
    """Seen: without a control group a program of 120 MiB was ended at 512 MiB when it forked eight busy workers; later
    it still was when another run, or any program, had made 256 MiB of files in memory meanwhile.
    """
    with forked_workers(8) as members:
        assert sum(info.rss_pages for info in members) * PAGE_BYTES > 9 * (100 << 20)
        assert used_together(members) < 300 << 20
        run = Limits(MARKS, 512 << 20, None, (), lambda *_: None, lambda: None)
        run.seen.before = MachineMemory()
        assert _processes_problem(run, members, MachineMemory(**hints), MachineMemory(), alone=False) is None
        run.memory_bytes = 64 << 20
        assert _processes_problem(run, members, MachineMemory(**hints), MachineMemory(), alone=False) is not None


def test_a_process_that_has_its_parents_memory_until_it_begins_a_program_counts_once():
    """Seen: a script of 400 MiB that starts programs (vfork) was ended for "741 MiB of memory together"."""
    code = (
        "import ctypes, os, platform, time; kept = bytearray(b'x') * (100 << 20); libc = ctypes.CDLL(None)\n"
        "call, nap = libc.vfork, libc.sleep\nprint(flush=True)\n"
        "if call() == 0: nap(60); libc._exit(0)\n"
    )
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE, process_group=0) as parent:
        try:
            assert parent.stdout is not None
            parent.stdout.readline()
            while len(members := [info for info in tree.all_processes() if info.group == parent.pid]) < 2:
                time.sleep(0.01)
            assert sum(info.rss_pages for info in members) * PAGE_BYTES > 200 << 20
            assert 100 << 20 < used_together(members) < 150 << 20
        finally:
            os.killpg(parent.pid, signal.SIGKILL)


@pytest.mark.parametrize("when", ["before it is looked at", "afterwards"])
def test_what_a_fork_shared_counts_once_when_it_ends_during_the_look(monkeypatch, when):
    """Seen: a program of 300 MiB that forks was ended for "577 MiB of memory together" in four of eight runs."""
    with forked_workers(1, 8 << 20) as members:
        child = members[1]

        def end_it() -> None:
            os.kill(child.pid, signal.SIGKILL)
            while (info := process_info(child.pid)) is not None and info.alive:
                time.sleep(0.01)

        def ends_afterwards(info: ProcessInfo, name: bytes = b"Pss:") -> int:
            found = proportional(info, name)
            if info == child:
                end_it()
            return found

        monkeypatch.setattr(tree, "proportional", ends_afterwards)
        if when != "afterwards":
            end_it()
        assert 100 << 20 < used_together(members) < 150 << 20


def test_row_177_a_process_that_does_not_show_its_open_files_may_hold_anything_unless_it_is_ours(monkeypatch):
    """Seen: 2.3 GiB of a plain user's run with a limit of 512 MiB, behind ``prctl(PR_SET_DUMPABLE, 0)``."""

    listed = os.listdir

    def denied(path: str) -> list[str]:
        if path == "/proc":
            return listed(path)
        raise PermissionError(errno.EACCES, "Permission denied", path)

    pid = os.getpid()
    monkeypatch.setattr("adk_skills_agent.sandbox.process.open_files.os.listdir", denied)
    assert most_in_kernel([pid]) > 1 << 50
    assert most_in_kernel([pid], {pid}) < 1 << 30


@pytest.mark.parametrize(("places", "counts"), [(0, False), (3, False), (SURE_PLACE, True)])
def test_row_395_a_socket_does_not_make_memory_of_the_machine_a_runs(monkeypatch, places, counts):
    """Seen: a script that sleeps was ended for 857 MiB that two runs of another agent had in files in memory."""
    monkeypatch.setattr("adk_skills_agent.sandbox.process.watchdog.hiding_places", lambda *_: places)
    disk = DiskLimit(lambda *_: (5, 1), 1, None)
    run = Limits(MARKS, 512 << 20, None, (disk,), lambda *_: None, lambda: None)
    assert _hidden_memory(run, 512 << 20, 857 << 20, [1]) == ((857 << 20) - 5 if counts else 0)


@pytest.mark.parametrize(
    ("took", "goes", "waits"),
    [(0.005, 1 << 40, 1), (0.4, 0, 40), (0.4, 60 << 20, 8), (0.4, 600 << 20, 1), (0.4, -(1 << 40), 40)],
)
def test_row_403_memory_that_goes_fast_is_looked_at_however_long_a_look_takes(monkeypatch, took, goes, waits):
    """Seen: beside 2,700 sleeping processes the next look came after 4 s; a run had 3.3 GiB with a limit of 512 MiB."""
    place, clock, left, slept = "adk_skills_agent.sandbox.process.watchdog", [0.0], [1 << 45], []
    here, really = threading.get_ident(), time.sleep

    def sleep(seconds: float) -> None:
        if threading.get_ident() != here:  # the watchdog of another test's sandbox goes on
            really(seconds)
            return
        slept.append(seconds)
        clock[0] += seconds
        left[0] -= goes

    monkeypatch.setattr(f"{place}.time.sleep", sleep)
    monkeypatch.setattr(f"{place}.time.monotonic", lambda: clock[0])
    monkeypatch.setattr(f"{place}.memory_left", lambda: left[0])
    watchdog = Watchdog.__new__(Watchdog)
    limits = Limits(MARKS, 512 << 20, None, (), lambda *_: None, lambda: None)
    watchdog._changed, watchdog._runs = threading.Condition(), {Watched(lambda: False, lambda: None, limits=limits)}
    watchdog._rest(took)
    assert len(slept) in {waits, waits + 1}


def test_row_393_the_program_of_a_process_is_no_list_of_locks(tmp_path):
    """Seen: whatever the kernel's memory grew by, runs of bash, node and Debian's Python may have caused all of it and
    were ended, and whoever had caused it went on: 3.3 GiB with a limit of 512 MiB.
    """
    program = tmp_path / "bash"
    shutil.copy("/bin/bash", program)
    with program.open("ab") as file:
        file.write(bytes(MAPS_BYTES))
    line = [program, "-c", "echo; read x"]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert most_in_kernel([process.pid], pages=True) < 1 << 20
        process.kill()


def test_row_393_sockets_of_our_own_processes_hold_nothing_of_a_script():
    """Seen: each run may have had 680 MiB because process 1 of its sandbox has a socket."""
    code = "import socket, sys; kept = socket.socketpair(); print(flush=True); sys.stdin.read()"
    line = [sys.executable, "-S", "-c", code]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert most_in_kernel([process.pid], pages=True) > 1 << 20
        assert most_in_kernel([process.pid], {process.pid}, pages=True) == 0
        process.kill()


@pytest.fixture
def time_to_count(monkeypatch):
    """What cannot be counted in time may be anything, and other tests keep this machine busy."""
    monkeypatch.setattr("adk_skills_agent.sandbox.process.open_files.ADDING_SECONDS", 60)


@pytest.mark.usefixtures("time_to_count")
@in_a_fork
def test_row_350_what_open_files_of_proc_keep_counts():
    """Seen: 1,450 MiB in 720 files of 2 MiB each, of which nothing counted, and status ok."""
    before = most_in_kernel([os.getpid()])
    files = [open("/proc/self/fdinfo/1", "rb") for _ in range(20)]  # noqa: SIM115
    assert most_in_kernel([os.getpid()]) - before >= 20 << 21
    for file in files:
        file.close()


@pytest.mark.usefixtures("time_to_count")
@in_a_fork
def test_row_177_what_is_watched_for_changes_counts():
    epoll, pipes = select.epoll(), [os.pipe() for _ in range(100)]
    before = most_in_kernel([os.getpid()])
    for reading, _ in pipes:
        epoll.register(reading, select.EPOLLIN)
    assert most_in_kernel([os.getpid()]) - before >= 100 * 128
    epoll.close()
    for end in itertools.chain(*pipes):
        os.close(end)


@pytest.mark.usefixtures("time_to_count")
@in_a_fork
def test_row_271_locks_of_a_file_whose_path_is_too_long_count(tmp_path, monkeypatch):
    """Seen: 871 MiB with a control group of 512 MiB, status ``ok``: the kernel does not say where such a file is."""
    monkeypatch.chdir(tmp_path)
    for _ in range(25):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    before = most_in_kernel([os.getpid()])
    with open("file", "wb") as file:
        for place in range(100):
            fcntl.lockf(file, fcntl.LOCK_EX, 1, 2 * place)
        assert most_in_kernel([os.getpid()]) - before >= 100 * 256
        for place in range(100, 4000):
            fcntl.lockf(file, fcntl.LOCK_EX, 1, 2 * place)
        assert most_in_kernel([os.getpid()]) > 1 << 50  # more than are shown


@pytest.mark.usefixtures("time_to_count")
def test_row_273_a_process_may_have_as_many_mappings_as_the_machine_allows(monkeypatch):
    """Some systems allow a million (``vm.max_map_count``): 31 processes, 7 GiB, counted as 496 MiB."""
    place = "adk_skills_agent.sandbox.process.open_files"
    monkeypatch.setattr(f"{place}.kernel_setting", lambda name, usual: 1 << 20 if name == "vm/max_map_count" else usual)
    monkeypatch.setattr(f"{place}.text_of", lambda _: bytes(1 << 17))
    monkeypatch.setattr(f"{place}._open_files", lambda _: iter(()))
    assert most_in_kernel([os.getpid()]) >= 256 << 20


@pytest.mark.usefixtures("time_to_count")
@in_a_fork
def test_row_175_a_socket_of_a_run_without_a_control_group_may_hold_whole_pages_for_single_bytes():
    """Seen: 1.2 GiB in the buffers of twelve connections, which looked too few for it, and the status ``ok``."""
    here, there = socket.socketpair()
    counted, whole = (most_in_kernel([os.getpid()], pages=pages) for pages in (False, True))
    assert whole - counted > 50 * (1 << 18)
    here.close()
    there.close()


@in_a_fork
def test_rows_363_and_369_watches_and_locks_count_also_of_a_process_that_shows_nothing(monkeypatch, tmp_path):
    pid, many = os.getpid(), 1 << 20
    with contextlib.ExitStack() as stack:
        before = held([pid], many, many)
        end, other = os.pipe()
        stack.callback(os.close, end)
        stack.callback(os.close, other)
        for _ in range(3):
            one = stack.enter_context(select.epoll())
            one.register(end, select.EPOLLIN)
            one.register(other, select.EPOLLOUT)
        file = stack.enter_context((tmp_path / "file").open("w"))
        for place in range(5):
            fcntl.lockf(file, fcntl.LOCK_EX, 1, 2 * place)
        assert held([pid], many, many) == Held(before.watches + 6, before.locks + 5)
        assert held([pid, pid], many, many) == Held(2 * before.watches + 12, 2 * before.locks + 10)
        assert held([pid], 2, many).watches > 2
        assert held([pid], many, 2).locks > 2

    def denied(path: str) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr("adk_skills_agent.sandbox.process.open_files.os.listdir", denied)
    few, some = held([pid] * 4, 16_384, many), held([pid] * 40, 16_384, many)
    assert few.watches < 16_384 < some.watches
    assert few.hides
    assert held([pid] * 40, 16_384, many, {pid}) == Held()


@pytest.mark.parametrize(
    ("found", "grown", "locks", "said"),
    [
        (Held(locks=2_049), 0, 0, "more than 2,048 locks"),
        (Held(locks=2_048), 0, 0, ""),
        (Held(hides=True), 129 << 20, 1 << 15, "hides what it has open, and the kernel took 129 MiB"),
        (Held(hides=True), 129 << 20, 30_000, ""),  # row 394: another run's sockets, seen beside an ssh-agent
        (Held(hides=True), 100 << 20, 1 << 15, ""),
        (Held(), 1 << 30, 1 << 15, ""),
    ],
)
def test_row_369_who_hides_its_locks_is_ended_when_there_are_many_and_the_kernel_needs_much_memory_meanwhile(
    monkeypatch, found, grown, locks, said
):
    run = Limits(MARKS, None, None, (), lambda *_: None, lambda: None)
    run.seen.before = MachineMemory(kernel=1 << 30)
    monkeypatch.setattr("adk_skills_agent.sandbox.process.watchdog.held", lambda *_: found)
    monkeypatch.setattr("adk_skills_agent.sandbox.process.watchdog.machine_locks", lambda most: min(locks, most))
    problem = _held_problem(run, [], MachineMemory(kernel=(1 << 30) + grown))
    assert said in problem[1] if said else problem is None
