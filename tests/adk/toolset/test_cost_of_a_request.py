"""What active skills cost at every request to the model: stamps are looked at, files are not read again (C21)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from adk_skills_agent.adk import skill_texts
from adk_skills_agent.adk.disk_skill import DiskSkill
from adk_skills_agent.adk.skill_texts import SkillTexts
from adk_skills_agent.catalog import SkillsRegistry

LONG_AGO = 1_700_000_000


@pytest.fixture
def skill(make_skill: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> DiskSkill:
    folder = make_skill("reporter", files={"scripts/run.py": '"""Makes a report."""\n', "references/guide.md": "x"})
    registry = SkillsRegistry()
    registry.discover([folder.parent])
    # what was written a moment ago may be written again without a new stamp, so nothing of it is kept for some seconds
    real = time.time_ns
    monkeypatch.setattr("adk_skills_agent.adk.folder_version.time.time_ns", lambda: real() + 10_000_000_000)
    return DiskSkill(registry.load_skill("reporter"))


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []
    real = skill_texts.skill_text

    def counted(skill, *args, **named):
        seen.append(skill.name)
        return real(skill, *args, **named)

    monkeypatch.setattr(skill_texts, "skill_text", counted)
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
    assert known.stamp() is None
    texts.text(known, "body", "body")
    texts.text(known, "body", "body")
    assert rendered == ["fresh", "fresh"]
    os.utime(folder / "scripts/run.py", (LONG_AGO, LONG_AGO))
    assert known.stamp() is None  # its ctime cannot be set


def test_a_folder_that_is_gone_has_no_stamp(skill: DiskSkill) -> None:
    assert skill.stamp() is not None
    root = skill.local().skill_dir
    root.rename(root.with_name("elsewhere"))
    assert skill.stamp() is None
