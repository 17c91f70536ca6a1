"""Where the user's own files are: home, settings and cache, after the XDG rules."""

from __future__ import annotations

import os
from pathlib import Path

from adk_skills_agent.catalog.config import RegistryConfig
from adk_skills_agent.errors import ConfigError

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

    Args:
        config: Where that folder is.
        name: The file's name.
        what: What it holds, for the sentence when there is no such folder.

    Raises:
        ConfigError: The process has no home and no settings folder.
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


def _xdg(config: RegistryConfig, variable: str, fallback: str) -> str | None:
    base = os.environ.get(variable, "") if config.home is None else ""
    if not os.path.isabs(base):  # the XDG rules say to ignore a relative one
        home = home_folder(config)
        if home is None:
            return None
        base = os.path.join(home, fallback)
    return os.path.join(base, _OWN_NAME)
