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
    here = f"{Path(__file__).parent}/"
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.filterwarnings("ignore::adk_skills_agent.errors.SecurityWarning"))


@pytest.fixture
def needs_namespaces() -> None:
    """Tried when the first such test runs: a trial while tests are collected would be one for each worker."""
    level_table.require("namespaces")


@pytest.fixture
def needs_landlock() -> None:
    """As ``needs_namespaces``."""
    level_table.require("landlock")


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
    before = running()
    yield
    gc.collect()
    # What is over is reaped and removed by a thread, which needs a processor for it, and sandboxes started ahead end
    # with their loop: what stays is a leak, what is on its way out is not.
    deadline = time.monotonic() + 30
    while (left := [*private_tmp.iterdir(), *left_over(private_tmp, before)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert left == []


def running() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def left_over(folder: Path, before: set[int]) -> list[str]:
    """Processes that were not there before: those that work under a folder or were given it, and our zombies."""
    found = []
    for pid in running() - before:
        try:
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                if process.ppid() == os.getpid():
                    found.append(f"{pid} {process.name()}, a zombie")
            elif str(folder) in process.environ().get("HOME", "") or process.cwd().startswith(str(folder)):
                found.append(f"{pid} {process.cmdline()}")
        except (psutil.Error, OSError):
            continue
    return found
