"""Which projects the user trusts: their skills are instructions and programs, so cloning must not be enough (C11).

The list is a file in the user's settings folder with one absolute path a line. It counts only when it is the user's
own and nobody else can write it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from adk_skills_agent.catalog.settings import RegistryConfig, settings_file
from adk_skills_agent.catalog.untrusted_files import real_path, shown
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.format.models import Diagnostic, Severity
from adk_skills_agent.platforms import O_CLOEXEC, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, locked, write_whole

TRUST_FILE = "trusted-projects"


@dataclass(frozen=True, slots=True)
class TrustedProjects:
    """The list as it was read."""

    roots: frozenset[bytes]  # real paths of the trusted projects
    problem: Diagnostic | None = None  # why the file was refused, if it was; then nothing is trusted

    def __contains__(self, root: str) -> bool:
        return os.fsencode(root) in self.roots


def trust_file(config: RegistryConfig | None = None) -> Path:
    """The path of the list of trusted projects. Raises ``ConfigError`` when the user has no home folder."""
    return settings_file(config or RegistryConfig(), TRUST_FILE, "the trusted projects")


def read_trusted_projects(config: RegistryConfig | None = None) -> TrustedProjects:
    """Read the list; a missing file is an empty list, a file that others can write is refused with a diagnostic."""
    try:
        path = trust_file(config)
        return TrustedProjects(_roots(_list(path).read()))
    except FileNotFoundError:
        return TrustedProjects(frozenset())
    except ConfigError as error:
        return TrustedProjects(frozenset(), Diagnostic("trust-file-refused", Severity.ERROR, error.message))
    except OSError as error:
        message = f"{shown(str(path))} cannot be read: {error.strerror}. No project is trusted."
        return TrustedProjects(frozenset(), Diagnostic("trust-file-refused", Severity.ERROR, message, str(path)))


def is_trusted(root: str | os.PathLike[str], config: RegistryConfig | None = None) -> bool:
    """Whether the user trusts the project with that root; its real path decides, not the way it was reached."""
    return real_path(root) in read_trusted_projects(config)


def trust_project(root: str | os.PathLike[str], config: RegistryConfig | None = None) -> None:
    """Add a project to the list: from now on its skills are loaded.

    ``root`` is the folder with its ``.git``, or the folder the agent works in when there is none. Raises
    ``ConfigError`` when the path cannot be written on a line, or the list is refused or cannot be written.
    """
    line = os.fsencode(real_path(root))
    if b"\n" in line or b"\r" in line or line != line.strip():
        raise ConfigError(f"{shown(os.fsdecode(line))} cannot be trusted: its name has a line break or edge spaces.")
    _list(trust_file(config)).change(lambda lines: _roots(lines) | {line})


def untrust_project(root: str | os.PathLike[str], config: RegistryConfig | None = None) -> None:
    """Take a project off the list; nothing happens when it is not there.

    Raises ``ConfigError`` when the list cannot be written.
    """
    line = os.fsencode(real_path(root))
    _list(trust_file(config)).change(lambda lines: _roots(lines) - {line})


def _roots(lines: frozenset[bytes]) -> frozenset[bytes]:
    return frozenset(line for line in lines if line.startswith(b"/"))


def _list(path: Path) -> OwnerFile:
    return OwnerFile(path, "trusted projects")


# Which versions of which skills the owner approved, for all sessions (S4-21).
#
# The list is a file beside that of the trusted projects. A line has the sha256 of the skill, its name and what is
# approved of it: ``skill``, ``script:<path>`` or ``tool:<name>``. When a byte of the skill changes its sha256 does,
# and the line no longer says anything.

APPROVALS_FILE = "approved-skills"
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, order=True)
class Approval:
    """One line of the list."""

    skill: str  # the skill's name
    subject: str  # ``skill``, ``script:<path>`` or ``tool:<name>``
    version: str  # the sha256 of the skill it is for

    def to_line(self) -> bytes:
        """As the file has it. Raises ``ConfigError`` when a part of it cannot be written on a line."""
        parts = (self.version, self.skill, self.subject)
        if not _DIGEST.fullmatch(self.version) or any(not part or not part.isprintable() for part in parts):
            raise ConfigError(f"{self.subject!r} of skill {self.skill!r} cannot be kept: its name is unprintable.")
        return "\t".join(parts).encode("utf-8")


class ApprovedSkills:
    """The owner's approvals.

    Raises ``ConfigError`` when ``path`` is None and the process has no home and no settings folder.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._file = OwnerFile(path or approvals_file(), "approved skills")

    def read(self) -> frozenset[Approval]:
        """Everything on the list; empty when there is none.

        Raises ``ConfigError`` when the list is refused or cannot be read; then nothing is approved.
        """
        try:
            lines = self._file.read()
        except FileNotFoundError:
            return frozenset()
        except OSError as error:
            raise ConfigError(f"The list of approved skills cannot be read: {error.strerror}.") from error
        return frozenset(found for line in lines if (found := _from_line(line)) is not None)

    def add(self, approvals: Iterable[Approval]) -> None:
        """Put approvals on the list; earlier ones of the same subjects in other versions go.

        Raises ``ConfigError`` when one cannot be kept, or the list is refused or cannot be written.
        """
        added = list(approvals)
        lines = frozenset(approval.to_line() for approval in added)
        replaced = {(approval.skill, approval.subject) for approval in added}

        def wanted(before: frozenset[bytes]) -> frozenset[bytes]:
            return lines | {line for line in before if not _is_one_of(line, replaced)}

        self._file.change(wanted)

    def remove(self, skill: str) -> int:
        """Take everything of a skill off the list. Returns how many lines it were.

        Raises ``ConfigError`` when the list cannot be written.
        """
        gone: list[bytes] = []

        def wanted(before: frozenset[bytes]) -> frozenset[bytes]:
            gone[:] = [line for line in before if (found := _from_line(line)) is not None and found.skill == skill]
            return before - set(gone)

        self._file.change(wanted)
        return len(gone)


