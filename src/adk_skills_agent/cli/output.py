"""Printing for people and for programs."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence

from adk_skills_agent.format.diagnostic import Diagnostic, Severity


def print_json(value: object) -> None:
    """One JSON document on stdout, in ASCII: valid in every locale, and without a character a terminal obeys."""
    import json

    print(json.dumps(value, indent=2))


def print_columns(rows: Iterable[Sequence[str]]) -> None:
    """Two columns: names aligned, descriptions cut to the terminal's width (whole when stdout is no terminal)."""
    table = [tuple(safe(cell) for cell in row) for row in rows]
    width = max((len(row[0]) for row in table), default=0)
    room = shutil.get_terminal_size().columns - width - 2 if sys.stdout.isatty() else None
    for name, text in table:
        shown = text if room is None or len(text) <= room else text[: max(room - 1, 20)] + "…"
        print(f"{name:<{width}}  {shown}".rstrip())


def print_diagnostics(diagnostics: Sequence[Diagnostic], *, all_of_them: bool) -> None:
    """Diagnostics on stderr: all, or a count of what an owner should look at."""
    if all_of_them:
        for diagnostic in diagnostics:
            print(safe(str(diagnostic)), file=sys.stderr)
        return
    counts = {
        severity: sum(diagnostic.severity is severity for diagnostic in diagnostics)
        for severity in (Severity.ERROR, Severity.WARNING)
    }
    found = ", ".join(f"{count} {severity}{'s' if count != 1 else ''}" for severity, count in counts.items() if count)
    if found:
        print(f"{found} (--diagnostics shows them)", file=sys.stderr)


def printable(text: str) -> str:
    """Several lines of a stranger's text for a terminal: line breaks stay, control characters become blanks."""
    return "".join(character if character.isprintable() or character in "\n\t" else " " for character in text)


def safe(text: str) -> str:
    """Text of a stranger's file for a terminal: on one line and without control characters (escape sequences)."""
    return "".join(character if character.isprintable() else " " for character in " ".join(text.split()))
