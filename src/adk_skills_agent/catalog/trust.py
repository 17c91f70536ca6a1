"""Which projects the user trusts: their skills are instructions and programs, so cloning must not be enough (C11).

The list is a file in the user's settings folder with one absolute path a line. It counts only when it is the user's
own and nobody else can write it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from adk_skills_agent.catalog.config import RegistryConfig
from adk_skills_agent.catalog.owner_file import OwnerFile
from adk_skills_agent.catalog.spelling import real_path, shown
from adk_skills_agent.catalog.user_folders import settings_file
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.format.diagnostic import Diagnostic, Severity

TRUST_FILE = "trusted-projects"


@dataclass(frozen=True, slots=True)
class TrustedProjects:
    """The list as it was read.

    Attributes:
        roots: Real paths of the trusted projects.
        problem: Why the file was refused, if it was; then nothing is trusted.
    """

    roots: frozenset[bytes]
    problem: Diagnostic | None = None

    def __contains__(self, root: str) -> bool:
        return os.fsencode(root) in self.roots


def trust_file(config: RegistryConfig | None = None) -> Path:
    """Where the list of trusted projects is.

    Raises:
        ConfigError: When the process has no home and no settings folder.
    """
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

    Args:
        root: The project's root: the folder with its ``.git``, or the folder the agent works in when there is none.
        config: Where the list is.

    Raises:
        ConfigError: When the path cannot be written on a line, or the list is refused or cannot be written.
    """
    line = os.fsencode(real_path(root))
    if b"\n" in line or b"\r" in line or line != line.strip():
        raise ConfigError(f"{shown(os.fsdecode(line))} cannot be trusted: its name has a line break or edge spaces.")
    _list(trust_file(config)).change(lambda lines: _roots(lines) | {line})


def untrust_project(root: str | os.PathLike[str], config: RegistryConfig | None = None) -> None:
    """Take a project off the list; nothing happens when it is not there.

    Raises:
        ConfigError: When the list is refused or cannot be written.
    """
    line = os.fsencode(real_path(root))
    _list(trust_file(config)).change(lambda lines: _roots(lines) - {line})


def _roots(lines: frozenset[bytes]) -> frozenset[bytes]:
    return frozenset(line for line in lines if line.startswith(b"/"))


def _list(path: Path) -> OwnerFile:
    return OwnerFile(path, "trusted projects")
