"""The owner's list of approved versions: what counts, and when it is refused (S4-21)."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from adk_skills_agent.catalog.settings import RegistryConfig
from adk_skills_agent.catalog.trust import Approval, ApprovedSkills, approvals_file, trust_file
from adk_skills_agent.errors import ConfigError

ONE, TWO = "1" * 64, "2" * 64


def test_it_is_beside_the_trusted_projects_and_private(private_home: Path) -> None:
    approved = ApprovedSkills()
    assert approved.read() == frozenset()
    approved.add([Approval("reporter", "skill", ONE)])
    assert approvals_file().parent == trust_file().parent
    assert approvals_file().stat().st_mode & 0o777 == 0o600
    assert approvals_file().read_text() == f"{ONE}\treporter\tskill\n"


def test_a_new_version_takes_the_place_of_the_old_one_and_other_subjects_stay() -> None:
    approved = ApprovedSkills()
    approved.add([Approval("reporter", "skill", ONE), Approval("reporter", "script:scripts/a b.py", ONE)])
    approved.add([Approval("other", "skill", ONE), Approval("reporter", "skill", TWO)])
    assert sorted(approved.read()) == [
        Approval("other", "skill", ONE),
        Approval("reporter", "script:scripts/a b.py", ONE),
        Approval("reporter", "skill", TWO),
    ]
    assert approved.remove("reporter") == 2
    assert approved.remove("reporter") == 0
    assert approved.read() == {Approval("other", "skill", ONE)}


@pytest.mark.parametrize(
    "approval",
    [
        Approval("a\tb", "skill", ONE),
        Approval("a", f"skill\n{TWO}\tb\tskill", ONE),
        Approval("a", "script:\x1b[31m", ONE),
        Approval("a", "skill", "short"),
        Approval("", "skill", ONE),
    ],
)
def test_what_could_forge_a_line_is_not_kept(approval: Approval) -> None:
    with pytest.raises(ConfigError, match="cannot be kept"):
        ApprovedSkills().add([approval])
    assert ApprovedSkills().read() == frozenset()


def test_lines_that_are_no_approvals_say_nothing(tmp_path: Path) -> None:
    path = tmp_path / "own" / "approved"
    path.parent.mkdir(mode=0o700)
    path.write_bytes(b"hello\n\xff\xfe\n" + ONE.encode() + b"\ta\n" + ONE.encode() + b"\ta\tskill\n" + b"x\ta\tskill\n")
    path.chmod(0o600)
    assert ApprovedSkills(path).read() == {Approval("a", "skill", ONE)}


@pytest.mark.parametrize("fault", ["others write it", "others write the folder", "a link", "a folder", "a pipe"])
def test_a_list_that_somebody_else_could_have_written_is_refused(tmp_path: Path, fault: str) -> None:
    path = tmp_path / "own" / "approved"
    path.parent.mkdir(mode=0o700)
    approved = ApprovedSkills(path)
    approved.add([Approval("a", "skill", ONE)])
    if fault == "others write it":
        path.chmod(0o620)
    elif fault == "others write the folder":
        path.parent.chmod(0o770)
    else:
        path.rename(tmp_path / "moved")
        if fault == "a link":
            path.symlink_to(tmp_path / "moved")
        elif fault == "a folder":
            path.mkdir()
        else:
            os.mkfifo(path)
    with pytest.raises(ConfigError):
        approved.read()
    with pytest.raises(ConfigError):
        approved.add([Approval("b", "skill", ONE)])


def test_changes_at_the_same_time_are_all_kept() -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: ApprovedSkills().add([Approval(f"s{number}", "skill", ONE)]), range(24)))
    assert len(ApprovedSkills().read()) == 24


def test_without_a_home_there_is_no_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adk_skills_agent.catalog.settings.settings_folder", lambda _config: None)
    with pytest.raises(ConfigError, match="no home folder to keep approvals in"):
        approvals_file(RegistryConfig())
