"""Bad input on the command line: a sentence each, no traceback, nothing half written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from repositories import Repository, Run, names_below, skill_text

# What is wrong is said before anything is written

BROKEN = {
    "no text": b"\xff\xfe",
    "no table": b"[tool.adk-skills]\nskills = 3\n",
    "no table above": b"[tool]\nadk-skills = 3\n",
    "no TOML": b"[tool",
    "a folder": None,
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_manifest_that_cannot_be_changed_stops_add_and_remove_before_they_write(
    content: bytes | None, repository: Repository, run: Run, tmp_path: Path
):
    project = tmp_path / "project"
    assert run("add", repository.bare, "--skill", "pdf", "--yes").returncode == 0
    manifest, lock = project / "adk-skills.toml", (project / "adk-skills.lock").read_bytes()
    manifest.unlink()
    manifest.mkdir() if content is None else manifest.write_bytes(content)
    before = names_below(project)
    for arguments in (["remove", "pdf"], ["add", repository.bare, "--skill", "csv", "--yes"]):
        done = run(*arguments)
        assert done.returncode == 2, done.stderr
        assert str(manifest) in done.stderr
        assert done.stderr.count("\n") == 1
        assert (project / "adk-skills.lock").read_bytes() == lock
        assert names_below(project) == before


@pytest.mark.parametrize("place", [".agents", ".agents/skills"])
def test_where_no_folder_can_be_made_nothing_is_locked(place: str, repository: Repository, run: Run, tmp_path: Path):
    target = tmp_path / "project" / place
    target.parent.mkdir(exist_ok=True)
    target.write_text("a file\n")
    done = run("add", repository.bare, "--skill", "pdf", "--yes")
    assert done.returncode == 1
    assert "cannot be made" in done.stderr
    assert names_below(tmp_path / "project") == [place]


def test_a_file_in_the_place_of_a_skill_is_told_and_kept(repository: Repository, run: Run, tmp_path: Path):
    assert run("add", repository.bare, "--skill", "pdf", "--yes").returncode == 0
    folder = tmp_path / "project/.agents/skills/pdf"
    shutil.rmtree(folder)
    folder.write_text("mine\n")
    assert "pdf: it is no folder; move it away" in run("verify").stdout
    for arguments in (["sync"], ["sync", "--frozen"], ["update", "--yes"], ["remove", "pdf"]):
        done = run(*arguments)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
    assert folder.read_text() == "mine\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it has no version"),
        ("version = 2\n", "the version 2, not 1"),
        ("version = 1\nskill = 3\n", "entry 1 cannot be used: it is no table"),
        ("version = 1\n[[skill]]\n", "entry 1 cannot be used: it has no 'name'"),
    ],
)
def test_a_lock_that_is_not_whole_is_told_in_words(text: str, said: str, run: Run, tmp_path: Path):
    (tmp_path / "project/adk-skills.lock").write_text(text)
    for command in ("verify", "sync", "outdated"):
        done = run(command)
        assert done.returncode == 2
        assert said in done.stderr


def test_an_archive_that_cannot_be_written_is_named_as_it_was_asked_for(run: Run, tmp_path: Path):
    folder = tmp_path / "pdf"
    folder.mkdir()
    (folder / "SKILL.md").write_text(skill_text("pdf"))
    (tmp_path / "folder.zip").mkdir()
    for target in (tmp_path / "folder.zip", tmp_path / "nowhere/pdf.zip"):
        done = run("pack", folder, "--output", target)
        assert done.returncode == 1
        assert done.stderr.startswith(f"adk-skills: {target}: ")
    assert names_below(tmp_path / "project") == []


def test_a_name_that_is_given_twice_counts_once(repository: Repository, run: Run):
    assert run("add", repository.bare, "--skill", "pdf", "--skill", "pdf", "--yes").returncode == 0
    assert run("outdated", "pdf", "pdf").stdout.count("pdf") == 1
    assert run("remove", "pdf", "pdf").stdout == "Removed: pdf\n"


@pytest.mark.parametrize("text", ["[", "[]", "3", '{"version": 1, "skills": {"a": 3}}', '{"version": 9, "skills": {}}'])
def test_a_lock_of_another_installer_that_is_wrong_is_told_in_words(text: str, run: Run, tmp_path: Path):
    (tmp_path / "project/skills-lock.json").write_text(text)
    done = run("add", "skills-lock.json", "--yes")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "object has no attribute" not in done.stderr


@pytest.mark.parametrize("command", ["verify", "verify --json", "sync", "sync --frozen", "outdated", "update --yes"])
def test_a_check_in_a_folder_without_a_lock_does_not_pass(command: str, run: Run, tmp_path: Path):
    """CI that changed into another folder, or a lock that nobody committed."""
    done = run(*command.split())
    assert done.returncode == 2
    assert f"There is no {tmp_path / 'project' / 'adk-skills.lock'}" in done.stderr
    assert not done.stdout


@pytest.mark.parametrize("command", ["outdated", "update", "remove", "why"])
def test_a_name_that_is_not_installed_is_wrong_usage(command: str, repository: Repository, run: Run):
    """Exit code 1 of ``outdated`` says that a source has something newer."""
    assert run("add", repository.bare, "--skill", "pdf", "--yes").returncode == 0
    done = run(command, "pfd")
    assert done.returncode == 2
    assert "'pfd' is not installed here. See: adk-skills list --installed." in done.stderr
