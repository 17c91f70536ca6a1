from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from adk_skills_agent.catalog import RegistryConfig, Skill, SkillsRegistry
from adk_skills_agent.errors import ParseError
from adk_skills_agent.format.models import SkillMetadata

MakeSkill = Callable[..., Path]


def load(folder: Path) -> Skill:
    registry = SkillsRegistry(RegistryConfig(cache=False))
    registry.discover([folder])
    return registry.load_skill(folder.name)


@pytest.mark.requirement("S4-8", "C20")
def test_a_skill_knows_its_folders_and_flags_s4_8(make_skill: MakeSkill) -> None:
    folder = make_skill("one", files={"scripts/run.py": "", "references/a.md": ""})
    (folder / "assets").mkdir()
    skill = load(folder)
    assert (skill.name, skill.description) == ("one", "Does a thing. Use it for tests.")
    assert skill.skill_dir == folder
    assert skill.location == folder / "SKILL.md"
    assert skill.scripts_dir == folder / "scripts"
    assert skill.references_dir == folder / "references"
    assert skill.assets_dir == folder / "assets"
    assert skill.has_scripts
    assert skill.has_references
    assert repr(skill) == f"Skill(name='one', skill_dir={str(folder)!r})"
    bare = load(make_skill("bare"))
    assert (bare.scripts_dir, bare.references_dir, bare.assets_dir) == (None, None, None)
    assert not bare.has_scripts


def test_a_folder_that_is_a_link_out_is_not_a_folder_of_the_skill(make_skill: MakeSkill, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "run.py").touch()
    folder = make_skill("one")
    (folder / "scripts").symlink_to(tmp_path / "outside")
    skill = load(folder)
    assert skill.scripts_dir is None
    assert not skill.has_scripts


@pytest.mark.requirement("S4-2", "S4-9")
def test_nothing_is_read_before_it_is_asked_for_s4_9_l12(make_skill: MakeSkill) -> None:
    folder = make_skill("one", body="# Body\n" + "text\n" * 5000, files={"assets/big.bin": b"0" * 1000})
    script = (
        "import sys\n"
        "from adk_skills_agent.catalog import RegistryConfig, SkillsRegistry\n"
        "opened = []\n"
        "sys.addaudithook(lambda event, args: opened.append(args[0]) if event in ('open', 'os.scandir') else None)\n"
        "registry = SkillsRegistry(RegistryConfig(cache=False))\n"
        "registry.discover([sys.argv[1]])\n"
        "skill = registry.load_skill('one')\n"
        "print([str(path).rpartition('/skills/')[2] for path in opened if '/skills/' in str(path)])\n"
    )
    done = subprocess.run([sys.executable, "-c", script, folder.parent], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "['one', 'one/SKILL.md']", done.stderr


@pytest.mark.requirement("C21")
def test_instructions_are_read_again_when_the_file_changed_c21(make_skill: MakeSkill) -> None:
    folder = make_skill("one", body="first")
    skill = load(folder)
    file = folder / "SKILL.md"
    assert skill.instructions == "first"
    for number in range(30):  # within one tick of the clock, with the same size
        file.write_text(f"---\nname: one\ndescription: D{number:02}.\n---\nbody {number:02}\n")
        assert skill.instructions == f"body {number:02}"
        assert skill.description == f"D{number:02}."
    status = file.stat()
    file.write_text("---\nname: one\ndescription: D99.\n---\nbody 99\n")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert skill.instructions == "body 99"
    replacement = folder / "new"
    replacement.write_text("---\nname: one\ndescription: D98.\n---\nbody 98\n")
    replacement.rename(file)
    assert skill.instructions == "body 98"


def test_a_file_that_goes_away_or_turns_into_a_link_out_is_a_typed_error(make_skill: MakeSkill, tmp_path: Path) -> None:
    folder = make_skill("one", body="first")
    skill = load(folder)
    assert skill.instructions == "first"
    (folder / "SKILL.md").rename(tmp_path / "moved.md")
    with pytest.raises(ParseError, match=r"SKILL\.md"):
        _ = skill.instructions
    (folder / "SKILL.md").symlink_to(tmp_path / "moved.md")
    with pytest.raises(ParseError, match="link"):
        _ = skill.instructions
    (folder / "SKILL.md").unlink()
    (tmp_path / "moved.md").rename(folder / "SKILL.md")
    assert skill.instructions == "first"


def test_diagnostics_are_of_the_head_first_and_of_the_whole_file_then(make_skill: MakeSkill) -> None:
    folder = make_skill("one", description="Uses: colons")
    skill = load(folder)
    before = skill.diagnostics
    assert before
    assert skill.instructions
    assert set(before) <= set(skill.diagnostics)
    assert skill.body_line == 6


def test_a_skill_needs_a_place() -> None:
    with pytest.raises(ValueError, match="location"):
        Skill(SkillMetadata("one", "d"))
