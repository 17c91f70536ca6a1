"""Where the frontmatter of a SKILL.md ends and its body begins (C13), judged by whole lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from adk_skills_agent.errors import ParseError
from adk_skills_agent.format.models import Severity
from adk_skills_agent.format.reading import MAX_HEAD_BYTES
from adk_skills_agent.format.yaml_fields import MAX_DEPTH, YamlProblem, load_fields, parse_events


@dataclass(frozen=True, slots=True)
class Finding:
    """A deviation found before there is a file name to report it with; ``line`` is 1-based in the file."""

    code: str
    severity: Severity
    message: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Split:
    """A SKILL.md, taken apart."""

    frontmatter: str | None  # the text between the fences, None when there is no frontmatter
    frontmatter_line: int  # 1-based line of the file where it starts
    body_start: int  # index in the text where the body starts
    closed: bool  # whether a closing fence was found; the body is then known even if only the head was read
    findings: tuple[Finding, ...] = ()  # what is not as the specification wants it


def split_frontmatter(text: str) -> Split:
    r"""Find the fences: lines of their own that hold ``---`` and nothing else.

    ``---`` inside a value is text (L1). A byte order mark and blank lines before the first fence are passed over; an
    indented or longer fence closes when there is no proper one; without any, the frontmatter ends with the last line
    that looks like YAML. Every one of these leaves a finding. Returns the parts; ``frontmatter`` is None when the text
    does not begin with a fence.
    """
    if text.startswith("---\n"):
        end = text.find("\n---", 3, MAX_HEAD_BYTES)
        if end > 0 and text.startswith("\n---\n", end) and text.find("\n\n#", 3, end) < 0:
            return Split(text[4 : end + 1], 2, end + 5, closed=True)
    # Its patterns take 2 ms to compile, which a folder of well-written skills never needs.

    return split_unusual(text)


# Fences that are not two lines of ``---`` around the frontmatter: what is written instead, how it is read.

_FENCE = re.compile(r"^---[ \t]*$", re.MULTILINE)
_LOOSE_FENCE = re.compile(r"^[ \t]*(?:---+|\.\.\.)[ \t]*$", re.MULTILINE)
_OPENING = re.compile(r"[ \t]*---+[ \t]*(?:#.*)?$")
_BLANK_LINES = re.compile(r"(?:[ \t]*\n)*")
_PREAMBLE = re.compile(r"(?:<!--(?:(?!-->).)*-->\s*|```\w*[ \t]*\n)+(?=---[ \t]*\n)", re.DOTALL)
_YAML_LINE = re.compile(
    r"[ \t]+\S|- |#(?!#|[ ][A-Z])|[\"']?[A-Za-z_][\w .-]{0,63}[\"']?[ \t]*:(?:[ \t]|$)", re.MULTILINE
)
_KNOWN_FIELD = re.compile(r"\n*(?:name|description|license|compatibility|allowed-tools|metadata)[ \t]*:")
_HEADING = re.compile(r"(?<!\n)\n\n++#{1,6} ")  # from the beginning of a run of line ends only (row 379)


def split_unusual(text: str) -> Split:
    """As ``split_frontmatter``, for every text. To accept another form, add it here with a finding of its own."""
    findings: list[Finding] = []
    start = 0
    if text.startswith("\ufeff"):
        start = 1
        findings.append(
            Finding("byte-order-mark", Severity.INFO, "The file starts with a byte order mark; save it without.", 1)
        )
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


# The strict reading of a SKILL.md: what skills-ref 0.1.1 reads, refuses and cuts, reproduced with PyYAML.
#
# It exists so that ``validate`` says what the reference says. Its quirks (SPEC.md 3) are kept on purpose; loading
# uses :mod:`adk_skills_agent.format.parser`.

StrictValue: TypeAlias = "str | None | list[StrictValue] | dict[str, StrictValue]"
"""strictyaml makes every scalar a string, null included; None stands for a plain ``=`` or ``<<``, which it does not."""

_DOCUMENT_ENDS = re.compile(r"^\.\.\.(?=\s|$)", re.MULTILINE)
_NOT_STRINGS = ("=", "<<")  # YAML 1.1's "value" and "merge" types, for which strictyaml has no constructor
# A line break for strictyaml, inside a value; from the beginning of a run of blanks only (row 379).
_FOLDED = re.compile("(?<![ \t])[ \t]*+(\ue085(?:[ \t]*+\ue085)*+)[ \t]*+")
_SEPARATORS = {"\x85": "\ue085", "\u2028": "\ue028", "\u2029": "\ue029"}
_HIDE = str.maketrans(_SEPARATORS)
_SHOW = str.maketrans({hidden: separator for separator, hidden in _SEPARATORS.items()})


def parse_strict(text: str) -> tuple[dict[str, StrictValue], str]:
    """The fields and body of a SKILL.md as skills-ref sees them.

    Returns:
        Fields and trimmed body. The file is split at the first two ``---``, wherever they are.

    Raises:
        ParseError: With the message of skills-ref; after ``Invalid YAML in frontmatter:`` the reason is ours.
    """
    if not text.startswith("---"):
        raise ParseError("SKILL.md must start with YAML frontmatter (---)")
    parts = text.split("---", 2)
    if len(parts) < 3:
        raise ParseError("SKILL.md frontmatter not properly closed with ---")
    try:
        value = _document(parts[1])
    except YamlProblem as problem:
        # The frontmatter starts on the line of its fence, so its first line is line 1 of the file.
        place = f" (line {problem.line + 1})" if problem.line is not None else ""
        raise ParseError(f"Invalid YAML in frontmatter: {problem.message}{place}") from problem
    if not isinstance(value, dict):
        raise ParseError("SKILL.md frontmatter must be a YAML mapping")
    own = value.get("metadata")
    if isinstance(own, dict):
        value["metadata"] = {key: item if isinstance(item, str) else str(item) for key, item in own.items()}
    return value, parts[2].strip()


def _document(text: str) -> StrictValue | None:
    if len(text) > MAX_HEAD_BYTES:
        raise YamlProblem("invalid-yaml", f"the frontmatter has {len(text)} characters, {MAX_HEAD_BYTES} are read")
    # These end a line in YAML 1.1, which PyYAML follows, and are ordinary characters in 1.2, which strictyaml follows.
    events = parse_events(text.translate(_HIDE), libyaml=False)
    if len(_DOCUMENT_ENDS.findall(text)) > 1:  # PyYAML passes over a second one
        raise YamlProblem("invalid-yaml", "only one `...` line is allowed")
    root: StrictValue | None = None
    documents = 0
    for event in events:
        kind = type(event).__name__
        if kind == "DocumentStartEvent":
            documents += 1
            if documents > 1:
                raise _refused("only one YAML document is allowed", event)
        elif kind not in ("StreamStartEvent", "StreamEndEvent", "DocumentEndEvent"):
            root = _value(event, events, 0)
    return root


def _value(event: Any, events: Iterator[Any], depth: int) -> StrictValue:
    if depth > MAX_DEPTH:
        raise _refused(f"nested more than {MAX_DEPTH} levels deep", event)
    kind = type(event).__name__
    if kind == "AliasEvent" or event.anchor is not None:
        raise _refused("anchors and aliases are not allowed; write the value out", event)
    if event.tag is not None:
        raise _refused("tags are not allowed; remove the one that starts with `!`", event)
    if kind == "ScalarEvent":
        return _scalar(event)
    if event.flow_style:
        raise _refused("lists and mappings in brackets are not allowed; use the block form or quotes", event)
    if kind == "SequenceStartEvent":
        items: list[StrictValue] = []
        while type(item := next(events)).__name__ != "SequenceEndEvent":
            items.append(_value(item, events, depth + 1))
        return items
    return _mapping(events, depth)


def _scalar(event: Any) -> str | None:
    text = str(event.value)
    if "\ue085" in text and event.style not in ("|", ">"):
        text = _FOLDED.sub(lambda match: "\n" * (match.group().count("\ue085") - 1) or " ", text)
    if event.style:
        return text.translate(_SHOW)
    return None if text in _NOT_STRINGS else text.translate(_SHOW).strip("".join(_SEPARATORS))


def _mapping(events: Iterator[Any], depth: int) -> dict[str, StrictValue]:
    result: dict[str, StrictValue] = {}
    column: int | None = None
    while type(event := next(events)).__name__ != "MappingEndEvent":
        key = _value(event, events, depth + 1)
        item = next(events)
        value = _value(item, events, depth + 1)
        if key is None and event.value == "<<":
            if not all(isinstance(source, dict) for source in (value if isinstance(value, list) else [value])):
                raise _refused("a `<<` key needs a mapping", item)
            continue  # skills-ref loses what it brings
        if key is None:
            key = str(event.value)  # "=", which is a string when it is a key
        if not isinstance(key, str):
            raise _refused("a key must be plain text", event)
        if key in result:
            raise _refused(f"duplicate key {key!r}", event)
        result[key] = value
        if type(item).__name__ == "MappingStartEvent":
            column = item.start_mark.column if column is None else column
            if item.start_mark.column != column:
                raise _refused("mappings of one level must be indented alike", item)
    return result


def _refused(message: str, event: Any) -> YamlProblem:
    return YamlProblem("invalid-yaml", message, event.start_mark.line)
