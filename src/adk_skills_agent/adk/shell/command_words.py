"""A word of bash's tree as the text that bash makes of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tree_sitter import Node

ANY = "\ue000"  # in a text: whatever the run makes of it, several words or none
SPACE = "\ue001"  # in a text: a space inside one word
LINE_END = "\ue002"  # in a text: the end of a line inside one word
TAB = "\ue003"  # in a text: a tab inside one word
INSIDE = str.maketrans({" ": SPACE, "\n": LINE_END, "\t": TAB})
AS_LINE = str.maketrans({SPACE: " ", LINE_END: "\n", TAB: "\t"})
AS_BLANKS = str.maketrans({SPACE: " ", LINE_END: " ", TAB: " "})


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command."""

    text: str  # what the shell makes of it; :data:`ANY` stands for what is not known before the run
    single: bool = False  # whether it is one word for sure, because it is in quotes

    @property
    def known(self) -> bool:
        """Whether the run decides nothing of it."""
        return ANY not in self.text


def text_of(node: Node) -> str:
    """A part of the line as it is typed."""
    return (node.text or b"").decode("utf-8", "replace")


def word_of(node: Node) -> Word:
    """A word of the tree."""
    return Word("".join(_pieces(node)), single=node.type in ("string", "raw_string", "translated_string"))


def _pieces(node: Node) -> Iterator[str]:
    """The value of a word, piece by piece."""
    kind = node.type
    if kind in ("word", "number", "test_operator", "regex", "variable_name", "special_variable_name"):
        yield unquoted(text_of(node))
    elif kind == "raw_string":
        yield text_of(node)[1:-1].translate(INSIDE)
    elif kind == "ansi_c_string":
        inner = text_of(node)[2:-1]
        yield ANY if "\\" in inner else inner.translate(INSIDE)
    elif kind in ("string", "translated_string"):
        yield _quoted(node)
    elif kind == "concatenation":
        yield _concatenated(node)
    elif kind == "variable_assignment":  # of export and its kin
        name = node.child_by_field_name("name")
        yield f"{text_of(name) if name is not None else ''}={ANY}"
    else:
        yield ANY


def _concatenated(node: Node) -> str:
    text = "".join("".join(_pieces(child)) for child in node.children)
    written = text_of(node)
    if written == "{}":
        return text
    # Braces and brackets come as words of their own, so that they are looked for in the whole.
    return ANY if _expands(written) else text


def _expands(written: str) -> bool:
    """Whether a word has ``{a,b}``, ``{1..3}`` or ``[ab]``, without quotes of its own parts being looked at."""
    plain = written.replace("\\{", "")
    opened = plain.find("{")
    in_braces = opened >= 0 and ("," in plain[opened:] or ".." in plain[opened:]) and "}" in plain[opened:]
    bracket = plain.find("[")
    return in_braces or (bracket >= 0 and "]" in plain[bracket:])


def unquoted(text: str) -> str:
    """A word without quotes: backslashes go, wildcards may become anything."""
    pieces = []
    for found in re.finditer(r"\\(.)|(.)", text, re.DOTALL):
        escaped, plain = found[1], found[2]
        if escaped is not None:
            pieces.append("" if escaped == "\n" else escaped.translate(INSIDE))
        else:
            pieces.append(ANY if (plain in "*?[" and len(text) > 1) or plain in "*?" else plain)
    return "".join(pieces)


def _quoted(node: Any) -> str:
    """A word in double quotes; what is expanded in it may be anything."""
    pieces = []
    position = node.start_byte
    source = node.text or b""
    for child in node.children:
        between = source[position - node.start_byte : child.start_byte - node.start_byte]
        pieces.append(between.decode("utf-8", "replace"))  # white space that the grammar leaves out
        position = child.end_byte
        if child.type in ('"', '$"', "$"):
            continue
        if child.type == "string_content":
            pieces.append(re.sub(r'\\([$`"\\\n])', lambda found: found[1].replace("\n", ""), text_of(child)))
        else:
            pieces.append(ANY)
    return "".join(pieces).translate(INSIDE)
