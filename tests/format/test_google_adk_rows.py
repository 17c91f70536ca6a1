"""GOOGLE_ADK.md rows L1-L7, 14b and 14c: google-adk fails on these files, this package loads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from google.adk.skills import load_skill_from_dir

from adk_skills_agent.format import ParsedSkill, parse_file, parse_head, validate_skill

WriteSkill = Callable[..., Path]
REFUSED = "(?i)invalid|frontmatter|validation"


def ours(folder: Path) -> ParsedSkill:
    skill = parse_file(folder / "SKILL.md")
    assert parse_head(folder / "SKILL.md").metadata == skill.metadata
    return skill


@pytest.mark.behaviour(
    "better",
    "`---` inside a description",
    google="cuts it there and says nothing",
    ours="read whole, with a diagnostic",
    readme=3,
)
@pytest.mark.parametrize("row", ["L1", "14b"])
def test_l1_14b_dashes_inside_a_value_cut_nothing(write_skill: WriteSkill, row: str) -> None:
    folder = write_skill("name: pdf\ndescription: one --- two", body="body text")
    theirs = load_skill_from_dir(folder)
    assert theirs.frontmatter.description == "one"
    assert theirs.instructions == "two\n---\n\nbody text"
    skill = ours(folder)
    assert (skill.metadata.description, skill.body) == ("one --- two", "body text")
    assert skill.metadata.repairs == ("fence-inside-value",)


@pytest.mark.behaviour(
    "better",
    "An unquoted colon, a list in `allowed-tools`, a number as name",
    google="refused",
    ours="loaded, with a diagnostic",
    readme=2,
)
@pytest.mark.parametrize(
    ("row", "frontmatter", "expected", "repairs"),
    [
        ("L2", "name: pdf\ndescription: Use: it", ("pdf", "Use: it", None), ("unquoted-colon",)),
        ("L5 metadata", "name: pdf\ndescription: d\nmetadata:", ("pdf", "d", None), ("metadata-not-mapping",)),
        (
            "L5 14c tools",
            "name: pdf\ndescription: d\nallowed-tools:\n- A\n- B",
            ("pdf", "d", "A B"),
            ("allowed-tools-list",),
        ),
        ("L5 name", "name: 123\ndescription: d", ("123", "d", None), ()),
        ("L5 description", "name: pdf\ndescription: yes", ("pdf", "yes", None), ()),
    ],
)
def test_l2_l5_what_google_adk_refuses_is_loaded(write_skill: WriteSkill, row, frontmatter, expected, repairs) -> None:
    folder = write_skill(frontmatter, folder=expected[0])
    with pytest.raises(ValueError, match=REFUSED):
        load_skill_from_dir(folder)
    metadata = ours(folder).metadata
    assert (metadata.name, metadata.description, metadata.allowed_tools) == expected
    assert metadata.repairs == repairs


@pytest.mark.behaviour(
    "better", "A byte-order mark before SKILL.md", google="refused", ours="loaded, with a diagnostic"
)
@pytest.mark.parametrize("row", ["L3", "14c"])
def test_l3_14c_a_byte_order_mark_is_no_reason_to_refuse(write_skill: WriteSkill, row: str) -> None:
    folder = write_skill(text="\ufeff---\nname: pdf\ndescription: d\n---\nbody")
    with pytest.raises(ValueError, match=REFUSED):
        load_skill_from_dir(folder)
    assert ours(folder).metadata.repairs == ("byte-order-mark",)


@pytest.mark.behaviour("better", "`技能` as a name", google="refused", ours="valid, as skills-ref says")
@pytest.mark.parametrize("name", ["技能", "мой-навык"])
def test_l4_a_name_valid_for_skills_ref_is_valid(write_skill: WriteSkill, name: str) -> None:
    folder = write_skill(f"name: {name}\ndescription: d", folder=name)
    with pytest.raises(ValueError, match=REFUSED):
        load_skill_from_dir(folder)
    assert (ours(folder).metadata.name, ours(folder).diagnostics) == (name, ())
    assert validate_skill(folder).ok


@pytest.mark.behaviour("better", "`version: 1.10`", google="becomes 1.1", ours="keeps its spelling")
def test_l6_a_version_keeps_its_spelling(write_skill: WriteSkill) -> None:
    folder = write_skill("name: pdf\ndescription: d\nmetadata:\n  version: 1.10")
    assert load_skill_from_dir(folder).frontmatter.metadata["version"] == 1.1
    assert ours(folder).metadata.metadata == {"version": "1.10"}


@pytest.mark.behaviour(
    "better", "A description of spaces", google="shown to the model", ours="taken from the body, with a diagnostic"
)
def test_l7_a_description_of_spaces_is_no_description(write_skill: WriteSkill) -> None:
    folder = write_skill("name: pdf\ndescription: '   '", body="# T\n\nReads PDFs.")
    assert load_skill_from_dir(folder).frontmatter.description == "   "
    assert ours(folder).metadata.description == "Reads PDFs."
    assert ours(folder).metadata.repairs == ("description-derived",)
    assert validate_skill(folder).errors == ["Field 'description' must be a non-empty string"]
