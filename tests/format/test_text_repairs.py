"""Each repair of broken YAML: what it makes of the fault, and the diagnostic it leaves."""

from __future__ import annotations

import pytest

from adk_skills_agent.format import Severity, parse_text
from adk_skills_agent.format.text_repairs import REPAIRS, salvage_fields

NAME = "name: pdf\n"
ROWS = [
    ("unquoted-colon", "description: Use this: for PDFs", "Use this: for PDFs", 3),
    ("unquoted-colon", "description: Use it\n  when: asked\n  to\nlicense: MIT", "Use it when: asked to", 3),
    ("unquoted-colon", "description: Use when the user says:\nlicense: MIT", "Use when the user says:", 3),
    ("unquoted-colon", "license: MIT\ndescription: Don't: use it's", "Don't: use it's", 4),
    ("unquoted-colon", "description: Fix: issue #12 too", "Fix: issue #12 too", 3),
    ("unquoted-value", "description: @user does it", "@user does it", 3),
    ("unquoted-value", "description: `code` first", "`code` first", 3),
    ("unquoted-value", "description: [BETA] does it", "[BETA] does it", 3),
    ("unquoted-value", "description: {x} does it", "{x} does it", 3),
    ("unquoted-value", "description: **Bold** text", "**Bold** text", 3),
    ("unquoted-value", "description: %20 text", "%20 text", 3),
    ("unquoted-value", "description: | text\nlicense: MIT", "| text", 3),
    ("unquoted-value", "description: > text\n  more", "> text more", 3),
    ("broken-quotes", 'description: "Foo" and "bar" it', '"Foo" and "bar" it', 3),
    ("broken-quotes", 'description: "Say "hello" now"', 'Say "hello" now', 3),
    ("broken-quotes", 'description: "Say hello\nlicense: MIT', "Say hello", 3),
    ("broken-quotes", "description: 'It's good'", "It's good", 3),
    ("broken-quotes", r'description: "Open C:\dir\files"', r"Open C:\dir\files", 3),
    ("tab-indentation", "description: d\nmetadata:\n\ta: b", "d", 5),
    ("odd-spaces", "description:\u00a0d", "d", 3),
    ("missing-space", "description:d", "d", 3),
    ("uneven-indentation", " description: d\nlicense: MIT", "d", 3),
    ("unindented-continuation", "description: |\nline one\nline two\nlicense: MIT", "line one\nline two", 4),
    ("unindented-continuation", "description: line one\nline two\nlicense: MIT", "line one line two", 4),
    ("control-characters", "description: a\x07b", "ab", 3),
    ("line-separators", "description: a\u2028b", "a b", 3),
]


@pytest.mark.parametrize(("code", "rest", "description", "line"), ROWS)
@pytest.mark.requirement("C14")
def test_a_fault_is_repaired_and_reported_once(code: str, rest: str, description: str, line: int) -> None:
    skill = parse_text(f"---\n{NAME}{rest}\n---\nbody", folder_name="pdf")
    assert skill.metadata.name == "pdf"
    assert skill.metadata.description == description
    assert [(d.code, d.line) for d in skill.diagnostics] == [(code, line)]
    assert skill.metadata.repairs == (code,)
    assert skill.diagnostics[0].severity is Severity.WARNING
    if "license: MIT" in rest:
        assert skill.metadata.license == "MIT"


def test_every_repair_has_a_row() -> None:
    assert {repair.code for repair in REPAIRS} == {row[0] for row in ROWS}


def test_several_faults_are_repaired_together() -> None:
    text = '---\nname:pdf\ndescription: Use: it\nlicense: "a" b\ncompatibility: @x\n---\n'
    skill = parse_text(text, folder_name="pdf")
    metadata = skill.metadata
    assert (metadata.description, metadata.license, metadata.compatibility) == ("Use: it", '"a" b', "@x")
    assert metadata.repairs == ("missing-space", "unquoted-colon", "unquoted-value", "broken-quotes")


def test_a_colon_in_a_nested_value_is_quoted_too() -> None:
    text = "---\nname: pdf\ndescription: d\nmetadata:\n  note: see: there\n  list:\n    - when: a: b\n    - c\n---\n"
    metadata = parse_text(text, folder_name="pdf").metadata
    assert metadata.metadata == {"note": "see: there", "list": [{"when": "a: b"}, "c"]}


def test_good_values_next_to_a_bad_one_are_left_alone() -> None:
    text = "---\nname: pdf\ndescription: a: b\nlicense: 'it''s'\nmetadata:\n  x: \"q\\n\"\n  y: |\n    k: v: w\n---\n"
    metadata = parse_text(text, folder_name="pdf").metadata
    assert metadata.license == "it's"
    assert metadata.metadata == {"x": "q\n", "y": "k: v: w\n"}


def test_lines_are_salvaged_when_no_repair_helps() -> None:
    text = "---\nname: pdf\ndescription: >\n  one\n  two\nlicense: 'MIT'\n}}}{{{:\n- [\n---\nbody"
    skill = parse_text(text, folder_name="pdf")
    assert (skill.metadata.description, skill.metadata.license) == ("one two", "MIT")
    assert [(d.code, d.severity) for d in skill.diagnostics] == [("invalid-yaml", Severity.ERROR)]
    assert "read line by line" in skill.diagnostics[0].message


def test_salvage_gives_lines() -> None:
    assert salvage_fields("a: b\n  c\n\nd: |\n  e\n") == ({"a": "b c", "d": "e"}, {"a": 0, "d": 3}, [])
