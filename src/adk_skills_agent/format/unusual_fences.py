"""Fences that are not two lines of ``---`` around the frontmatter: what is written instead, how it is read."""

from __future__ import annotations

import re

from adk_skills_agent.format.diagnostic import Severity
from adk_skills_agent.format.fences import Finding, Split
from adk_skills_agent.format.reading import MAX_HEAD_BYTES
from adk_skills_agent.format.yaml_nodes import YamlProblem, load_fields

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


def split_unusual(text: str) -> Split:
    """As ``split_frontmatter``, for every text. To accept another form, add it here with a finding of its own."""
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
    if not any(line.strip() and not _YAML_LINE.match(line) and not line.startswith("#") for line in lines):
        return False
    try:
        load_fields(text[start:end])
    except YamlProblem:
        return True
    return False  # a comment, and a value of several lines: what is YAML as a whole is no body


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
