"""The index on disk: what a scan learned, so that the next process need not read an unchanged folder again.

One file for each scanned root, in the user's cache folder. A line says the version, the length and the checksum of
what follows; anything that does not fit is thrown away and made again. It is written aside and renamed, so that
processes at the same time see one whole file or the other.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

from adk_skills_agent.catalog.untrusted_files import NO_STAMP, shown
from adk_skills_agent.format.models import Diagnostic, Severity, SkillMetadata
from adk_skills_agent.platforms import O_CLOEXEC, O_NOFOLLOW, O_NONBLOCK, write_whole

_NOT_NAMES = frozenset({"", ".", ".."})
_MAGIC = "adk-skills-index 1"
_MAX_BYTES = 256 << 20  # far more than a hundred thousand skills need
_MAX_FILES = 64  # roots that were scanned once and never again must not pile up
_ROWS_AT_ONCE = 500  # the rows of all skills at once would be the largest thing in memory
_SMALLEST_WORTH_KEEPING = 8  # fewer skills are read again sooner than an index is opened


class IndexCache:
    """The cache folder of one user."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._reader = ""
        self.problems: list[Diagnostic] = []

    def load(self, root: str) -> dict[str, Folder]:
        """The folders known of a root; empty when nothing is known or what is there cannot be used."""
        if self._folder is None:
            return {}
        path = self._path(root)
        try:
            data = self._read(path)
        except FileNotFoundError:
            return {}
        except OSError as error:
            self._say(f"The index {shown(path)} cannot be read: {error.strerror or error}.", path)
            return {}
        if data is None:
            return {}
        try:
            return _decode(root, self._fingerprint(), data)
        except (ValueError, TypeError, KeyError, IndexError, RecursionError):
            self._say(f"The index {shown(path)} is damaged and is made again.", path)
            return {}

    def save(self, root: str, folders: Mapping[str, Folder]) -> None:
        """Keep what a scan learned. A failure costs time the next time, nothing else, and leaves a diagnostic."""
        if self._folder is None or sum(folder.skill is not None for folder in folders.values()) < (
            _SMALLEST_WORTH_KEEPING
        ):
            return
        path = self._path(root)
        try:
            if not self._prepare_folder():
                return
            parts = _encode(root, self._fingerprint(), folders)
            write_whole(Path(path), parts, mode=0o600)
            self._remove_oldest()
        except OSError as error:
            self._say(f"The index {shown(path)} cannot be written: {error.strerror or error}.", path)

    def _path(self, root: str) -> str:
        key = os.fsencode(root)
        assert self._folder is not None  # noqa: S101 - both callers return early without a folder
        return os.path.join(self._folder, f"index-{zlib.crc32(key):08x}{zlib.adler32(key):08x}.json")

    def _read(self, path: str) -> bytes | None:
        descriptor = os.open(path, os.O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            status = os.fstat(descriptor)
            if (
                not stat.S_ISREG(status.st_mode)
                or status.st_uid != os.geteuid()
                or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
                or status.st_size > _MAX_BYTES
                or not self._folder_is_own()
            ):
                self._say(f"The index {shown(path)} is not used: others can write it, or it is not a file.", path)
                return None
            return file.readall()

    def _folder_is_own(self) -> bool:
        assert self._folder is not None  # noqa: S101
        status = os.lstat(self._folder)
        return (
            stat.S_ISDIR(status.st_mode)
            and status.st_uid == os.geteuid()
            and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        )

    def _prepare_folder(self) -> bool:
        assert self._folder is not None  # noqa: S101
        try:
            os.mkdir(self._folder, 0o700)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(self._folder), 0o700, exist_ok=True)
            with contextlib.suppress(FileExistsError):  # another process made it meanwhile
                os.mkdir(self._folder, 0o700)
        except FileExistsError:
            pass
        if self._folder_is_own():
            return True
        self._say(
            f"The cache folder {shown(self._folder)} is not used: it is a link, belongs to another user, or others "
            "can write it. Give it to yourself with mode 0700.",
            self._folder,
        )
        return False

    def _remove_oldest(self) -> None:
        assert self._folder is not None  # noqa: S101
        with os.scandir(self._folder) as entries:
            paths = [entry.path for entry in entries if entry.name.startswith("index-")]
        if len(paths) <= _MAX_FILES:
            return
        ages: list[tuple[float, str]] = []
        for path in paths:
            try:
                ages.append((os.lstat(path).st_mtime, path))
            except FileNotFoundError:
                continue  # another process did the same
        for _, path in sorted(ages)[:-_MAX_FILES]:
            try:
                os.unlink(path)
            except FileNotFoundError:
                continue

    def _fingerprint(self) -> str:
        """The origin of the index: the code that reads heads and lays out rows, and the Python that computes hashes.

        A repaired parser must not be shadowed by what the old one read.
        """
        if not self._reader:
            from adk_skills_agent import format as format_package

            parts = [sys.version]
            for folder in (os.path.dirname(__file__), *format_package.__path__):
                try:
                    with os.scandir(folder) as entries:
                        parts += sorted(
                            f"{entry.name} {entry.stat().st_mtime_ns} {entry.stat().st_size}"
                            for entry in entries
                            if entry.name.endswith((".py", ".pyc"))
                        )
                except OSError:  # in a zip file, or frozen into a program
                    parts.append(_version_of_archive(folder))
            self._reader = f"{zlib.crc32(' '.join(parts).encode()):08x}"
        return self._reader

    def _say(self, message: str, file: str) -> None:
        problem = Diagnostic("index-cache", Severity.INFO, message, shown(file))
        if problem not in self.problems:
            self.problems.append(problem)