def approvals_file(config: RegistryConfig | None = None) -> Path:
    """The path of the list. Raises ``ConfigError`` when the process has no home and no settings folder."""
    return settings_file(config or RegistryConfig(), APPROVALS_FILE, "approvals")


def _from_line(line: bytes) -> Approval | None:
    parts = line.decode("utf-8", "replace").split("\t")
    if len(parts) != 3 or not _DIGEST.fullmatch(parts[0]):
        return None
    return Approval(skill=parts[1], subject=parts[2], version=parts[0])


def _is_one_of(line: bytes, subjects: set[tuple[str, str]]) -> bool:
    found = _from_line(line)
    return found is not None and (found.skill, found.subject) in subjects


# A list that only its owner can have written: what it says decides what may run, so it is refused when in doubt.

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MAX_BYTES = 1 << 20  # some ten thousand lines


class OwnerFile:
    """Lines of bytes in a file of the user's settings."""

    def __init__(self, path: Path, what: str) -> None:
        self.path = path
        self._what = what

    def read(self) -> frozenset[bytes]:
        """The lines, without spaces at their ends.

        Raises ``FileNotFoundError`` when there is no list, ``ConfigError`` when it is not the user's own, others can
        write it or its folder, or it is too large, and ``OSError`` when it cannot be read.
        """
        folder = os.open(self.path.parent, os.O_RDONLY | O_CLOEXEC | O_DIRECTORY)
        try:
            parent = os.fstat(folder)
            descriptor = os.open(self.path.name, os.O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, dir_fd=folder)
        finally:
            os.close(folder)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            reason = ""
            if not stat.S_ISREG(status.st_mode):
                reason = "it is not a file"
            elif status.st_uid != os.geteuid():
                reason = f"it belongs to user {status.st_uid}, not to user {os.geteuid()}"
            elif status.st_mode & _OTHERS_WRITE:
                reason = "others can write it (chmod go-w)"
            elif parent.st_uid != os.geteuid() or parent.st_mode & _OTHERS_WRITE:
                reason = "others can write its folder (chmod go-w), or own it"
            elif status.st_size > _MAX_BYTES:
                reason = f"it has more than {_MAX_BYTES} bytes"
            if reason:
                raise ConfigError(f"The list of {self._what} {shown(str(self.path))} is refused: {reason}. Repair it.")
            return frozenset(line.strip() for line in file.read(_MAX_BYTES).splitlines())

    def change(self, wanted: Callable[[frozenset[bytes]], frozenset[bytes]]) -> None:
        """Replace the lines by what ``wanted`` makes of them, with a lock, so that no other change is lost.

        Raises ``ConfigError`` when the list is refused, would be too large, or cannot be written.
        """
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Two commands at once do not lose one another's line.
            with locked(self.path.parent, os.O_RDONLY | O_CLOEXEC):
                try:
                    before = self.read()
                except FileNotFoundError:
                    before = frozenset()
                after = wanted(before)
                if after != before:
                    self._write(after)
        except OSError as error:
            raise ConfigError(
                f"The list of {self._what} {shown(str(self.path))} cannot be changed: {error.strerror}."
            ) from error

    def _write(self, lines: frozenset[bytes]) -> None:
        content = b"".join(line + b"\n" for line in sorted(lines))
        if len(content) > _MAX_BYTES:
            raise ConfigError(f"The list of {self._what} {shown(str(self.path))} is full. Take lines off it first.")
        write_whole(self.path, content, mode=0o600)
