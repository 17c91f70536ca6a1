"""What of its files a box sends and names: nothing is left out without being counted or listed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import direct_box
import pytest
from direct_box import DirectBox

from adk_skills_agent.sandbox.contract import SandboxPolicy
from adk_skills_agent.sandbox.supervisor import frames
from adk_skills_agent.sandbox.supervisor.channel import Answer

ENVIRONMENT = {"PATH": os.environ["PATH"]}


@pytest.fixture
def box(tmp_path: Path) -> Iterator[DirectBox]:
    folder = tmp_path / "box"
    folder.mkdir()
    found = DirectBox(folder)
    found.hello()
    yield found
    found.close()


def bounds(count: int) -> dict[str, int]:
    return {"count": count, "each": 1 << 20, "total": 1 << 20}


def test_files_beyond_those_that_are_named_are_counted(box: DirectBox) -> None:
    done = box.run("for i in range(250): open('f%03d' % i, 'w').close()", files=bounds(10))
    assert len(done["files"]) == 10
    assert (len(done["skipped"]), done["unlisted"]) == (100, 140)
    assert box.run("1", files=bounds(10))["unlisted"] == 0


def test_folders_that_are_not_entered_are_named_with_the_reason(box: DirectBox) -> None:
    done = box.run("import os\nos.makedirs('d/' * 40)\nopen('d/' * 40 + 'deep', 'w').close()", files=bounds(10))
    assert done["files"] == {}
    assert done["skipped"] == {"/".join("d" * 32): "nested deeper than 32 folders"}


def test_every_file_that_is_gone_is_told(box: DirectBox) -> None:
    box.run("for i in range(250): open('f%03d' % i, 'w').close()", files=bounds(10))
    box.send("exec", id=2, kind="code", code="import os\nfor name in os.listdir(): os.unlink(name)", files=bounds(10))
    gone = []
    while (frame := box.next()) is not None and frame["t"] != "done":
        if frame["t"] == "gone":
            gone.append(frame["path"])
    assert gone == [f"f{i:03d}" for i in range(250)]


def test_what_was_closed_is_told_and_is_closed_again(box: DirectBox, tmp_path: Path) -> None:
    box.run("import os; os.mkdir('d'); open('d/kept', 'w').close()", files=bounds(10))
    code = "import os; open('d/new', 'w').close(); open('shut', 'w').close(); os.chmod('shut', 0); os.chmod('d', 0o300)"
    assert sorted(box.run(code, files=bounds(10))["files"]) == ["d/new", "shut"]
    modes = {name: stat.S_IMODE((tmp_path / "box" / name).stat().st_mode) for name in ("d", "shut")}
    assert modes == {"d": 0o300, "shut": 0}
    assert box.run("1", files=bounds(10))["files"] == {}


def test_a_working_directory_that_is_gone_is_no_end_of_the_box(box: DirectBox) -> None:
    box.run("open('one', 'w').close()", files=bounds(10))
    done = box.run("import os, shutil; shutil.rmtree(os.getcwd()); os.chdir('/')", files=bounds(10))
    assert (done["files"], done["exit"]) == ({}, 0)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"#!/no/such/interpreter\n", "its #! line names '/no/such/interpreter', which does not exist"),
        (
            b"#!/bin/sh\r\necho hi\r\n",
            "its #! line names '/bin/sh', which does not exist (the file has Windows line ends)",
        ),
        (b"#!\n", "its #! line names no interpreter"),
        (b"echo hi\n", "it is a text file without a #! line"),
        (b"\x7fnot really\0", "Exec format error"),
    ],
)
def test_a_file_that_cannot_be_started_says_what_its_first_line_has_to_do_with_it(
    box: DirectBox, content: bytes, reason: str
) -> None:
    script = box.folder / "script"
    script.write_bytes(content)
    script.chmod(0o755)
    done = box.run(kind="argv", argv=["./script"], env=ENVIRONMENT)
    assert (done["started"], done["reason"]) == (False, reason)


def test_a_folder_that_is_not_there_is_said_and_not_taken_for_the_command(box: DirectBox) -> None:
    done = box.run(kind="argv", argv=["true"], env=ENVIRONMENT, cwd="nowhere")
    assert (done["started"], done["reason"]) == (False, "there is no such folder to start it in")


def test_where_there_are_more_entries_than_are_looked_at_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = direct_box.program_text()
    fewer = text.replace("_MOST_ENTRIES = 100_000", "_MOST_ENTRIES = 50")
    assert fewer != text
    monkeypatch.setattr(direct_box, "program_text", lambda: fewer)
    box = DirectBox(tmp_path)
    box.hello()
    make = "for i in range({}): open('f%03d' % i, 'w').close()"
    assert box.run(make.format(40), files=bounds(100))["cut"] is None
    done = box.run(make.format(80), files=bounds(100))
    assert done["cut"] == 50
    assert done["gone"] == []  # what was not seen may be there
    answer = Answer(1, SandboxPolicy(), {}, print)
    answer.done = done
    assert answer.notes == [
        "Only 50 files and folders of the working directory were looked at; what else of it changed was not collected."
    ]
    answer.done = box.run("1")
    assert answer.notes == []
    box.close()


@pytest.mark.parametrize("number", ["1e999", "1" + "0" * 400, "NaN", "-1", "true", '"x"'])
def test_a_number_no_float_can_hold_is_none(number: str) -> None:
    answer = Answer(1, SandboxPolicy(), {}, print)
    answer.take(frames.decode(b'{"t":"done","id":1,"exit":0,"ms":' + number.encode() + b"}"))
    assert answer.number("ms") is None
