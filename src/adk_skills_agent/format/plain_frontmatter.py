"""The shortest way through a frontmatter: most real ones need no YAML parser to be read exactly as one would.

Reading thousands of skills for the first time is mostly the YAML parser's time. What is recognised here is a part of
YAML in which nothing can be meant in two ways: ``key: value`` lines, the value in quotes without escapes or starting
with a letter or digit and without ``:`` and ``#``, and one level of such lines, two spaces in, below a key without a
value. Everything else is left to the parser, errors included.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adk_skills_agent.format.models import YamlValue

_MAX_LINES = 100  # far below the bounds of the parser, which counts its values
_NULLS = frozenset({"null", "Null", "NULL"})  # the other spellings do not start with a letter or digit

# What every YAML parser takes as it is: neither control characters nor the line ends that only Unicode knows.
_CHARACTERS = r" !$-9;-\[\]-~\u00a1-\u2027\u202a-\ud7ff"  # without " # : and \
_LINE = re.compile(
    rf"""(\ \ )?
    ([A-Za-z][A-Za-z0-9_-]{{0,99}}):
    (?:\ +(?:
        "([{_CHARACTERS}\#:]*)"
      | '((?:(?!')[{_CHARACTERS}\#:"\\])*)'
      | ([A-Za-z0-9][{_CHARACTERS}"\\]*+)  # possessive, else a line of spaces takes quadratic time
    ))?
    \ *""",
    re.VERBOSE,
)


def plain_fields(text: str) -> tuple[dict[str, YamlValue], dict[str, int]] | None:
    """The fields of a frontmatter in plain form.

    Args:
        text: The text between the fences.

    Returns:
        Field name to value, and to the 0-based line; None when a YAML parser must look at it.
    """
    values: dict[str, YamlValue] = {}
    lines: dict[str, int] = {}
    inner: dict[str, YamlValue] | None = None  # of the key above, while it has no value of its own
    match_line = _LINE.fullmatch
    rows = text.removesuffix("\n").split("\n")
    if len(rows) > _MAX_LINES:
        return None
    for number, row in enumerate(rows):
        match = match_line(row)
        if match is None:
            return None
        indent, key, double_quoted, single_quoted, plain = match.groups()
        value: str | None = plain
        if plain is not None:
            value = plain.rstrip(" ")
            if value in _NULLS:
                return None
        else:
            value = double_quoted if double_quoted is not None else single_quoted
        if indent:
            if inner is None or value is None or key in inner:
                return None
            inner[key] = value
            continue
        if inner is not None and not inner:
            return None  # the key above has no value at all
        if key in values:
            return None
        inner = None
        if value is None:
            inner = {}
            values[key] = inner
        else:
            values[key] = value
        lines[key] = number
    if inner is not None and not inner:
        return None
    return values, lines
