"""Which files a skill has: every one of them, wherever in its folder it lies (S2), and what is not counted as one."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from adk_skills_agent.catalog.untrusted_files import (
    NOT_LISTED,
    VERSION_CONTROL,
    is_inside,
    is_link_error,
    open_real,
    real_path,
    shown,
)
from adk_skills_agent.errors import CatalogError, InvalidResourcePath
from adk_skills_agent.format.models import Diagnostic, Severity
from adk_skills_agent.platforms import O_CLOEXEC, O_NONBLOCK

MAX_FILES = 10_000  # the largest of 2,066 real skills has 400
MAX_FOLDERS = 10_000  # empty folders cost time too
MAX_DEPTH = 20  # the deepest real file is 7 folders down


@dataclass(frozen=True, slots=True)
class SkillFile:
    """One file of a skill.

    Attributes:
        path: Relative to the skill's folder, with ``/``.
        size: In bytes; of what a link leads to.
        executable: Whether its owner may execute it.
    """

    path: str
    size: int
    executable: bool


@dataclass(frozen=True, slots=True)
class FileListing:
    """The files of a skill, sorted by path, and what was refused, skipped or cut."""

    files: tuple[SkillFile, ...]
    problems: tuple[Diagnostic, ...]


def list_files(
    folder: str,
    skill_file: str,
    *,
    real: str | None = None,
    without: Sequence[str] = (),
    max_files: int = MAX_FILES,
    max_depth: int = MAX_DEPTH,
) -> FileListing:
    """Walk a skill's folder.

    ``without``, files and folders, relative, is passed over without a word. Returns regular files and links to regular
    files inside the skill. Links that leave it, broken links, special files, unreadable folders and version control
    data are reported, never listed.
    """
    return _Listing(folder, real or real_path(folder), skill_file, without, max_files, max_depth).run()


class _Listing:
    def __init__(
        self, folder: str, real: str, skill_file: str, without: Sequence[str], max_files: int, max_depth: int
    ) -> None:
        self.folder = folder  # as it is shown
        self.real = real  # where everything is looked up
        self.without = without
        self.skill_file = skill_file
        self.max_files = max_files
        self.max_depth = max_depth
        self.files: list[SkillFile] = []
        self.problems: list[Diagnostic] = []

    def run(self) -> FileListing:
        level = [""]
        depth = visited = 0
        while level:  # level by level, so that a cut takes the deepest files
            if depth > self.max_depth:
                message = f"Folders deeper than {self.max_depth} levels are not listed; the first is {{}}."
                self._say("too-deep", Severity.WARNING, level[0], message)
                break
            below: list[str] = []
            for prefix in level:
                visited += 1
                if visited > MAX_FOLDERS:
                    message = f"The skill has more than {MAX_FOLDERS} folders; {{}} and what follows is not listed."
                    self._say("too-many-folders", Severity.WARNING, prefix, message)
                    return self._listing()
                for entry in self._entries(prefix):
                    if len(self.files) >= self.max_files:
                        message = (
                            f"The skill has more than {self.max_files} files; {{}} and what follows is not listed."
                        )
                        self._say("too-many-files", Severity.WARNING, prefix + entry.name, message)
                        return self._listing()
                    self._take(prefix, entry, below)
            level = below
            depth += 1
        return self._listing()

    def _listing(self) -> FileListing:
        self.files.sort(key=lambda file: file.path)
        self.problems.sort(key=lambda problem: (problem.file or "", problem.code))
        return FileListing(tuple(self.files), tuple(self.problems))

    def _entries(self, prefix: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(f"{self.real}/{prefix}") as entries:
                # more than that is cut anyway, and must not fill the memory before it is
                return sorted(islice(entries, self.max_files + MAX_FOLDERS), key=lambda entry: entry.name)
        except OSError as error:
            why = error.strerror or type(error).__name__
            self._say("unreadable-folder", Severity.ERROR, prefix, f"{{}} cannot be listed: {why}.")
            return []

    def _take(self, prefix: str, entry: os.DirEntry[str], below: list[str]) -> None:
        path = prefix + entry.name
        if not _is_printable(entry.name):
            message = "The name of {} has control characters or is not UTF-8, so it is not listed. Rename it."
            self._say("unprintable-name", Severity.WARNING, path, message)
            return
        if _may_be_refused(path, entry.name) and not is_readable_name(path):
            message = "{} has a name that cannot be asked for (a backslash, a drive letter), so it is not listed."
            self._say("unusable-name", Severity.WARNING, path, f"{message} Rename it.")
            return
        if path in self.without:
            return
        try:
            if entry.is_symlink():
                self._take_link(path)
                return
            if entry.is_dir(follow_symlinks=False):
                if entry.name in NOT_LISTED:
                    self._say("skipped-folder", Severity.INFO, path, "The files in {} are not listed.")
                else:
                    below.append(path + "/")
                return
            status = entry.stat(follow_symlinks=False)
        except OSError as error:
            why = error.strerror or type(error).__name__
            self._say("unreadable-file", Severity.WARNING, path, f"{{}} cannot be looked at: {why}.")
            return
        if entry.name in VERSION_CONTROL:  # the ".git" of a submodule or a worktree is a file
            self._say("skipped-file", Severity.INFO, path, "{} is version control data, so it is not listed.")
        elif not stat.S_ISREG(status.st_mode):
            message = "{} is a pipe, a socket or a device, so it is not listed. Remove it."
            self._say("special-file", Severity.WARNING, path, message)
        elif path != self.skill_file:
            self.files.append(_skill_file(path, status))

    def _take_link(self, path: str) -> None:
        full = f"{self.real}/{path}"
        try:
            target = real_path(full)
        except CatalogError as error:
            self._say("broken-link", Severity.WARNING, path, error.message)
            return
        if not is_inside(target, self.real):
            message = (
                f"{{}} is a link to {shown(target)}, outside the skill, so it is refused. Put a copy in its place."
            )
            self._say("link-leaves-skill", Severity.ERROR, path, message)
            return
        try:
            status = os.stat(full)
        except OSError:
            message = "{} is a link that leads nowhere. Remove or repair it."
            self._say("broken-link", Severity.WARNING, path, message)
            return
        inner = target[len(self.real) + 1 :].split("/")
        if any(is_inside("/".join(inner), hidden) for hidden in self.without):
            return
        if not NOT_LISTED.isdisjoint(inner):
            self._say("skipped-link", Severity.INFO, path, "{} is a link into a folder that is not listed.")
        elif stat.S_ISDIR(status.st_mode):
            message = f"{{}} is a link to the folder {shown(target)}; its files are listed there."
            self._say("linked-folder", Severity.INFO, path, message)
        elif stat.S_ISREG(status.st_mode):
            self.files.append(_skill_file(path, status))
        else:
            message = "{} is a link to a pipe, a socket or a device, so it is not listed. Remove it."
            self._say("special-file", Severity.WARNING, path, message)

    def _say(self, code: str, severity: Severity, path: str, message: str) -> None:
        place = shown(f"{self.folder}/{path}".rstrip("/"))
        self.problems.append(Diagnostic(code, severity, message.replace("{}", place, 1), place))


def _skill_file(path: str, status: os.stat_result) -> SkillFile:
    return SkillFile(path, status.st_size, bool(status.st_mode & stat.S_IXUSR))


def _may_be_refused(path: str, name: str) -> bool:
    """The quick test: files are listed by the thousand."""
    return "\\" in name or path[1:2] == ":" or len(path) > MAX_PATH_LENGTH


def _is_printable(name: str) -> bool:
    return name.isprintable() or not any(ord(c) < 32 or ord(c) == 127 or 0xD800 <= ord(c) < 0xE000 for c in name)


# A path that a model wrote -> a file inside the skill, and no other (S4-22, row 9).

_DRIVE = re.compile(r"[A-Za-z]:(?:/|$)")  # of Windows; "a:b.txt" is a plain name
MAX_PATH_LENGTH = 1024  # characters; the longest real path in a skill has 73
MAX_FILE_BYTES = 64 << 20  # what is larger is not for a model, and must not fill the host's memory


def clean_path(path: object) -> str:
    """The relative path in its plain form: no ``.``, no empty parts.

    Raises ``InvalidResourcePath`` when it is empty, not text, absolute, has ``..``, backslashes, control characters or
    lone surrogates, is too long, or names version control data.
    """
    if not isinstance(path, str):
        raise InvalidResourcePath(f"A path must be text, not {type(path).__name__}. Give a path like 'scripts/run.py'.")
    asked = repr(path if len(path) <= 100 else path[:100] + "...")
    if any(ord(c) < 32 or ord(c) == 127 or 0xD800 <= ord(c) < 0xE000 for c in path):
        raise InvalidResourcePath(f"The path {asked} has control characters or is not valid text. Remove them.")
    if len(path) > MAX_PATH_LENGTH:
        raise InvalidResourcePath(f"The path {asked} has more than {MAX_PATH_LENGTH} characters. Give a shorter one.")
    if "\\" in path:
        raise InvalidResourcePath(f"The path {asked} has a backslash. Separate folders with '/'.")
    if path.startswith("/") or _DRIVE.match(path):
        raise InvalidResourcePath(f"The path {asked} is absolute. Give it relative to the skill's folder.")
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if not parts:
        raise InvalidResourcePath(f"The path {asked} names no file. Give a path like 'scripts/run.py'.")
    if ".." in parts:
        raise InvalidResourcePath(f"The path {asked} has '..'. Only files inside the skill's folder can be used.")
    if not VERSION_CONTROL.isdisjoint(parts):
        raise InvalidResourcePath(f"The path {asked} is version control data, which is not part of the skill.")
    return "/".join(parts)


def is_readable_name(path: str) -> bool:
    """Whether :func:`clean_path` takes the path of a file that exists, so that it can be asked for."""
    try:
        return clean_path(path) == path
    except InvalidResourcePath:
        return False


def locate(folder: str, path: str) -> str | None:
    """The real path of a skill's file, relative to its folder; links inside the skill are followed.

    Returns the relative path without links, or None when there is not a regular file. Raises ``InvalidResourcePath``
    when a link on the way leaves the skill, or leads to version control data.
    """
    target = real_path(os.path.join(folder, path))
    # What lies inside by its real path says that the folder's own is real, which need not be found out then.
    real = folder if is_inside(target, folder) else real_path(folder)
    if not is_inside(target, real):
        raise InvalidResourcePath(f"The path {path!r} is a link that leaves the skill's folder, so it is refused.")
    relative = target[len(real) :].lstrip("/")
    if not VERSION_CONTROL.isdisjoint(relative.split("/")):
        raise InvalidResourcePath(f"The path {path!r} is version control data, which is not part of the skill.")
    try:
        status = os.lstat(target)
    except (OSError, ValueError):
        return None
    return relative if stat.S_ISREG(status.st_mode) else None


def read_inside(real: str, relative: str, limit: int | None) -> bytes:
    """Read a file by a way without links, so that nothing swapped in after :func:`locate` is followed.

    ``limit`` None reads the whole file, up to 64 MiB. Raises ``InvalidResourcePath`` when part of the way is a link
    now, or the end is not a regular file, or ``CatalogError`` when the file cannot be read, or is larger than 64 MiB
    and no limit was given.
    """
    flags = os.O_RDONLY | O_CLOEXEC | O_NONBLOCK
    try:
        file = open_real(f"{real.rstrip('/')}/{relative}", flags)
    except OSError as error:
        if is_link_error(error):
            raise InvalidResourcePath(f"The path {relative!r} passes a link, so it is refused.") from error
        raise CatalogError(f"{shown(relative)} cannot be read: {error.strerror}.") from error
    try:
        return _read(file, relative, limit)
    except OSError as error:
        raise CatalogError(f"{shown(relative)} cannot be read: {error.strerror}.") from error
    finally:
        os.close(file)


def _read(file: int, relative: str, limit: int | None) -> bytes:
    if not stat.S_ISREG(os.fstat(file).st_mode):
        raise InvalidResourcePath(f"The path {relative!r} is not a regular file, so it is refused.")
    wanted = MAX_FILE_BYTES + 1 if limit is None else max(0, limit)
    chunks: list[bytes] = []
    while wanted > 0:
        chunk = os.read(file, min(wanted, 1 << 20))
        if not chunk:
            break
        chunks.append(chunk)
        wanted -= len(chunk)
    if limit is None and wanted == 0:
        raise CatalogError(f"{shown(relative)} is larger than {MAX_FILE_BYTES} bytes. Read a part of it with a limit.")
    return b"".join(chunks)
