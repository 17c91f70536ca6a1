"""One line for each script of a skill: how it is called, from its own first lines. Nothing is run."""

from __future__ import annotations

import re

HEAD_BYTES = 8_192
"""Of each script; the docstring and the argparse calls of nearly all real ones begin here."""
USAGE_CHARS = 140

_DOCSTRING = re.compile(r"\A(?:\ufeff|#[^\n]*\n|[ \t]*\n)*[rRuU]?(?:\"\"\"|''')\s*([^\n]*?)\s*(?:\"\"\"|'''|\n|\Z)")
_COMMENT = re.compile(r"^(?:#(?!!)|//|--|;)+[ \t]*(.*)$", re.MULTILINE)
_USAGE = re.compile(r"^\W{0,4}usage\s*:\s*(\S.*)$", re.IGNORECASE | re.MULTILINE)
_ARGUMENT = re.compile(r"""\.add_argument\(\s*(?:["']-\w["']\s*,\s*)?["']([-\w]+)["']""")
_ARGUMENT_CHARS = 300
"""Of the call, in which its other arguments are looked for."""


def usage_line(path: str, head: bytes) -> str:
    """How a script is called, or what it says it does; empty when it says nothing.

    Args:
        path: The script's path.
        head: Its first :data:`HEAD_BYTES` bytes.
    """
    text = head.decode("utf-8", "ignore")
    if "\0" in text:
        return ""
    told = _USAGE.search(text[:HEAD_BYTES])
    if told is not None:
        return _short(told.group(1))
    about = _about(path, text)
    arguments = _arguments(text)
    return _short(" — ".join(part for part in (arguments, about) if part))


def _about(path: str, text: str) -> str:
    if path.endswith((".py", ".pyw")):
        found = _DOCSTRING.match(text)
        return found.group(1) if found else ""
    first_lines = "\n".join(text.split("\n", 4)[:4])
    for comment in _COMMENT.finditer(first_lines):
        words = comment.group(1).strip()
        if len(words) > 8 and " " in words and not words.startswith(("-*-", "shellcheck", "eslint")):
            return words
    return ""


def _arguments(text: str) -> str:
    """What argparse is told, in the form of a usage line."""
    shown = []
    for found in _ARGUMENT.finditer(text):
        name = found.group(1)
        rest = text[found.end() : found.end() + _ARGUMENT_CHARS].partition("add_argument")[0]
        if name.startswith("-"):
            flag = "store_true" in rest or "store_false" in rest
            written = name if flag else f"{name} {name.lstrip('-').upper().replace('-', '_')}"
            shown.append(written if "required=True" in rest else f"[{written}]")
        else:
            shown.append(f"[{name}]" if re.search(r"nargs=[\"'][?*]", rest) else name)
    return " ".join(shown)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= USAGE_CHARS else line[: USAGE_CHARS - 1].rstrip() + "…"
