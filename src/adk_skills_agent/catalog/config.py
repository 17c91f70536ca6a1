"""The settings of a registry, with the defaults of the client guide."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

DEFAULT_ADMIN_FOLDERS: Final = (Path("/etc/adk-skills/skills"), Path("/etc/agents/skills"))

ENTRY_POINT_GROUP: Final = "adk_skills_agent.skills"


@dataclass(frozen=True, slots=True)
class RegistryConfig:
    """How a :class:`~adk_skills_agent.catalog.registry.SkillsRegistry` finds skills (C1 to C12, S4-23).

    Attributes:
        trust: Who decides whether the skills of a project and of its ancestors are loaded (C11). ``"ask-file"``: the
            list of trusted projects of the user; True: always; False: never.
        trusted_roots: When given, only skills whose real path is in one of these folders are loaded (S4-23).
        max_depth: How many folders below a scanned scope a skill may be (C7); None for no bound.
        max_folders: How many folders are visited in a scanned scope (C7); None for no bound.
        explicit_max_depth: The same for folders named explicitly.
        explicit_max_folders: The same for folders named explicitly.
        cache: Keep an index on disk, so that an unchanged folder costs only stats.
        cache_dir: Where; by default ``$XDG_CACHE_HOME/adk-skills``.
        config_dir: Where the user's list of trusted projects is; by default ``$XDG_CONFIG_HOME/adk-skills``.
        home: The user's home for the user scope and for ``~``; by default that of the process.
        admin_folders: Folders of skills that the administrator of the machine provides (C12).
        packages: Whether installed packages offer skills, by the entry points ``adk_skills_agent.skills`` (C12).
        refresh_interval: Seconds between two looks at the disk by ``refresh_if_due``.
        respect_gitignore: Pass over folders that a ``.gitignore`` of the scanned folder excludes (C6).
    """

    trust: Literal["ask-file"] | bool = "ask-file"
    trusted_roots: tuple[Path, ...] | None = None
    max_depth: int | None = 6
    max_folders: int | None = 2000
    explicit_max_depth: int | None = None
    explicit_max_folders: int | None = None
    cache: bool = True
    cache_dir: Path | None = None
    config_dir: Path | None = None
    home: Path | None = None
    admin_folders: tuple[Path, ...] = DEFAULT_ADMIN_FOLDERS
    packages: bool = True
    refresh_interval: float = 1.0
    respect_gitignore: bool = False
