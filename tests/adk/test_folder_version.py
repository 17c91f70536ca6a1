"""The version that an approval is bound to: whatever a script can read or run is in it (S4-21)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from adk_skills_agent import SkillsRegistry
from adk_skills_agent.adk.skills.source import DiskSkill, FolderVersion
from adk_skills_agent.errors import CatalogError, SandboxError
from adk_skills_agent.sandbox import skill_store


@pytest.fixture
def folder(make_skill: Callable[..., Path]) -> Path:
    made = make_skill(
        "reporter",
        files={
            "scripts/run.py": "print(1)",
            "node_modules/x/index.js": "1",
            ".hidden/y": "1",
            ".git/config": "1",
            "assets/a.bin": b"\0\1",
            "b\\c": "an unusual name",
        },
    )
    (made / "link.md").symlink_to("SKILL.md")
    return made


def version(folder: Path) -> str:
    registry = SkillsRegistry()
    registry.discover([folder])
    return DiskSkill(registry.load_skill("reporter")).version()


def _link_to(target: str, link: Path) -> Path:
    link.symlink_to(target)
    return link


CHANGES: dict[str, Callable[[Path], object]] = {
    "the instructions": lambda folder: (folder / "SKILL.md").write_bytes((folder / "SKILL.md").read_bytes() + b"x"),
    "a script": lambda folder: (folder / "scripts/run.py").write_text("print(2)"),
    "an installed module": lambda folder: (folder / "node_modules/x/index.js").write_text("2"),
    "a hidden file": lambda folder: (folder / ".hidden/y").write_text("2"),
    "version control data": lambda folder: (folder / ".git/config").write_text("2"),
    "a binary file": lambda folder: (folder / "assets/a.bin").write_bytes(b"\0\2"),
    "a file with an unusual name": lambda folder: (folder / "b\\c").write_text("2"),
    "a new file": lambda folder: (folder / "new").write_text(""),
    "a file that is gone": lambda folder: (folder / "assets/a.bin").unlink(),
    "another name": lambda folder: (folder / "assets/a.bin").rename(folder / "assets/b.bin"),
    "a bit that makes it a program": lambda folder: (folder / "scripts/run.py").chmod(0o755),
    "where a link leads": lambda folder: (
        (folder / "link.md").unlink(),
        (folder / "link.md").symlink_to("assets/a.bin"),
    ),
    "a new folder": lambda folder: (folder / "empty").mkdir(),
}


@pytest.mark.parametrize("what", CHANGES)
def test_the_version_changes_with(what: str, folder: Path) -> None:
    before = version(folder)
    CHANGES[what](folder)
    assert version(folder) != before


def test_the_same_bytes_are_the_same_version_wherever_and_whenever(folder: Path, tmp_path: Path) -> None:
    before = version(folder)
    os.utime(folder / "scripts/run.py", (1, 1))
    (folder / "SKILL.md").write_bytes((folder / "SKILL.md").read_bytes())
    assert version(folder) == before
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    moved = folder.rename(elsewhere / "reporter")
    assert version(moved) == before
    assert len(before) == 64


def test_an_unchanged_folder_is_read_once_and_a_change_in_the_same_tick_is_seen(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []
    original = skill_store.copy_skill
    monkeypatch.setattr(skill_store, "copy_skill", lambda *args: (reads.append(1), original(*args))[1])
    known = FolderVersion(str(folder), "reporter")
    first = known.now()
    assert known.now() == first
    assert len(reads) == 2  # its files are so new that they could change without a trace
    looked = time.time_ns
    monkeypatch.setattr(skill_store.time, "time_ns", lambda: looked() + 10_000_000_000)
    assert known.now() == known.now() == first
    assert len(reads) == 3
    (folder / "scripts/run.py").write_text("print(3)")
    assert known.now() != first


def test_a_folder_that_cannot_be_read_or_does_not_stop_changing_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CatalogError, match="Skill 'x' cannot be read: No such file"):
        FolderVersion(str(folder / "none"), "x").now()
    original = skill_store.copy_skill

    def changing(*args: object) -> object:
        (folder / f"{time.monotonic_ns()}").write_text("")
        return original(*args)

    monkeypatch.setattr(skill_store, "copy_skill", changing)
    with pytest.raises(CatalogError, match="being changed just now"):
        FolderVersion(str(folder), "reporter").now()
    monkeypatch.setattr("adk_skills_agent.sandbox.skill_store.MAX_FILES", 3)
    with pytest.raises(SandboxError, match="more than 3 files"):
        FolderVersion(str(folder), "reporter").now()
