"""Permissions written in a file: YAML, or ``[tool.adk-skills.permissions]`` of a TOML file such as ``pyproject.toml``.

Like a policy, permissions belong to whoever owns the agent: a file is read only where its path is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adk_skills_agent.adk.permissions import Permissions
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox.settings_file import SettingsKind, read_settings

_PERMISSIONS = SettingsKind("tool.adk-skills.permissions", "permissions file", "permissions", "are")
_WORDS = ("default", "project_skills", "remember")
_TABLES = ("skills", "scripts", "tools")


def load_permissions(path: str | Path) -> Permissions:
    """The permissions a file describes.

    Args:
        path: A ``.yaml`` or ``.yml`` file, or a ``.toml`` file with the table ``[tool.adk-skills.permissions]``.

    Raises:
        ConfigError: The file cannot be read or says nothing, a key is not known, or a value is not possible; the
            sentence has the file, the line and, for a key, the nearest known one.
    """
    settings = read_settings(Path(path), _PERMISSIONS)
    settings.check_keys((*_WORDS, *_TABLES))
    for key, value in settings.values.items():
        if key in _TABLES and not isinstance(value, Mapping):
            raise ConfigError(f"{settings.place(key)}: {key!r} maps names to verdicts.")
        names = [(key, name) for name in value] if key in _TABLES else [(key,)]
        for place in names:  # one at a time, so that the sentence has the line
            given: dict[str, Any] = {key: {place[1]: value[place[1]]} if len(place) > 1 else value}
            try:
                Permissions(**given)
            except ConfigError as error:
                raise ConfigError(f"{settings.place(*place)}: {error.message}") from None
    return Permissions(**settings.values)
