"""What all sandbox tests share: a private temporary folder, and the check that nothing is left behind."""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import level_table
from adk_skills_agent.sandbox.local.namespaces.zygote import zygote_life


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::adk_skills_agent.errors.SecurityWarning"))


@pytest.fixture
def needs_namespaces() -> None:
    """Tried when the first such test runs: a trial while tests are collected would be one for each worker."""
    level_table.require("namespaces")


@pytest.fixture
def needs_landlock() -> None:
    """As ``needs_namespaces``."""
    level_table.require("landlock")


def open_descriptors() -> set[str]:
    return {
        f"{fd}:{os.readlink(f'/proc/self/fd/{fd}')}"
        for fd in os.listdir("/proc/self/fd")
        if os.path.lexists(f"/proc/self/fd/{fd}")
    }


@pytest.fixture(autouse=True)
def private_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs of this test make their folders here, so that leftovers are this test's own."""
    folder = tmp_path / "host-tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture(autouse=True)
def no_zygote_on_its_way() -> Iterator[None]:
    """What a test sets off in the background has ended before the next one counts anything."""
    yield
    zygote_life().wait(20)


@pytest.fixture
def nothing_left(private_tmp: Path) -> Iterator[None]:
    """After the test: no temporary folder, no zombie, no child and no process of a run."""
    before = zombies()  # of another test: a process that adopts orphans keeps them until its next run reaps
    yield
    gc.collect()
    assert list(private_tmp.iterdir()) == []
    # What is over is reaped by a thread, which needs a processor for it, and sandboxes started ahead end with their
    # loop: what stays is a leak, what is on its way out is not.
    deadline = time.monotonic() + 10
    while (left := left_over(private_tmp, before)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert left == []


def left_over(folder: Path, before: list[str]) -> list[str]:
    """Processes of runs in a folder, and zombies that were not there before."""
    return processes_of(folder) + [zombie for zombie in zombies() if zombie not in before]


def zombies() -> list[str]:
    """Children of this process that ended and were not waited for."""
    found = []
    for child in psutil.Process().children():
        try:
            if child.status() == psutil.STATUS_ZOMBIE:
                found.append(f"{child.pid} {child.name()}")
        except psutil.NoSuchProcess:
            continue
    return found


def processes_of(folder: Path) -> list[str]:
    """Processes that work under ``folder`` or were given it in their environment."""
    found = []
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        try:
            environment = process.environ()
            if str(folder) in environment.get("HOME", "") or process.cwd().startswith(str(folder)):
                found.append(f"{process.pid} {process.cmdline()}")
        except (psutil.Error, OSError):
            continue
    return found
