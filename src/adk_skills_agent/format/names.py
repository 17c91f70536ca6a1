"""Skill names: what the specification says about one (S4-S7), and the nearest valid one."""

from __future__ import annotations

import re

MAX_NAME_LENGTH = 64
"""Characters (S4)."""
_PLAIN_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


def is_plain_name(name: str) -> bool:
    """Whether the name is valid ASCII, the quick answer for nearly all of them. False says nothing."""
    return len(name) <= MAX_NAME_LENGTH and _PLAIN_NAME.fullmatch(name) is not None


def normalise_name(raw: str) -> str:
    """The nearest valid skill name: ``PDF Reader_2`` becomes ``pdf-reader-2``.

    NFKC, lower case, every other character a hyphen, hyphens collapsed and stripped, at most 64 characters. Letters of
    every script are kept (S5 as skills-ref reads it). Nothing of a path survives: ``../x`` becomes ``x``.

    Args:
        raw: Any text.

    Returns:
        A valid name, or ``""`` when no letter or digit is left.
    """
    if is_plain_name(raw):
        return raw
    import unicodedata

    name = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", raw).lower())
    # Combining marks left alone by NFKC (from "İ".lower(), say) belong to their letter: dropped, not made hyphens.
    letters = [
        char if char.isalnum() and char == char.lower() else "-"
        for char in name
        if not unicodedata.category(char).startswith("M")
    ]
    collapsed = re.sub(r"-+", "-", "".join(letters)).strip("-")
    return collapsed[:MAX_NAME_LENGTH].rstrip("-")


def nfkc(text: str) -> str:
    """The NFKC form, as skills-ref compares names."""
    if text.isascii():
        return text
    import unicodedata

    return unicodedata.normalize("NFKC", text)
