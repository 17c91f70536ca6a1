"""Folders that a ``.gitignore`` excludes (C6): the rules of gitignore(5) as far as they concern folders."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

_MAX_BYTES = 256 << 10
_NOTHING = re.compile(r"(?!)")


@dataclass(frozen=True, slots=True)
class _Rule:
    parts: tuple[re.Pattern[str] | None, ...]  # one a path part; None is ``**``
    excludes: bool

    def fits(self, path: list[str]) -> bool:
        """Whether the rule names the folder. Looks back to the last ``**`` only, so the time is bounded."""
        at = part = 0
        retry: tuple[int, int] | None = None
        while at < len(path):
            pattern = self.parts[part] if part < len(self.parts) else _NOTHING
            if pattern is None:
                if part == len(self.parts) - 1:
                    return True  # what is below
                retry = (at, part)
                part += 1
            elif pattern.fullmatch(path[at]):
                at += 1
                part += 1
            elif retry is not None:
                retry = (retry[0] + 1, retry[1])
                at, part = retry[0], retry[1] + 1
            else:
                return False
        return part == len(self.parts)


class GitIgnore:
    """The ``.gitignore`` files of a tree, read as a scan comes by.

    Args:
        root: Absolute path of the scanned folder; files above it are not read.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._rules: dict[str, tuple[_Rule, ...]] = {}

    def excludes_folder(self, parent: str, name: str) -> bool:
        """Whether the folder ``name`` in ``parent`` is excluded: nearest file first, there the last rule that fits."""
        at = parent
        below = [name]
        while True:
            for rule in reversed(self._rules_of(at)):
                if rule.fits(below):
                    return rule.excludes
            if at == self._root or len(at) <= len(self._root):
                return False
            at, _, last = at.rpartition("/")
            below.insert(0, last)

    def _rules_of(self, folder: str) -> tuple[_Rule, ...]:
        rules = self._rules.get(folder)
        if rules is None:
            rules = self._rules[folder] = _read(f"{folder}/.gitignore")
        return rules


def _read(path: str) -> tuple[_Rule, ...]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return ()  # none, or not readable for git either
    try:
        text = os.read(descriptor, _MAX_BYTES).decode("utf-8", "surrogateescape")
    except OSError:
        return ()
    finally:
        os.close(descriptor)
    rules = (_rule(line) for line in text.splitlines())
    return tuple(rule for rule in rules if rule is not None)


def _rule(line: str) -> _Rule | None:
    line = re.sub(r"(?<!\\) +$", "", line)
    if not line or line.startswith("#"):
        return None
    excludes = not line.startswith("!")
    line = line.removeprefix("!").removesuffix("/")
    anchored = "/" in line
    line = line.removeprefix("/")
    if not line:
        return None
    names = line.split("/") if anchored else ["**", line]
    try:
        return _Rule(tuple(None if name == "**" else _pattern(name) for name in names), excludes)
    except re.error:
        return None  # git too takes a broken pattern as one that matches nothing


def _pattern(name: str) -> re.Pattern[str]:
    """The pattern of one part of a path. Each ``*`` takes as little as it can and keeps it, so that nothing is tried
    twice: what follows one star can only be found later, never better.
    """
    pieces = [""]
    for part in re.findall(r"\*+|\[!?\]?[^]]*\]|\\.|.", name, re.DOTALL):
        if part.startswith("*"):
            pieces.append("")
        else:
            pieces[-1] += _one(part)
    start, *others = pieces
    if others:
        *middle, end = others
        start += "".join(f"(?>.*?{piece})" for piece in middle) + f".*{end}"
    return re.compile(start, re.DOTALL)


def _one(part: str) -> str:
    if part == "?":
        return "."
    if len(part) > 2 and part.startswith("["):
        return "[" + ("^" + part[2:-1] if part[1] == "!" else part[1:-1]).replace("\\", "\\\\") + "]"
    return re.escape(part[1:] if len(part) == 2 and part.startswith("\\") else part)
