"""What a file of a skill is: text, something a model can look at, or something only a script can use."""

from __future__ import annotations

import codecs
import mimetypes
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adk_skills_agent.adk.known_skill import KnownSkill

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
    """A file that was read.

    Attributes:
        path: Relative to the skill.
        size: Of the whole file, in bytes.
        mime_type: Its type, from its name or its first bytes.
        data: Its first bytes, :data:`MAX_TEXT_BYTES` at most.
        text: The same as text; None when it is none.
    """

    path: str
    size: int
    mime_type: str
    data: bytes
    text: str | None


def read_content(skill: KnownSkill, path: str) -> FileContent:
    """Read a file. May block.

    Raises:
        SkillsError: As :meth:`KnownSkill.read_bytes`.
    """
    data = skill.read_bytes(path, MAX_TEXT_BYTES)
    size = len(data) if len(data) < MAX_TEXT_BYTES else skill.size(path)
    mime_type = mime_type_of(path, data)
    # The name decides first: a PDF is none of the model's text, even when its bytes are all letters.
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
    """The text in some bytes: UTF-8, UTF-16 with its mark, or an old single-byte encoding; None when it is none."""
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
