"""The values a SKILL.md turns into (S4-8). Plain frozen dataclasses: thousands of them must be cheap."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

YamlValue: TypeAlias = "str | None | list[YamlValue] | dict[str, YamlValue]"
"""A value of the frontmatter. Scalars keep the spelling of the file (``1.10`` stays ``"1.10"``); null is None."""

_EMPTY: Mapping[str, YamlValue] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SkillMetadata:
    """A skill's frontmatter, known without reading the body.

    Attributes:
        name: The name the catalog uses (normalised; see ``original_name``).
        description: What the skill does and when to use it; never empty.
        file: Absolute path of the SKILL.md as text, or None for a skill that is not on disk. ``location`` is the same
            as a Path, made when asked for: thousands of Path objects cost more than all the rest.
        license: As written, or None.
        compatibility: As written (a mapping becomes JSON, S0-133), or None.
        allowed_tools: Space-separated tools as the specification has them, or None.
        metadata: The author's own keys. Scalars are strings; nested values stay nested.
        extra: Unknown frontmatter fields, kept.
        original_name: The name as the author wrote it, None when the file has none.
        repairs: Codes of the diagnostics that reading it left, e.g. ``("description-derived",)``.
    """

    name: str
    description: str
    file: str | None = None
    license: str | None = None
    compatibility: str | None = None
    allowed_tools: str | None = None
    metadata: Mapping[str, YamlValue] = field(default_factory=lambda: _EMPTY)
    extra: Mapping[str, YamlValue] = field(default_factory=lambda: _EMPTY)
    original_name: str | None = None
    repairs: tuple[str, ...] = ()

    @property
    def location(self) -> Path | None:
        """Absolute path of the SKILL.md, or None for a skill that is not on disk (C20)."""
        return Path(self.file) if self.file is not None else None


@dataclass(frozen=True, slots=True)
class ParsedSkill:
    """A SKILL.md as the lenient profile reads it.

    Attributes:
        metadata: The frontmatter.
        body: Level 2, the Markdown after the frontmatter, trimmed. Empty when only the head was read.
        diagnostics: Everything that was repaired or is wrong, in the order found.
        body_line: 1-based line of the file where the body starts.
    """

    metadata: SkillMetadata
    body: str
    diagnostics: tuple[Diagnostic, ...]
    body_line: int


# What was repaired, skipped, shadowed or cut while reading skills: one line an owner can act on.


class Severity(StrEnum):
    """How serious a diagnostic is."""

    ERROR = "error"  # the skill, or a part of it, is not available
    WARNING = "warning"  # it is available, but not as its author wrote it
    INFO = "info"  # a deviation from the specification without any effect


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding.

    Attributes:
        code: Stable kebab-case identifier of the kind of finding, e.g. ``unquoted-colon``.
        severity: See :class:`Severity`.
        message: One sentence: what, with which value, what to do.
        file: The file it is about (an absolute host path), if any.
        line: 1-based line in that file, if known.
    """

    code: str
    severity: Severity
    message: str
    file: str | None = None
    line: int | None = None

    def to_dict(self) -> dict[str, str | int | None]:
        """A JSON-ready form, for ``--json`` output."""
        return {
            "code": self.code,
            "severity": self.severity.value,
            "message": self.message,
            "file": self.file,
            "line": self.line,
        }

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.file and self.line else f"{self.file}: " if self.file else ""
        line = f"{place}{self.severity.value} [{self.code}] {self.message}"
        if line.isprintable():
            return line
        # One line each, whatever a folder is called: escapes for line breaks and what else cannot be printed.
        return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line)


# Skill names: what the specification says about one (S4-S7), and the nearest valid one.

MAX_NAME_LENGTH = 64
"""Characters (S4)."""
_PLAIN_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


def is_plain_name(name: str) -> bool:
    """Whether the name is valid ASCII, the quick answer for nearly all of them. False says nothing."""
    return len(name) <= MAX_NAME_LENGTH and _PLAIN_NAME.fullmatch(name) is not None


def normalise_name(raw: str) -> str:
    """The nearest valid skill name: ``PDF Reader_2`` becomes ``pdf-reader-2``.

    NFKC, lower case, every other character a hyphen, hyphens collapsed and stripped, at most 64 characters. Letters of
    every script are kept (S5 as skills-ref reads it). Nothing of a path survives: ``../x`` becomes ``x``. Returns a
    valid name, or ``""`` when no letter or digit is left.
    """
    if is_plain_name(raw):
        return raw
    import unicodedata

    name = nfkc(nfkc(raw).lower())
    # Combining marks left alone by NFKC (from "İ".lower(), say) belong to their letter: dropped, not made hyphens.
    letters = [
        char if char.isalnum() and char == char.lower() else "-"
        for char in name
        if not unicodedata.category(char).startswith("M")
    ]
    collapsed = re.sub(r"-+", "-", "".join(letters)).strip("-")
    return collapsed[:MAX_NAME_LENGTH].rstrip("-")


def nfkc(text: str) -> str:
    """The NFKC form, as skills-ref compares names, of at most 1,000 characters of a line at a time.

    The marks on one letter are sorted with the square of their number, and nothing else of the agent runs meanwhile: a
    name of 200,000 took minutes (row 145).
    """
    if text.isascii():
        return text
    import unicodedata

    if len(text) <= _NORMALISED_AT_ONCE:
        return unicodedata.normalize("NFKC", text)
    return _PIECE.sub(lambda found: unicodedata.normalize("NFKC", found[0]), text)


_NORMALISED_AT_ONCE = 1_000
_PIECE = re.compile(rf"[^\n]{{1,{_NORMALISED_AT_ONCE}}}")
