"""What a failing script says, made short enough for a model: the exception and its line, not the traceback (S0-59)."""

from __future__ import annotations

import re
from dataclasses import dataclass

_START = "Traceback (most recent call last):"
_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+)(?:, in (?P<name>.+))?$')
_GROUP = re.compile(r"^ {2}\+ Exception Group Traceback ", re.MULTILINE)
_GROUP_TEXT = re.compile(r"^ {2}\| (?P<text>\w*ExceptionGroup: [^\n]*)", re.MULTILINE)

_SHORTENED_CHARS = 1 << 18


@dataclass(frozen=True, slots=True)
class ScriptException:
    """The exception that ended a Python script."""

    text: str  # ``ValueError: bad value``; several lines when the message has them
    place: str = ""  # ``scripts/run.py, line 12, in main``, or "" when unknown
    source: str = ""  # the offending line of code, or ""

    def __str__(self) -> str:
        at = f" (at {self.place}: {self.source})" if self.source else f" (at {self.place})" if self.place else ""
        return f"{self.text}{at}"


def condense_tracebacks(stderr: str, *, skill_prefix: str = "/skill/") -> tuple[str, ScriptException | None]:
    """Replace each traceback in ``stderr`` by its exception and the place in the skill's own code.

    Returns the shortened text and the last exception in it, or None when there was none. Of a very long text only the
    end is shortened.
    """
    if len(stderr) > _SHORTENED_CHARS:
        begin = stderr.find("\n", len(stderr) - _SHORTENED_CHARS) + 1 or len(stderr)
        end, found = condense_tracebacks(stderr[begin:], skill_prefix=skill_prefix)
        return stderr[:begin] + end, found
    group = _GROUP.search(stderr)
    text = _GROUP_TEXT.search(stderr, group.end()) if group else None  # each search reads it once (row 313)
    if text is not None:
        return stderr, ScriptException(text["text"])  # the tree of a group says what a line could not
    if _START not in stderr and "SyntaxError" not in stderr and "IndentationError" not in stderr:
        return stderr, None
    lines = stderr.split("\n")
    out: list[str] = []
    last: ScriptException | None = None
    index = 0
    while index < len(lines):
        if not _is_traceback(lines, index) and not _is_syntax_error(lines, index):
            out.append(lines[index])
            index += 1
            continue
        last, index = _read_traceback(lines, index, skill_prefix)
        out.append(str(last))
    return "\n".join(out), last


def _is_traceback(lines: list[str], index: int) -> bool:
    """Python's own header is followed by a frame; a script that quotes the header is not condensed."""
    return lines[index] == _START and index + 1 < len(lines) and _FRAME.match(lines[index + 1]) is not None


def _is_syntax_error(lines: list[str], index: int) -> bool:
    """Python prints a syntax error of the script itself without the ``Traceback`` line."""
    if not _FRAME.match(lines[index]):
        return False
    return any(line.startswith(("SyntaxError", "IndentationError", "TabError")) for line in lines[index : index + 6])


def _read_traceback(lines: list[str], index: int, skill_prefix: str) -> tuple[ScriptException, int]:
    place = source = ""
    in_skill = False
    if lines[index].strip() == _START:
        index += 1
    while index < len(lines) and (lines[index].startswith("  ") or not lines[index].strip()):
        frame = _FRAME.match(lines[index])
        if frame and (frame["file"].startswith(skill_prefix) or not in_skill):
            # The innermost frame of the skill's own code says more than one deep inside a library.
            in_skill = in_skill or frame["file"].startswith(skill_prefix)
            where = f", in {frame['name']}" if frame["name"] and frame["name"] != "<module>" else ""
            place = f"{frame['file'].removeprefix(skill_prefix)}, line {frame['line']}{where}"
            following = lines[index + 1] if index + 1 < len(lines) else ""
            source = following.strip() if following.startswith("    ") else ""
        index += 1
    text: list[str] = []
    if index < len(lines):
        text.append(lines[index])
        index += 1
        while index < len(lines) and lines[index].startswith((" ", "\t")) and not _FRAME.match(lines[index]):
            text.append(lines[index])
            index += 1
    return ScriptException("\n".join(text).strip() or "an exception without a name", place, source), index


def shorten(text: str, limit: int | None) -> str:
    """Cut an error text at ``limit`` characters and mark the cut with ``...`` (S0-20); None keeps it whole."""
    text = text.strip()
    if limit is None or len(text) <= limit:
        return text
    return text[:limit] + "..."


# How a program ends what it says of its failure, and the line above that says what it was; the last that fits.
_ERROR_LINES = tuple(
    (re.compile(end), re.compile(line))
    for end, line in (
        (r"Node\.js v[\d.]+", r"(?:Uncaught )?(?:[A-Z]\w*)?(?:Error|Exception)\b"),
        (r"\d+: 0x[0-9a-f]+\b.*", r"FATAL ERROR: "),  # V8 when it aborts
        (r"Execution halted", r"Error(?: in .*)?:"),  # R
        (r"from \S+:\d+:in .*", r"\S+:\d+:in .* \([A-Z][\w:]*\)$"),  # Ruby
        (r"at [^\s(]+\(.*\)|\.\.\. \d+ more", r"Exception in thread "),  # Java
    )
)


def error_line(text: str) -> str:
    """The line of ``stderr`` that says most of why a program failed: the last one, or the error above a stack."""
    lines = [line.strip() for line in text.rstrip()[-_SHORTENED_CHARS:].splitlines() if line.strip()]
    if not lines:
        return ""
    pattern = next((pattern for end, pattern in _ERROR_LINES if end.fullmatch(lines[-1])), None)
    for number in reversed(range(len(lines) - 1 if pattern is not None else 0)):
        if pattern is not None and pattern.match(lines[number]):
            return f"{lines[number]} {lines[number + 1]}" if lines[number].endswith(":") else lines[number]
    return lines[-1]
