"""Repairs of frontmatter that is not YAML (C14), applied to its text. To add one: write a function, name it in REPAIRS.

A repair gets the text between the fences and returns it changed, or None when it has nothing to change. It keeps the
number of lines, so that line numbers stay true. Repairs are only tried on text that YAML refuses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from adk_skills_agent.format.frontmatter import Finding
from adk_skills_agent.format.models import Severity, YamlValue
from adk_skills_agent.format.yaml_fields import YamlProblem, load_fields, plain_values

_ENTRY = re.compile(
    r"^(?P<head>[ ]*+(?:-[ ]++)?+(?:[A-Za-z_][\w .-]{0,63}+|\"[^\"\n]+\"|'[^'\n]+')[ ]*+:)"
    r"(?P<gap>[ ]++)(?P<value>\S.*)$"
)
_KEY = r"[ ]*+(?:-[ ]++)?+[\w.-]++(?:[ ][\w.-]++)*+[ ]*+"  # possessive, else a line of spaces takes quadratic time
_KNOWN = r"(?:name|description|license|compatibility|allowed-tools|metadata)"
_FIELD = re.compile(r"[A-Za-z_][\w-]{0,63}[ ]*:(?:[ ]|$)")
_BLOCK_HEADER = re.compile(r"[|>][-+0-9]{0,2}[ ]*(?:#.*)?$")
_DOUBLE_QUOTED = re.compile(
    r'"(?:[^"\\]|\\(?:[0abtnvfre "/\\N_LP\n]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}))*"[ ]*(?:[ ]#.*)?$'
)
_SINGLE_QUOTED = re.compile(r"'(?:[^']|'')*'[ ]*(?:[ ]#.*)?$")
_ODD_SPACES = str.maketrans(
    dict.fromkeys("\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " ")
)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x84\x86-\x9f\ufeff\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class TextRepair:
    """One way frontmatter is broken in practice, and its cure."""

    code: str  # diagnostic code
    message: str  # what was wrong and what to write instead
    apply: Callable[[str], str | None]  # text in, changed text or None out


def remove_control_characters(text: str) -> str | None:
    """Characters YAML forbids, from a copy out of a terminal or a PDF."""
    return _changed(text, _CONTROL.sub("", text))


def replace_line_separators(text: str) -> str | None:
    """Unicode line ends, from a copy out of a word processor; YAML 1.1 takes each for a new line."""
    return _changed(text, re.sub("[\x85\u2028\u2029]", " ", text))


def replace_tabs(text: str) -> str | None:
    """Tabs as indentation, or between a key and its value."""
    indented = re.sub(r"^[ \t]*+", lambda match: match.group().replace("\t", "  "), text, flags=re.MULTILINE)
    return _changed(text, re.sub(rf"^({_KEY}:)[ ]*+\t[ \t]*+", r"\1 ", indented, flags=re.MULTILINE))


def replace_odd_spaces(text: str) -> str | None:
    """No-break and other typographic spaces where YAML wants a space: at a line's start and after the key's colon."""

    def plain(match: re.Match[str]) -> str:
        return match.group().translate(_ODD_SPACES)

    return _changed(text, re.sub(rf"^[^\S\n]*+(?:{_KEY}:[^\S\n]++)?+", plain, text, flags=re.MULTILINE))


def add_missing_space(text: str) -> str | None:
    """``name:value`` for a field of the specification."""
    return _changed(text, re.sub(rf"^({_KNOWN}):(?=[^\s:/])", r"\1: ", text, flags=re.MULTILINE))


def dedent_fields(text: str) -> str | None:
    """A field of the specification indented by one to three spaces more than the first line."""
    first = re.search(r"^([ ]*)[^\s#]", text, flags=re.MULTILINE)
    margin = first.group(1) if first else ""
    return _changed(text, re.sub(rf"^{margin}[ ]{{1,3}}(?={_KNOWN}[ ]*:)", margin, text, flags=re.MULTILINE))


def indent_continuations(text: str) -> str | None:
    """Lines that go on with a value but start in the first column, after ``|`` or ``>`` most often."""
    lines = text.split("\n")
    inside = False
    for number, line in enumerate(lines):
        if _FIELD.match(line):
            inside = True
        elif inside and line[:1].isalnum():
            lines[number] = "  " + line
    return _changed(text, "\n".join(lines))


def quote_colons(text: str) -> str | None:
    """A plain value with ``: `` inside, the most common fault of all."""

    def needs(value: str) -> bool:
        return value[0] not in "\"'|>[{&*!%@`" and bool(re.search(r":(?:\s|$)", value, re.MULTILINE))

    return _quote(text, needs)


def quote_special_starts(text: str) -> str | None:
    """A plain value that starts with a character YAML reserves: ``@user``, ``*bold*``, ``[draft] text``, ``%``."""

    def needs(value: str) -> bool:
        if value[0] in "[{":
            return not value.rstrip().endswith("]" if value[0] == "[" else "}")
        if value[0] in "|>":
            return _BLOCK_HEADER.match(value.split("\n", 1)[0]) is None
        return value[0] in "@`%*&!" or value.startswith(("- ", "? ", ": ", ", "))

    return _quote(text, needs)


def requote(text: str) -> str | None:
    """A quoted value that ends too early (``"a" and "b"``), never ends, or has an escape YAML does not know."""

    def needs(value: str) -> bool:
        if value[0] == '"':
            return _DOUBLE_QUOTED.match(value) is None
        return value[0] == "'" and _SINGLE_QUOTED.match(value) is None

    return _quote(text, needs)


REPAIRS: tuple[TextRepair, ...] = (
    TextRepair(
        "control-characters",
        "Characters that YAML forbids were left out of the frontmatter.",
        remove_control_characters,
    ),
    TextRepair("line-separators", "Unicode line separators were read as spaces.", replace_line_separators),
    TextRepair("tab-indentation", "Tabs were read as spaces; YAML allows only spaces there.", replace_tabs),
    TextRepair("odd-spaces", "No-break or other special spaces were read as spaces.", replace_odd_spaces),
    TextRepair("missing-space", "A field has no space after its colon; write `name: value`.", add_missing_space),
    TextRepair(
        "uneven-indentation",
        "A field is indented differently from the first; start every field in the same column.",
        dedent_fields,
    ),
    TextRepair(
        "unindented-continuation",
        "Lines that continue a value start in the first column; indent them.",
        indent_continuations,
    ),
    TextRepair("unquoted-colon", "A value has `: ` in it; put the value in quotes.", quote_colons),
    TextRepair(
        "unquoted-value",
        "A value starts with a character YAML reserves; put the value in quotes.",
        quote_special_starts,
    ),
    TextRepair(
        "broken-quotes", "A quoted value does not end where its quotes do; double or remove the inner quotes.", requote
    ),
)
"""Every text repair, in the order in which they are tried: each alone, then one after the other."""


def repaired_texts(text: str) -> Iterator[tuple[str, tuple[tuple[TextRepair, int], ...]]]:
    """Candidates to try, cheapest change first.

    Yields:
        A changed text, and the repairs that changed it, each with the 0-based line of its first change.
    """
    for repair in REPAIRS:
        changed = repair.apply(text)
        if changed is not None:
            yield changed, ((repair, _first_change(text, changed)),)
    applied: list[tuple[TextRepair, int]] = []
    current = text
    for repair in REPAIRS:
        changed = repair.apply(current)
        if changed is not None:
            applied.append((repair, _first_change(current, changed)))
            current = changed
            if len(applied) > 1:
                yield current, tuple(applied)


def salvage_fields(text: str) -> tuple[dict[str, YamlValue], dict[str, int], list[int]]:
    """The fields that can still be read, line by line, from text that no repair turned into YAML.

    Returns field name to value (lines indented below a field belong to it), field name to 0-based line, and the 0-based
    lines that belong to no field.
    """
    dropped: list[int] = []
    parts: dict[str, list[str]] = {}
    lines: dict[str, int] = {}
    current: str | None = None
    for number, line in enumerate(text.split("\n")):
        match = re.match(r"(?:- )?([A-Za-z_][\w-]{0,63})[ \t]*:[ \t]*(.*)$", line)
        if match:
            current = match.group(1)
            lines[current] = number
            first = match.group(2).strip()
            parts[current] = [] if _BLOCK_HEADER.match(first) else [first]
        elif current is not None and (line[:1].isalnum() or line[:1] in (" ", "\t")) and line.strip():
            parts[current].append(line.strip())
        elif line.strip() and not line.startswith("#"):
            dropped.append(number)
    values: dict[str, YamlValue] = {key: _without_quotes(" ".join(part)) for key, part in parts.items()}
    return values, lines, dropped


def _quote(text: str, needs: Callable[[str], bool]) -> str | None:
    """Put the values that need it in single quotes, with the lines that continue them."""
    lines = text.split("\n")
    changed = False
    index = 0
    while index < len(lines):
        match = _ENTRY.match(lines[index])
        if match is None:
            index += 1
            continue
        stop = _end_of_value(lines, index, len(match["head"]) - len(match["head"].lstrip(" -")))
        if _BLOCK_HEADER.match(match["value"]):
            index = stop  # a block scalar: its lines are text, whatever they look like
            continue
        value = "\n".join([match["value"], *lines[index + 1 : stop]]).rstrip()
        if needs(value):
            quoted = "'" + _without_quotes(value).replace("'", "''") + "'"
            new = (match["head"] + match["gap"] + quoted).split("\n")
            lines[index:stop] = new + [""] * (stop - index - len(new))
            changed = True
        index = stop
    return "\n".join(lines) if changed else None


def _end_of_value(lines: list[str], start: int, indent: int) -> int:
    """Index after the lines indented deeper than the key at ``start``: they continue its value."""
    stop = start + 1
    for index in range(start + 1, len(lines)):
        line = lines[index]
        if not line.strip():
            continue
        if len(line) - len(line.lstrip(" ")) <= indent:
            break
        stop = index + 1
    return stop


def _without_quotes(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value[1:] if value[:1] in ('"', "'") and value.count(value[0]) == 1 else value


def _changed(old: str, new: str) -> str | None:
    return new if new != old else None


def _first_change(old: str, new: str) -> int:
    for number, (before, after) in enumerate(zip(old.split("\n"), new.split("\n"), strict=False)):
        if before != after:
            return number
    return 0


# Frontmatter that is YAML, but that others read differently or its author probably meant differently.
#
# To add a check: write a function, name it in TEXT_CHECKS. They run for every skill, so each begins with a quick
# test.

_COMMENT = re.compile(r"^[ \t]*+[^\s#][^\n]*?[ \t]#", re.MULTILINE)  # or a ` #` in quotes: the YAML parser knows
_REST_IS_COMMENT = re.compile(r"[ \t]+#")
_PROSE = frozenset({"description", "compatibility"})


def fence_inside_value(text: str) -> Finding | None:
    """``---`` somewhere in a line, where skills-ref and google-adk end the frontmatter (L1, 14b)."""
    if "---" not in text:
        return None
    line = text.count("\n", 0, text.index("---"))
    message = "`---` inside the frontmatter is text here; skills-ref and google-adk cut the frontmatter there."
    return Finding("fence-inside-value", Severity.INFO, message, line)


def comment_in_prose(text: str) -> Finding | None:
    """`` #`` in a plain description or compatibility, which YAML takes for the start of a comment."""
    if "#" not in text or _COMMENT.search(text) is None:
        return None
    cut: list[str] = []
    line = 0
    try:
        for key, end in plain_values(text):
            if key.strip().lower() in _PROSE and _REST_IS_COMMENT.match(text, end):
                line = line or text.count("\n", 0, end)
                cut.append(key.strip().lower())
    except YamlProblem:  # salvaged line by line, comments and all
        return None
    if not cut:
        return None
    fields = " and the ".join(dict.fromkeys(cut))
    message = f"What follows ` #` in the {fields} is a comment in YAML and was not read; put the value in quotes."
    return Finding("comment-in-value", Severity.WARNING, message, line)


def tabs(text: str) -> Finding | None:
    """Tabs that libyaml reads as spaces and other parsers, skills-ref's among them, refuse."""
    if "\t" not in text:
        return None
    try:
        load_fields(text, libyaml=False)
    except YamlProblem as problem:
        return Finding(
            "tab-indentation", Severity.INFO, "A tab where YAML wants spaces; not every parser reads it.", problem.line
        )
    return None


TEXT_CHECKS: tuple[Callable[[str], Finding | None], ...] = (fence_inside_value, comment_in_prose, tabs)
"""Every check, in the order in which they run. The lines of their findings are 0-based in the text."""
