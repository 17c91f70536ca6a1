"""A new skill is complete, valid and runs; a failure leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from adk_skills_agent.errors import FormatError, ValidationError
from adk_skills_agent.format import create_skill_template, parse_file, read_properties, validate_skill


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("script", ["python", "bash", None])
@pytest.mark.parametrize("name", ["pdf-reader", "技能", "yes", "007"])
@pytest.mark.requirement("S4-14")
def test_a_new_skill_has_no_errors_diagnostics_or_lints(tmp_path: Path, name: str, script) -> None:
    description = "Reads forms. Use for forms."
    folder = create_skill_template(tmp_path / "new" / "skills", name, description=description, script=script)
    result = validate_skill(folder)
    assert (result.errors, result.diagnostics, result.lints) == ([], (), ())
    stem = name.replace("-", "_")
    sample = {"python": [f"scripts/{stem}.py"], "bash": [f"scripts/{stem}.sh"], None: []}[script]
    assert files(folder) == ["SKILL.md", "evals/cases.yaml", "evals/notes.txt", "references/details.md", *sample]
    for file in sample:
        assert f"`{file}`" in (folder / "SKILL.md").read_text()
    assert os.listdir(folder.parent) == [name]


def test_a_description_that_is_still_to_be_written_is_told(tmp_path: Path) -> None:
    folder = create_skill_template(tmp_path, "pdf")
    result = validate_skill(folder)
    assert [advice.code for advice in result.lints] == ["description-placeholder"]
    assert result.errors == []


@pytest.mark.parametrize("description", ["Use: it # now", 'Say "x" and \\y\\', "a --- b", "'", "@x", "{a}", "x: y"])
def test_any_description_is_read_back_as_it_was_given(tmp_path: Path, description: str) -> None:
    folder = create_skill_template(tmp_path, "pdf", description=description)
    assert parse_file(folder / "SKILL.md").metadata.description == description
    if "---" not in description:
        assert read_properties(folder).description == description


def test_the_python_sample_runs_with_the_standard_library_alone(tmp_path: Path) -> None:
    script = create_skill_template(tmp_path, "pdf") / "scripts" / "pdf.py"
    notes = tmp_path / "notes.txt"
    notes.write_text("a b a é")
    command = [sys.executable, "-I", "-S", str(script)]
    done = subprocess.run([*command, "--top", "1", str(notes)], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"a": 2}
    assert subprocess.run([*command, "--help"], capture_output=True, check=True).stdout.startswith(b"usage: ")
    failed = subprocess.run([*command, "none.txt"], capture_output=True, text=True, check=False)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("Cannot read none.txt")
    assert os.access(script, os.X_OK)
    sample = script.parents[1] / "evals/notes.txt"
    top = subprocess.run([*command, "--top", "1", str(sample)], capture_output=True, text=True, check=True)
    assert json.loads(top.stdout) == {"apple": 3}  # what the eval case expects of the answer


def test_the_bash_sample_runs(tmp_path: Path) -> None:
    script = create_skill_template(tmp_path, "pdf", script="bash") / "scripts" / "pdf.sh"
    (tmp_path / "text.txt").write_text("one two three")
    done = subprocess.run([script, tmp_path / "text.txt"], capture_output=True, check=True)
    assert done.stdout.strip() == b"3"
    for arguments in (["none.txt"], []):  # a sandbox has no standard input, so the sample does not promise to read it
        assert subprocess.run([script, *arguments], capture_output=True, check=False).returncode == 1


@pytest.mark.parametrize("name", ["", "PDF", "-a", "a--b", "a_b", "../x", "a/b", "x" * 65, ".", ".."])
def test_a_name_that_is_not_valid_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValidationError) as caught:
        create_skill_template(tmp_path / "out", name)
    assert caught.value.errors
    assert os.listdir(tmp_path) == []


def test_a_description_that_is_too_long_and_an_unknown_script_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="1024"):
        create_skill_template(tmp_path, "pdf", description="x" * 1025)
    with pytest.raises(ValidationError, match="'perl'"):
        create_skill_template(tmp_path, "pdf", script="perl")  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["folder", "file", "broken link"])
def test_what_exists_is_never_touched(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "pdf"
    {"folder": target.mkdir, "file": target.touch, "broken link": lambda: target.symlink_to("none")}[kind]()
    with pytest.raises(ValidationError, match="exists already"):
        create_skill_template(tmp_path, "pdf")
    assert os.listdir(tmp_path) == ["pdf"]


def test_a_place_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FormatError, match="Cannot create"):
        create_skill_template(tmp_path / "file" / "skills", "pdf")
    assert os.listdir(tmp_path) == ["file"]


def test_folders_made_for_a_template_that_fails_are_removed(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="File name too long"):
        create_skill_template(tmp_path / "a" / "b" / ("x" * 300), "pdf")
    assert os.listdir(tmp_path) == []


def test_a_description_of_two_lines_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="line break"):
        create_skill_template(tmp_path, "pdf", description="two\nlines")
    assert os.listdir(tmp_path) == []
