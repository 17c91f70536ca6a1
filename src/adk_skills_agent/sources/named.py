"""Which sources the user named: those of ``adk-skills add``, of his own manifest, of projects that he trusts (row 427).

What the lock of another project names, or the list of another installer, somebody else named: whoever clones a
repository gets its lock and its manifest with it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path

from adk_skills_agent.catalog.scopes import project_root
from adk_skills_agent.catalog.settings import RegistryConfig, settings_file, settings_folder
from adk_skills_agent.catalog.trust import OwnerFile, is_trusted
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sources.lock_file import manifest_path, read_wanted
from adk_skills_agent.sources.origin import Origin, OriginKind

logger = logging.getLogger(__name__)

NAMED_FILE = "named-sources"
_LISTED = frozenset({OriginKind.GIT, OriginKind.FOLDER, OriginKind.ARCHIVE, OriginKind.WELL_KNOWN})


def keep_named(origins: Iterable[Origin]) -> None:
    """Put what the user installed skills from on the list of the sources that he named.

    A list that cannot be written is logged: the user is asked to name the source again when its lock is restored.
    """
    lines = frozenset(line for origin in origins if (line := _line(origin)))
    if not lines:
        return
    try:
        named = _named_sources()
        try:
            known = named.read()
        except FileNotFoundError:
            known = frozenset()
        if not lines <= known:
            named.change(lambda before: before | lines)
    except (ConfigError, OSError) as error:
        logger.warning("The sources that you named cannot be kept: %s", error)


def named_by(origin: Origin, root: Path) -> tuple[Origin, ...] | None:
    """Who named a source that a file of the project ``root`` names, as :func:`~.fetch.opened` has it.

    None where it was the user, or where it is in the project; empty where somebody else did.
    """
    if is_trusted_project(root) or _is_inside(origin, root) or _is_named(origin):
        return None
    return ()


def is_trusted_project(root: Path) -> bool:
    """Whether the user trusts a project, or the one that it is a part of."""
    real = root.resolve()
    return is_trusted(real) or is_trusted(project_root(str(real)))


def _is_inside(origin: Origin, root: Path) -> bool:
    if "://" in origin.location or origin.kind not in {OriginKind.FOLDER, OriginKind.ARCHIVE}:
        return False
    inner = origin.subpath if origin.kind is OriginKind.FOLDER else ""
    real = root.resolve()
    return all(
        (real / place).resolve().is_relative_to(real) for place in (origin.location, f"{origin.location}/{inner}")
    )


def _is_named(origin: Origin) -> bool:
    line = _line(origin)
    if not line:
        return False
    try:
        if line in _named_sources().read():
            return True
    except (ConfigError, OSError):
        pass
    settings = settings_folder(RegistryConfig())
    try:
        own = read_wanted(manifest_path(Path(settings))).values() if settings is not None else ()
    except (ConfigError, OSError):
        return False
    return line in map(_line, own)


def _named_sources() -> OwnerFile:
    return OwnerFile(settings_file(RegistryConfig(), NAMED_FILE, "the sources that you named"), "named sources")


def _line(origin: Origin) -> bytes:
    """A source without its ref and folder, as the list has it; empty when it cannot be written there."""
    line = os.fsencode(f"{origin.kind.value} {origin.location}")
    return line if origin.kind in _LISTED and line == b"".join(line.splitlines()).strip() else b""
