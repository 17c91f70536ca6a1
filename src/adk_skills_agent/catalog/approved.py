"""Which versions of which skills the owner approved, for all sessions (S4-21).

The list is a file beside that of the trusted projects. A line has the sha256 of the skill, its name and what is
approved of it: ``skill``, ``script:<path>`` or ``tool:<name>``. When a byte of the skill changes its sha256 does, and
the line no longer says anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from adk_skills_agent.catalog.config import RegistryConfig
from adk_skills_agent.catalog.owner_file import OwnerFile
from adk_skills_agent.catalog.user_folders import settings_file
from adk_skills_agent.errors import ConfigError

APPROVALS_FILE = "approved-skills"
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, order=True)
class Approval:
    """One line of the list.

    Attributes:
        skill: The skill's name.
        subject: ``skill``, ``script:<path>`` or ``tool:<name>``.
        version: The sha256 of the skill it is for.
    """

    skill: str
    subject: str
    version: str

    def to_line(self) -> bytes:
        """As the file has it.

        Raises:
            ConfigError: A part of it cannot be written on a line.
        """
        parts = (self.version, self.skill, self.subject)
        if not _DIGEST.fullmatch(self.version) or any(not part or not part.isprintable() for part in parts):
            raise ConfigError(f"{self.subject!r} of skill {self.skill!r} cannot be kept: its name is unprintable.")
        return "\t".join(parts).encode("utf-8")


class ApprovedSkills:
    """The owner's approvals.

    Args:
        path: The file; None for the one in the user's settings.

    Raises:
        ConfigError: ``path`` is None and the process has no home and no settings folder.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._file = OwnerFile(path or approvals_file(), "approved skills")

    def read(self) -> frozenset[Approval]:
        """Everything on the list; empty when there is none.

        Raises:
            ConfigError: The list is refused or cannot be read; then nothing is approved.
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

        Raises:
            ConfigError: One cannot be kept, or the list is refused or cannot be written.
        """
        added = list(approvals)
        lines = frozenset(approval.to_line() for approval in added)
        replaced = {(approval.skill, approval.subject) for approval in added}

        def wanted(before: frozenset[bytes]) -> frozenset[bytes]:
            return lines | {line for line in before if not _is_one_of(line, replaced)}

        self._file.change(wanted)

    def remove(self, skill: str) -> int:
        """Take everything of a skill off the list.

        Returns:
            How many lines it were.

        Raises:
            ConfigError: The list is refused or cannot be written.
        """
        gone: list[bytes] = []

        def wanted(before: frozenset[bytes]) -> frozenset[bytes]:
            gone[:] = [line for line in before if (found := _from_line(line)) is not None and found.skill == skill]
            return before - set(gone)

        self._file.change(wanted)
        return len(gone)


def approvals_file(config: RegistryConfig | None = None) -> Path:
    """Where the list is.

    Raises:
        ConfigError: When the process has no home and no settings folder.
    """
    return settings_file(config or RegistryConfig(), APPROVALS_FILE, "approvals")


def _from_line(line: bytes) -> Approval | None:
    parts = line.decode("utf-8", "replace").split("\t")
    if len(parts) != 3 or not _DIGEST.fullmatch(parts[0]):
        return None
    return Approval(skill=parts[1], subject=parts[2], version=parts[0])


def _is_one_of(line: bytes, subjects: set[tuple[str, str]]) -> bool:
    found = _from_line(line)
    return found is not None and (found.skill, found.subject) in subjects
