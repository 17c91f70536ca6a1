"""Which projects the user trusts: their skills are instructions and programs, so cloning must not be enough (C11).

The list is a file in the user's settings folder with one absolute path a line. It counts only when it is the user's
own and nobody else can write it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from adk_skills_agent.catalog.config import RegistryConfig
from adk_skills_agent.catalog.spelling import real_path, shown
from adk_skills_agent.catalog.user_folders import settings_folder
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.format.diagnostic import Diagnostic, Severity

TRUST_FILE = "trusted-projects"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MAX_BYTES = 1 << 20  # some ten thousand projects


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
    folder = settings_folder(config or RegistryConfig())
    if folder is None:
        raise ConfigError("There is no home folder to keep the trusted projects in. Set HOME or XDG_CONFIG_HOME.")
    return Path(folder) / TRUST_FILE


def read_trusted_projects(config: RegistryConfig | None = None) -> TrustedProjects:
    """Read the list; a missing file is an empty list, a file that others can write is refused with a diagnostic."""
    try:
        path = trust_file(config)
        return TrustedProjects(_read(path))
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
    _change(config, add=line)


def untrust_project(root: str | os.PathLike[str], config: RegistryConfig | None = None) -> None:
    """Take a project off the list; nothing happens when it is not there.

    Raises:
        ConfigError: When the list is refused or cannot be written.
    """
    _change(config, remove=os.fsencode(real_path(root)))


def _read(path: Path) -> frozenset[bytes]:
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        parent = os.fstat(folder)
        descriptor = os.open(path.name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=folder)
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
            raise ConfigError(f"The list of trusted projects {shown(str(path))} is refused: {reason}. Repair it.")
        lines = file.read(_MAX_BYTES).splitlines()
    return frozenset(line.strip() for line in lines if line.startswith(b"/"))


def _change(config: RegistryConfig | None, *, add: bytes | None = None, remove: bytes | None = None) -> None:
    path = trust_file(config)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(path.parent):
            try:
                roots = set(_read(path))
            except FileNotFoundError:
                roots = set()
            wanted = (roots | {add} if add is not None else roots) - {remove}
            if wanted == roots:
                return
            aside = path.with_name(f".{path.name}.{os.getpid()}")
            descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(b"".join(line + b"\n" for line in sorted(wanted)))
            aside.replace(path)
    except OSError as error:
        raise ConfigError(
            f"The list of trusted projects {shown(str(path))} cannot be changed: {error.strerror}."
        ) from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock on the folder, so that two commands at once do not lose one another's line."""
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
