"""The comparison tables are generated from tests: README, guide and reference say what is proved, no more.

Write them anew with ``ADK_SKILLS_WRITE_DOCS=1 .venv/bin/python -m pytest tests/docs/test_behaviours.py``.
"""

from __future__ import annotations

import os

import pytest
from behaviours import KINDS, REPOSITORY, behaviours, full_table, short_table, themes_table, with_table

PAGES = {
    "docs/how-to/migrate-from-google-adk.md": themes_table,
    "docs/reference/compared-with-google-adk.md": full_table,
    "README.md": short_table,
}


@pytest.mark.parametrize("page", PAGES)
def test_the_table_of_a_page_is_what_the_tests_prove(page: str) -> None:
    path = REPOSITORY / page
    text = path.read_text(encoding="utf-8")
    wanted = with_table(text, PAGES[page](behaviours()))
    if os.environ.get("ADK_SKILLS_WRITE_DOCS"):
        path.write_text(wanted, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == wanted, "run this test with ADK_SKILLS_WRITE_DOCS=1"


def test_every_row_is_complete_and_no_two_say_the_same() -> None:
    rows = behaviours()
    assert {row.kind for row in rows} == set(KINDS)
    assert all(row.ours and (row.google or row.kind == "same") for row in rows)
    assert not [row.what for row in rows if "|" in f"{row.what}{row.google}{row.ours}"]
    assert len({row.what for row in rows}) == len(rows)
    in_readme = [row.readme for row in rows if row.readme]
    assert sorted(in_readme) == list(range(1, len(in_readme) + 1))
    assert len(in_readme) <= 21, "the README shows what counts most"
