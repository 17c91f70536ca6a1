"""One skill, lazily: its instructions and files are read when they are asked for, and again when they changed."""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from adk_skills_agent.catalog.files import FileListing, SkillFile, clean_path, list_files, locate, read_inside
from adk_skills_agent.catalog.untrusted_files import (
    NO_STAMP,
    RESOURCE_FOLDERS,
    Permits,
    is_inside,
    is_settled,
    permitted_folder,
    real_path,
    shown,
    skill_file_opener,
    stamp_of,
)
from adk_skills_agent.errors import InvalidResourcePath, ParseError, ResourceNotFound, nearest
from adk_skills_agent.format import parse_file, read_text
from adk_skills_agent.format.models import Diagnostic, ParsedSkill, SkillMetadata

if TYPE_CHECKING:
    from adk_skills_agent.format import SkillMetadata


class Skill:
    """A skill on disk (S4-8, S4-9). Only its frontmatter is read until more is asked for.

    The object stays good while its files change: each use looks whether they did. It may be used by several threads.

    Args:
        metadata: Its frontmatter, as the catalog has it; with a location.
        diagnostics: What was found while the frontmatter was read.
        permits: Asked, at each use, about the real path of the folder; None when it may be anywhere.
        without: Folders below the skill's, relative to it, that are treated as if they were not there.
    """

    def __init__(
        self,
        metadata: SkillMetadata,
        diagnostics: Sequence[Diagnostic] = (),
        *,
        permits: Permits | None = None,
        without: Sequence[str] = (),
    ) -> None:
        if metadata.file is None:
            raise ValueError("a Skill needs the location of its SKILL.md")
        self._metadata = metadata
        self._location = metadata.file
        self._folder, self._skill_file = os.path.split(self._location)
        self._path: Path | None = None  # made when it is asked for: of most skills it never is
        self._diagnostics = tuple(diagnostics)
        self._permits = permits
        self._without = tuple(without)
        self._parsed: ParsedSkill | None = None
        self._stamp: int = NO_STAMP
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Skill(name={self.name!r}, skill_dir={self._folder!r})"

    def excluding(self, folders: Sequence[str]) -> Skill:
        """The same skill for somebody who must not see some folders below it: those of skills hidden from them."""
        without = dict.fromkeys((*self._without, *folders))
        return Skill(self._metadata, self._diagnostics, permits=self._permits, without=tuple(without))

    @property
    def without(self) -> tuple[str, ...]:
        """Folders below the skill's that it must not show, relative to it."""
        return self._without

    @property
    def name(self) -> str:
        """The name the catalog uses."""
        return self._metadata.name

    @property
    def description(self) -> str:
        """What the skill does and when to use it, as of the last look at the file."""
        return self.metadata.description

    @property
    def metadata(self) -> SkillMetadata:
        """The frontmatter; of the newest text once the instructions were read."""
        parsed = self._parsed
        return self._metadata if parsed is None else parsed.metadata

    @property
    def location(self) -> Path:
        """Absolute path of the SKILL.md."""
        return Path(self._location)

    @property
    def skill_dir(self) -> Path:
        """Absolute path of the skill's folder."""
        if self._path is None:
            self._path = Path(self._folder)
        return self._path

    @property
    def instructions(self) -> str:
        """Level 2: the body. Read again when the file changed (C21).

        Raises:
            ParseError: The file cannot be read any more, or its folder was replaced by a link out of the trusted roots;
                the same goes for every question about the skill's files.
        """
        return self._current().body

    @property
    def body_line(self) -> int:
        """1-based line of the SKILL.md where the instructions start."""
        return self._current().body_line

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The diagnostics of reading the SKILL.md: of the whole file once it was read, else of its head."""
        parsed = self._parsed
        return self._diagnostics if parsed is None else parsed.diagnostics

    @property
    def scripts_dir(self) -> Path | None:
        """The folder ``scripts``, None when there is none."""
        return self._conventional("scripts")

    @property
    def references_dir(self) -> Path | None:
        """The folder ``references``, None when there is none."""
        return self._conventional("references")

    @property
    def assets_dir(self) -> Path | None:
        """The folder ``assets``, None when there is none."""
        return self._conventional("assets")

    @property
    def has_scripts(self) -> bool:
        """Whether there is a file in ``scripts``."""
        return self._has_file_in("scripts")

    @property
    def has_references(self) -> bool:
        """Whether there is a file in ``references``."""
        return self._has_file_in("references")

    def files(self) -> tuple[SkillFile, ...]:
        """Every regular file of the skill but its SKILL.md, sorted by path (S2, C34); looked up anew each time."""
        return self.listing().files

    def file_diagnostics(self) -> tuple[Diagnostic, ...]:
        """The entries not listed as files, and why: links that leave the skill, special files, bounds reached."""
        return self.listing().problems

    def listing(self) -> FileListing:
        """Files and diagnostics in one walk."""
        return list_files(self._folder, self._skill_file, real=self._real(), without=self._without)

    def resolve(self, path: str) -> Path:
        """The absolute path of a file of the skill; links inside the skill are followed.

        Args:
            path: Relative to the skill's folder, with ``/``.

        Raises:
            InvalidResourcePath: The path is absolute, has ``..`` or backslashes, or passes a link that leaves (S4-22).
            ResourceNotFound: There is no such regular file; ``suggestions`` has the nearest.
        """
        return Path(self._folder, self._locate(path))

    def find(self, path: str, prefixes: Sequence[str] = ()) -> str:
        """The relative path of a file that may be named without its folder (S0-9, S4-7).

        Args:
            path: As :meth:`resolve`; ``guide.md`` also finds ``references/guide.md`` when that is a prefix.
            prefixes: Folders to try after the path as it is written, best first: ``("references",)``. A bare name
                that only one file of the skill has is accepted too.

        Returns:
            The path of the file, relative to the skill's folder, without links.

        Raises:
            InvalidResourcePath: As :meth:`resolve`.
            ResourceNotFound: As :meth:`resolve`.
        """
        cleaned = clean_path(path)
        for candidate in (cleaned, *(f"{prefix.strip('/')}/{cleaned}" for prefix in prefixes)):
            found = self._located(candidate)
            if found is not None:
                return found
        if prefixes and "/" not in cleaned:
            same_name = [file.path for file in self.files() if file.path.rpartition("/")[2] == cleaned]
            if len(same_name) == 1:
                return same_name[0]
        raise self._not_found(cleaned)

    def has_file(self, path: str) -> bool:
        """Whether the skill has a file at just this path, relative to its folder."""
        try:
            return self._located(clean_path(path)) is not None
        except InvalidResourcePath:
            return False

    def read_bytes(self, path: str, limit: int | None = None) -> bytes:
        """The content of a file of the skill.

        Args:
            path: As :meth:`resolve`.
            limit: How many bytes at most; None for all of them.

        Raises:
            InvalidResourcePath: As :meth:`resolve`.
            ResourceNotFound: As :meth:`resolve`.
            CatalogError: It cannot be read, or is larger than 64 MiB and no limit was given.
        """
        return read_inside(self._real(), self._locate(path), limit)

    def read_text(self, path: str) -> str:
        """The content of a text file of the skill, as UTF-8 or, with its mark, UTF-16.

        Bytes that are not valid become U+FFFD, so that a text in another encoding can still be read for its ASCII part.

        Raises:
            InvalidResourcePath: As :meth:`resolve`.
            ResourceNotFound: As :meth:`resolve`.
            CatalogError: As :meth:`read_bytes`.
        """
        data = self.read_bytes(path)
        encoding = "utf-16" if data[:2] in {b"\xff\xfe", b"\xfe\xff"} else "utf-8-sig"
        return data.decode(encoding, "replace")

    def _locate(self, path: str) -> str:
        cleaned = clean_path(path)
        found = self._located(cleaned)
        if found is None:
            raise self._not_found(cleaned)
        return found

    def _located(self, cleaned: str) -> str | None:
        found = locate(self._real(), cleaned)
        return None if found is None or self._is_hidden(found) else found

    def _real(self) -> str:
        return permitted_folder(self._folder, self._permits)

    def _is_hidden(self, relative: str) -> bool:
        return any(is_inside(relative, folder) for folder in self._without)

    def _not_found(self, path: str) -> ResourceNotFound:
        files = [file.path for file in self.files()]
        folder = self._inner_folder(path)
        if folder is not None and not self._is_hidden(folder):
            below = tuple(file for file in files if file.startswith(path + "/"))[:3]
            message = f"{path!r} in skill {self.name!r} is a folder. Name a file in it."
            return ResourceNotFound(message, below)
        suggestions = nearest(path, files)
        hint = f" Did you mean {', '.join(map(repr, suggestions))}?" if suggestions else ""
        return ResourceNotFound(f"Skill {self.name!r} has no file {path!r}.{hint}", suggestions)

    def _conventional(self, name: str) -> Path | None:
        return None if self._inner_folder(name) is None else Path(self._folder, name)

    def _inner_folder(self, name: str) -> str | None:
        """Where a folder of the skill is, relative to its own, without links; None when there is none inside."""
        real = self._real()
        target = real_path(os.path.join(real, name))
        if not is_inside(target, real) or not os.path.isdir(target):
            return None
        return target[len(real) :].lstrip("/")

    def _has_file_in(self, name: str) -> bool:
        folder = self._inner_folder(name) if name in RESOURCE_FOLDERS else None
        if folder is None:
            return False
        return any(not folder or file.path.startswith(folder + "/") for file in self.files())

    def _current(self) -> ParsedSkill:
        with self._lock:
            read_at = time.time_ns()
            if self._permits is not None:
                self._real()
            try:
                status = os.lstat(self._location)
            except OSError as error:
                why = error.strerror or type(error).__name__
                raise ParseError(f"{shown(self._location)} cannot be read any more: {why}.") from error
            is_link = stat.S_ISLNK(status.st_mode)
            stamp = NO_STAMP if is_link else stamp_of(status)
            if self._parsed is None or self._stamp == NO_STAMP or self._stamp != stamp:
                self._parsed = parse_file(Path(self._location), skill_file_opener(self._permits))
                self._stamp = stamp if is_settled(status, read_at) else NO_STAMP
            return self._parsed


_SLASH_ESCAPED = re.compile("%2f", re.IGNORECASE)


def name_in_rules(skill: str) -> str:
    """A skill's name where a ``/`` ends it: in keys of grants, patterns of rules, names of files.

    The id of a registry may have a ``/`` itself: ``acme/weather`` is written ``acme%2Fweather`` there (row 356).
    """
    return _SLASH_ESCAPED.sub("%252F", skill).replace("/", "%2F")


# The headings of a skill's instructions: an outline for the search, read when it is first needed.

MAX_HEADINGS_CHARS = 4_000
"""Characters of headings kept for one skill: a long outline must not weigh more than what a skill says it is for."""

_MAX_LINE = 400  # characters of a line that are looked at: no heading is longer, and patterns stay fast
_MARKED = frozenset("#`~=-")  # what a line that matters here begins with, after at most three spaces
_MARKED_OR_INDENTED = _MARKED | {" "}
_FENCE = re.compile(r" {0,3}(`{3,}(?!.*`)|~{3,})")  # ```x``` is code inside a line
_ATX = re.compile(r" {0,3}#{1,6}[ \t]+(.+)")
_CLOSING = re.compile(r"[ \t]+#+$")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)$")
_NOT_A_PARAGRAPH = re.compile(r"\s*(?:[-*+>|]|\d+[.)]\s)| {4}|\t")
_CLOSING_FENCE = re.compile(r"^---[ \t]*$", re.MULTILINE)
_LINK = re.compile(r"!?\[([^\]\[]*)\]\([^()]*\)")


def headings_of(metadata: SkillMetadata, permits: Mapping[str, Permits] | None = None) -> str:
    """Return the headings of a skill's body, read from its SKILL.md; none for a skill that is not on disk.

    Raises ``ParseError`` when the file is a link that leaves its skill, or cannot be read any more; ``SearchIndex``
    makes a diagnostic of it.
    """
    location = metadata.location
    if location is None:
        return ""
    opener = skill_file_opener(permits.get(metadata.name) if permits else None)
    return markdown_headings(_without_frontmatter(read_text(location, opener).text))


def markdown_headings(body: str) -> str:
    """Return the headings of a Markdown text, one a line, without their marks and link targets.

    ``# x`` of every level and one-line paragraphs underlined with ``=`` or ``-`` count; nothing inside a code fence
    does. At most ``MAX_HEADINGS_CHARS`` characters, whole headings.
    """
    lines = body.split("\n")
    found: list[str] = []
    left = MAX_HEADINGS_CHARS
    fence = ""
    for number, whole in enumerate(lines):
        # Nearly all lines end here: thousands of bodies are read before the first search answers.
        if (
            not whole
            or whole[0] not in _MARKED_OR_INDENTED
            or (whole[0] == " " and whole[:4].lstrip(" ")[:1] not in _MARKED)
        ):
            continue
        line = whole[:_MAX_LINE].rstrip()
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and line == mark[0]:
                fence = ""
            continue
        if mark:
            fence = mark[1]
            continue
        if atx := _ATX.match(line):
            heading = _CLOSING.sub("", atx[1])
        elif _UNDERLINE.match(line) and _is_paragraph(lines, number - 1):
            heading = lines[number - 1][:_MAX_LINE]
        else:
            continue
        if heading := _LINK.sub(r"\1", heading).strip():
            left -= len(heading) + 1
            if left < 0:
                break
            found.append(heading)
    return "\n".join(found)


def _is_paragraph(lines: list[str], number: int) -> bool:
    """Whether a line is a paragraph of its own, which an underline makes a heading."""
    if number < 0 or (number > 0 and lines[number - 1].strip()):
        return False
    line = lines[number][:_MAX_LINE]
    return bool(line.strip()) and not _NOT_A_PARAGRAPH.match(line) and not _ATX.match(line) and not _FENCE.match(line)


def _without_frontmatter(text: str) -> str:
    # Comments of the frontmatter look like headings. A closing fence is all that is needed here; no YAML is read.
    text = text.lstrip("\ufeff \t\n")
    if not text.startswith("---"):
        return text
    closing = _CLOSING_FENCE.search(text, 3)
    return text[closing.end() :] if closing else text
