"""The table: one row for each thing measured, with both sides, the ratio, the bar, and whether it holds."""

from __future__ import annotations

import sys
from dataclasses import dataclass

_HEAD = ("what", "against", "ours", "theirs", "ratio", "bar", "held")


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        ratio: Theirs by ours (``12.3x`` faster) or, where the bar is a share of theirs, ours by theirs.
        bar: What is demanded; empty for a row that is only reported.
        held: Whether the bar holds; None for a row without one.
        note: What a reader of the row must know.
    """

    what: str
    ours: str
    theirs: str
    ratio: str
    bar: str
    held: bool | None
    against: str = "google-adk"
    note: str = ""


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """Seconds with three digits that count."""
    if seconds < 0.1:
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def times_faster(what: str, ours: float, theirs: float, bar: float | None, **more: str) -> Row:
    """A row whose bar is how many times faster we must be; times in seconds."""
    ratio = theirs / ours
    held = None if bar is None else ratio >= bar
    return Row(
        what,
        duration(ours),
        duration(theirs),
        f"{ratio:.1f}x faster" if ratio >= 1 else f"{1 / ratio:.1f}x slower",
        "" if bar is None else f">= {bar:g}x faster",
        held,
        **more,
    )


def share_of(what: str, ours: float, theirs: float, bar: float | None, **more: str) -> Row:
    """A row whose bar is how many times as long we may take; times in seconds."""
    ratio = ours / theirs
    held = None if bar is None else ratio <= bar
    return Row(
        what,
        duration(ours),
        duration(theirs),
        f"{ratio:.2f}x as long",
        "" if bar is None else f"<= {bar:g}x as long",
        held,
        **more,
    )


def memory_row(what: str, ours: float, theirs: float, bar: float | None, **more: str) -> Row:
    """A row whose bar is how many MiB we may add."""
    ratio = f"{theirs / max(ours, 0.1):.0f}x"
    held = None if bar is None else ours < bar
    return Row(
        what, f"+{ours:.1f} MB", f"+{theirs:.1f} MB", ratio, "" if bar is None else f"< {bar:g} MB", held, **more
    )


def not_measured(what: str, reason: str) -> Row:
    """A row that could not be measured here, with the reason."""
    return Row(what, "-", "-", "-", "", None, against="-", note=f"not measured: {reason}")


def print_table(rows: list[Row]) -> None:
    """As Markdown, the notes below it."""
    print(f"| {' | '.join(_HEAD)} |\n|{'---|' * len(_HEAD)}")
    for row in rows:
        held = {True: "yes", False: "NO", None: ""}[row.held]
        print(f"| {row.what} | {row.against} | {row.ours} | {row.theirs} | {row.ratio} | {row.bar} | {held} |")
    print()
    for row in rows:
        if row.note:
            print(f"- {row.what}: {row.note}")
