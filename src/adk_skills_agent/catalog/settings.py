"""The settings of a registry, with the defaults of the client guide."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from adk_skills_agent.errors import ConfigError

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


# Where the user's own files are: home, settings and cache, after the XDG rules.

_OWN_NAME = "adk-skills"


def home_folder(config: RegistryConfig) -> str | None:
    """The user's home, or None when the process has none (a container without HOME and without an account)."""
    if config.home is not None:
        return os.path.abspath(config.home)
    home = os.path.expanduser("~")
    return home if os.path.isabs(home) else None


def settings_folder(config: RegistryConfig) -> str | None:
    """The folder of the user's settings for adk-skills; it need not exist."""
    if config.config_dir is not None:
        return os.path.abspath(config.config_dir)
    return _xdg(config, "XDG_CONFIG_HOME", ".config")


def settings_file(config: RegistryConfig, name: str, what: str) -> Path:
    """A file in the folder of the user's settings; it need not exist.

    Raises ``ConfigError`` when the user has no home folder.
    """
    folder = settings_folder(config)
    if folder is None:
        raise ConfigError(f"There is no home folder to keep {what} in. Set HOME or XDG_CONFIG_HOME.")
    return Path(folder) / name


def cache_folder(config: RegistryConfig) -> str | None:
    """The folder of the index cache; it need not exist."""
    if config.cache_dir is not None:
        return os.path.abspath(config.cache_dir)
    return _xdg(config, "XDG_CACHE_HOME", ".cache")


def data_folder(config: RegistryConfig) -> str | None:
    """The folder of what is kept for the user, such as the store of installed skills; it need not exist."""
    return _xdg(config, "XDG_DATA_HOME", ".local/share")


def _xdg(config: RegistryConfig, variable: str, fallback: str) -> str | None:
    base = os.environ.get(variable, "") if config.home is None else ""
    if not os.path.isabs(base):  # the XDG rules say to ignore a relative one
        home = home_folder(config)
        if home is None:
            return None
        base = os.path.join(home, fallback)
    return os.path.join(base, _OWN_NAME)
