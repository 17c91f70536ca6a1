"""Fences are whole lines; everything else is a finding."""

from __future__ import annotations

import pytest

from adk_skills_agent.format import frontmatter
from adk_skills_agent.format.frontmatter import split_frontmatter


def split(text: str) -> tuple[str | None, str, list[tuple[str, int | None]]]:
    parts = split_frontmatter(text)
    return parts.frontmatter, text[parts.body_start :], [(f.code, f.line) for f in parts.findings]


def test_the_usual_file_has_no_findings() -> None:
    assert split("---\nname: x\n---\nbody\n") == ("name: x\n", "body\n", [])


@pytest.mark.parametrize(
    ("text", "frontmatter", "body"),
    [
        ("---\nd: a --- b\n---\nbody", "d: a --- b\n", "body"),
        ("---\nd: |\n  a\n  ---\n  b\n---\nbody", "d: |\n  a\n  ---\n  b\n", "body"),
        ("---\nd: x\n---y: z\n---\nbody", "d: x\n---y: z\n", "body"),
        ("--- \nd: x\n---\t \nbody", "d: x\n", "body"),
        ("---\nd: x\n---", "d: x\n", ""),
        ("---\nd: x\n---\na\n---\nb", "d: x\n", "a\n---\nb"),
        ("---\n---\nbody", "", "body"),
    ],
)
@pytest.mark.requirement("C13")
def test_only_a_line_of_three_dashes_is_a_fence(text: str, frontmatter: str, body: str) -> None:
    assert split(text) == (frontmatter, body, [])


@pytest.mark.parametrize(
    ("text", "frontmatter", "body", "findings"),
    [
        ("\ufeff---\nd: x\n---\nb", "d: x\n", "b", [("byte-order-mark", 1)]),
        ("\n \n---\nd: x\n---\nb", "d: x\n", "b", [("leading-blank-lines", 1)]),
        ("<!-- c -->\n---\nd: x\n---\nb", "d: x\n", "b", [("text-before-frontmatter", 1)]),
        ("```yaml\n---\nd: x\n---\nb", "d: x\n", "b", [("text-before-frontmatter", 1)]),
        ("  ---\n  d: x\n  ---\nb", "  d: x\n", "b", [("unusual-opening-fence", 1), ("unusual-closing-fence", 3)]),
        ("--- # c\nd: x\n---\nb", "d: x\n", "b", [("unusual-opening-fence", 1)]),
        ("---\nd: x\n-----\nb", "d: x\n", "b", [("unusual-closing-fence", 3)]),
        ("---\nd: x\n...\nb", "d: x\n", "b", [("unusual-closing-fence", 3)]),
        ("---\nd: x\n", "d: x\n", "", [("unclosed-frontmatter", 1)]),
        ("---\nd: x\n  y\n# c\n- z\n\n# T\nb", "d: x\n  y\n# c\n- z\n", "\n# T\nb", [("unclosed-frontmatter", 1)]),
        ("---\nname: x\n\ndescription: y\n\nb", "name: x\n\ndescription: y\n", "\nb", [("unclosed-frontmatter", 1)]),
        ("---\nd: x\n\n# T\n\nprose\n\n---\nb", "d: x\n", "\n# T\n\nprose\n\n---\nb", [("unclosed-frontmatter", 1)]),
        ("---\nd: x\n\n# comment\ne: y\n---\nb", "d: x\n\n# comment\ne: y\n", "b", []),
        ("# T\nb", None, "# T\nb", [("missing-frontmatter", 1)]),
        ("\n\nb", None, "b", [("leading-blank-lines", 1), ("missing-frontmatter", 3)]),
        ("b\n---\nd: x\n---\n", None, "b\n---\nd: x\n---\n", [("missing-frontmatter", 1)]),
        ("", None, "", [("missing-frontmatter", 1)]),
    ],
)
def test_what_is_written_otherwise_is_read_and_reported(text, frontmatter, body, findings) -> None:
    assert split(text) == (frontmatter, body, findings)


def test_the_line_of_the_frontmatter_counts_what_comes_before() -> None:
    assert split_frontmatter("---\na: b\n---\n").frontmatter_line == 2
    assert split_frontmatter("\n\n---\na: b\n---\n").frontmatter_line == 4


def test_a_fence_beyond_64_kib_does_not_count() -> None:
    parts = split_frontmatter("---\n" + "a: b\n" * 20_000 + "---\nbody")
    assert not parts.closed
    assert [f.code for f in parts.findings] == ["unclosed-frontmatter"]


@pytest.mark.parametrize(
    "frontmatter",
    [
        'name: x\n\n# Notes\ndescription: "first line\nsecond line continues when"\n',
        "name: x\n\n# N\ndescription: 'a\n\nb when'\n",
        "name: x\n\n# Extra\n版本: 1\ndescription: d\n",
        "name: x\n\n# Extra\n$schema: 1\ndescription: d\n",
        "name: x\n\n# Tools\nallowed-tools: [\nRead\n]\ndescription: d\n",
    ],
    ids=["double-quoted", "single-quoted", "another script", "dollar", "flow list"],
)
def test_a_comment_before_a_value_of_several_lines_is_no_heading_of_the_body(frontmatter: str) -> None:
    assert split(f"---\n{frontmatter}---\nbody") == (frontmatter, "body", [])


def test_row_379_line_ends_before_a_heading_that_never_comes_do_not_take_the_square_of_their_number() -> None:
    """Seen: 25 s for 60,000, in which nothing else of the agent ran."""
    text = "----\nname: a\ndescription: b\n" + "\n" * 1_000_000 + "---\n"
    assert frontmatter._HEADING.search(text) is None
    assert frontmatter.split_unusual(text[:100] + text[-60_000:]) is not None
    found = frontmatter._HEADING.search("a\n\n\n# b")
    assert found is not None
    assert found.span() == (1, 6)
    assert frontmatter._FOLDED.search(" " * 1_000_000 + "x") is None
