from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adk_skills_agent.format.frontmatter import split_frontmatter
from adk_skills_agent.format.reading import read_text
from adk_skills_agent.format.yaml_fields import YamlFields, YamlProblem, parsed_fields, plain_fields


def agrees(text: str) -> bool | None:
    """None when the short way leaves the text to the parser; else whether both read the same."""
    plain = plain_fields(text)
    if plain is None:
        return None
    try:
        # both parsers: the one with libyaml and the one without must agree with the short way
        return all(parsed_fields(text, libyaml=libyaml) == YamlFields(*plain) for libyaml in (True, False))
    except YamlProblem:
        return False


@pytest.mark.parametrize(
    "text",
    [
        "name: a",
        "name: a\ndescription: Words, with (marks) and [brackets], {braces}; a-b - c.\n",
        'name: "quoted: # text"\ndescription: \'single "in" it\\\'   \n',
        'name:   a   \nmetadata:\n  author: someone\n  version: "1.0"\n  number: 1.10\nlicense: MIT\n',
        "name: a\ndescription: Aé ü 使い方 — dash\n",
        'name: ""\n',
        "description: a 'quote' and \"another\" \\ & * ! | > % @ ` ? - = ~ end\n",
        "y: yes\non: off\nn: 0x1F\nd: 2024-01-01\nf: 1e3\n",
        "description: a, b ]}[{ c\n",
    ],
)
def test_plain_text_is_read_as_a_yaml_parser_reads_it(text: str) -> None:
    assert agrees(text) is True


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "name:",
        "name: a\nmetadata:\nlicense: b",
        "name: null",
        "name: ~",
        "name: a\nname: b",
        "name: a\n  continued",
        "name: a\n\nlicense: b",
        "name: a: b",
        "name: a # comment",
        "name: a\t",
        "name: [a]",
        "name: |\n  a",
        "name: - a",
        "- name: a",
        "name: a\n   inner: b",
        "metadata:\n    inner: b",
        "metadata:\n  inner:",
        "metadata:\n  inner: b\n  inner: c",
        'name: "a\\n"',
        "name: 'it''s'",
        "name: a\u2028b",
        "name: a\x85b",
        "name: a\ufeff",
        "name: &anchor a",
        "name: a\r",
        "name: \ud800",
        "...",
        "name: a\n...",
    ],
)
def test_what_is_not_plain_is_left_to_the_parser(text: str) -> None:
    assert plain_fields(text) is None


_PIECES = st.lists(
    st.one_of(
        st.sampled_from(
            [
                "name",
                "a",
                "metadata",
                ":",
                ": ",
                " ",
                "  ",
                "\n",
                "\n  ",
                '"',
                "'",
                "#",
                " #",
                "-",
                "- ",
                "null",
                "~",
                "1",
            ]
        ),
        st.sampled_from(["[", "]", "{", "}", ",", "&", "*", "!", "|", ">", "%", "@", "`", "?", "\\", "\t", "\r", "é"]),
        st.characters(),
    ),
    max_size=30,
).map("".join)
_FIELDS = st.lists(
    st.tuples(st.sampled_from(["name", "a-b", "x_1", "  in", "  out", "metadata"]), _PIECES), max_size=6
).map(lambda fields: "\n".join(f"{key}: {value}" for key, value in fields))


@given(st.one_of(_PIECES, _FIELDS))
def test_whatever_it_accepts_it_reads_as_a_yaml_parser(text: str) -> None:
    assert agrees(text) is not False


def test_real_frontmatters_are_read_the_same_and_many_take_the_short_way(corpus: Path) -> None:
    verdicts = []
    for file in corpus.rglob("SKILL.md"):
        split = split_frontmatter(read_text(file).text)
        if split.frontmatter is not None:
            verdicts.append(agrees(split.frontmatter))
    assert False not in verdicts
    assert verdicts.count(True) > len(verdicts) / 4