def _version_of_archive(folder: str) -> str:
    """An identifier of an archive with this package: the version and the file's own stamp."""
    version = str(getattr(sys.modules[__name__.partition(".")[0]], "__version__", ""))  # no import upwards
    archive = folder
    while archive != (above := os.path.dirname(archive)):
        archive = above
        if os.path.isfile(archive):
            status = os.stat(archive)
            return f"{version} {status.st_mtime_ns} {status.st_size}"
    return version


def _encode(root: str, reader: str, folders: Mapping[str, Folder]) -> list[bytes]:
    base = root.rstrip("/")
    encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
    parts = [f"[{encode(root)},{encode(reader)},[".encode("ascii")]
    waiting = iter(folders.values())
    comma = b""
    while rows := [_row(base, folder) for folder in islice(waiting, _ROWS_AT_ONCE)]:
        parts.append(comma + encode(rows)[1:-1].encode("ascii"))
        comma = b","
    parts.append(b"]]")
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return [_header(sum(map(len, parts)), checksum), *parts]


def _header(length: int, checksum: int) -> bytes:
    return f"{_MAGIC} {length} {checksum:08x}\n".encode("ascii")


def _decode(root: str, reader: str, data: bytes) -> dict[str, Folder]:
    start = data.find(b"\n") + 1
    payload = memoryview(data)[start:]  # a copy of some megabytes less
    if data[:start] != _header(len(payload), zlib.crc32(payload)):
        raise ValueError("not an index of this version, or cut, or changed")
    of_root, read_by, rows = json.loads(str(payload, "ascii"))
    if of_root != root or read_by != reader:
        return {}
    _check(rows)
    folders: dict[str, Folder] = {}
    base = root.rstrip("/")
    for relative, stamp, children, links, skill_file, problems, skill_row in rows:
        path = base + relative or root
        skill = None
        if skill_row:
            skill_stamp, name, values, skill_problems = skill_row
            skill = IndexedSkill(
                f"{path}/{skill_file}",
                skill_stamp,
                skill_stamp != NO_STAMP,
                name,
                values,
                _problems(skill_problems) if skill_problems else (),
            )
        folders[path] = Folder(
            path,
            stamp,
            stamp != NO_STAMP,
            tuple(children) if children else (),
            tuple(links) if links else (),
            skill_file,
            _problems(problems) if problems else (),
            skill,
        )
    return folders


def _check(rows: list[list[Any]]) -> None:
    """Refuse rows with other types than were written, column by column: thousands of rows pass here at every start."""
    skills = list(filter(None, map(itemgetter(6), rows)))
    names = list(map(itemgetter(1), skills))
    for column in (2, 3):
        names.extend(chain.from_iterable(filter(None, map(itemgetter(column), rows))))
    if "/" in "\0".join(names) or not _NOT_NAMES.isdisjoint(names):  # join refuses what is not text
        raise ValueError("not names")
    if any(name.lower() != "skill.md" for name in set(map(itemgetter(4), rows)) - {"", SKILL_FILE}):
        raise ValueError("not the name of a SKILL.md")
    values = list(map(itemgetter(2), skills))
    lengths = set(map(len, values))
    if lengths - {1, 8} or set(map(type, map(itemgetter(0), values))) - {str}:
        raise ValueError("not the values of a skill")
    rich = values if lengths == {8} else [found for found in values if len(found) == 8]
    for column, kind in ((4, dict), (5, dict), (7, list)):  # the others are only shown, never looked into
        if set(map(type, map(itemgetter(column), rich))) - {kind, type(None)}:
            raise ValueError("not the values of a skill")


def _row(base: str, folder: Folder) -> list[object]:
    skill = folder.skill
    return [
        folder.path[len(base) :] if base != folder.path else "",
        folder.stamp if folder.settled else NO_STAMP,
        folder.children or 0,
        folder.links or 0,
        folder.skill_file,
        [_plain(problem) for problem in folder.problems] or 0,
        [
            skill.stamp if skill.settled else NO_STAMP,
            skill.name,
            skill.values,
            [_plain(problem) for problem in skill.problems] or 0,
        ]
        if skill is not None
        else 0,
    ]


