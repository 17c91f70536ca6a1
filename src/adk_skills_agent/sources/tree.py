"""The bytes of one skill: its files in memory, checked paths, a digest for each and one for all."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from adk_skills_agent.errors import SourceError
from adk_skills_agent.format.models import ParsedSkill
from adk_skills_agent.platforms import regular_descriptor

MAX_FILES = 2_000
"""Of one skill; the largest of 2,066 real ones has 400."""
MAX_FILE_BYTES = 32 << 20
MAX_TREE_BYTES = 64 << 20
MAX_PATH_CHARS = 512
MAX_DEPTH = 20
VERSION_CONTROL = frozenset({".git", ".hg", ".svn"})
SKIPPED = VERSION_CONTROL | frozenset({"node_modules", "__pycache__", ".DS_Store"})
"""Names that are no part of a source's skill wherever they lie: version control, and what tools make again."""
NOT_COMPARED = frozenset({".DS_Store"})
"""Names that do not count in an installed skill, when they are what a file manager of macOS makes. Nothing that could
run is here: bytecode and modules do count.
"""
_DS_STORE = b"\0\0\0\1Bud1"  # how such a file begins
_DRIVE = re.compile(r"[A-Za-z]:")
_SCALAR_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class TreeFile:
    """One file: its bytes, and whether its owner may execute it."""

    data: bytes
    executable: bool = False

    @property
    def digest(self) -> str:
        """``sha256:`` and the hash of the bytes."""
        return "sha256:" + hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True)
class SkillTree:
    """All files of a skill."""

    files: Mapping[str, TreeFile]  # Relative path, with ``/``, to file; sorted by path. Make one with :func:`tree_of`.

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """The digest of each file."""
        return {path: file.digest for path, file in self.files.items()}

    @cached_property
    def executables(self) -> frozenset[str]:
        """The files that may be executed."""
        return frozenset(path for path, file in self.files.items() if file.executable)

    @cached_property
    def digest(self) -> str:
        """One digest of paths, bytes and modes."""
        return tree_digest(self.digests, self.executables)

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(len(file.data) for file in self.files.values())

    @property
    def skill_file(self) -> str:
        """The name of the SKILL.md."""
        return next(name for name in ("SKILL.md", "skill.md") if name in self.files)

    def parsed(self, folder_name: str) -> ParsedSkill:
        """The SKILL.md as the lenient profile reads it. Raises ``ParseError`` when it is empty."""
        from adk_skills_agent.format import decoded, parse_text  # reads YAML, which digests do without

        return parse_text(decoded(self.files[self.skill_file].data), folder_name=folder_name)

    def license(self, folder_name: str) -> str:
        """What the skill says of its licence: the field, else the first line of its licence file; empty for nothing."""
        said = self.parsed(folder_name).metadata.license
        if not said:
            for path, file in self.files.items():
                if "/" not in path and path.upper().startswith(("LICENSE", "LICENCE", "COPYING")):
                    lines = file.data[:4096].decode("utf-8", "replace").split("\n")
                    said = next((line.strip() for line in lines if line.strip()), "")
                    break
        return _SCALAR_SPACE.sub(" ", said or "")[:100]


def tree_digest(digests: Mapping[str, str], executables: Iterable[str]) -> str:
    """The digest of a tree from those of its files: ``sha256:`` and a hash over path, mode and digest, sorted."""
    may_run = frozenset(executables)
    total = hashlib.sha256()
    for path in sorted(digests):
        total.update(f"{path}\0{'x' if path in may_run else '-'}\0{digests[path]}\n".encode())
    return "sha256:" + total.hexdigest()


def tree_of(files: Mapping[str, TreeFile], what: str) -> SkillTree:
    """A tree of files whose paths and sizes were checked.

    Raises:
        SourceError: A path leaves the skill or collides with another, there is no SKILL.md, or it is too large.
    """
    check_paths(files, what)
    if not any(name in files for name in ("SKILL.md", "skill.md")):
        raise SourceError(f"{what} has no SKILL.md. Name a folder that has one.")
    if sum(len(file.data) for file in files.values()) > MAX_TREE_BYTES:
        raise SourceError(f"{what} has more than {MAX_TREE_BYTES >> 20} MiB. Ask its author to make it smaller.")
    return SkillTree(dict(sorted(files.items())))


