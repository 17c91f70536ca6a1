"""What nodes of bash's grammar say about texts: which names they have, and whether a command may be in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from adk_skills_agent.adk.shell.command_words import text_of, unquoted, word_of

if TYPE_CHECKING:
    from tree_sitter import Node

ARGUMENTS = "@"
"""For ``$1``, ``$2`` and so on among the names of variables."""
CODED = re.compile(r"\\[xuU0-7]")
_NUMBERS = re.compile(r"-?\d+|\{-?\d+\.\.-?\d+(?:\.\.-?\d+)?\}")
_COUNT = re.compile(r"(?:wc|nproc)(?: -[-\w]+)*")
_END_OF_DOCUMENT = re.compile(r"([\w.%+-]+)|'([\w.%+-]+)'|\"([\w.%+-]+)\"|\\([\w.%+-]+)")
_BETWEEN_WORDS = re.compile(rb"(?:[ \t]|\\\n)*")


def is_in_quotes(node: Node) -> bool:
    """Whether a quoted text stands in an expansion in double quotes, where bash takes its quotes for characters."""
    above = node.parent
    expanded = False
    while above is not None and above.type not in ("command_substitution", "process_substitution", "program"):
        if expanded and above.type in ("string", "translated_string", "heredoc_body"):
            return True
        expanded |= above.type == "expansion"
        above = above.parent
    return False


def below(node: Node, kind: str) -> Iterator[Node]:
    """The outermost nodes of a kind in a node."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if one.type == kind:
            yield one
        else:
            waiting += one.children


def names_in(node: Node) -> set[str]:
    """Each name that a text has: of variables in it, or what bash may take for one when it evaluates the text."""
    text = text_of(node)
    names = set(re.findall(r"[^\W\d]\w*", text))
    return names | {ARGUMENTS} if re.search(r"\$\{?[\d@*]", text) else names


def may_hold_a_command(value: Node, *, globs: bool) -> bool:
    """Whether a value may have a command in it, or a part of one: ``$``, a backquote, or what only the run knows."""
    waiting = [value]
    while waiting:
        node = waiting.pop()
        kind = node.type
        if kind == "command_substitution":
            if not is_count(node):
                return True
        elif kind not in ("arithmetic_expansion", "process_substitution"):
            if _is_part_of_a_command(node) or (globs and _is_name_of_files(node)):
                return True
            waiting += node.children
    return False


def _is_part_of_a_command(node: Node) -> bool:
    kind = node.type
    written = text_of(node)
    if kind in ("expansion", "simple_expansion"):
        return "@E}" in written or re.match(r"\$\{?(?:BASH_|PS\d|_\b)", written) is not None
    if kind == "ansi_c_string":
        return CODED.search(written) is not None
    if kind in ("word", "raw_string", "string_content"):
        return re.search(r"[$`]", unquoted(written) if kind == "word" else written) is not None
    return False


def _is_name_of_files(node: Node) -> bool:
    """Whether names of files, or characters between two others, come in the place of a word."""
    written = text_of(node)
    if node.type not in ("word", "concatenation") or _NUMBERS.fullmatch(written) or word_of(node).known:
        return False
    expanded = any(child.type in ("expansion", "simple_expansion") for child in node.children)
    return not expanded or re.search(r"[*?\[{]", re.sub(r"\$\{[^}]*\}", "", written)) is not None


def is_count(node: Node) -> bool:
    """Whether a substitution is a number for sure: what ``wc`` counts, or ``nproc``."""
    commands = [child for child in node.children if child.is_named]
    if len(commands) != 1:
        return False
    last = commands[0]
    if last.type == "pipeline":
        last = last.children[-1]
    if last.type == "redirected_statement":
        body = last.child_by_field_name("body")
        if body is None:
            return False
        last = body
    return last.type == "command" and _COUNT.fullmatch(text_of(last)) is not None


def unread(node: Node) -> str:
    """A here-document without the substitutions in it, which are read by themselves."""
    source = node.text or b""
    pieces = []
    position = node.start_byte
    for child in sorted(below(node, "command_substitution"), key=lambda one: one.start_byte):
        pieces.append(source[position - node.start_byte : child.start_byte - node.start_byte])
        position = child.end_byte
    pieces.append(source[position - node.start_byte :])
    return b"".join(pieces).decode("utf-8", "replace")


def is_quoted(body: Node) -> bool:
    """Whether the word that ends a here-document is in quotes, so that bash expands nothing in it."""
    above = body.parent
    starts = [child for child in above.children if child.type == "heredoc_start"] if above is not None else []
    return bool(starts) and all(re.search(r"[\\'\"]", text_of(start)) is not None for start in starts)


def is_together(node: Node) -> bool:
    """Whether between the parts of a command there is nothing but blanks and continued lines."""
    source = node.text or b""
    position = node.start_byte
    for child in node.children:
        between = source[position - node.start_byte : child.start_byte - node.start_byte]
        if _BETWEEN_WORDS.fullmatch(between) is None:
            return False
        position = child.end_byte
    return True


def ends_where_bash_ends_it(document: Node, source: bytes) -> bool:
    """Whether a here-document ends at the line that is its word; the grammar takes ``  EOF`` and ``EOF # x`` for it."""
    parts = {child.type: child for child in document.children}
    begin, end = parts.get("heredoc_start"), parts.get("heredoc_end")
    word = _END_OF_DOCUMENT.fullmatch(text_of(begin)) if begin is not None else None
    if begin is None or end is None or word is None:
        return False
    tabs = b"\t" if "<<-" in parts else b""
    first = source.find(b"\n", begin.end_byte) + 1
    lines = source[first:].split(b"\n")
    place = source.count(b"\n", first, end.start_byte)
    ends = [line.lstrip(tabs) == word[word.lastindex or 0].encode() for line in lines[: place + 1]]
    return first > 0 and ends.index(True) == place if any(ends) else False
