"""Reading a SKILL.md from disk: bounded, never blocking, and always giving text."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from adk_skills_agent.errors import ParseError
from adk_skills_agent.format.models import Diagnostic, Severity

MAX_SKILL_BYTES = 4 << 20
"""Largest SKILL.md that is read, in bytes; a body of this size is far beyond any model's context."""
MAX_HEAD_BYTES = 64 << 10
"""The closing fence must come within so many bytes; the largest real frontmatter seen has 4 KB."""
_CHUNK = 4096  # one page; nearly every real frontmatter ends within it
_FLAGS = os.O_RDONLY
for _flag in ("O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "O_BINARY"):  # not every platform has each
    _FLAGS |= getattr(os, _flag, 0)
# Atomic and possessive: "\r\n" must have one reading, else many blank lines without a fence have 2**n.
_EOL = rb"(?>\r\n|\n|\r)"
_OPENING = re.compile(rb"(?:\xef\xbb\xbf)?(?:[ \t]*+" + _EOL + rb")*+[ \t]*+---[ \t]*+" + _EOL)
_CLOSING = re.compile(_EOL + rb"---[ \t]*(?:\r\n|\n|\r(?=.))", re.DOTALL)
_CLOSING_AT_END = re.compile(_EOL + rb"---[ \t]*(?:\r\n|\n|\r|\Z)")
Opener: TypeAlias = Callable[[Path, int], int]
"""Path and flags to a file descriptor, as ``os.open``; one that follows no links gives protection against races."""
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


@dataclass(frozen=True, slots=True)
class SkillFileText:
    r"""The text of a SKILL.md, or of its head.

    Attributes:
        text: Decoded, with every line end as ``\n``. A byte order mark is kept as U+FEFF.
        size: Size of the whole file, in bytes.
        complete: Whether ``text`` is the whole file.
        closed: Whether ``text`` is a head that ends with its closing fence.
        diagnostics: What had to be repaired to get text (``invalid-utf8``, ``utf-16``, ``nul-bytes``).
    """

    text: str
    size: int
    complete: bool
    diagnostics: tuple[Diagnostic, ...] = ()
    closed: bool = False


def read_head(path: Path, opener: Opener = os.open) -> SkillFileText:
    """Read a SKILL.md up to and including its closing fence.

    Returns the head, cut after the closing fence; without a closing fence in the first 64 KiB, what was read so far.
    Raises ``ParseError`` when not a regular file, not readable, or larger than ``MAX_SKILL_BYTES``.
    """
    fd, size = _open(path, opener)
    try:
        data = os.read(fd, _CHUNK)
        ended = not data
        while not (end := _end_of_head(data, ended)) and not ended and len(data) < MAX_HEAD_BYTES:
            chunk = os.read(fd, _CHUNK)
            ended = not chunk
            data += chunk
    except OSError as error:
        raise _unreadable(path, error) from error
    finally:
        os.close(fd)
    kept = data[:end] if end > 0 else data
    return _text(path, kept, size, complete=ended or (len(kept) >= size > 0), closed=end > 0)


def read_text(path: Path, opener: Opener = os.open) -> SkillFileText:
    """Read a whole SKILL.md.

    Returns its text, ``complete``. Raises ``ParseError`` when not a regular file, not readable, or larger than
    ``MAX_SKILL_BYTES``.
    """
    fd, size = _open(path, opener)
    try:
        chunks = []
        left = MAX_SKILL_BYTES + 1
        while left > 0:
            chunk = os.read(fd, min(left, 1 << 20))
            if not chunk:
                break
            chunks.append(chunk)
            left -= len(chunk)
    except OSError as error:
        raise _unreadable(path, error) from error
    finally:
        os.close(fd)
    data = b"".join(chunks)
    if len(data) > MAX_SKILL_BYTES:
        raise _too_big(path, len(data))
    return _text(path, data, size, complete=True)


def decoded(data: bytes) -> str:
    """The text of a SKILL.md's bytes, as :func:`read_text` reads it: who looks at a skill sees what an agent will."""
    return _text(Path("SKILL.md"), data, len(data), complete=True).text


def _open(path: Path, opener: Opener) -> tuple[int, int]:
    # Without O_NONBLOCK a named pipe called SKILL.md would hang the whole discovery.
    try:
        fd = opener(path, _FLAGS)
    except OSError as error:
        raise _unreadable(path, error) from error
    except ValueError as error:  # a NUL character in the path
        raise ParseError(f"{str(path)!r} is not a path: {error}.") from error
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            kind = next((name for test, name in _KINDS if test(info.st_mode)), "not a regular file")
            raise ParseError(f"{path} is {kind}; SKILL.md must be a regular file.")
        if info.st_size > MAX_SKILL_BYTES:
            raise _too_big(path, info.st_size)
    except BaseException:
        os.close(fd)
        raise
    return fd, info.st_size


def _end_of_head(data: bytes, ended: bool) -> int:
    """Index just after the closing fence line, 0 when more must be read, -1 when there is no head to find."""
    if data.startswith(b"---\n"):  # how nearly every file begins; the rest of this function is for the others
        end = data.find(b"\n---\n", 3)
        if end > 0 and data.find(b"\r", 0, end) < 0:
            return end + 5
    opening = _OPENING.match(data)
    if opening is None:
        return -1 if data.strip() else 0
    closing = (_CLOSING_AT_END if ended else _CLOSING).search(data, opening.end() - 1)
    return closing.end() if closing else 0


def clean_text(text: str, file: str | None) -> tuple[str, list[Diagnostic]]:
    r"""Text as the rest of this layer wants it: ``\n`` line ends, no NUL, nothing that cannot be encoded.

    Returns the text, and what was changed besides line ends.
    """
    diagnostics: list[Diagnostic] = []
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        text = text.replace("\0", "")
        message = "The file contains NUL bytes; they were left out. Save it as plain UTF-8 text."
        diagnostics.append(Diagnostic("nul-bytes", Severity.WARNING, message, file, line))
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:  # a lone surrogate: neither libyaml nor a model's client could take it
            line = text.count("\n", 0, error.start) + 1
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            message = "The text has half of a surrogate pair; it was replaced by U+FFFD."
            diagnostics.append(Diagnostic("invalid-utf8", Severity.WARNING, message, file, line))
    return text, diagnostics


def _text(path: Path, data: bytes, size: int, *, complete: bool, closed: bool = False) -> SkillFileText:
    found: list[Diagnostic] = []
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        text = _decode_anyway(path, data, error, found)
    if "\r" in text or "\0" in text:  # decoded text has no surrogates to look for
        text, more = clean_text(text, str(path))
        found += more
    return SkillFileText(text, size, complete, tuple(found), closed)


def _decode_anyway(path: Path, data: bytes, error: UnicodeDecodeError, diagnostics: list[Diagnostic]) -> str:
    if data.startswith(_UTF16_BOMS):
        text = data.decode("utf-16", errors="replace")
        diagnostics.append(
            Diagnostic("utf-16", Severity.WARNING, "The file is UTF-16, not UTF-8; save it as UTF-8.", str(path), 1)
        )
        return text
    line = data.count(b"\n", 0, error.start) + 1
    diagnostics.append(
        Diagnostic(
            "invalid-utf8",
            Severity.WARNING,
            f"Byte 0x{data[error.start]:02x} is not valid UTF-8; it and others like it were replaced by U+FFFD. "
            "Save the file as UTF-8.",
            str(path),
            line,
        )
    )
    return data.decode("utf-8", errors="replace")


def _unreadable(path: Path, error: OSError) -> ParseError:
    return ParseError(f"{path} cannot be read: {error.strerror or error}.")


def _too_big(path: Path, size: int) -> ParseError:
    return ParseError(
        f"{path} has {size} bytes; a SKILL.md of more than {MAX_SKILL_BYTES} is not read. "
        "Move reference material into files of its own."
    )


# Which file of a folder is its SKILL.md.

SKILL_FILE_NAMES = ("SKILL.md", "skill.md")
"""Best first. The second is accepted as skills-ref does; the catalog reports it (C4)."""


ALMOST_SKILL_FILES = frozenset({"skill", "skill.markdown", "skill.mdx", "skill.txt", "skills.md"})
"""Names in lower case that were surely meant to be SKILL.md, and that nobody reads."""


def find_skill_md(skill_dir: str | os.PathLike[str]) -> Path | None:
    """The SKILL.md of a folder, else its skill.md. Returns the path, or None when there is neither."""
    for name in SKILL_FILE_NAMES:
        path = Path(skill_dir) / name
        if path.exists():
            return path
    return None


def skill_folder(path: str | os.PathLike[str]) -> Path:
    """The skill's folder, from a path to it or to the SKILL.md in it."""
    folder = Path(path)
    try:
        if folder.name.lower() == "skill.md" and not folder.is_dir() and os.path.lexists(folder):
            return folder.parent
    except ValueError:  # a NUL character; the caller's own look at the path says so
        pass
    return folder
