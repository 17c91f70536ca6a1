"""Advice that is not followed is found, and is never an error."""

from __future__ import annotations

import pytest

from adk_skills_agent.format import Severity, validate_skill

WHEN = "name: pdf\ndescription: Reads PDFs. Use when one is mentioned."


@pytest.mark.parametrize(
    ("frontmatter", "body", "code", "line"),
    [
        (WHEN, "x\n" * 500, "long-file", None),
        (WHEN, "word " * 4100, "large-body", None),
        (WHEN, "\n", "empty-body", None),
        ("name: pdf\ndescription: Reads PDFs.", "x", "description-without-when", None),
        (WHEN, "a\n[x](references/none.md)", "missing-reference", 7),
        (WHEN, "[x](references/deep/file.md)", "deep-reference", 6),
        (WHEN, "[x](../other/SKILL.md)", "reference-outside", 6),
        (WHEN, "[x](/etc/passwd)", "reference-outside", 6),
    ],
)
def test_a_lint_is_reported_once(write_skill, frontmatter, body, code, line) -> None:
    folder = write_skill(frontmatter, body)
    deep = folder / "references" / "deep" / "file.md"
    deep.parent.mkdir(parents=True)
    deep.write_text("x")
    result = validate_skill(folder)
    assert result.ok
    assert [(d.code, d.line, d.severity) for d in result.lints] == [(code, line, Severity.INFO)]


@pytest.mark.parametrize(
    "body",
    [
        "[x](references/a%20b.md#part) [x](./references/a%20b.md) ![i](none.png)",
        "[x](https://example.com/a/b/c) [x](mailto:a@b.c) [x](#part)",
        "```\n[x](none.md)\n```",
    ],
)
def test_good_links_and_code_are_left_alone(write_skill, body: str) -> None:
    folder = write_skill(WHEN, body)
    (folder / "references").mkdir()
    (folder / "references" / "a b.md").write_text("x")
    assert validate_skill(folder).lints == ()


def test_folders_that_are_almost_called_as_agents_expect_are_named(write_skill) -> None:
    folder = write_skill(WHEN, "x")
    for name in ("script", "References", "assets", "data", "resources", "agents"):
        (folder / name).mkdir()
    assert [(found.code, found.message) for found in validate_skill(folder).lints] == [
        ("folder-name", "The folder 'References' is not called 'references'; agents look there. Rename it."),
        ("folder-name", "The folder 'script' is not called 'scripts'; agents look there. Rename it."),
    ]


def test_a_description_in_another_script_is_not_asked_for_english_words(write_skill) -> None:
    assert validate_skill(write_skill("name: pdf\ndescription: 读取文件", "x")).lints == ()


@pytest.mark.parametrize(
    "body", ["[" * 80_000, "[a](" * 40_000, "[a](b " * 40_000, '[a](b "' * 40_000, "![a](b" * 40_000]
)
def test_brackets_that_are_no_links_take_no_quadratic_time(write_skill, body: str) -> None:
    codes = {d.code for d in validate_skill(write_skill(WHEN, body)).lints}
    assert codes <= {"large-body", "missing-reference"}


def test_links_beyond_a_thousand_are_not_looked_up_and_that_is_said(write_skill) -> None:
    lints = validate_skill(write_skill(WHEN, "\n".join(f"[x](f{number}.md)" for number in range(1200)))).lints
    found = [(d.code, d.line) for d in lints if d.code in ("missing-reference", "many-links")]
    assert len(found) == 1001
    assert found[0] == ("missing-reference", 6)
    assert found[-1] == ("many-links", 1006)
