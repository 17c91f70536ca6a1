"""What skills-ref reads: its quirks, kept on purpose."""

from __future__ import annotations

import pytest

from adk_skills_agent.errors import ParseError
from adk_skills_agent.format.frontmatter import parse_strict


@pytest.mark.parametrize(
    ("text", "fields", "body"),
    [
        ("---\nname: x\n---\n\nbody\n", {"name": "x"}, "body"),
        ("---\na: 1.0\nb: yes\nc: null\nd:\n---\n", {"a": "1.0", "b": "yes", "c": "null", "d": ""}, ""),
        ("---\nd: x --- y\n---\nbody", {"d": "x"}, "y\n---\nbody"),
        ("--- # c\nname: x\n---\n", {"name": "x"}, ""),
        ("---name: x\n---\n", {"name": "x"}, ""),
        ("---\nmetadata:\n  a: 1.10\n  b: true\n---\n", {"metadata": {"a": "1.10", "b": "true"}}, ""),
        ("---\nt:\n- a\n- b: c\n---\n", {"t": ["a", {"b": "c"}]}, ""),
        ("---\na: =\nb: <<\nc: '='\n---\n", {"a": None, "b": None, "c": "="}, ""),
        ("---\na:\n  <<:\n    b: c\n  d: e\n---\n", {"a": {"d": "e"}}, ""),
        ("---\na: b \x85 c\nd: 'e\x85\x85f'\n---\n", {"a": "b c", "d": "e\nf"}, ""),
        ("---\nd: a\u2028b\n---\n", {"d": "a\u2028b"}, ""),
    ],
)
def test_what_is_accepted(text: str, fields: dict[str, object], body: str) -> None:
    assert parse_strict(text) == (fields, body)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("---\nname: x\na: [b]\n---\n", "Invalid YAML in frontmatter: lists and mappings in brackets are not allowed"),
        ("---\na: b\na: c\n---\n", r"Invalid YAML in frontmatter: duplicate key 'a' \(line 3\)|duplicate key 'a'"),
        ("---\na: &x b\n---\n", "anchors and aliases are not allowed"),
        ("---\na: !x b\n---\n", "tags are not allowed"),
        ("---\n? - a\n: b\n---\n", "a key must be plain text"),
        ("---\na:\n  b: c\nd:\n    e: f\n---\n", "mappings of one level must be indented alike"),
        ("---\n<<: x\n---\n", "a `<<` key needs a mapping"),
        ("---\na: b\n...\nc: d\n---\n", "Invalid YAML"),
        ("---\n" + "".join(" " * i + f"k{i}:\n" for i in range(60)) + "---\n", "nested more than 50"),
        ("---\n" + "a: b\n" * 20_000 + "---\n", "the frontmatter has 100001 characters, 65536 are read"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_strict(text)


@pytest.mark.parametrize("opening", ["[", "{", "- ", "? ", "!", "&a "])
def test_nesting_is_refused_and_not_followed(opening: str) -> None:
    with pytest.raises(ParseError, match="Invalid YAML"):
        parse_strict("---\na: " + opening * 20_000 + "\n---\n")
