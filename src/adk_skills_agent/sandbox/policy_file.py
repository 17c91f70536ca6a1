"""A policy written in a file: ``[tool.adk-skills.policy]`` of a TOML file such as ``pyproject.toml``, or YAML.

A policy says what scripts may do on this machine, so it belongs to whoever owns the machine. A file is therefore read
only where its path is given; the ``pyproject.toml`` of the folder somebody happens to stand in, which may come with
the very skills it would set limits for, is never picked up by itself.
"""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox.contract import SandboxPolicy
from adk_skills_agent.sandbox.policy import resolve_policy
from adk_skills_agent.sandbox.presets import PRESETS, preset
from adk_skills_agent.sandbox.settings_file import SettingsKind, read_settings

_POLICY = SettingsKind("tool.adk-skills.policy", "policy file", "a policy")
_PRESET = "preset"
_FIELDS = tuple(field.name for field in fields(SandboxPolicy))
_SIZES = frozenset(name for name in _FIELDS if name.endswith("_bytes"))
_UNLIMITED = frozenset(
    field.name for field in fields(SandboxPolicy) if field.type in {"int | None", "float | None"}
) - {"run_as"}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}


def load_policy(path: Path) -> SandboxPolicy:
    """The policy a file describes.

    The file names fields of :class:`SandboxPolicy` and may name a preset they are put over (``preset = "strict"``; the
    default policy otherwise). Sizes are whole numbers of bytes or text such as ``"512 MiB"``; ``"unlimited"`` (in YAML
    also ``null``) takes a limit away where that is legal; ``network`` is a word or ``{mode, hosts, ports}``.

    Args:
        path: A ``.toml`` file with the table ``[tool.adk-skills.policy]``, or a ``.yaml``/``.yml`` file.

    Raises:
        ConfigError: The file cannot be read or has no policy, a key is not known, or a value is not possible; the
            sentence has the file, the line and the key, and for a key the nearest known one. Values under ``env``
            are never shown.
    """
    settings = read_settings(Path(path), _POLICY)
    settings.check_keys((_PRESET, *_FIELDS))
    values = dict(settings.values)
    base = PRESETS["default"]
    if _PRESET in values:
        try:
            base = preset(values.pop(_PRESET))
        except ConfigError as error:
            raise ConfigError(f"{settings.place(_PRESET)}, key {_PRESET!r}: {error.message}") from None
    layer: dict[str, object] = {}
    for key, value in values.items():
        try:  # one at a time, so that the sentence has the line
            layer[key] = _value(key, value)
            resolve_policy({key: layer[key]}, default=base)
        except ConfigError as error:
            sentence = error.message.replace(" (call)", "")
            raise ConfigError(f"{settings.place(key)}, key {key!r}: {sentence}") from None
    return resolve_policy(layer, default=base)


def _value(key: str, value: object) -> object:
    if isinstance(value, str) and value.strip().lower() == "unlimited":
        if key not in _UNLIMITED:
            raise ConfigError(f"{key} cannot be unlimited.")
        return None
    if key in _SIZES and isinstance(value, str):
        return _bytes(key, value)
    return value


def _bytes(key: str, text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    factor = _UNITS.get(match.group(2).upper()) if match else None
    if match is None or factor is None:
        raise ConfigError(
            f"{key} must be a whole number of bytes or a size such as '512 MiB' (B, KB, MB, GB, KiB, MiB, GiB), not "
            f"{text!r}."
        )
    return round(float(match.group(1)) * factor)
