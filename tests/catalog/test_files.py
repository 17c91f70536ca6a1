from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from adk_skills_agent.catalog import Skill, SkillFile
from adk_skills_agent.catalog.files import list_files
from adk_skills_agent.format import parse_head

MakeSkill = Callable[..., Path]


def skill_in(folder: Path) -> Skill:
    parsed = parse_head(folder / "SKILL.md")
    return Skill(parsed.metadata, parsed.diagnostics)


def paths(skill: Skill) -> list[str]:
    return [file.path for file in skill.files()]


def codes(skill: Skill) -> dict[str, str]:
    return {str(diagnostic.file).rpartition("/")[2]: diagnostic.code for diagnostic in skill.file_diagnostics()}


def test_every_file_is_listed_wherever_it_lies_s2_l13(make_skill: MakeSkill) -> None:
    names = [
        "LICENSE.txt",
        "README.md",
        ".env.example",
        ".gitignore",
        "assets/logo.png",
        "core/engine.py",
        "core/SKILL.md",
        "evals/__pycache__/x.pyc",
        "references/a b/ü 使.md",
        "scripts/.hidden/tool",
        "templates/deep/er/and/deeper/x.html",
    ]
    folder = make_skill("one", files=dict.fromkeys(names, "content"))
    skill = skill_in(folder)
    assert paths(skill) == sorted(names)
    assert skill.file_diagnostics() == ()


def test_size_and_the_executable_bit_are_kept_row_15(make_skill: MakeSkill) -> None:
    folder = make_skill("one", files={"scripts/tool": b"#!/bin/sh\n", "scripts/latin.py": "é".encode("latin-1")})
    (folder / "scripts" / "tool").chmod(0o755)
    assert skill_in(folder).files() == (
        SkillFile("scripts/latin.py", 1, executable=False),
        SkillFile("scripts/tool", 10, executable=True),
    )


def test_links_inside_are_listed_and_links_that_leave_are_refused_l11(make_skill: MakeSkill, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    folder = make_skill("one", files={"references/real.md": "text"})
    references = folder / "references"
    (references / "inside.md").symlink_to("real.md")
    (references / "etc.md").symlink_to("/etc/passwd")
    (references / "relative.md").symlink_to("../../../secret.txt")
    (references / "chain.md").symlink_to("etc.md")
    (references / "broken.md").symlink_to("nothing.md")
    (references / "self.md").symlink_to("self.md")
    (references / "folder").symlink_to("..")
    (references / "out").symlink_to(tmp_path)
    (references / "sibling").symlink_to(tmp_path / "skills" / "one-more")
    (tmp_path / "skills" / "one-more").mkdir()
    skill = skill_in(folder)
    assert paths(skill) == ["references/inside.md", "references/real.md"]
    assert codes(skill) == {
        "etc.md": "link-leaves-skill",
        "relative.md": "link-leaves-skill",
        "chain.md": "link-leaves-skill",
        "broken.md": "broken-link",
        "self.md": "broken-link",
        "folder": "linked-folder",
        "out": "link-leaves-skill",
        "sibling": "link-leaves-skill",
    }


def test_what_somebody_must_not_see_is_not_listed_be_it_a_folder_a_file_or_a_link(make_skill: MakeSkill) -> None:
    folder = make_skill("demo")
    for name in ("evals/a.json", "evals.json", "evals.json.md", "docs/evals.json"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("x")
    (folder / "shown.json").symlink_to("evals.json")
    (folder / "hidden.md").symlink_to("docs/evals.json")
    skill = skill_in(folder).excluding(("evals", "evals.json", "hidden.md"))
    assert paths(skill) == ["docs/evals.json", "evals.json.md"]
    assert list(skill.file_diagnostics()) == []


def test_special_files_and_version_control_are_reported_not_listed_l12(make_skill: MakeSkill) -> None:
    folder = make_skill("one", files={".git/config": "[token]", "node_modules/x/index.js": "", "ok.md": ""})
    os.mkfifo(folder / "pipe")
    (folder / "git.md").symlink_to(".git/config")
    skill = skill_in(folder)
    assert paths(skill) == ["ok.md"]
    assert codes(skill) == {
        ".git": "skipped-folder",
        "node_modules": "skipped-folder",
        "pipe": "special-file",
        "git.md": "skipped-link",
    }


def test_names_that_cannot_be_printed_are_reported(make_skill: MakeSkill) -> None:
    folder = make_skill("one", files={"good.md": "", "bad\nname.md": "", "esc\x1b[2J.md": ""})
    (Path(os.fsdecode(os.fsencode(folder) + b"/latin\xe9.md"))).touch()
    skill = skill_in(folder)
    assert paths(skill) == ["good.md"]
    problems = skill.file_diagnostics()
    assert [problem.code for problem in problems] == ["unprintable-name"] * 3
    assert all(problem.message.isprintable() for problem in problems)


def test_the_listing_is_bounded_and_says_so(make_skill: MakeSkill) -> None:
    folder = make_skill("one", files={f"f{number:02}.md": "" for number in range(20)} | {"a/b/c/d.md": ""})
    few = list_files(str(folder), "SKILL.md", max_files=5)
    assert len(few.files) == 5
    assert [problem.code for problem in few.problems] == ["too-many-files"]
    shallow = list_files(str(folder), "SKILL.md", max_depth=2)
    assert len(shallow.files) == 20
    assert [problem.code for problem in shallow.problems] == ["too-deep"]
    exact = list_files(str(folder), "SKILL.md", max_files=21, max_depth=3)
    assert (len(exact.files), exact.problems) == (21, ())


def test_thousands_of_empty_folders_end(make_skill: MakeSkill, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_skill("one", files={"a.md": ""})
    for number in range(30):
        (folder / f"empty-{number:02}").mkdir()
    monkeypatch.setattr("adk_skills_agent.catalog.files.MAX_FOLDERS", 20)
    skill = skill_in(folder)
    assert paths(skill) == ["a.md"]
    assert [problem.code for problem in skill.file_diagnostics()] == ["too-many-folders"]


def test_a_skill_whose_folder_is_gone_lists_nothing_and_says_why(make_skill: MakeSkill) -> None:
    folder = make_skill("one", files={"a.md": ""})
    skill = skill_in(folder)
    subprocess.run(["rm", "-r", folder], check=True)
    assert skill.files() == ()
    assert [problem.code for problem in skill.file_diagnostics()] == ["unreadable-folder"]


def test_what_is_listed_can_be_read_and_what_cannot_is_said(make_skill: MakeSkill) -> None:
    names = ["1: intro.md", "a:b.txt", "a\\b.md", "sub/.git", "C:/x.md"]
    skill = skill_in(make_skill("one", files=dict.fromkeys(names, "content")))
    assert paths(skill) == ["1: intro.md", "a:b.txt"]
    assert all(skill.read_text(path) == "content" for path in paths(skill))
    assert codes(skill) == {"a\\b.md": "unusable-name", ".git": "skipped-file", "C:": "unusable-name"}


def test_a_scripts_folder_that_is_a_link_inside_the_skill_has_scripts(make_skill: MakeSkill) -> None:
    folder = make_skill("one", files={"src/run.py": ""})
    (folder / "scripts").symlink_to("src")
    skill = skill_in(folder)
    assert skill.has_scripts
    assert skill.find("scripts/run.py") == "src/run.py"
