"""A Dockerfile as a list of instructions: enough to build simple ones without an engine and to take skills out.

What is read: continued lines, comments between them, the ``escape`` directive, here-documents, flags, the JSON form,
and variables (``$NAME``, ``${NAME}``, ``${NAME:-word}``, ``${NAME:+word}``) where Docker replaces them.
"""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from adk_skills_agent.errors import ConfigError

KEYWORDS = frozenset(
    [
        *("ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "MAINTAINER"),
        *("ONBUILD", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"),
    ]
)
_DIRECTIVE = re.compile(r"\s*#\s*([A-Za-z][A-Za-z0-9-]*)\s*=\s*(\S+)\s*\Z")
_FLAG = re.compile(r"\s*--([a-z][a-z0-9-]*)(?:=(\S+))?(?=\s)")
_HEREDOC = re.compile(r"<<(-?)(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\2")
_WITH_HEREDOCS = frozenset(("RUN", "COPY", "ADD"))
_VARIABLE = re.compile(r"\\(.)|\$(?:(\w+)|\{(\w+)(?::?([-+])([^}]*))?\})")


@dataclass(frozen=True, slots=True)
class Heredoc:
    """A document in the Dockerfile itself. ``name`` is the word that ends it; quoted, ``expand`` is false."""

    name: str
    text: str
    expand: bool


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        keyword: In capitals, e.g. ``RUN``.
        value: What follows, in one line, without flags.
        line: 1-based line it begins at.
        last_line: 1-based line it ends at, here-documents included.
        flags: ``--name=value``; an empty value for ``--name``.
        heredocs: Its here-documents.
    """

    keyword: str
    value: str
    line: int
    last_line: int
    flags: Mapping[str, str] = field(default_factory=dict)
    heredocs: tuple[Heredoc, ...] = ()

    @property
    def json_form(self) -> tuple[str, ...] | None:
        """The words of ``["a", "b"]``; None when it is not in that form."""
        if not self.value.startswith("["):
            return None
        try:
            words = json.loads(self.value)
        except ValueError:
            return None
        return tuple(words) if isinstance(words, list) and all(isinstance(word, str) for word in words) else None

    @property
    def words(self) -> tuple[str, ...]:
        """The JSON form, or the words between blanks, quotes removed and variables as written.

        Raises:
            ConfigError: A quotation mark is not closed.
        """
        given = self.json_form
        if given is not None:
            return given
        lexer = shlex.shlex(self.value, posix=True, punctuation_chars=False)
        lexer.whitespace_split = True
        lexer.commenters = ""
        lexer.escape = ""  # a backslash belongs to the variable syntax or to the path
        try:
            return tuple(lexer)
        except ValueError as error:
            raise ConfigError(f"Dockerfile line {self.line}: {error}.") from error


def parse_dockerfile(text: str) -> tuple[Instruction, ...]:
    """The instructions of a Dockerfile, in order.

    Raises:
        ConfigError: A line is no instruction, or a here-document does not end; says which line.
    """
    lines = text.lstrip("\ufeff").splitlines()
    escape = _escape_character(lines)
    result = []
    number = 0
    while number < len(lines):
        start = number
        pieces: list[str] = []
        while number < len(lines):
            line = lines[number]
            number += 1
            if line.lstrip().startswith("#") or (pieces and not line.strip()):
                continue  # comments and empty lines do not end an instruction that goes on
            stripped = line.rstrip()
            if not pieces:
                start = number - 1
            if stripped.endswith(escape):
                pieces.append(stripped[:-1])
                continue
            pieces.append(line)
            break
        joined = "".join(pieces).strip()
        if not joined:
            continue
        keyword, _, value = joined.replace("\t", " ", 1).partition(" ")
        keyword = keyword.upper()
        if keyword not in KEYWORDS:
            raise ConfigError(f"Dockerfile line {start + 1}: {joined[:40]!r} is no instruction.")
        flags, value = _flags(value) if keyword in {"FROM", "RUN", "COPY", "ADD", "HEALTHCHECK"} else ({}, value)
        heredocs: list[Heredoc] = []
        if keyword in _WITH_HEREDOCS:
            for match in _HEREDOC.finditer(value):
                document, number = _heredoc(lines, number, match, start + 1)
                heredocs.append(document)
        result.append(Instruction(keyword, value.strip(), start + 1, number, flags, tuple(heredocs)))
    return tuple(result)


def expanded(text: str, variables: Mapping[str, str]) -> str:
    r"""Text with its variables replaced as Docker does outside of RUN; ``\$`` stays a dollar."""

    def value(match: re.Match[str]) -> str:
        if match[1] is not None:
            return match[1] if match[1] == "$" else match[0]
        found = variables.get(match[2] or match[3] or "", "")
        if match[4] == "-":
            return found or expanded(match[5], variables)
        if match[4] == "+":
            return expanded(match[5], variables) if found else ""
        return found

    return _VARIABLE.sub(value, text)


def environment_pairs(instruction: Instruction, variables: Mapping[str, str]) -> dict[str, str]:
    """The names and values of an ``ENV``, ``ARG`` or ``LABEL``: ``NAME=value ...``, or ``NAME value`` to its end.

    Raises:
        ConfigError: It gives no value.
    """
    first = instruction.value.split(None, 1)
    if first and "=" not in first[0]:
        if instruction.keyword == "ARG":
            return {name: variables.get(name, "") for name in instruction.value.split()}
        if len(first) < 2:
            raise ConfigError(f"Dockerfile line {instruction.line}: {instruction.keyword} {first[0]} has no value.")
        return {first[0]: expanded(first[1], variables)}
    pairs = {}
    for word in instruction.words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise ConfigError(f"Dockerfile line {instruction.line}: {word!r} is not NAME=value.")
        pairs[name] = expanded(value, variables)
    return pairs


def copied_skills(instruction: Instruction) -> bool:
    """Whether it copies nothing but the task's ``skills`` folder or what is in it; ``skill[s]`` is that folder, too."""
    if instruction.keyword not in {"COPY", "ADD"} or "from" in instruction.flags or instruction.heredocs:
        return False
    sources = instruction.words[:-1]
    return bool(sources) and all(fnmatch.fnmatchcase("skills", _first_folder(source)) for source in sources)


def without_skills(text: str) -> tuple[str, tuple[int, ...]]:
    """A Dockerfile that copies no skills, for the arm without them; and the lines that were taken out, 1-based.

    The build context must lack the ``skills`` folder as well: ``COPY . /root`` stays as it is.
    """
    lines = text.splitlines(keepends=True)
    removed: list[int] = []
    for instruction in parse_dockerfile(text):
        if copied_skills(instruction):
            removed.extend(range(instruction.line, instruction.last_line + 1))
    gone = set(removed)
    return "".join(line for number, line in enumerate(lines, 1) if number not in gone), tuple(removed)


def _first_folder(source: str) -> str:
    return next((part for part in source.split("/") if part not in {"", "."}), "")


def _escape_character(lines: list[str]) -> str:
    for line in lines:
        directive = _DIRECTIVE.match(line)
        if directive is None:
            break
        if directive[1].lower() == "escape" and directive[2] in {"\\", "`"}:
            return directive[2]
    return "\\"


def _flags(value: str) -> tuple[dict[str, str], str]:
    flags = {}
    rest = " " + value
    while (match := _FLAG.match(rest)) is not None:
        flags[match[1]] = match[2] or ""
        rest = rest[match.end() :]
    return flags, rest.strip()


def _heredoc(lines: list[str], number: int, match: re.Match[str], line: int) -> tuple[Heredoc, int]:
    body: list[str] = []
    while number < len(lines):
        text = lines[number].lstrip("\t") if match[1] else lines[number]
        number += 1
        if text == match[3]:
            return Heredoc(match[3], "".join(f"{part}\n" for part in body), expand=not match[2]), number
        body.append(text)
    raise ConfigError(f"Dockerfile line {line}: the here-document {match[3]} does not end.")
