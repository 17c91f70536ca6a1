"""Where the user's own files are: home, settings and cache, after the XDG rules."""

from __future__ import annotations

import os

from adk_skills_agent.catalog.config import RegistryConfig

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
