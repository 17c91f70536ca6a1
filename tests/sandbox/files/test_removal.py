"""Removal of hostile trees."""

from __future__ import annotations

import os
from pathlib import Path

from adk_skills_agent.sandbox.files.removal import remove_tree, temporary_folder
from adk_skills_agent.sandbox.ray.worker import _Folder
from own_descriptors import open_below


def make_deep(folder: Path) -> None:
    here = os.getcwd()
    try:
        os.chdir(folder)
        for _ in range(1500):
            os.mkdir("d")
            os.chdir("d")
    finally:
        os.chdir(here)


def test_links_are_removed_and_what_they_point_to_stays(tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    tree = tmp_path / "tree"
    (tree / "a").mkdir(parents=True)
    (tree / "a" / "folder").symlink_to(outside)
    (tree / "file").symlink_to(outside / "kept")
    os.mkfifo(tree / "pipe")
    assert remove_tree(str(tree)) is None
    assert not tree.exists()
    assert (outside / "kept").read_text() == "kept"


def test_a_tree_deeper_than_recursion_and_descriptors_allow_is_removed(tmp_path: Path):
    tree = tmp_path / "tree"
    tree.mkdir()
    make_deep(tree)
    assert remove_tree(str(tree)) is None
    assert not tree.exists()
    assert open_below(tree) == []


def test_temporary_folders_that_scripts_made_deep_go_too():
    """Seen: a job's copy stayed for as long as the agent lived, beside all limits; a run on Ray failed."""
    folder, remove = temporary_folder("job", make_deep)
    make_deep(folder)
    remove()
    assert not folder.exists()
    sent = _Folder()
    make_deep(sent.work)
    sent.remove()
    assert not sent.work.exists()


def test_names_like_the_ones_used_for_moving_and_odd_bytes_are_no_obstacle(tmp_path: Path):
    tree = tmp_path / "tree"
    for name in (b".adk-skills-removing-1", b"\xff\n", b"a/.adk-skills-removing-1/b", b"a/.adk-skills-removing-2"):
        os.makedirs(os.path.join(os.fsencode(tree), name))
    assert remove_tree(str(tree)) is None
    assert not tree.exists()


def test_row_213_folders_that_are_in_the_way_of_those_that_are_moved_are_removed_too(tmp_path: Path):
    tree = tmp_path / "tree"
    for number in range(1, 6):
        (tree / f".adk-skills-removing-{number}" / "full").mkdir(parents=True)
        (tree / f"deep-{number}" / "a" / "b").mkdir(parents=True)
    assert remove_tree(str(tree)) is None
    assert not tree.exists()


def test_what_is_not_there_or_no_folder_is_no_problem(tmp_path: Path):
    assert remove_tree(str(tmp_path / "missing")) is None
    (tmp_path / "file").write_text("x")
    assert remove_tree(str(tmp_path / "file")) is None
    assert not (tmp_path / "file").exists()
