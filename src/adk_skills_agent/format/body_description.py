"""A description from the body, for skills that have none (S0-133)."""

from __future__ import annotations

import re

MAX_DERIVED_LENGTH = 300
"""Characters; a derived description is cut here, at the end of a word: it serves to find the skill."""
_SEARCHED = 20_000  # characters of body looked at; a skill says what it is near its start
_FENCED = re.compile(r"^(```|~~~).*?(?:^\1[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_NOT_PROSE = re.compile(
    r"[ \t]*(?:#|\||>|[-*+][ \t]|\d+[.)][ \t]|!\[|\[!|<|[-=*_]{3,}[ \t]*$|\*\*[^*\n]+\*\*[ \t]*:|\*\*[^*\n]+:\*\*)"
)
_LINK = re.compile(r"!?\[([^\]\n]*)\]\([^)\n]*\)")
_EMPHASIS = re.compile(r"(\*\*|__|\*|`)(?=\S)(.+?)(?<=\S)\1")


def first_paragraph(body: str) -> str | None:
    """The first paragraph of prose, on one line and without Markdown, at most ``MAX_DERIVED_LENGTH`` characters.

    Args:
        body: Markdown.

    Returns:
        The text, or None when the body has no prose. Headings, lists, tables, code, comments, badges and
        ``**Label**: value`` lines are not prose.
    """
    text = _COMMENT.sub("", _FENCED.sub("", body[:_SEARCHED]))
    paragraph: list[str] = []
    for line in text.split("\n"):
        if not line.strip() or _NOT_PROSE.match(line):
            if paragraph:
                break
            continue
        paragraph.append(line.strip())
    # Cut before the patterns see it: on a long paragraph of unpaired asterisks they take quadratic time.
    prose = " ".join(" ".join(paragraph).split())[: 4 * MAX_DERIVED_LENGTH]
    prose = _EMPHASIS.sub(r"\2", _LINK.sub(r"\1", prose))
    if not any(char.isalnum() for char in prose):
        return None
    if len(prose) > MAX_DERIVED_LENGTH:
        prose = prose[:MAX_DERIVED_LENGTH].rsplit(" ", 1)[0].rstrip(",;:.") + "..."
    return prose
