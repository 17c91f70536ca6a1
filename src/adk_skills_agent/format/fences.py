"""Where the frontmatter of a SKILL.md ends and its body begins (C13), judged by whole lines."""

from __future__ import annotations

import re
from dataclasses import dataclass

from adk_skills_agent.format.diagnostic import Severity
from adk_skills_agent.format.reading import MAX_HEAD_BYTES

_FENCE = re.compile(r"^---[ \t]*$", re.MULTILINE)
_LOOSE_FENCE = re.compile(r"^[ \t]*(?:---+|\.\.\.)[ \t]*$", re.MULTILINE)
_OPENING = re.compile(r"[ \t]*---+[ \t]*(?:#.*)?$")
_BLANK_LINES = re.compile(r"(?:[ \t]*\n)*")
_PREAMBLE = re.compile(r"(?:<!--(?:(?!-->).)*-->\s*|```\w*[ \t]*\n)+(?=---[ \t]*\n)", re.DOTALL)
_YAML_LINE = re.compile(
    r"[ \t]+\S|- |#(?!#|[ ][A-Z])|[\"']?[A-Za-z_][\w .-]{0,63}[\"']?[ \t]*:(?:[ \t]|$)", re.MULTILINE
)
_KNOWN_FIELD = re.compile(r"\n*(?:name|description|license|compatibility|allowed-tools|metadata)[ \t]*:")
_HEADING = re.compile(r"\n\n+#{1,6} ")


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
    return _split_unusual(text)


def _split_unusual(text: str) -> Split:
    findings: list[Finding] = []
    start = 0
    if text.startswith("\ufeff"):
        start = 1
        findings.append(Finding("byte-order-mark", Severity.INFO, "The file starts with a byte order mark.", 1))
    content = _BLANK_LINES.match(text, start).end()  # type: ignore[union-attr]  # the pattern matches the empty text
    if content > start:
        findings.append(Finding("leading-blank-lines", Severity.INFO, "Blank lines come before the first `---`.", 1))
    preamble = _PREAMBLE.match(text, content)
    if preamble is not None:
        content = preamble.end()
        message = "A comment or code fence comes before the frontmatter; `---` must be the first line."
        findings.append(Finding("text-before-frontmatter", Severity.WARNING, message, 1))
    line_end = text.find("\n", content)
    line_end = len(text) if line_end < 0 else line_end
    line = text.count("\n", 0, content) + 1
    if _OPENING.match(text, content, line_end) is None:
        message = "The file does not start with frontmatter between `---` lines; name and description were derived."
        finding = Finding("missing-frontmatter", Severity.WARNING, message, line)
        return Split(None, line, content, closed=False, findings=(*findings, finding))
    first = text[content:line_end]
    if first.rstrip() != "---":
        message = f"The frontmatter is opened by {first.strip()!r}, not by a line of exactly `---`."
        findings.append(Finding("unusual-opening-fence", Severity.INFO, message, line))
    inside = min(line_end + 1, len(text))
    limit = inside + MAX_HEAD_BYTES
    closing = _FENCE.search(text, inside, limit)
    if closing is None:
        closing = _LOOSE_FENCE.search(text, inside, limit)
        if closing is not None:
            message = f"The frontmatter is closed by {closing.group().strip()!r}, not by a line of exactly `---`."
            at = text.count("\n", 0, closing.start()) + 1
            findings.append(Finding("unusual-closing-fence", Severity.WARNING, message, at))
    runs_on = closing is not None and _runs_into_body(text, inside, closing.start())
    if closing is None or runs_on:
        end = _end_of_yaml(text, inside)
        message = (
            "The frontmatter is not closed by a line of `---`; it was taken to end where its lines stop being YAML."
        )
        findings.append(Finding("unclosed-frontmatter", Severity.WARNING, message, line))
        return Split(text[inside:end], line + 1, end, closed=runs_on, findings=tuple(findings))
    after = min(closing.end() + 1, len(text))
    return Split(text[inside : closing.start()], line + 1, after, closed=True, findings=tuple(findings))


def _runs_into_body(text: str, start: int, end: int) -> bool:
    """Whether a Markdown heading and prose come before what looks like the closing fence, and is a rule of the body."""
    heading = _HEADING.search(text, start, end)
    if heading is None:
        return False
    lines = text[heading.end() : end].split("\n")[1:]
    return any(line.strip() and not _YAML_LINE.match(line) and not line.startswith("#") for line in lines)


def _end_of_yaml(text: str, start: int) -> int:
    """Index after the last line, from ``start``, that can be frontmatter."""
    position = start
    while position < len(text) and position - start < MAX_HEAD_BYTES:
        stop = text.find("\n", position)
        stop = len(text) if stop < 0 else stop
        if not _YAML_LINE.match(text, position, stop) and not _KNOWN_FIELD.match(text, position):
            break
        position = min(stop + 1, len(text))
    return position
