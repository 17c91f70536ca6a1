"""The reference pages of Python have every public name once; mkdocstrings makes them from the docstrings."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import adk_skills_agent

PAGES = Path(__file__).resolve().parents[2] / "docs" / "reference" / "python"
HOW = "Add the line `::: adk_skills_agent.NAME` to the page of docs/reference/python that it belongs to."


def test_every_public_name_is_on_one_reference_page() -> None:
    named = Counter(
        name
        for page in PAGES.glob("*.md")
        for name in re.findall(r"^::: adk_skills_agent\.(\w+)$", page.read_text(), re.MULTILINE)
    )
    assert set(named) == set(adk_skills_agent.__all__), HOW
    assert set(named.values()) == {1}
