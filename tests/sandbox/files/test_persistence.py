"""A session's workspace gets what the run left, although another run of the same user changes its folders meanwhile."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from adk_skills_agent.sandbox.contract import SandboxPolicy
from adk_skills_agent.sandbox.files.collect import collect
from adk_skills_agent.sandbox.files.workspace import Workspace, create_workspace, persist

POLICY = SandboxPolicy()


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    made = create_workspace("test")
    Path(made.work, "d").mkdir()
    Path(made.work, "d/f").write_bytes(b"the run's")
    yield made
    made.remove()


@pytest.fixture
def session(tmp_path: Path) -> Path:
    (tmp_path / "session").mkdir()
    return tmp_path / "session"


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A file of the agent's that no run may touch."""
    (tmp_path / "private").mkdir()
    path = tmp_path / "private/f"
    path.write_bytes(b"the agent's")
    path.chmod(0o400)
    return path


def to_another_folder(work: Path, private: Path) -> None:
    (work / "d").rename(work / "away")
    (work / "d").symlink_to(private.parent)


def to_a_link(work: Path, private: Path) -> None:
    (work / "d/f").unlink()
    (work / "d/f").symlink_to(private)


def to_a_second_name(work: Path, private: Path) -> None:
    (work / "d/f").unlink()
    os.link(private, work / "d/f")


def to_a_pipe(work: Path, private: Path) -> None:
    (work / "d/f").unlink()
    os.mkfifo(work / "d/f")


@pytest.mark.parametrize("swap", [to_another_folder, to_a_link, to_a_second_name, to_a_pipe])
def test_row_40_what_was_put_in_the_place_of_a_collected_file_is_neither_kept_nor_touched(
    workspace, session, private, swap: Callable[[Path, Path], None]
):
    collected = collect(workspace, POLICY)
    swap(Path(workspace.work), private)
    notes = persist(workspace, collected, session, POLICY)
    assert [note for note in notes if "'d/f' was not kept" in note], notes
    assert [path.name for path in (session / "d").iterdir()] == []
    assert private.read_bytes() == b"the agent's"
    assert stat.S_IMODE(private.lstat().st_mode) == 0o400


def test_row_40_a_link_in_the_sessions_own_folder_leads_nothing_elsewhere(workspace, session, private):
    collected = collect(workspace, POLICY)
    (session / "d").symlink_to(private.parent)
    assert persist(workspace, collected, session, POLICY) == []
    assert (session / "d/f").read_bytes() == b"the run's"
    assert not (session / "d").is_symlink()
    assert private.read_bytes() == b"the agent's"


def test_a_file_without_permissions_or_with_two_names_is_kept_as_its_owner_left_it(workspace, session):
    Path(workspace.work, "d/f").chmod(0o4311)
    Path(workspace.work, "one").write_bytes(b"two names")
    os.link(Path(workspace.work, "one"), Path(workspace.work, "d/two"))
    assert persist(workspace, collect(workspace, POLICY), session, POLICY) == []
    assert stat.S_IMODE((session / "d/f").lstat().st_mode) == 0o711
    assert (session / "one").read_bytes() == (session / "d/two").read_bytes() == b"two names"
    assert (session / "one").lstat().st_nlink == 1


def test_a_file_takes_the_place_of_a_folder_of_its_name(workspace, session):
    (session / "d/f/below").mkdir(parents=True)
    assert persist(workspace, collect(workspace, POLICY), session, POLICY) == []
    assert (session / "d/f").read_bytes() == b"the run's"


def test_no_more_is_kept_than_the_next_run_can_copy_in_and_old_files_stay(workspace, session):
    """Seen: a script left 20,001 files, and no script of the session could be run any more, not even to remove them."""
    policy = replace(POLICY, workspace_inodes=200)
    (session / "old").write_bytes(b"of an earlier run")
    for folder in range(10):
        Path(workspace.work, f"new{folder}").mkdir()
        for number in range(25):
            Path(workspace.work, f"new{folder}/{number}").write_bytes(b"x")
    notes = persist(workspace, collect(workspace, POLICY), session, policy)
    assert len(list(session.rglob("*"))) == 198  # a hundredth is left for the next run
    assert (session / "old").read_bytes() == b"of an earlier run"
    assert any(
        "was not kept: the workspace would have more files and folders than workspace_inodes" in n for n in notes
    )


def test_folders_without_files_count_as_well(workspace, session):
    policy = replace(POLICY, workspace_inodes=200)
    for number in range(150):
        (session / f"earlier{number}").mkdir()
        Path(workspace.work, f"new{number}").mkdir()
    persist(workspace, collect(workspace, POLICY), session, policy)
    assert len(list(session.rglob("*"))) == 198


def test_what_is_nested_too_deep_to_be_kept_is_called_so(workspace: Workspace, session: Path) -> None:
    """Seen: "nested deeper than 32 folders", which reads as if it were no result and no more."""
    deep = Path(workspace.work, *["d"] * 33)
    deep.mkdir(parents=True)
    (deep / "f").write_text("lost")
    collected = collect(workspace, POLICY, None)
    assert collected.skipped == [("/".join(["d"] * 32), "nested deeper than 32 folders, so not kept")]
    persist(workspace, collected, session, POLICY)
    assert session.joinpath(*["d"] * 31).is_dir()
    assert not session.joinpath(*["d"] * 33).exists()
