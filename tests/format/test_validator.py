"""Every row of SPEC.md's table of messages, in skills-ref's order."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from adk_skills_agent.format import validate_metadata, validate_skill

WriteSkill = Callable[..., Path]
ONLY = "Only ['allowed-tools', 'compatibility', 'description', 'license', 'metadata', 'name'] are allowed."
CHARACTERS = "contains invalid characters. Only letters, digits, and hyphens are allowed."


@pytest.mark.requirement("S4-13")
def test_a_valid_skill_has_no_errors(write_skill: WriteSkill) -> None:
    result = validate_skill(write_skill())
    assert (result.ok, result.errors, result.diagnostics, result.lints) == (True, [], (), ())


def test_every_field_of_the_specification_is_allowed(write_skill: WriteSkill) -> None:
    frontmatter = "name: pdf\ndescription: d\nlicense: MIT\ncompatibility: c\nallowed-tools: A B\nmetadata:\n  a: b"
    assert validate_skill(write_skill(frontmatter)).errors == []


@pytest.mark.parametrize(
    ("frontmatter", "errors"),
    [
        ("description: d", ["Missing required field in frontmatter: name"]),
        ("name: pdf", ["Missing required field in frontmatter: description"]),
        (
            "license: x",
            ["Missing required field in frontmatter: name", "Missing required field in frontmatter: description"],
        ),
        ("name:\ndescription: d", ["Field 'name' must be a non-empty string"]),
        ("name:\n- pdf\ndescription: d", ["Field 'name' must be a non-empty string"]),
        ("name: =\ndescription: d", ["Field 'name' must be a non-empty string"]),
        ("name: pdf\ndescription: '  '", ["Field 'description' must be a non-empty string"]),
        ("name: pdf\ndescription:\n  a: b", ["Field 'description' must be a non-empty string"]),
        (
            f"name: {'x' * 70}\ndescription: d",
            [
                f"Skill name '{'x' * 70}' exceeds 64 character limit (70 chars)",
                f"Directory name 'pdf' must match skill name '{'x' * 70}'",
            ],
        ),
        (
            "name: PDF\ndescription: d",
            ["Skill name 'PDF' must be lowercase", "Directory name 'pdf' must match skill name 'PDF'"],
        ),
        (
            "name: -pdf\ndescription: d",
            ["Skill name cannot start or end with a hyphen", "Directory name 'pdf' must match skill name '-pdf'"],
        ),
        (
            "name: p--f\ndescription: d",
            ["Skill name cannot contain consecutive hyphens", "Directory name 'pdf' must match skill name 'p--f'"],
        ),
        (
            "name: p_f\ndescription: d",
            [f"Skill name 'p_f' {CHARACTERS}", "Directory name 'pdf' must match skill name 'p_f'"],
        ),
        ("name: other\ndescription: d", ["Directory name 'pdf' must match skill name 'other'"]),
        (f"name: pdf\ndescription: {'x' * 1025}", ["Description exceeds 1024 character limit (1025 chars)"]),
        (f"name: pdf\ndescription: '{'x' * 1020}     '", ["Description exceeds 1024 character limit (1025 chars)"]),
        ("name: pdf\ndescription: d\ncompatibility:\n- a", ["Field 'compatibility' must be a string"]),
        (
            f"name: pdf\ndescription: d\ncompatibility: {'x' * 550}",
            ["Compatibility exceeds 500 character limit (550 chars)"],
        ),
        ("name: pdf\ndescription: d\nb: 1\na: 2", [f"Unexpected fields in frontmatter: a, b. {ONLY}"]),
        (
            f"zz: 1\nname: -P_\ncompatibility: {'x' * 501}",
            [
                f"Unexpected fields in frontmatter: zz. {ONLY}",
                "Skill name '-P_' must be lowercase",
                "Skill name cannot start or end with a hyphen",
                f"Skill name '-P_' {CHARACTERS}",
                "Directory name 'pdf' must match skill name '-P_'",
                "Missing required field in frontmatter: description",
                "Compatibility exceeds 500 character limit (501 chars)",
            ],
        ),
        ("- a", ["SKILL.md frontmatter must be a YAML mapping"]),
        ("text", ["SKILL.md frontmatter must be a YAML mapping"]),
        ("", ["SKILL.md frontmatter must be a YAML mapping"]),
        # Quirks that are kept on purpose.
        ("name: pdf\ndescription: d\ncompatibility:", []),
        ("name: pdf\ndescription: d\nallowed-tools:\n- a\n- b", []),
        ("name: pdf\ndescription: yes\nmetadata:\n  a: 1.10\n  b:\n    c: d", []),
        ("name: pdf\ndescription: x --- y\nzz: 1", []),
    ],
)
@pytest.mark.requirement("S0-159", "S4-13", "C17")
def test_a_row_of_the_table(write_skill: WriteSkill, frontmatter: str, errors: list[str]) -> None:
    assert validate_skill(write_skill(frontmatter)).errors == errors


@pytest.mark.parametrize(
    "frontmatter",
    [
        "name: a: b",
        "name: [a]",
        "name: {a: b}",
        "name: &a b",
        "name: !t b",
        "name: a\nname: b",
        "\tname: x",
        "a: *b",
        "name: 'x",
    ],
)
@pytest.mark.requirement("S4-24", "C18")
def test_yaml_that_strictyaml_refuses(write_skill: WriteSkill, frontmatter: str) -> None:
    (error,) = validate_skill(write_skill(frontmatter)).errors
    assert error.startswith("Invalid YAML in frontmatter: ")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("# T\n", "SKILL.md must start with YAML frontmatter (---)"),
        ("\n---\nname: pdf\n---\n", "SKILL.md must start with YAML frontmatter (---)"),
        ("\ufeff---\nname: pdf\n---\n", "SKILL.md must start with YAML frontmatter (---)"),
        ("", "SKILL.md must start with YAML frontmatter (---)"),
        ("---\nname: pdf\ndescription: d\n", "SKILL.md frontmatter not properly closed with ---"),
    ],
)
@pytest.mark.requirement("S4-24")
def test_fences(write_skill: WriteSkill, text: str, error: str) -> None:
    assert validate_skill(write_skill(text=text)).errors == [error]


@pytest.mark.parametrize("name", ["技能", "мой-навык", "навык", "café", "007"])
def test_names_of_every_script_are_valid(write_skill: WriteSkill, name: str) -> None:
    assert validate_skill(write_skill(f"name: {name}\ndescription: d", folder=name)).errors == []


def test_composed_and_decomposed_names_are_the_same(write_skill: WriteSkill) -> None:
    assert validate_skill(write_skill("name: café\ndescription: d", folder="cafe\u0301")).errors == []


def test_paths_that_hold_no_skill(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    assert validate_skill(tmp_path / "none").errors == [f"Path does not exist: {tmp_path / 'none'}"]
    assert validate_skill(str(tmp_path / "file")).errors == [f"Not a directory: {tmp_path / 'file'}"]
    assert validate_skill(tmp_path / "folder").errors == ["Missing required file: SKILL.md"]
    assert validate_skill("a\0b").errors == ["Path does not exist: a\0b"]


@pytest.mark.parametrize("file", ["SKILL.md", "skill.md"])
def test_the_file_itself_may_be_given(write_skill: WriteSkill, file: str) -> None:
    folder = write_skill(file=file)
    result = validate_skill(folder / file)
    assert (result.path, result.errors) == (folder, [])


def test_the_current_folder_may_be_given(write_skill: WriteSkill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write_skill())
    assert validate_skill(".").errors == []
    assert validate_skill("SKILL.md").errors == []


def test_what_cannot_be_read_is_a_sentence_and_does_not_block(tmp_path: Path, write_skill: WriteSkill) -> None:
    fifo = tmp_path / "fifo"
    fifo.mkdir()
    os.mkfifo(fifo / "SKILL.md")
    assert "is a named pipe" in validate_skill(fifo).errors[0]
    assert (
        "is not valid UTF-8" in validate_skill(write_skill(text=b"---\nname: pdf\ndescription: \xff\n---\n")).errors[0]
    )


def test_diagnostics_of_loading_come_with_the_errors(write_skill: WriteSkill) -> None:
    result = validate_skill(write_skill("name: pdf\ndescription: a: b"))
    assert result.errors[0].startswith("Invalid YAML in frontmatter: mapping values are not allowed here (line 3)")
    assert [d.code for d in result.diagnostics] == ["unquoted-colon"]
    assert not result.ok


def test_metadata_is_checked_without_a_folder() -> None:
    assert validate_metadata({"name": "pdf", "description": "d"}) == []
    assert validate_metadata({"name": "pdf", "description": "d"}, Path("x/other")) != []
    assert validate_metadata({"name": 1, "description": None}) == [
        "Field 'name' must be a non-empty string",
        "Field 'description' must be a non-empty string",
    ]


def test_a_nul_byte_is_an_error_in_the_frontmatter_and_none_in_the_body(write_skill) -> None:
    assert "NUL" in validate_skill(write_skill(text=b"---\nname: pdf\ndescription: a\0b\n---\nx")).errors[0]
    assert validate_skill(write_skill(text=b"---\nname: pdf\ndescription: ab\n---\nx\0")).ok
