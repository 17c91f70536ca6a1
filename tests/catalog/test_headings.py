from __future__ import annotations

import pytest

from adk_skills_agent.catalog.skill import MAX_HEADINGS_CHARS, markdown_headings


@pytest.mark.parametrize(
    ("body", "headings"),
    [
        ("", ""),
        ("# One\ntext\n## Two ##\n   ### Three", "One\nTwo\nThree"),
        ("#not a heading\n#\n# \n####### seven\n    # code", ""),
        ("```\n# a\n```\n# b\n~~~ python\n# c\n```\n# d\n~~~\n# e", "b\ne"),
        ("````\n```\n# inside\n```\n````\n# outside", "outside"),
        ("``` never closed\n# inside", ""),
        ("```inline``` is no fence\n# seen", "seen"),
        ("Title\n=====\n\nOther title\n---\n\ntext\n\n---\n", "Title\nOther title"),
        ("two lines\nof text\n---\n", ""),
        ("- item\n---\n\n| a | b |\n---\n", ""),
        ("# See [the guide](https://example.com/x_y) `now`", "See the guide `now`"),
        ("# C#\n# Über uns\n# 使い方", "C#\nÜber uns\n使い方"),
        ("# a\u2028b", "a\u2028b"),
    ],
)
def test_headings_of_markdown(body: str, headings: str) -> None:
    assert markdown_headings(body) == headings


def test_a_long_outline_is_bounded_and_keeps_whole_headings() -> None:
    found = markdown_headings("\n".join(f"## Heading number {number}" for number in range(10_000)))
    assert len(found) <= MAX_HEADINGS_CHARS
    assert found.splitlines()[-1].startswith("Heading number ")


@pytest.mark.parametrize(
    "line",
    ["# a" + " " * 500_000 + "b", "# " + "[" * 500_000, "# " + "[a](" * 200_000, "-" * 500_000 + "x", "`" * 500_000],
    ids=["spaces", "brackets", "links", "rule", "backticks"],
)
def test_hostile_lines_are_read_in_linear_time(line: str) -> None:
    assert len(markdown_headings(f"text\n{line}\n" * 4)) <= MAX_HEADINGS_CHARS
