"""What active skills cost at every request to the model: stamps are looked at, files are not read again (C21)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from adk_skills_agent.adk.activation import instructions
from adk_skills_agent.adk.activation.instructions import SkillTexts
from adk_skills_agent.adk.skills.source import DiskSkill
from adk_skills_agent.catalog import SkillsRegistry

LONG_AGO = 1_700_000_000


@pytest.fixture
def skill(make_skill: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> DiskSkill:
    folder = make_skill("reporter", files={"scripts/run.py": '"""Makes a report."""\n', "references/guide.md": "x"})
    registry = SkillsRegistry()
    registry.discover([folder.parent])
    # what was written a moment ago may be written again without a new stamp, so nothing of it is kept for some seconds
    real = time.time_ns
    monkeypatch.setattr("adk_skills_agent.adk.activation.instructions.time.time_ns", lambda: real() + 10_000_000_000)
    return DiskSkill(registry.load_skill("reporter"))


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []
    real = instructions.skill_text

    def counted(skill, *args, **named):
        seen.append(skill.name)
        return real(skill, *args, **named)

    monkeypatch.setattr(instructions, "skill_text", counted)
    return seen


def test_a_skill_that_did_not_change_is_put_together_once(skill: DiskSkill, rendered: list[str]) -> None:
    texts = SkillTexts(None, 50)
    first = texts.text(skill, "body", "body")
    assert texts.text(skill, "body", "body") is first
    assert rendered == ["reporter"]
    assert "scripts/run.py: Makes a report." in first.files


def test_any_change_of_its_files_or_its_text_is_seen_at_once(skill: DiskSkill, rendered: list[str]) -> None:
    texts = SkillTexts(None, 50)
    texts.text(skill, "body", "body")
    root = skill.local().skill_dir
    (root / "scripts/run.py").write_text('"""Makes a Report."""\n')  # of the same size
    assert "scripts/run.py: Makes a Report." in texts.text(skill, "body", "body").files
    (root / "references/more.md").write_text("x")
    assert "references/more.md" in texts.text(skill, "body", "body").files
    (root / "references/more.md").unlink()
    assert "references/more.md" not in texts.text(skill, "body", "body").files
    assert texts.text(skill, "body", "body of 1").body == "body of 1"
    assert texts.text(skill, "Body", "body of 1").digest != texts.text(skill, "body", "body of 1").digest
    assert len(rendered) == 7


def test_what_was_written_just_now_is_not_kept(make_skill: Callable[..., Path], rendered: list[str]) -> None:
    folder = make_skill("fresh", files={"scripts/run.py": "pass\n"})
    registry = SkillsRegistry()
    registry.discover([folder.parent])
    known, texts = DiskSkill(registry.load_skill("fresh")), SkillTexts(None, 50)
    assert stamp(known) is None
    texts.text(known, "body", "body")
    texts.text(known, "body", "body")
    assert rendered == ["fresh", "fresh"]
    os.utime(folder / "scripts/run.py", (LONG_AGO, LONG_AGO))
    assert stamp(known) is None  # its ctime cannot be set


def test_a_folder_that_is_gone_has_no_stamp(skill: DiskSkill) -> None:
    assert stamp(skill) is not None
    root = skill.local().skill_dir
    root.rename(root.with_name("elsewhere"))
    assert stamp(skill) is None


def stamp(skill: DiskSkill) -> object:
    return skill.stamp(("scripts/run.py",), time.time_ns())


def test_a_look_at_a_skill_of_many_files_is_one_at_each_folder(
    skill: DiskSkill, rendered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = skill.local().skill_dir
    for number in range(300):
        folder = root / "references" / f"chapter-{number % 10}"
        folder.mkdir(exist_ok=True)
        (folder / f"page-{number}.md").write_text("x")
    texts = SkillTexts(None, 50)
    texts.text(skill, "body", "body")
    looks: list[str] = []
    real_stat, real_scan = os.stat, os.scandir
    monkeypatch.setattr(os, "stat", lambda path, **more: looks.append(str(path)) or real_stat(path, **more))
    monkeypatch.setattr(os, "scandir", lambda path=".": looks.append(str(path)) or real_scan(path))
    texts.text(skill, "body", "body")
    monkeypatch.undo()
    assert rendered == ["reporter"]
    # Ten chapters, the skill, its two folders, and SKILL.md; the script is too far down the list to be shown.
    assert len(looks) == 10 + 3 + 1


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "references/deep/er").mkdir(),
        lambda root: (root / "references/deep/new.md").write_text("x"),
        lambda root: (root / "references/deep/old.md").rename(root / "references/deep/other.md"),
        lambda root: (root / "references/link").symlink_to("guide.md"),
        lambda root: (root / "references/kept").unlink(),
        lambda root: (root / "references/guide.md").unlink(),
        lambda root: (root / "references/deep").rename(root / "deep"),
        lambda root: (root / "references/deep").chmod(0),
    ],
    ids=["folder", "file", "renamed file", "new link", "link that is gone", "target", "moved folder", "unreadable"],
)
def test_any_change_of_the_list_of_files_is_seen(
    skill: DiskSkill, rendered: list[str], change: Callable[[Path], object]
) -> None:
    root = skill.local().skill_dir
    (root / "references/deep").mkdir()
    (root / "references/deep/old.md").write_text("x")
    (root / "references/kept").symlink_to("guide.md")
    texts = SkillTexts(None, 50)
    texts.text(skill, "body", "body")
    assert texts.text(skill, "body", "body") is texts.text(skill, "body", "body")
    change(root)
    texts.text(skill, "body", "body")
    (root / "references/deep").chmod(0o755) if (root / "references/deep").exists() else None
    assert len(rendered) == 2
