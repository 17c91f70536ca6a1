"""A sandbox elsewhere that is somebody else's by now: whatever it sends fills neither the disk nor the memory here."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from adk_skills_agent.sandbox import ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.sessions.session import _Files
from adk_skills_agent.sandbox.supervisor import frames
from adk_skills_agent.sandbox.supervisor.command import Layout
from adk_skills_agent.sandbox.supervisor.transfer import RunFolder

POLICY = SandboxPolicy(workspace_inodes=100, max_files=5, max_file_bytes=1000, max_total_file_bytes=5000)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[RunFolder]:
    session = tmp_path / "session"
    session.mkdir()
    made = RunFolder(ExecutionRequest(("true",), POLICY, workspace=session), POLICY, Layout())
    made.fill("run")
    yield made
    made.discard()


def file(path: str, content: bytes = b"") -> frames.Frame:
    return {"t": "file", "path": path, "b64": frames.base64(content)}


def test_row_152_files_and_folders_without_number_do_not_come_to_this_disk(folder: RunFolder, tmp_path: Path) -> None:
    """Seen: as many files as it sent, each in thirty folders of its own, until no inode was left."""
    for number in range(300):
        folder.take(file("/".join([str(number), *"abcdefgh", "x"])))
    assert folder._workspace is not None
    made = sum(len(folders) + len(files) for _, folders, files in os.walk(folder._workspace.work))
    assert 100 < made <= 200
    folder.collect(None)
    assert len(list((tmp_path / "session").rglob("*"))) <= 200


def test_row_152_reasons_and_names_without_number_do_not_fill_the_memory(folder: RunFolder) -> None:
    for number in range(3_000):
        folder.take({"t": "skip", "path": f"a{number}", "reason": "cannot be read"})
        folder.take({"t": "skip", "path": f"b{number}", "reason": "has several hard links"})
    folder.take(file("x" * 10_000))
    assert len(folder.notes) <= 50
    assert len(folder._outside) <= 1_000
    notes = folder.collect(None).notes
    assert len(notes) < 120


def test_row_164_reasons_and_paths_of_a_megabyte_do_not_become_sentences(folder: RunFolder) -> None:
    """Seen: a sentence for each time that nothing of the working directory was kept, however often it said so."""
    for number in range(200):
        folder.take({"t": "skip", "path": ".", "reason": f"{number}" + "r" * 900_000})
    folder.take({"t": "skip", "path": "x" * 900_000, "reason": "r"})
    assert len(folder.notes) == 50
    assert sum(map(len, folder.notes)) < 20_000
    assert sum(len(name) + len(reason) for name, reason in folder._skipped) < 30_000


@pytest.mark.parametrize(
    "same", ["../../../../../../..{token}", "{token}", "./a", "a/../a", "gone", "here/../../x", "kept"]
)
def test_row_329_another_name_is_one_of_a_file_that_has_come(folder: RunFolder, tmp_path: Path, same: str) -> None:
    """Seen: ``../../../..`` made a file of the agent's owner a file of the run, and its content output."""
    token = tmp_path / "token"
    token.write_text("of the owner")
    assert folder._workspace is not None
    Path(folder._workspace.work, "kept").write_text("of the session")
    folder.take(file("a", b"mine"))
    folder.take({"t": "file", "path": "b", "same": "a"})
    folder.take({"t": "file", "path": "c", "same": same.format(token=token)})
    assert token.stat().st_nlink == 1
    found = folder.collect(None)
    assert [one.path for one in found.files if one.path == "c"] == []
    assert ("a", "has several hard links") in found.skipped  # with its other name that has come
    assert ("c", "cannot be stored: the file it is a hard link to has not come") in found.skipped


def test_row_152_a_session_takes_no_more_bytes_than_it_asked_for() -> None:
    """Seen: each file was kept, also those that were too many to be told."""
    files = _Files(POLICY, None)
    sent = iter(range(10_000))
    with pytest.raises(frames.FrameError, match="More files came"):
        deque((files.take(file(f"f{number}", bytes(1000))) for number in sent), maxlen=0)
    assert sum(map(len, files._sent.values())) < 1 << 20
