"""The first paragraph of prose."""

from __future__ import annotations

import pytest

from adk_skills_agent.format.field_repairs import MAX_DERIVED_LENGTH, first_paragraph


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("# T\n\nOne\ntwo.\n\nThree.", "One two."),
        ("# T\nOne.\n## U\nTwo.", "One."),
        ("![b](x)\n[![b](x)](y)\n\n> quote\n\n| a | b |\n\n- item\n1. item\n\nText.", "Text."),
        ("```sh\ncode\n```\n\nText.", "Text."),
        ("<!-- a\n\nb -->\nText.", "Text."),
        ("---\n\n**Tier**: BASIC\n**Name:** x\n\nText.", "Text."),
        ("Use `x` and **y** with [z](u).", "Use x and y with z."),
        ("```\nunclosed", None),
        ("# T\n\n***", None),
        ("", None),
        ("...\n", None),
    ],
)
def test_prose_is_found_and_cleaned(body: str, text: str | None) -> None:
    assert first_paragraph(body) == text


def test_a_long_paragraph_is_cut_at_a_word() -> None:
    text = first_paragraph("word " * 500)
    assert text is not None
    assert len(text) <= MAX_DERIVED_LENGTH + 3
    assert text.endswith("word...")
