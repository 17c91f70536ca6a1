"""Folders that a ``.gitignore`` excludes (C6): the rules of gitignore(5) as far as they concern folders."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

_MAX_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    excludes: bool


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
        below = name
        while True:
            for rule in reversed(self._rules_of(at)):
                if rule.pattern.fullmatch(below):
                    return rule.excludes
            if at == self._root or len(at) <= len(self._root):
                return False
            at, _, last = at.rpartition("/")
            below = f"{last}/{below}"

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
    line = line.removeprefix("!").removesuffix("/").removeprefix("\\")
    anchored = "/" in line
    line = line.removeprefix("/")
    if not line:
        return None
    pattern = "" if anchored else "(?:.*/)?"
    for part in re.findall(r"\*\*/|/\*\*$|\*+|\?|\[!?\]?[^]/]*\]|\\.|.", line):
        pattern += _translated(part)
    try:
        return _Rule(re.compile(pattern, re.DOTALL), excludes)
    except re.error:
        return None  # git too takes a broken pattern as one that matches nothing


def _translated(part: str) -> str:
    if part == "**/":
        return "(?:.*/)?"
    if part == "/**":
        return "/.*"
    if part.startswith("*"):
        return "[^/]*"
    if part == "?":
        return "[^/]"
    if len(part) > 2 and part.startswith("["):
        return "[" + ("^" + part[2:-1] if part[1] == "!" else part[1:-1]).replace("\\", "\\\\") + "]"
    return re.escape(part[-1] if part.startswith("\\") else part)
