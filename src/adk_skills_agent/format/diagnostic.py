"""What was repaired, skipped, shadowed or cut while reading skills: one line an owner can act on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How much an owner should care."""

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
