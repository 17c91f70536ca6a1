"""How much a tree holds, whatever its shape."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from adk_skills_agent.sandbox.files.collect import disk_usage
from adk_skills_agent.sandbox.files.removal import remove_tree
from adk_skills_agent.sandbox.process.watchdog import DiskLimit
from own_descriptors import open_below

MANY = 10**6
SECONDS = 60.0


@pytest.fixture
def top(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "top"
    folder.mkdir()
    yield folder
    # pytest cannot remove what is nested too deep, and would fail in all later runs.
    assert remove_tree(str(folder)) is None


def test_every_file_counts_once_and_links_are_not_followed(top):
    (top / "a" / "b").mkdir(parents=True)
    (top / "a" / "b" / "file").write_bytes(bytes(1 << 20))
    (top / "c").mkdir()
    used, entries = disk_usage(str(top), MANY, SECONDS)
    assert 1 << 20 <= used < 2 << 20
    assert entries == 4
    os.link(top / "a" / "b" / "file", top / "c" / "same")
    (top / "c" / "link").symlink_to("/usr")
    assert disk_usage(str(top), MANY, SECONDS) == (used, entries + 2)


def test_a_file_below_more_folders_than_there_are_descriptors_and_stack_frames_counts(top):
    depth = max(3000, sys.getrecursionlimit() * 2)
    before = os.open(".", os.O_RDONLY)
    try:
        os.chdir(top)
        for _ in range(depth):
            os.mkdir("d")
            os.chdir("d")
        Path("file").write_bytes(bytes(1 << 20))
        os.fchdir(before)
    finally:
        os.close(before)
    (top / "z").write_bytes(bytes(1 << 20))
    used, entries = disk_usage(str(top), MANY, SECONDS)
    assert used >= 2 << 20
    assert entries == depth + 2
    assert open_below(top) == []


def test_a_count_ends_at_its_bounds(top):
    for number in range(50):
        (top / f"d{number}").mkdir()
        (top / f"d{number}" / "file").touch()
    assert disk_usage(str(top), 60, SECONDS)[1] == 60
    assert disk_usage(str(top), MANY, -1.0) == (0, 0)


def test_row_451_what_lies_behind_many_folders_is_counted_in_some_look(top):
    """Seen: 6,000 MiB behind 19,500 folders, with a limit of 256 MiB: a look ended before it came to them."""
    for number in range(60):
        (top / f"d{number}").mkdir()
        (top / f"d{number}" / "file").touch()
    hidden = os.listdir(top)[0]  # the last one of a walk in the order of the disk
    (top / hidden / "large").write_bytes(bytes(1 << 20))
    seen = [disk_usage(str(top), 90, SECONDS)[0] >= 1 << 20 for _ in range(60)]  # each sees half of them
    assert 10 < sum(seen) < 50


def test_row_451_the_last_look_at_a_run_has_time_for_all_of_it(top):
    seconds: list[float] = []

    def usage(most: int, time: float) -> tuple[int, int]:
        seconds.append(time)
        return 2 << 20, 1

    assert "1 MiB are allowed" in str(DiskLimit(usage, 1 << 20, 20_000).excess_at_end())
    assert min(seconds) >= 10


def test_what_is_no_folder_is_an_error(top):
    (top / "link").symlink_to(top)
    for path in (top / "missing", top / "link"):
        with pytest.raises(OSError, match=r"No such|Not a directory|symbolic"):
            disk_usage(str(path), MANY, SECONDS)


def test_only_the_empty_rest_of_a_last_block_is_left_out(tmp_path):
    """Files in full blocks have no slack beyond their limit, nor has room that was reserved."""
    top = tmp_path / "top"
    top.mkdir()
    (top / "small").write_bytes(b"x" * 100)
    assert disk_usage(str(top), MANY, SECONDS) == (100, 1)
    (top / "full").write_bytes(b"x" * 8192)
    assert disk_usage(str(top), MANY, SECONDS) == (8292, 2)
    with open(top / "reserved", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, 1 << 20)
    assert disk_usage(str(top), MANY, SECONDS)[0] >= 8292 + (1 << 20)