def _plain(problem: Diagnostic) -> list[str | int | None]:
    return [problem.code, problem.severity.value, problem.message, problem.file, problem.line]


def _problems(rows: list[list[Any]]) -> tuple[Diagnostic, ...]:
    if not all(isinstance(text, str) for row in rows for text in (row[0], row[2], row[3] or "")):
        raise ValueError("not problems")
    return tuple(
        Diagnostic(code, Severity(severity), message, file, None if line is None else int(line))
        for code, severity, message, file, line in rows
    )


# A skill as the index holds it: level 1, cheap enough for thousands, its values built when asked for.

_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(slots=True, eq=False)
class IndexedSkill:
    """One SKILL.md on disk: where it is, its stamp, and what its head says."""

    location: str  # absolute path of the SKILL.md
    stamp: int  # the stamp of the file when it was read
    settled: bool  # False when the stamp cannot be believed, so that the next look reads the file again
    name: str
    _values: list[Any]
    problems: tuple[Diagnostic, ...]  # what reading the head left
    _metadata: SkillMetadata | None = None

    @classmethod
    def from_metadata(
        cls, location: str, stamp: int, settled: bool, metadata: SkillMetadata, problems: tuple[Diagnostic, ...]
    ) -> IndexedSkill:
        """The entry of a head that was just read."""
        location = metadata.file or location  # the path's own text, so that it is not kept twice
        return cls(location, stamp, settled, metadata.name, [], problems, metadata)

    @property
    def metadata(self) -> SkillMetadata:
        """Level 1 as a value; built at the first use."""
        found = self._metadata
        if found is None:
            found = self._metadata = _built(self.location, self.name, self._values)
        return found

    @property
    def values(self) -> list[Any]:
        """The columns of the index besides the name: the description, then fields that only some skills have."""
        found = self._metadata
        return self._values if found is None else _taken_apart(found)

    def may_have_field(self, field: str) -> bool:
        """Whether a field that the specification does not know may be in the head; spares building the values."""
        if self._metadata is not None:
            return field in self._metadata.extra
        return len(self._values) > 1 and field in (self._values[5] or ())

    def says_the_same(self, other: IndexedSkill) -> bool:
        """Whether both stand for the same file with the same content."""
        return self is other or (
            self.location == other.location
            and self.stamp == other.stamp
            and self.problems == other.problems
            and self.metadata == other.metadata
        )


def _taken_apart(metadata: SkillMetadata) -> list[Any]:
    values: list[Any] = [
        metadata.description,
        metadata.license,
        metadata.compatibility,
        metadata.allowed_tools,
        dict(metadata.metadata) if metadata.metadata else None,
        dict(metadata.extra) if metadata.extra else None,
        0 if metadata.original_name == metadata.name else metadata.original_name,
        metadata.repairs or None,
    ]
    return values if any(values[1:]) or metadata.original_name != metadata.name else values[:1]


def _built(location: str, name: str, values: list[Any]) -> SkillMetadata:
    if len(values) == 1:
        return SkillMetadata(name, values[0], location, None, None, None, _NOTHING, _NOTHING, name)
    description, license_, compatibility, allowed_tools, own, extra, original_name, repairs = values
    return SkillMetadata(
        name,
        description,
        location,
        license_,
        compatibility,
        allowed_tools,
        MappingProxyType(own) if own else _NOTHING,
        MappingProxyType(extra) if extra else _NOTHING,
        name if original_name.__class__ is int else original_name,
        tuple(repairs) if repairs else (),
    )


# What a walk keeps of each folder, and what it gives back.

SKILL_FILE = "SKILL.md"


@dataclass(slots=True, eq=False)
class Folder:
    """The record of one folder from a scan, so that the next scan need not list it again."""

    path: str  # absolute path, by the way it was reached
    stamp: int  # its stamp when it was listed
    settled: bool  # whether that stamp can be believed
    children: tuple[str, ...]  # names of the subfolders to visit, sorted
    # names of the links that do not lead to a file, sorted; where they lead is looked at every time
    links: tuple[str, ...]
    skill_file: str  # the name of its SKILL.md, empty when it has none
    problems: tuple[Diagnostic, ...] = ()
    skill: IndexedSkill | None = None


@dataclass(slots=True, eq=False)
class Scan:
    """The result of walking one root."""

    # every folder visited, by path; give it to the next scan of the same root
    folders: dict[str, Folder] = field(default_factory=dict)
    skills: list[IndexedSkill] = field(default_factory=list)  # the skills found, in the order of the walk
    nested: set[str] = field(default_factory=set)  # the locations of those in the folder of another one
    problems: list[Diagnostic] = field(default_factory=list)  # what was repaired, refused, skipped or cut
    # for some of these problems, the other folders that they speak of
    about: dict[Diagnostic, tuple[str, ...]] = field(default_factory=dict)
    learned: bool = False  # whether something was read that the index on disk does not know yet
