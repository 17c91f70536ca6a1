"""What a file of a skill is: text, something a model can look at, or something only a script can use."""

from __future__ import annotations

import codecs
import mimetypes
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adk_skills_agent.adk.skills.known import KnownSkill


MAX_TEXT_BYTES = 4 << 20
"""Largest file that is read as text; a script can read anything."""
_FOR_A_MODEL = ("image/", "audio/", "video/")
_TEXT_PICTURES = frozenset({"image/svg+xml"})
_MAGIC = (
    (b"%PDF-", "application/pdf"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)
_UNKNOWN = "application/octet-stream"
_BYTE_ORDER_MARKS = ((codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


@dataclass(frozen=True, slots=True)
class FileContent:
    """A file that was read."""

    path: str  # relative to the skill
    size: int  # of the whole file, in bytes
    mime_type: str  # its type, from its name or its first bytes
    data: bytes  # its first bytes, :data:`MAX_TEXT_BYTES` at most
    text: str | None  # the same as text; None if the content is not text


def read_content(skill: KnownSkill, path: str) -> FileContent:
    """Read a file. May block. Raises ``SkillsError`` as :meth:`KnownSkill.read_bytes` does."""
    data = skill.read_bytes(path, MAX_TEXT_BYTES)
    size = len(data) if len(data) < MAX_TEXT_BYTES else skill.size(path)
    mime_type = mime_type_of(path, data)
    # The name decides first: a PDF is not text for the model, even when its bytes are all letters.
    text = None if is_for_a_model(mime_type) else as_text(data)
    return FileContent(path, size, mime_type, data, text)


def mime_type_of(path: str, data: bytes) -> str:
    """The type of a file, by its name, else by its first bytes."""
    named = mimetypes.guess_type(path)[0]
    if named is not None:
        return named
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((found for start, found in _MAGIC if data.startswith(start)), _UNKNOWN)


def is_for_a_model(mime_type: str) -> bool:
    """Whether a model can look at or listen to it."""
    return mime_type == "application/pdf" or (
        mime_type.startswith(_FOR_A_MODEL) and mime_type not in _TEXT_PICTURES and mime_type != "video/mp2t"
    )


def as_text(data: bytes) -> str | None:
    """The text in some bytes: UTF-8, UTF-16 with its mark, or an old single-byte encoding; None for other bytes."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # A multi-byte character cut by the size bound is no reason to call the file binary.
        if len(data) == MAX_TEXT_BYTES and error.start >= len(data) - 4:
            return data[: error.start].decode("utf-8-sig")
    return data.decode("latin-1") if _mostly_printable(data) else None


def _mostly_printable(data: bytes) -> bool:
    """Old single-byte encodings are text too; binary formats are full of control bytes."""
    sample = data[:4096]
    control = sum(byte < 9 or 13 < byte < 32 for byte in sample)
    return control * 100 <= len(sample)


# One line for each script of a skill: how it is called, from its own first lines. Nothing is run.

HEAD_BYTES = 8_192
"""Of each script; the docstring and the argparse calls of nearly all real ones begin here."""
USAGE_CHARS = 140

_DOCSTRING = re.compile(r"\A(?:\ufeff|#[^\n]*\n|[ \t]*\n)*[rRuU]?(?:\"\"\"|''')\s*+([^\n]*?)(?:\"\"\"|'''|\n|\Z)")
_COMMENT = re.compile(r"^(?:#(?!!)|//|--|;)+[ \t]*(.*)$", re.MULTILINE)
_USAGE = re.compile(r"^\W{0,4}usage\s*:\s*(\S.*)$", re.IGNORECASE | re.MULTILINE)
_ARGUMENT = re.compile(r"""\.add_argument\(\s*(?:["']-\w["']\s*,\s*)?["']([-\w]+)["']""")
_ARGUMENT_CHARS = 300
"""Of the call, in which its other arguments are looked for."""


def usage_line(path: str, head: bytes) -> str:
    """How a script is called, or what it says it does; empty when it says nothing."""
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
    """The usage line of an argparse parser, read from its calls."""
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