def check_paths(paths: Iterable[str], what: str, *, most: int = MAX_FILES) -> None:
    """Refuse paths that would not be one file each inside the skill, on any system.

    Raises:
        SourceError: With the first such path.
    """
    seen: dict[str, str] = {}
    folders: dict[str, str] = {}
    for count, path in enumerate(paths, 1):
        if count > most:
            raise SourceError(f"{what} has more than {most:,} files. Ask its author to make it smaller.")
        if problem := _path_problem(path):
            raise SourceError(f"{what} has a file {_shown(path)} {problem}, so nothing of it is taken.")
        key = _folded(path)
        if key in seen:
            raise SourceError(
                f"{what} has two files, {_shown(seen[key])} and {_shown(path)}, that are one on some systems, "
                "so nothing of it is taken. Ask its author to rename one."
            )
        seen[key] = path
        for above in _folders_above(path):
            known = folders.setdefault(_folded(above), above)
            if known != above:
                raise SourceError(
                    f"{what} has two folders, {_shown(known)} and {_shown(above)}, that are one on some systems, "
                    "so nothing of it is taken. Ask its author to rename one."
                )
    for key, path in seen.items():
        if key in folders:
            raise SourceError(f"{what} has {_shown(path)} as a file and as a folder, so nothing of it is taken.")
        above, _, name = key.rpartition("/")
        beside = f"{above}/" if above else ""
        if name == "head" and ({f"{beside}objects", f"{beside}refs"} <= folders.keys() or f"{beside}commondir" in seen):
            raise SourceError(
                f"{what} has {_shown(path)} beside folders with which git takes it for a repository, whose settings "
                "run programs, so nothing of it is taken."
            )


def _path_problem(path: str) -> str:
    parts = path.split("/")
    if path.startswith("/") or _DRIVE.match(path):
        return "with an absolute path"
    if ".." in parts:
        return "whose path leaves the skill"
    if "\\" in path or any(part in {"", "."} for part in parts):
        return "whose path is not plain"
    if any(ord(char) < 32 or ord(char) == 127 or 0xD800 <= ord(char) < 0xE000 for char in path):
        return "whose name has control characters or is no text"
    if len(path) > MAX_PATH_CHARS or len(parts) > MAX_DEPTH or any(len(part.encode()) > 255 for part in parts):
        return "whose path is too long"
    if any(part.casefold() in VERSION_CONTROL for part in parts):
        return "that is version control data"
    return ""


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())


def _shown(path: str) -> str:
    return repr(path if len(path) <= 120 else path[:120] + "...")


def skill_folders(paths: Iterable[str]) -> list[str]:
    """The folders that have a SKILL.md, sorted; one inside another skill is a part of that, unless that is the root."""
    found = {
        path.rpartition("/")[0]
        for path in paths
        if path.rpartition("/")[2] in {"SKILL.md", "skill.md"} and SKIPPED.isdisjoint(path.split("/"))
    }
    outer = [""] if "" in found else []
    last = "/"
    for folder in sorted(f"{folder}/" for folder in found - {""}):  # what is in one comes directly after it
        if not folder.startswith(last):
            outer.append(folder[:-1])
            last = folder
    return sorted(outer)


def _folders_above(path: str) -> Iterator[str]:
    """The folders that a path lies in, without the root."""
    while path := path.rpartition("/")[0]:
        yield path


def files_by_folder(paths: Iterable[str], folders: Iterable[str], all_folders: Iterable[str]) -> dict[str, list[str]]:
    """The paths of some skills: below their folders, without what tools make and, for a root, without other skills."""
    found: dict[str, list[str]] = {folder: [] for folder in folders}
    others = frozenset(all_folders) - {""}
    # Of each folder whose its files are, and whether they are the root's: made once for all that lies in it (row 457).
    root: tuple[tuple[str, ...], bool] = ((), "" in found)
    known = {"": root}
    for path in paths:
        place, _, name = path.rpartition("/")
        missing = []
        while place not in known:
            missing.append(place)
            place = place.rpartition("/")[0]
        owners, is_roots = known[place]
        if len(known) > _MOST_KNOWN:
            known = {"": root}
        for folder in reversed(missing):
            if folder.rpartition("/")[2] in SKIPPED:
                owners, is_roots = (), False
            if folder in found:
                owners = (*owners, folder)
            is_roots = is_roots and folder not in others
            known[folder] = owners, is_roots
        for owner in (*owners, "") if is_roots else owners:
            if name not in SKIPPED:
                found[owner].append(path)
    return found


_MOST_KNOWN = 1000


# Trees on disk.


def read_tree(folder: Path, what: str, *, skipped: Collection[str] = SKIPPED, without: Sequence[str] = ()) -> SkillTree:
    """The files of a skill's folder. Links to files inside it count as those files.

    ``what`` it is, is for sentences; names in ``skipped`` are passed over, as are the folders ``without``, relative to
    the skill's, and links into them. Raises ``SourceError`` when a link leaves the folder, a file is no regular one, or
    cannot be read; as :func:`tree_of`.
    """
    files: dict[str, TreeFile] = {}
    total = 0

    def take(path: str, full: str) -> None:
        nonlocal total
        data, executable = _content_of(path, full, what)
        total += len(data)
        if total > MAX_TREE_BYTES:
            raise SourceError(f"{what} has more than {MAX_TREE_BYTES >> 20} MiB. Make it smaller.")
        files[path] = TreeFile(data, executable)

    walk_files(folder, what, take, skipped, without)
    return tree_of(files, what)


