"""The headings of a skill's instructions: an outline for the search, read when it is first needed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from adk_skills_agent.catalog.opening import Permits, skill_file_opener
from adk_skills_agent.format import read_text

if TYPE_CHECKING:
    from adk_skills_agent.format import SkillMetadata

MAX_HEADINGS_CHARS = 4_000
"""Characters of headings kept for one skill: a long outline must not weigh more than what a skill says it is for."""

_MAX_LINE = 400  # characters of a line that are looked at: no heading is longer, and patterns stay fast
_MARKED = frozenset("#`~=-")  # what a line that matters here begins with, after at most three spaces
_MARKED_OR_INDENTED = _MARKED | {" "}
_FENCE = re.compile(r" {0,3}(`{3,}(?!.*`)|~{3,})")  # ```x``` is code inside a line
_ATX = re.compile(r" {0,3}#{1,6}[ \t]+(.+)")
_CLOSING = re.compile(r"[ \t]+#+$")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)$")
_NOT_A_PARAGRAPH = re.compile(r"\s*(?:[-*+>|]|\d+[.)]\s)| {4}|\t")
_CLOSING_FENCE = re.compile(r"^---[ \t]*$", re.MULTILINE)
_LINK = re.compile(r"!?\[([^\]\[]*)\]\([^()]*\)")


def headings_of(metadata: SkillMetadata, permits: Mapping[str, Permits] | None = None) -> str:
    """Return the headings of a skill's body, read from its SKILL.md; none for a skill that is not on disk.

    Args:
        metadata: The skill.
        permits: By name, for the skills that may not be anywhere.

    Raises:
        ParseError: The file is a link that leaves its skill, or cannot be read any more; ``SearchIndex`` makes a
            diagnostic of it.
    """
    location = metadata.location
    if location is None:
        return ""
    opener = skill_file_opener(permits.get(metadata.name) if permits else None)
    return markdown_headings(_without_frontmatter(read_text(location, opener).text))


def markdown_headings(body: str) -> str:
    """Return the headings of a Markdown text, one a line, without their marks and link targets.

    ``# x`` of every level and one-line paragraphs underlined with ``=`` or ``-`` count; nothing inside a code fence
    does. At most ``MAX_HEADINGS_CHARS`` characters, whole headings.
    """
    lines = body.split("\n")
    found: list[str] = []
    left = MAX_HEADINGS_CHARS
    fence = ""
    for number, whole in enumerate(lines):
        # Nearly all lines end here: thousands of bodies are read before the first search answers.
        if (
            not whole
            or whole[0] not in _MARKED_OR_INDENTED
            or (whole[0] == " " and whole[:4].lstrip(" ")[:1] not in _MARKED)
        ):
            continue
        line = whole[:_MAX_LINE].rstrip()
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and line == mark[0]:
                fence = ""
            continue
        if mark:
            fence = mark[1]
            continue
        if atx := _ATX.match(line):
            heading = _CLOSING.sub("", atx[1])
        elif _UNDERLINE.match(line) and _is_paragraph(lines, number - 1):
            heading = lines[number - 1][:_MAX_LINE]
        else:
            continue
        if heading := _LINK.sub(r"\1", heading).strip():
            left -= len(heading) + 1
            if left < 0:
                break
            found.append(heading)
    return "\n".join(found)


def _is_paragraph(lines: list[str], number: int) -> bool:
    """Whether a line is a paragraph of its own, which an underline makes a heading."""
    if number < 0 or (number > 0 and lines[number - 1].strip()):
        return False
    line = lines[number][:_MAX_LINE]
    return bool(line.strip()) and not _NOT_A_PARAGRAPH.match(line) and not _ATX.match(line) and not _FENCE.match(line)


def _without_frontmatter(text: str) -> str:
    # Comments of the frontmatter look like headings. A closing fence is all that is needed here; no YAML is read.
    text = text.lstrip("\ufeff \t\n")
    if not text.startswith("---"):
        return text
    closing = _CLOSING_FENCE.search(text, 3)
    return text[closing.end() :] if closing else text
