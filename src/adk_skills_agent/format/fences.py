"""Where the frontmatter of a SKILL.md ends and its body begins (C13), judged by whole lines."""

from __future__ import annotations

from dataclasses import dataclass

from adk_skills_agent.format.diagnostic import Severity
from adk_skills_agent.format.reading import MAX_HEAD_BYTES


@dataclass(frozen=True, slots=True)
class Finding:
    """A deviation found before there is a file name to report it with; ``line`` is 1-based in the file."""

    code: str
    severity: Severity
    message: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Split:
    """A SKILL.md, taken apart.

    Attributes:
        frontmatter: The text between the fences, None when there is no frontmatter.
        frontmatter_line: 1-based line of the file where it starts.
        body_start: Index in the text where the body starts.
        closed: Whether a closing fence was found; the body is then known even if only the head was read.
        findings: What is not as the specification wants it.
    """

    frontmatter: str | None
    frontmatter_line: int
    body_start: int
    closed: bool
    findings: tuple[Finding, ...] = ()


def split_frontmatter(text: str) -> Split:
    r"""Find the fences: lines of their own that hold ``---`` and nothing else.

    ``---`` inside a value is text (L1). A byte order mark and blank lines before the first fence are passed over; an
    indented or longer fence closes when there is no proper one; without any, the frontmatter ends with the last line
    that looks like YAML. Every one of these leaves a finding.

    Args:
        text: The file, or its head, with ``\n`` line ends.

    Returns:
        The parts; ``frontmatter`` is None when the text does not begin with a fence.
    """
    if text.startswith("---\n"):
        end = text.find("\n---", 3, MAX_HEAD_BYTES)
        if end > 0 and text.startswith("\n---\n", end) and text.find("\n\n#", 3, end) < 0:
            return Split(text[4 : end + 1], 2, end + 5, closed=True)
    # Its patterns take 2 ms to compile, which a folder of well-written skills never needs.
    from adk_skills_agent.format.unusual_fences import split_unusual

    return split_unusual(text)
