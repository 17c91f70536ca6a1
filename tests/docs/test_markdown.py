"""The pages use only Markdown that the site's generator understands as GitHub does.

A fence is a language and perhaps a title. With anything else behind the language the generator shows the fence as text,
and the rest of the page with it. A walk that no test can run is `shell` or `text`, not `sh` (test_code_blocks.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = sorted((REPOSITORY / "docs").rglob("*.md"))
DECISIONS = REPOSITORY / "docs" / "explanation" / "decisions"
_FENCE = re.compile(r'```(\w+( title="[^"`]+")?)?')
_ITEM = re.compile(r"(\d+\.|[-*]) ")


def _outside_of_code(text: str) -> Iterator[tuple[int, str, str]]:
    """Number, line and the line before, of every line that is not code."""
    code, before = False, ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            code = not code
        elif not code:
            yield number, line, before
        before = line


def wrong(text: str) -> list[str]:
    """What the generator would not render, each with its line."""
    found = []
    code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```") and line[0] == " ":
            found.append(f"{number}: a fence is never indented: {line}")
        if line.startswith("```"):
            if not (line == "```" if code else _FENCE.fullmatch(line)):
                found.append(f"{number}: a fence is a language, and a title at most: {line}")
            code = not code
    if code:
        found.append("a fence without an end")
    for number, line, before in _outside_of_code(text):
        if _ITEM.match(line) and before.strip() and not (_ITEM.match(before) or before[0] in " #"):
            found.append(f"{number}: a list needs an empty line before it: {line}")
        if re.fullmatch(r"\|[-| :]*---[-| :]*\|", line) and not before.startswith("|"):
            found.append(f"{number}: a table needs a head: {line}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_a_page_has_only_markdown_that_the_generator_renders(page: Path) -> None:
    assert wrong(page.read_text()) == []


@pytest.mark.parametrize(
    "text",
    [
        "```sh norun\npip install x\n```\n",
        "**What follows.**\n- one\n",
        "```sh\npip\n",
        "A sentence.\n|---|\n",
        "- one\n  ```sh\n",
    ],
)
def test_what_it_would_show_as_text_is_found(text: str) -> None:
    assert len(wrong(text)) == 1


def test_a_decision_has_the_same_title_in_the_list_and_on_its_page() -> None:
    listed = dict(re.findall(r"^- \[(\d{4}\. .+)\]\((.+)\)$", (DECISIONS / "index.md").read_text(), re.MULTILINE))
    pages = {page.read_text().partition("\n")[0].removeprefix("# "): page.name for page in DECISIONS.glob("0*.md")}
    assert listed == pages
