"""The programs in a file: itself, the fenced blocks of a text, the cells of a notebook, a script in a script."""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from adk_skills_agent.sources.scan.flow import BRACES, SHELL, family_of, family_of_fence

PYTHON = "python"
_MOST = 200  # programs of one file


@dataclass(frozen=True, slots=True)
class Program:
    """One program, and where its lines are in the file."""

    language: str  # "python", "shell" or "braces"
    text: str
    lines: int | tuple[int, ...] = 1  # the first line, or each one's

    def line(self, number: int) -> int:
        """The file's line of one of its own, both 1-based."""
        if isinstance(self.lines, int):
            return self.lines + number - 1
        return self.lines[min(number, len(self.lines)) - 1]


def programs_in(path: str, text: str, *, is_text: bool) -> list[Program]:
    """The programs of a file that are in a language which the scan reads."""
    name = path.lower()
    if name.endswith(".ipynb"):
        found = _cells(text)
    elif is_text:
        found = _fenced(text)
    elif name.endswith((".py", ".pyw", ".pyi", ".pth")) or re.match(r"#!.{0,60}python", text):
        found = iter([Program(PYTHON, text)])
    elif name.endswith((".json", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".plist", ".service", ".desktop")):
        found = _with_heredocs(SHELL, text.replace('\\"', '"'))
    elif family := family_of(path, text):
        found = _with_heredocs(family, text)
    else:
        return []
    return [program for program, _ in zip(found, range(_MOST), strict=False)]


_FENCE = re.compile(r"[ \t]*(```+|~~~+)[ \t]*(\w*)")


def fenced_blocks(text: str) -> Iterator[tuple[str, str, int]]:
    """The language, the text and the first line of each block between ticks; one that is not closed is none."""
    lines = text.split("\n")
    fence, language, start = "", "", 0
    for number, line in enumerate(lines):
        mark = _FENCE.match(line)
        if mark is None:
            continue
        if not fence:
            fence, language, start = mark[1], mark[2].lower(), number + 1
        elif line.strip() == fence:
            yield language, "\n".join(lines[start:number]), start + 1
            fence = ""


def comments(text: str) -> Iterator[tuple[int, int]]:
    """Where each HTML comment begins and ends, without its marks."""
    at = text.find("<!--")
    while at >= 0 and (end := text.find("-->", at + 4)) >= 0:
        yield at + 4, end
        at = text.find("<!--", end)


def _fenced(text: str) -> Iterator[Program]:
    for language, block, first in fenced_blocks(text):
        family = PYTHON if language in {"python", "py", "python3"} else family_of_fence(language)
        if family:
            lines = block.split("\n")
            indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
            yield Program(family, "\n".join(line[indent:] for line in lines), first)


_INLINE = re.compile(
    r"""\b(python[\d.]*|node|perl|ruby|php|pwsh|powershell)\s+-(?:[cer]|Command|command)\s+(["'])((?:(?!\2)[^\n]){8,4000})\2"""
)
_HEREDOC = re.compile(r"\bpython[\d.]*\b[^\n]{0,200}<<-?\s*[\"']?(\w+)[\"']?[^\n]*\n")


def _with_heredocs(family: str, text: str) -> Iterator[Program]:
    """The program, and those in other languages that a shell script has in it."""
    yield Program(family, text)
    if family == SHELL:
        for inline in _INLINE.finditer(text):
            language = PYTHON if inline[1].startswith("python") else BRACES
            yield Program(language, inline[3], text.count("\n", 0, inline.start(3)) + 1)
        yield from _heredocs(text)


def _heredocs(text: str) -> Iterator[Program]:
    """Each line is looked at once: a file may have many that begin and never end (row 313)."""
    begun = _HEREDOC.search(text)
    if begun is None:
        return
    lines = text.split("\n")
    ends: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        ends.setdefault(line.strip(), []).append(number)
    at = first = 0  # where a program begins, and in which line
    while begun is not None:
        first += text.count("\n", at, begun.end())
        at = begun.end()
        known = ends.get(begun[1], [])
        end = bisect.bisect_left(known, first)
        if end < len(known):
            body = "".join(f"{line}\n" for line in lines[first : known[end]])
            yield Program(PYTHON, body, first + 1)
            at, first = at + len(body), known[end]
        begun = _HEREDOC.search(text, at)


_PART = re.compile(r'"cell_type"\s*:\s*"(\w+)"|"source"\s*:\s*(?=[\["])')
_STRING = re.compile(r'\s*[,\[]?\s*("(?:[^"\\]|\\.)*")')
_SHELL_LINE = re.compile(r"^\s*(?:[\w, ]+=\s*)?(?:!|%sx\s|%system\s)(.*)")


def _cells(text: str) -> Iterator[Program]:
    """Python and the shell commands of a notebook's code cells, each cell by itself."""
    kind = ""
    for part in _PART.finditer(text):
        if part[1]:
            kind = part[1]
            continue
        at, line = part.end(), text.count("\n", 0, part.end()) + 1
        code: list[str] = []
        lines: list[int] = []
        while (string := _STRING.match(text, at)) is not None:
            line += text.count("\n", at, string.start(1))
            at = string.end()
            try:
                said = json.loads(string[1])
            except ValueError:
                break
            for one in said.removesuffix("\n").split("\n"):
                code.append(one)
                lines.append(line)
            if not re.match(r"\s*,\s*\"", text[at : at + 200]):
                break
        if kind != "code" or not code:
            continue
        places = tuple(lines)
        if re.match(r"%%(?:bash|sh|script|!)", code[0]):
            yield Program(SHELL, "\n".join(["", *code[1:]]), places)
            continue
        commands = [found[1] if (found := _SHELL_LINE.match(one)) else "" for one in code]
        if any(commands):
            yield Program(SHELL, "\n".join(commands), places)
        python = ["pass" if re.match(r"\s*[!%]", one) or _SHELL_LINE.match(one) else one for one in code]
        yield Program(PYTHON, "\n".join(python), places)
