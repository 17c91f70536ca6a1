"""The <available_skills> block."""

from __future__ import annotations

import html
import string
from pathlib import Path

import pytest

from adk_skills_agent.errors import ParseError
from adk_skills_agent.format import SkillMetadata, to_available_skills_xml, to_prompt
from adk_skills_agent.format.properties import _escape


def test_no_skills_give_an_empty_block() -> None:
    assert to_available_skills_xml([]) == to_prompt([]) == "<available_skills>\n</available_skills>"


@pytest.mark.requirement("S4-15")
def test_every_tag_and_value_has_its_own_line_and_values_are_escaped() -> None:
    items = [SkillMetadata("a", "x < y & 'z'", "/s/a/SKILL.md"), SkillMetadata("b", 'say "b"')]
    assert to_available_skills_xml(items).split("\n") == [
        "<available_skills>",
        "<skill>",
        "<name>",
        "a",
        "</name>",
        "<description>",
        "x &lt; y &amp; &#x27;z&#x27;",
        "</description>",
        "</skill>",
        "<skill>",
        "<name>",
        "b",
        "</name>",
        "<description>",
        "say &quot;b&quot;",
        "</description>",
        "</skill>",
        "</available_skills>",
    ]


def test_the_location_is_given_only_on_request() -> None:
    item = SkillMetadata("a", "d", "/s/<a>/SKILL.md")
    assert "location" not in to_available_skills_xml([item])
    assert "<location>\n/s/&lt;a&gt;/SKILL.md\n</location>\n</skill>" in to_available_skills_xml([item], location=True)
    assert "location" not in to_available_skills_xml([SkillMetadata("a", "d")], location=True)


def test_escaping_is_that_of_html_escape() -> None:
    assert _escape(string.printable) == html.escape(string.printable)


def test_to_prompt_reads_folders_strictly_and_gives_resolved_locations(write_skill, tmp_path: Path) -> None:
    folder = write_skill()
    (tmp_path / "link").symlink_to(folder)
    block = to_prompt([tmp_path / "link"])
    assert f"<location>\n{folder.resolve() / 'SKILL.md'}\n</location>" in block
    with pytest.raises(ParseError):
        to_prompt([folder, tmp_path])