def digest_folder(folder: Path, what: str) -> tuple[dict[str, str], frozenset[str]]:
    """The digests of the files of an installed skill and which of them may be executed, without keeping their bytes.

    Raises ``SourceError`` as :func:`read_tree` does.
    """
    digests: dict[str, str] = {}
    executables: set[str] = set()

    def take(path: str, full: str) -> None:
        data, executable = _content_of(path, full, what)
        digests[path] = "sha256:" + hashlib.sha256(data).hexdigest()
        if executable:
            executables.add(path)

    walk_files(folder, what, take, NOT_COMPARED)
    return digests, frozenset(executables)


def _content_of(path: str, full: str, what: str) -> tuple[bytes, bool]:
    """As :func:`_read_with_mode`, with a ``SourceError`` about the file ``path`` of ``what``."""
    try:
        return _read_with_mode(full)
    except OSError as error:
        raise SourceError(f"{what}: the file {_shown(path)} cannot be read: {error.strerror}.") from error


def read_regular(path: Path | str) -> bytes:
    """The bytes of a regular file, bounded; never waits for a pipe.

    Raises ``OSError`` when it is no regular file, too large, or cannot be read.
    """
    return _read_with_mode(path)[0]


def _read_with_mode(path: Path | str) -> tuple[bytes, bool]:
    """The bytes of a regular file, and whether its owner may execute it."""
    descriptor, status = regular_descriptor(path)  # and no file object: verify reads thousands
    try:
        if status.st_size > MAX_FILE_BYTES:
            raise OSError(0, f"it has more than {MAX_FILE_BYTES >> 20} MiB", str(path))
        data = os.read(descriptor, status.st_size + 1)
        while len(data) < status.st_size and (more := os.read(descriptor, status.st_size - len(data) + 1)):
            data += more
        if len(data) > status.st_size:
            raise OSError(0, "it grew while it was read", str(path))
        return data, bool(status.st_mode & stat.S_IXUSR)
    finally:
        os.close(descriptor)


def _is_of_file_manager(entry: os.DirEntry[str]) -> bool:
    """Whether it is what its name says, and no folder or script of that name (row 382)."""
    try:
        data, executable = _read_with_mode(entry.path)
    except OSError:
        return False
    return data.startswith(_DS_STORE) and not executable


def walk_files(
    folder: Path,
    what: str,
    take: Callable[[str, str], None],
    skipped: Collection[str] = SKIPPED,
    without: Sequence[str] = (),
) -> None:
    """Call ``take`` with relative path and path for each file below a folder, but for those as :func:`read_tree` says.

    Raises:
        SourceError: A link leaves the folder, or something is neither a file nor a folder, or there is too much.
    """
    root, real = os.fspath(folder), ""
    count = 0
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        try:
            with os.scandir(f"{root}/{prefix}") as listed:
                entries = sorted(listed, key=lambda entry: entry.name)
        except OSError as error:
            raise SourceError(
                f"{what}: the folder {_shown(prefix or '.')} cannot be read: {error.strerror}."
            ) from error
        for entry in entries:
            path = prefix + entry.name
            if path in without or (entry.name in skipped and (skipped != NOT_COMPARED or _is_of_file_manager(entry))):
                continue
            count += 1
            if count > MAX_FILES * 2:
                raise SourceError(f"{what} has more than {MAX_FILES:,} files. Make it smaller.")
            if entry.is_symlink():
                real = real or os.path.realpath(root)
                target = os.path.realpath(entry.path)
                if not target.startswith(real + "/"):
                    raise SourceError(f"{what} has a link {_shown(path)} that leaves it. Put a copy in its place.")
                if f"{target}/".startswith(tuple(f"{real}/{one}/" for one in without)):
                    continue
                if not Path(target).is_file():
                    raise SourceError(f"{what} has a link {_shown(path)} to no file. Put a copy in its place.")
                take(path, target)
            elif entry.is_dir(follow_symlinks=False):
                if len(path.split("/")) > MAX_DEPTH:
                    raise SourceError(f"{what} has folders more than {MAX_DEPTH} deep. Make it flatter.")
                waiting.append(path + "/")
            elif entry.is_file(follow_symlinks=False):
                take(path, entry.path)
            else:
                raise SourceError(f"{what} has {_shown(path)}, which is a pipe, a socket or a device. Remove it.")
