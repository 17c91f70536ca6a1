"""What a failing script says, made short enough for a model: the exception and its line, not the traceback (S0-59)."""

from __future__ import annotations

import re
from dataclasses import dataclass

_START = "Traceback (most recent call last):"
_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+)(?:, in (?P<name>.+))?$')
_GROUP = re.compile(
    r"^ {2}\+ Exception Group Traceback .*?^ {2}\| (?P<text>\w*ExceptionGroup: [^\n]*)", re.MULTILINE | re.DOTALL
)

# The library of an interpreter, wherever it is installed; never a folder of the skill itself.
# No character that may stand before a path may stand in it, so that a long text is read once.
_LIBRARY = re.compile(r"""(?<![^\s"'(\[=:,])/(?!skill/|/)(?:[^\s"'=:;,()[<>]+/)?lib(?:64)?/python3[.\d]*t?/""")


@dataclass(frozen=True, slots=True)
class ScriptException:
    """The exception that ended a Python script.

    Attributes:
        text: ``ValueError: bad value``; several lines when the message has them.
        place: ``scripts/run.py, line 12, in main``, or "" when unknown.
        source: The offending line of code, or "".
    """

    text: str
    place: str = ""
    source: str = ""

    def __str__(self) -> str:
        at = f" (at {self.place}: {self.source})" if self.source else f" (at {self.place})" if self.place else ""
        return f"{self.text}{at}"


def condense_tracebacks(stderr: str, *, skill_prefix: str = "/skill/") -> tuple[str, ScriptException | None]:
    """Replace each traceback in ``stderr`` by its exception and the place in the skill's own code.

    Returns:
        The shortened text and the last exception in it, or None when there was none.
    """
    group = _GROUP.search(stderr)
    if group is not None:
        return stderr, ScriptException(group["text"])  # the tree of a group says what a line could not
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


def hide_interpreter(text: str) -> str:
    """Paths in a Python's library, as ``<python>/socket.py``: where the host has it is not for a model."""
    return _LIBRARY.sub("<python>/", text)


def shorten(text: str, limit: int | None) -> str:
    """Cut an error text at ``limit`` characters and mark the cut with ``...`` (S0-20); None keeps it whole."""
    text = text.strip()
    if limit is None or len(text) <= limit:
        return text
    return text[:limit] + "..."
