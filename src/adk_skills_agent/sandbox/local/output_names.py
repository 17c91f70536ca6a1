"""Names of output files: what a script called them is hostile, what leaves the sandbox is safe to store and to show."""

from __future__ import annotations

import unicodedata

MAX_PATH_CHARS = 512
_MAX_PART_CHARS = 200
# Not allowed in a file name on some system that may store the artifact; a colon would also make "user:x" an artifact
# of another scope in google-adk.
_FORBIDDEN = frozenset('<>:"|?*\\')
_RESERVED = frozenset(
    ["con", "prn", "aux", "nul", "conin$", "conout$", *(f"{d}{n}" for d in ("com", "lpt") for n in "0123456789¹²³")]
)


def readable(path: str) -> str:
    """A path from the file system as text that is safe to print: every odd character is escaped."""
    escaped = "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in path)
    return escaped if len(escaped) <= MAX_PATH_CHARS else f"{escaped[:MAX_PATH_CHARS]}..."


def safe_name(path: str) -> str | None:
    """The path an output file gets: relative, printable, usable on every system; None when it is too long.

    The parts come from directory entries, so ``..``, an empty part or a leading slash cannot occur.
    """
    text = unicodedata.normalize("NFC", path)
    if len(text) > MAX_PATH_CHARS:
        return None
    return "/".join(_safe_part(part) for part in text.split("/"))


def distinct(name: str, taken: set[str]) -> str:
    """``name``, or a variation that no earlier file has, also where upper and lower case are the same."""
    folder, _, last = name.rpartition("/")
    stem, dot, suffix = last.rpartition(".")
    if not stem:
        stem, dot, suffix = last, "", ""
    candidate, number = name, 1
    while candidate.casefold() in taken:
        number += 1
        variation = f"{stem}~{number}{dot}{suffix}"
        candidate = f"{folder}/{variation}" if folder else variation
    taken.add(candidate.casefold())
    return candidate


def _safe_part(part: str) -> str:
    characters = [c if c.isprintable() and c not in _FORBIDDEN else "_" for c in part[:_MAX_PART_CHARS]]
    name = "".join(characters)
    if name.startswith(" "):
        name = f"_{name[1:]}"
    if name.endswith((" ", ".")):
        name = f"{name[:-1]}_"
    return f"_{name}" if name.partition(".")[0].rstrip().lower() in _RESERVED else name
