"""The specification's rules S1 to S17 (SPEC.md), one test each, on folders on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from adk_skills_agent.format import parse_file, read_properties, validate_skill

GOOD = "name: tool\ndescription: Does it. Use when needed."


def skill(root: Path, frontmatter: str = GOOD, *, body: str = "# Tool\n", folder: str = "tool") -> Path:
    path = root / folder
    path.mkdir()
    (path / "SKILL.md").write_text(f"---\n{frontmatter}\n---\n{body}", encoding="utf-8")
    return path


def test_s1_a_skill_is_a_folder_with_a_skill_file(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    assert validate_skill(tmp_path / "none").errors == ["Missing required file: SKILL.md"]
    assert validate_skill(skill(tmp_path)).ok


def test_s2_any_other_file_may_be_there(tmp_path: Path) -> None:
    folder = skill(tmp_path)
    for name in ("scripts/a.py", "core/b.txt", "c.bin", "références/d.md"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("x")
    assert validate_skill(folder).ok


def test_s3_the_body_is_everything_after_the_frontmatter(tmp_path: Path) -> None:
    body = "# T\n\n---\nname: not frontmatter\n---\n\n<x>&amp;\n"
    assert parse_file(skill(tmp_path, body=body) / "SKILL.md").body == body.strip()


@pytest.mark.parametrize(
    ("rule", "name", "message"),
    [
        ("S4", "", "Field 'name' must be a non-empty string"),
        ("S4", "a" * 65, f"Skill name '{'a' * 65}' exceeds 64 character limit (65 chars)"),
        ("S5", "Tool", "Skill name 'Tool' must be lowercase"),
        (
            "S5",
            "to_ol",
            "Skill name 'to_ol' contains invalid characters. Only letters, digits, and hyphens are allowed.",
        ),
        ("S6", "-tool", "Skill name cannot start or end with a hyphen"),
        ("S6", "tool-", "Skill name cannot start or end with a hyphen"),
        ("S7", "to--ol", "Skill name cannot contain consecutive hyphens"),
        ("S8", "other", "Directory name 'tool' must match skill name 'other'"),
    ],
)
@pytest.mark.requirement("S4-26", "S4-27")
def test_s4_to_s8_names(tmp_path: Path, rule: str, name: str, message: str) -> None:
    assert message in validate_skill(skill(tmp_path, f"name: '{name}'\ndescription: d")).errors


@pytest.mark.parametrize("name", ["技能", "мой-навык", "café", "a1-2b", "x"])
def test_s5_letters_of_any_script_are_valid(tmp_path: Path, name: str) -> None:
    assert validate_skill(skill(tmp_path, f"name: {name}\ndescription: d", folder=name)).ok


@pytest.mark.parametrize(
    ("rule", "frontmatter", "message"),
    [
        ("S4", "description: d", "Missing required field in frontmatter: name"),
        ("S9", "name: tool", "Missing required field in frontmatter: description"),
        ("S9", "name: tool\ndescription: ''", "Field 'description' must be a non-empty string"),
        ("S9", f"name: tool\ndescription: {'d' * 1025}", "Description exceeds 1024 character limit (1025 chars)"),
        ("S11", f"{GOOD}\ncompatibility: {'c' * 501}", "Compatibility exceeds 500 character limit (501 chars)"),
    ],
)
@pytest.mark.requirement("S4-26")
def test_s4_s9_s11_required_fields_and_lengths(tmp_path: Path, rule: str, frontmatter: str, message: str) -> None:
    assert validate_skill(skill(tmp_path, frontmatter)).errors == [message]


@pytest.mark.requirement("S0-160", "S4-26", "S4-31")
def test_s9_to_s13_all_fields_are_read(tmp_path: Path) -> None:
    frontmatter = (
        f"{GOOD}\nlicense: Apache-2.0\ncompatibility: Needs git\nallowed-tools: Bash(git:*) Read\n"
        "metadata:\n  author: me\n  version: 1.10\n"
    )
    folder = skill(tmp_path, frontmatter)
    assert validate_skill(folder).ok
    assert read_properties(folder).to_dict() == {
        "name": "tool",
        "description": "Does it. Use when needed.",
        "license": "Apache-2.0",
        "compatibility": "Needs git",
        "allowed-tools": "Bash(git:*) Read",
        "metadata": {"author": "me", "version": "1.10"},
    }


@pytest.mark.parametrize(
    ("rule", "body"),
    [("S14", "word " * 5_000), ("S15", "line\n" * 501), ("S16", "See [x](references/deep/er/x.md).\n")],
)
def test_s14_to_s16_are_advice_and_no_error(tmp_path: Path, rule: str, body: str) -> None:
    result = validate_skill(skill(tmp_path, body=body))
    assert result.ok
    assert result.lints
