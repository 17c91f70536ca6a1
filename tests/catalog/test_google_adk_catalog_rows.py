"""GOOGLE_ADK.md rows L8 to L14, 9 and 14: both sides on the same folders."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from google.adk.skills import list_skills_in_dir, load_skill_from_dir, load_skills_from_dir

from adk_skills_agent import SkillsRegistry

MakeSkill = Callable[..., Path]


def registry_of(*folders: Path) -> SkillsRegistry:
    registry = SkillsRegistry()
    registry.discover(folders)
    return registry


@pytest.fixture
def with_a_bad_one(make_skill: MakeSkill) -> Path:
    root = make_skill("good").parent
    (root / "bad").mkdir()
    (root / "bad" / "SKILL.md").write_text("---\nname: bad\ndescription: [unclosed\n---\nbody\n")
    return root


@pytest.mark.behaviour(
    "better",
    "One bad skill in a folder",
    google="the whole folder is lost",
    ours="loaded or left out, with a diagnostic",
    readme=1,
)
def test_row_l8_one_bad_skill_does_not_lose_the_catalogue(with_a_bad_one: Path) -> None:
    with pytest.raises(ValueError, match=r"(?i)invalid|yaml|frontmatter"):
        load_skills_from_dir(with_a_bad_one)
    registry = registry_of(with_a_bad_one)
    assert set(registry) == {"good", "bad"}
    assert {diagnostic.file for diagnostic in registry.diagnostics} == {str(with_a_bad_one / "bad" / "SKILL.md")}


@pytest.mark.behaviour("better", "`group/skill/SKILL.md`", google="not found", ours="found")
def test_row_l9_nested_skills_are_found(make_skill: MakeSkill, tmp_path: Path) -> None:
    make_skill("inner", root=tmp_path / "skills" / "group" / "sub")
    assert list_skills_in_dir(tmp_path / "skills") == {}
    assert list(registry_of(tmp_path / "skills")) == ["inner"]


@pytest.mark.behaviour(
    "better",
    "Two folders with a skill of one name",
    google="`ValueError`",
    ours="the nearer scope wins, with a diagnostic",
)
def test_row_l10_two_skills_of_one_name_are_settled_by_precedence(make_skill: MakeSkill, tmp_path: Path) -> None:
    for group in ("a", "b"):
        make_skill("twin", description=f"From {group}. Use it.", root=tmp_path / group)
    registry = registry_of(tmp_path / "a", tmp_path / "b")
    assert registry.get_metadata("twin").description == "From a. Use it."
    assert any(str(tmp_path / "b") in diagnostic.message for diagnostic in registry.diagnostics)


@pytest.mark.behaviour(
    "better",
    "A link to a file of the host in a skill",
    google="its target is read into the skill",
    ours="refused and reported",
    readme=4,
)
def test_rows_l11_and_9_a_link_to_a_host_file_is_refused_and_reported(make_skill: MakeSkill, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("hunter2")
    folder = make_skill("leaky", files={"references/own.md": "x"})
    (folder / "references" / "leak.md").symlink_to(secret)
    theirs = load_skill_from_dir(folder)
    assert theirs.resources.get_reference("leak.md") == "hunter2"
    skill = registry_of(folder.parent).load_skill("leaky")
    assert [file.path for file in skill.files()] == ["references/own.md"]
    assert any("leak.md" in str(diagnostic) for diagnostic in skill.file_diagnostics())


@pytest.mark.behaviour(
    "better",
    "Files of skills",
    google="all are in memory from the start",
    ours="read when they are asked for",
    readme=5,
)
def test_row_l12_files_are_read_only_when_asked_for(make_skill: MakeSkill) -> None:
    folder = make_skill("lazy", files={"assets/.secret": "s", "assets/sub/.git/config": "g", "assets/a.txt": "old"})
    assert load_skill_from_dir(folder).resources.get_asset("a.txt") == "old"
    skill = registry_of(folder.parent).load_skill("lazy")
    (folder / "assets" / "a.txt").write_text("new")
    assert skill.read_text("assets/a.txt") == "new"
    assert not [file.path for file in skill.files() if ".git/" in file.path]


def test_row_l13_files_in_other_folders_can_be_reached(make_skill: MakeSkill) -> None:
    """S2, rows 23 and L13: google-adk sees three folders only."""
    folder = make_skill("wide", files={"editing.md": "e", "templates/t.txt": "t", "references/r.md": "r"})
    theirs = load_skill_from_dir(folder).resources
    assert (theirs.list_references(), theirs.list_assets(), theirs.list_scripts()) == (["r.md"], [], [])
    skill = registry_of(folder.parent).load_skill("wide")
    assert [file.path for file in skill.files()] == ["editing.md", "references/r.md", "templates/t.txt"]
    assert skill.read_text("templates/t.txt") == "t"


@pytest.mark.behaviour("better", "`disable-model-invocation`", google="ignored", ours="hides the skill from models")
@pytest.mark.requirement("C25")
def test_row_l14_unknown_fields_are_kept_and_the_opt_out_is_honoured(make_skill: MakeSkill) -> None:
    """C25: ``disable-model-invocation`` hides a skill from models."""
    folder = make_skill("quiet")
    text = (folder / "SKILL.md").read_text()
    (folder / "SKILL.md").write_text(text.replace("---\n\n", "disable-model-invocation: true\nhooks: x\n---\n\n", 1))
    registry = registry_of(folder.parent)
    assert registry.get_metadata("quiet").extra == {"disable-model-invocation": "true", "hooks": "x"}
    assert list(registry.view()) == []


@pytest.mark.behaviour(
    "better",
    "A skill that cannot be loaded",
    google="vanishes with a line in the log",
    ours="a diagnostic with file and reason",
)
@pytest.mark.requirement("C19")
def test_row_14_nothing_vanishes_without_a_diagnostic(
    with_a_bad_one: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (with_a_bad_one / "bom").mkdir()
    (with_a_bad_one / "bom" / "SKILL.md").write_text("\ufeff---\nname: bom\ndescription: d\n---\n")
    (with_a_bad_one / "empty").mkdir()
    (with_a_bad_one / "empty" / "SKILL.md").write_text("")
    with caplog.at_level(logging.ERROR):
        assert set(list_skills_in_dir(with_a_bad_one)) == {"good"}
    registry = registry_of(with_a_bad_one, tmp_path / "missing")
    assert set(registry) >= {"good", "bad", "bom"}
    reported = "\n".join(map(str, registry.diagnostics))
    for name in ("bad/SKILL.md", "bom/SKILL.md", "empty/SKILL.md", "missing"):
        assert name in reported
