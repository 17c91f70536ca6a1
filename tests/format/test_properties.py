"""read_properties and find_skill_md, as skills-ref has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from adk_skills_agent.errors import ParseError, ValidationError
from adk_skills_agent.format import SkillProperties, find_skill_md, read_properties

FULL = "name: ' pdf '\ndescription: d\nlicense: MIT\ncompatibility: c\nallowed-tools: A B\nmetadata:\n  version: 1.10"


def test_every_field_is_read_as_a_string(write_skill) -> None:
    properties = read_properties(write_skill(FULL))
    assert properties == SkillProperties("pdf", "d", "MIT", "c", "A B", {"version": "1.10"})
    assert list(properties.to_dict()) == [
        "name",
        "description",
        "license",
        "compatibility",
        "allowed-tools",
        "metadata",
    ]


def test_absent_fields_are_none_and_left_out(write_skill) -> None:
    properties = read_properties(write_skill("name: pdf\ndescription: d"))
    assert properties.metadata is None
    assert properties.to_dict() == {"name": "pdf", "description": "d"}


def test_the_file_itself_may_be_given(write_skill) -> None:
    assert read_properties(write_skill() / "SKILL.md").name == "pdf"


@pytest.mark.parametrize(
    ("frontmatter", "kind", "message"),
    [
        ("description: d", ValidationError, "Missing required field in frontmatter: name"),
        ("name: pdf", ValidationError, "Missing required field in frontmatter: description"),
        ("name: ''\ndescription: d", ValidationError, "Field 'name' must be a non-empty string"),
        ("name: pdf\ndescription:", ValidationError, "Field 'description' must be a non-empty string"),
        ("name: a: b", ParseError, "Invalid YAML in frontmatter"),
        ("- a", ParseError, "SKILL.md frontmatter must be a YAML mapping"),
    ],
)
def test_what_is_missing_or_wrong_is_an_error(write_skill, frontmatter, kind, message) -> None:
    with pytest.raises(kind, match=message):
        read_properties(write_skill(frontmatter))


def test_a_folder_without_skill_md_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ParseError, match=f"SKILL.md not found in {tmp_path}"):
        read_properties(tmp_path)


def test_upper_case_is_preferred_and_lower_case_accepted(tmp_path: Path) -> None:
    assert find_skill_md(tmp_path) is None
    (tmp_path / "skill.md").write_text("x")
    assert find_skill_md(tmp_path) == tmp_path / "skill.md"
    (tmp_path / "SKILL.md").write_text("x")
    assert find_skill_md(tmp_path) == tmp_path / "SKILL.md"


def test_both_fields_must_be_there_before_either_is_looked_at(write_skill) -> None:
    with pytest.raises(ValidationError, match="Missing required field in frontmatter: description"):
        read_properties(write_skill('name: ""'))
