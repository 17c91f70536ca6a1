"""A Dockerfile as a list of instructions: enough to build simple ones without an engine and to take skills out.

What is read: continued lines, comments between them, the ``escape`` directive, here-documents, flags, the JSON form,
and variables (``$NAME``, ``${NAME}``, ``${NAME:-word}``, ``${NAME:+word}``) where Docker replaces them.
"""

from __future__ import annotations

import fnmatch
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.skillsbench.environment import BuildError, MissingSource

KEYWORDS = frozenset(
    [
        *("ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "MAINTAINER"),
        *("ONBUILD", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"),
    ]
)
_NAME = re.compile(r"(\w+)=")
_DIRECTIVE = re.compile(r"\s*#\s*([A-Za-z][A-Za-z0-9-]*)\s*=\s*(\S+)\s*\Z")
_FLAG = re.compile(r"\s*--([a-z][a-z0-9-]*)(?:=(\S+))?(?=\s)")
_HEREDOC = re.compile(r"<<(-?)(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\2")
_WITH_HEREDOCS = frozenset(("RUN", "COPY", "ADD"))
_ADDRESS = re.compile(r"[$\\`]|://|^\W*(?:git@|github\.com/)|\.git\b")
_BACKQUOTE = re.compile(r"\W*#\s*escape\s*=\s*`", re.IGNORECASE)
_APART = r"(?:[ \t]|\\[ \t]*\n(?:[ \t]*#.*\n)*)+"
_RUN_FLAG = r"--(?:mount|network)=[\w=,/.~:@${}-]+"
_RUN_FLAGS = re.compile(rf"(?im)^([ \t]*)(RUN)((?:{_APART}{_RUN_FLAG})+)(?={_APART})")
_WITH_VARIABLES = frozenset(("FROM", "COPY", "ADD", "WORKDIR", "USER", "EXPOSE", "VOLUME", "STOPSIGNAL", "ONBUILD"))
_VARIABLE = re.compile(r"\\(.)|\$(?:(\w+)|\{(\w+)(?::?([-+])([^}]{0,4096}))?\})")

# Each line may name the one before it many times (``ENV A=$A$A``), so that few lines are any amount of memory, here and
# in the engine that builds them (row 280). The kernel gives a program 128 KiB of one variable, and 2 MiB of all.
_MAX_FILE_CHARS = 1 << 20
_MAX_INSTRUCTIONS = 2000
_MAX_FLAGS = 100
_MAX_VALUE_CHARS = 128 << 10
_MAX_VARIABLES_CHARS = 1 << 20


@dataclass(frozen=True, slots=True)
class Heredoc:
    """A document in the Dockerfile itself. ``name`` is the word that ends it; quoted, ``expand`` is false."""

    name: str
    text: str
    expand: bool


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction."""

    keyword: str  # In capitals, e.g. ``RUN``.
    value: str  # what follows, in one line, without flags
    line: int  # 1-based line it begins at
    last_line: int  # 1-based line it ends at, here-documents included
    flags: Mapping[str, str] = field(default_factory=dict)  # ``--name=value``; blanks between several
    heredocs: tuple[Heredoc, ...] = ()

    @property
    def json_form(self) -> tuple[str, ...] | None:
        """The words of ``["a", "b"]``; None when it is not in that form."""
        if not self.value.startswith("["):
            return None
        try:
            words = json.loads(self.value)
        except (ValueError, RecursionError):
            return None
        return tuple(words) if isinstance(words, list) and all(isinstance(word, str) for word in words) else None

    @property
    def words(self) -> tuple[str, ...]:
        """The JSON form, or the words between blanks, quotes removed and variables as written.

        Raises ``ConfigError`` when a quotation mark is not closed.
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

    Raises ``ConfigError`` when a line is no instruction, a here-document does not end, or it is too long; says which
    line.
    """
    if len(text) > _MAX_FILE_CHARS:
        raise ConfigError(f"The Dockerfile has more than {_MAX_FILE_CHARS:,} characters.")
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
        if len(result) > _MAX_INSTRUCTIONS:
            raise ConfigError(f"Dockerfile line {start + 1}: it has more than {_MAX_INSTRUCTIONS:,} instructions.")
    return tuple(result)


class _TooLong(ConfigError):
    """A value grew too long."""


def check_sizes(text: str) -> None:
    """Follow the variables of a Dockerfile as a build does. Raises ``ConfigError`` when they grow too long."""
    variables: dict[str, str] = {}
    for instruction in parse_dockerfile(text):
        if instruction.keyword in {"ARG", "ENV", "LABEL"}:
            try:
                variables.update(environment_pairs(instruction, variables))
            except _TooLong:
                raise
            except ConfigError:  # an engine may read it otherwise: no value of it is longer than all of it
                whole = expanded(instruction.value, variables)
                variables.update(_checked(instruction, variables, dict.fromkeys(_NAME.findall(whole), whole)))
        elif instruction.keyword in _WITH_VARIABLES:
            expanded(instruction.value, variables)


def for_engine(text: str) -> str:
    """A stranger's Dockerfile as an engine may have it: without caches that all builds of the engine share (row 472).

    Raises ``ConfigError`` when the engine would reach beyond the build for it: by an ``ADD`` of an address, also of
    what only a variable names, which it fetches in its machine's own network (row 467), or by other flags of ``RUN``:
    some engines let a mount lead out of the build, to any file of the machine.
    """
    written, text = text, without_mounts(text)
    for line in _readings(text):
        keyword, _, rest = _ONBUILD.sub("", line).partition(" ")
        shown = line if len(line) <= 80 else f"{line[:80]}..."
        if keyword.upper() == "RUN" and rest.startswith("--"):
            raise ConfigError(
                f"Dockerfile: {shown!r}: RUN has no flags here but caches and read-only "
                "mounts (type=bind,source=...,target=...). Write COPY for another one."
            )
        if keyword.upper() in {"ADD", "COPY"} and any(map(_is_of_machine, rest.split())):
            raise ConfigError(f"Dockerfile: {shown!r}: --from names a stage or an image here, by plain letters.")
        if keyword.upper() == "ADD":
            added = re.sub(r"^(?:--[a-z]\S* )+", "", rest.rstrip("\\` ")).translate(_QUOTES)
            if any(map(_ADDRESS.search, [added] if "[" in added else added.split()[:-1] or [added])):
                raise ConfigError(f"Dockerfile: {shown!r}: ADD takes files here. Write RUN curl -O for an address.")
    for one in dict.fromkeys((written, text)):  # what is wrong in both has its own line number
        _refuse_unclear(one)
    _refuse_other_bases(text)
    return text


def _refuse_other_bases(text: str) -> None:
    """Refuse a FROM that only an engine without here-documents sees, so that nobody looks at its base (row 472)."""
    lines = text.split("\n")
    bases = [one for one in parse_dockerfile(text) if one.keyword == "FROM"]
    known: set[str] = set().union(*(_readings("\n".join(lines[base.line - 1 : base.last_line])) for base in bases))
    for line in sorted(_readings(text) - known):
        words = line.split()
        is_python = words[2:3] == ["import"] and not words[1].startswith("--")
        if words[:1] and words[0].upper() == "FROM" and not is_python:
            raise ConfigError(
                f"Dockerfile: {line[:80]!r}: some engines take a line of a here-document that begins with FROM for an "
                "instruction. Put its text into a file of the task, and COPY that."
            )


def without_mounts(text: str) -> str:
    """A Dockerfile with ``COPY`` in place of what a ``RUN`` mounts of the task or of an image, and without caches.

    An engine of Docker's older kind knows no mounts. What is no such mount stays as it is.
    """
    return _RUN_FLAGS.sub(_without_mounts, text)


def _without_mounts(match: re.Match[str]) -> str:
    copies = [_copy_for(flag) for flag in re.findall(f"(?i){_RUN_FLAG}", match[3])]
    lines = [copy for copy in copies if copy]
    return match[0] if None in copies else "".join(f"{match[1]}{line}\n" for line in lines) + match[1] + match[2]


def _copy_for(flag: str) -> str | None:
    """What stands for a flag of ``RUN``: nothing for a cache, ``COPY`` for a mount that is read, else None."""
    name, _, value = flag[2:].partition("=")
    if name.lower() == "network":
        return "" if value in {"default", "none"} else None
    options = dict(option.partition("=")[::2] for option in value.split(","))
    kind = options.pop("type", "bind")
    if kind in {"cache", "tmpfs"}:
        return ""
    image = options.pop("from", "")
    source = options.pop("source", options.pop("src", "" if image else "."))
    target = options.pop("target", options.pop("dst", options.pop("destination", "")))
    others = {option for option, given in options.items() if (option, given or "true") not in _READ_ONLY}
    if kind != "bind" or others or not source or not target or ".." in source.split("/"):
        return None
    return f"COPY --from={image} {source} {target}" if image else f"COPY {source.lstrip('/') or '.'} {target}"


_READ_ONLY = frozenset((("readonly", "true"), ("ro", "true"), ("rw", "false"), ("readwrite", "false")))


def _is_of_machine(word: str) -> bool:
    """Whether a word is a ``--from`` that some engines take for a file or folder of their machine (row 484)."""
    plain = word.translate(_HIDING)
    return plain.startswith("--from") and (word != plain or _FROM.fullmatch(word) is None)


_HIDING = dict.fromkeys(map(ord, "\"'\\`"))
_FROM = re.compile(
    r"--from=(?!(?:containers-storage|dir|docker|docker-archive|docker-daemon|oci|oci-archive|ostree|sif|tarball):)"
    r"[A-Za-z0-9][\w.-]*(?::\d+)?(?:/[\w.-]+)*(?::[\w.-]+)?(?:@sha256:[0-9a-f]{64})?",
    re.ASCII,
)
_ONBUILD = re.compile(r"^(?:ONBUILD\s+)+", re.IGNORECASE)
_QUOTES = dict.fromkeys(map(ord, "\"'"))
_OF_ENGINES = re.compile(r"(?:BUILD|TARGET)(?:PLATFORM|OS|ARCH|VARIANT)")
_ODD_HEREDOC = re.compile(r"""(?:^|\s)\d*<<-?(?:['"][^'"\\#\s]*['"]|[^\s'"\\#<])*(?:[\\#]|['"][^'"\\#\s]*[\\#\s])""")


def _refuse_unclear(text: str) -> None:
    """Refuse what hides a FROM from :func:`bases_of`, because engines do not all read it as we do (row 472)."""
    for number, line in enumerate(text.split("\n"), 1):
        other = line.strip() != line.strip(" \t") and not line.lstrip(" \t").startswith("#")
        other = other or line.rstrip().endswith("\\\\")  # which continues a line for some alone
        if other or line.splitlines()[1:] or _BACKQUOTE.match(line):
            raise ConfigError(
                f"Dockerfile line {number}: lines have no blanks here but spaces and tabs, and are continued by \\."
            )
    known: set[str] = set()
    before = True
    for instruction in parse_dockerfile(text):
        where = f"Dockerfile line {instruction.line}"
        if _ODD_HEREDOC.search(instruction.value):  # its last line would be a comment here, or go on
            raise ConfigError(f"{where}: end the here-document by a plain word such as EOF.")
        for document in instruction.heredocs:  # for engines that do not know them its lines are instructions
            *_, last = ("", *(line for line in document.text.split("\n") if not re.match(r"\s*(?:#|$)", line)))
            if last.rstrip().endswith("\\") or document.name.upper() in KEYWORDS:
                raise ConfigError(f"{where}: end the here-document by EOF, and its last line without a backslash.")
        if instruction.keyword == "FROM" or (before and instruction.keyword == "ARG"):
            flag = _OF_ENGINES.sub("", instruction.flags.get("platform", ""))  # which `for_machine` replaces
            for name in re.findall(r"\$\{?(\w+)", f"{instruction.value} {flag}"):
                if name not in known:
                    raise ConfigError(f"{where}: {name} is not known before a build. Write the image itself.")
        if instruction.keyword == "ARG" and before:
            known.update(name for name in environment_pairs(instruction, {}) if not _OF_ENGINES.fullmatch(name))
        if instruction.keyword == "FROM":
            before = False
            if not re.fullmatch(r"[\w.-]*", "".join(instruction.value.split()[2:]), re.ASCII):
                raise ConfigError(f"{where}: name the stage by letters, digits, dots and hyphens.")


def _readings(text: str) -> set[str]:
    """The lines of a Dockerfile as an engine may read them: not all know here-documents, or go on after a blank line.

    Each line is one also where the line before goes on, but for ``add`` and ``from``, which are words of many commands.
    """
    joined: list[list[str]] = [[]]
    found = set()
    goes_on = False
    for line in text.split("\n"):
        if re.match(r"\s*#", line):
            continue
        if goes_on and not line.strip():
            goes_on = False
            continue
        if not goes_on or not re.match(r"\s*(?:add|from)\s", line, re.IGNORECASE):
            found.add(" ".join(line.split()))
        goes_on = line.rstrip().endswith("\\")
        joined[-1].append(line.rstrip()[:-1] if goes_on else line)
        if not goes_on:
            joined.append([])
    return found | {" ".join("".join(parts).split()) for parts in joined}


def expanded(text: str, variables: Mapping[str, str]) -> str:
    r"""Text with its variables replaced as Docker does outside of RUN; ``\$`` stays a dollar.

    Raises ``ConfigError`` when that makes it too long.
    """
    added = 0

    def value(match: re.Match[str]) -> str:
        nonlocal added
        if match[1] is not None:
            return match[1] if match[1] == "$" else match[0]
        found = variables.get(match[2] or match[3] or "", "")
        if match[4] == "-":
            found = found or expanded(match[5], variables)
        elif match[4] == "+":
            found = expanded(match[5], variables) if found else ""
        added += len(found)
        if added > _MAX_VALUE_CHARS:
            raise _TooLong(f"Dockerfile: a value has more than {_MAX_VALUE_CHARS:,} characters: {text[:40]!r}.")
        return found

    return _VARIABLE.sub(value, text)


def environment_pairs(instruction: Instruction, variables: Mapping[str, str]) -> dict[str, str]:
    """The names and values of an ``ENV``, ``ARG`` or ``LABEL``: ``NAME=value ...``, or ``NAME value`` to its end.

    Raises ``ConfigError`` when it gives no value, or one that is too long.
    """
    return _checked(instruction, variables, _pairs(instruction, variables))


def _checked(instruction: Instruction, variables: Mapping[str, str], pairs: dict[str, str]) -> dict[str, str]:
    if sum(map(len, {**variables, **pairs}.values())) > _MAX_VARIABLES_CHARS:
        raise _TooLong(
            f"Dockerfile line {instruction.line}: the variables have more than {_MAX_VARIABLES_CHARS:,} characters."
        )
    return pairs


def _pairs(instruction: Instruction, variables: Mapping[str, str]) -> dict[str, str]:
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
    folders = [next((part for part in source.split("/") if part not in {"", "."}), "") for source in sources]
    return bool(folders) and all(fnmatch.fnmatchcase("skills", folder) for folder in folders)


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


def _escape_character(lines: list[str]) -> str:
    for line in lines:
        directive = _DIRECTIVE.match(line)
        if directive is None:
            break
        if directive[1].lower() == "escape" and directive[2] in {"\\", "`"}:
            return directive[2]
    return "\\"


def _flags(value: str) -> tuple[dict[str, str], str]:
    flags: dict[str, str] = {}
    rest = " " + value
    for _ in range(_MAX_FLAGS):
        match = _FLAG.match(rest)
        if match is None:
            break
        flags[match[1]] = f"{flags[match[1]]} {match[2] or ''}" if match[1] in flags else match[2] or ""
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


def images_of(text: str, given: Mapping[str, str]) -> tuple[str, ...]:
    """The images behind every FROM, each once; a stage of the same file and ``scratch`` are none.

    ``given`` has build arguments, over the defaults of an ``ARG`` before the first FROM. Raises ``ConfigError`` when
    a line cannot be read.
    """
    return tuple(dict.fromkeys(image for _, image in _from_images(parse_dockerfile(text), given) if image is not None))


def for_machine(text: str, given: Mapping[str, str], architecture: str) -> str:
    """A Dockerfile with the ``--platform`` of each FROM as all engines read it; none where it is the engine's own.

    ``architecture`` is the engine's. Raises ``ConfigError`` when one is no platform.
    """
    own = _ARCHITECTURES.get(architecture, architecture)
    both = ("BUILD", "TARGET")
    variables = {f"{side}{name}": value for side in both for name, value in (("OS", "linux"), ("ARCH", own))}
    variables.update({f"{side}PLATFORM": f"linux/{own}" for side in both})
    instructions = parse_dockerfile(text)
    first = next((number for number, one in enumerate(instructions) if one.keyword == "FROM"), len(instructions))
    for instruction in instructions[:first]:
        if instruction.keyword == "ARG":
            variables.update(environment_pairs(instruction, variables))
            variables.update({name: value for name, value in given.items() if name in variables})
    lines = text.splitlines(keepends=True)
    for instruction in reversed(instructions[first:]):
        if instruction.keyword == "FROM" and "platform" in instruction.flags:
            platform = expanded(instruction.flags["platform"], variables)
            system, *rest = platform.lower().split("/")
            wanted = rest if system == "linux" else [system, *rest]
            if len(wanted) > 2 - (system != "linux") or not all(re.fullmatch("[a-z0-9_-]+", one) for one in wanted):
                raise ConfigError(
                    f"Dockerfile line {instruction.line}: {platform!r} is no platform such as linux/amd64."
                )
            wanted[:1] = [_ARCHITECTURES.get(one, one) for one in wanted[:1]]
            same = wanted[:1] in ([], [own]) and wanted[1:] in ([], ["v8"])
            flag = "" if same else f"--platform={'/'.join(['linux', *wanted])} "
            lines[instruction.line - 1 : instruction.last_line] = [f"FROM {flag}{instruction.value}\n"]
    return "".join(lines)


_ARCHITECTURES = {"x86_64": "amd64", "x86-64": "amd64", "aarch64": "arm64", "i386": "386"}


def bases_of(text: str, given: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The same with the ``--platform`` of each, which may be empty."""
    found = _from_images(parse_dockerfile(text), given)
    named = ((image, instruction.flags.get("platform", "")) for instruction, image in found if image is not None)
    return tuple(dict.fromkeys(named))


def copied_images(text: str) -> tuple[str, ...]:
    """What COPY takes files of and is no stage of the same file, also where only some engines see an instruction."""
    stages = {one.words[-1].lower() for one in parse_dockerfile(text) if one.keyword == "FROM" and one.words[1:]}
    lines = (_ONBUILD.sub("", line).split() for line in sorted(_readings(text)))
    copying = (words for words in lines if words[:1] and words[0].upper() in {"COPY", "ADD"})
    found = [word.removeprefix("--from=") for words in copying for word in words if word.startswith("--from=")]
    return tuple(dict.fromkeys(one for one in found if one and not one.isdigit() and one.lower() not in stages))


def with_bases(text: str, given: Mapping[str, str], bases: Mapping[str, str], arguments: Sequence[str]) -> str:
    """The Dockerfile with other images behind FROM, and ARG lines at the beginning of each of its stages.

    ``bases`` maps an image to the one in its place. ``arguments`` are ``NAME=VALUE`` each: variables of the stage's
    RUNs that no image keeps. Raises ``ConfigError`` when it is no Dockerfile.
    """
    lines = text.splitlines(keepends=True)
    declared = "".join(f"ARG {argument}\n" for argument in arguments)
    for instruction, image in reversed(_from_images(parse_dockerfile(text), given)):
        flags = "".join(f"--{name}={value} " for name, value in instruction.flags.items())
        rest = instruction.value.split()[1:]
        start = " ".join([bases.get(image, image) if image is not None else instruction.value.split()[0], *rest])
        lines[instruction.line - 1 : instruction.last_line] = [f"FROM {flags}{start}\n{declared}"]
    return "".join(lines)


def _from_images(instructions: Sequence[Instruction], given: Mapping[str, str]) -> list[tuple[Instruction, str | None]]:
    """Each FROM with its image; None for a stage of the same file and for ``scratch``."""
    arguments: dict[str, str] = {}
    stages = {"scratch"}
    found: list[tuple[Instruction, str | None]] = []
    for instruction in instructions:
        if instruction.keyword == "ARG" and not found:
            arguments.update(environment_pairs(instruction, arguments))
            arguments.update({name: value for name, value in given.items() if name in arguments})
        if instruction.keyword != "FROM" or not instruction.value:
            continue
        image, *rest = expanded(instruction.value, arguments).split() or [""]
        found.append((instruction, None if not image or image.lower() in stages else image))
        if len(rest) == 2 and rest[0].upper() == "AS":
            stages.add(rest[1].lower())
    return found


_NEVER_COPIED = ("Dockerfile", ".dockerignore")
_PIECE = 1 << 20
_LEAST_FREE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Source:
    """Something that is copied."""

    path: Path
    folder: bool  # whether it is a folder, whose contents are copied
    without: frozenset[str] = frozenset()  # top-level names of the folder that are left out

    def entries(self) -> Iterator[tuple[Path, str]]:
        """Each file, folder and link: its path and its name in the image, folders before what is in them, sorted."""
        if not self.folder:
            yield self.path, self.path.name
            return
        for place, folders, files in os.walk(self.path):
            here = Path(place)
            below = here.relative_to(self.path)
            if here == self.path:
                folders[:] = [name for name in folders if name not in self.without]
            folders.sort()
            left_out = self.without if here == self.path else ()
            for name in sorted([*folders, *(file for file in files if file not in left_out)]):
                yield here / name, str(below / name)


def find_sources(context: Path, patterns: Sequence[str], *, with_skills: bool, line: int) -> list[Source]:
    """What the words of a COPY stand for. Raises ``MissingSource`` when one matches nothing, or leaves the folder."""
    found = []
    for pattern in patterns:
        parts = [part for part in pattern.split("/") if part not in {"", "."}]
        if ".." in parts:
            raise MissingSource(
                f"Line {line} of the Dockerfile copies {pattern!r}, which is outside of the environment."
            )
        hits = [(context, ())] if not parts else list(_matches(context, tuple(parts), ()))
        hits = [hit for hit in hits if with_skills or hit[1][:1] != ("skills",)]
        if not hits:
            raise MissingSource(
                f"Line {line} of the Dockerfile copies {pattern!r}, and the environment has no such file."
            )
        for path, names in hits:
            if not path.resolve().is_relative_to(context.resolve()):
                raise MissingSource(f"Line {line} of the Dockerfile copies {pattern!r}, a link out of the environment.")
            without = set(_NEVER_COPIED) if not names else set()
            if not with_skills and not names:
                without.add("skills")
            found.append(Source(path, path.is_dir(), frozenset(without)))
    return found


def _check_room(sources: Sequence[Source]) -> None:
    """A sparse file takes no room until it is packed (row 286). Raises ``BuildError`` when there is none for it."""
    stats = (path.lstat() for source in sources for path, _ in source.entries())
    size = sum(found.st_size for found in stats if stat.S_ISREG(found.st_mode))
    if size and size > shutil.disk_usage(tempfile.gettempdir()).free - _LEAST_FREE_BYTES:
        where = " and ".join(dict.fromkeys(str(source.path) for source in sources))
        raise BuildError(f"There is no room to pack {size:,} bytes of {where}.")


def digest_of(sources: Sequence[Source]) -> str:
    """SHA-256 over names, kinds, permission bits, sizes and bytes; without sizes one file may be two (row 468)."""
    total = hashlib.sha256()
    for source in sources:
        for path, name in source.entries():
            status = path.lstat()
            size = 0 if stat.S_ISDIR(status.st_mode) else status.st_size
            kind = f"{stat.S_IFMT(status.st_mode):o}\0{status.st_mode & 0o777:o}"
            total.update(f"{name}\0{kind}\0{size}\0".encode())
            if stat.S_ISLNK(status.st_mode):
                total.update(str(path.readlink()).encode())
            elif stat.S_ISREG(status.st_mode):
                with path.open("rb") as file:
                    while piece := file.read(_PIECE):
                        total.update(piece)
        total.update(b"\n")
    return total.hexdigest()


def write_tar(file: IO[bytes], sources: Sequence[Source], documents: Mapping[str, str]) -> None:
    """Pack sources and here-documents; links stay links, what is no file, folder or link is left out.

    Raises ``BuildError`` when there is no room for them.
    """
    _check_room(sources)
    with tarfile.open(fileobj=file, mode="w") as archive:
        for source in sources:
            for path, name in source.entries():
                mode = path.lstat().st_mode
                if stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode):
                    archive.add(path, arcname=name, recursive=False, filter=_owned_by_root)
        for name, text in documents.items():
            member = tarfile.TarInfo(name)
            content = text.encode()
            member.size = len(content)
            member.mode = 0o644
            archive.addfile(member, io.BytesIO(content))


def _owned_by_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def _matches(folder: Path, parts: tuple[str, ...], above: tuple[str, ...]) -> Iterator[tuple[Path, tuple[str, ...]]]:
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208  # names, not paths
    except OSError:
        return
    for name in names:
        if not fnmatch.fnmatchcase(name, parts[0]):
            continue
        if len(parts) == 1:
            yield folder / name, (*above, name)
        else:
            yield from _matches(folder / name, parts[1:], (*above, name))
