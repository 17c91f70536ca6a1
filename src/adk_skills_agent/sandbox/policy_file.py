"""A policy written in a file: ``[tool.adk-skills.policy]`` of a TOML file such as ``pyproject.toml``, or YAML.

A policy says what scripts may do on this machine, so it belongs to whoever owns the machine. A file is therefore read
only where its path is given; the ``pyproject.toml`` of the folder somebody happens to stand in, which may come with
the very skills it would set limits for, is never picked up by itself.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox.contract import SandboxPolicy
from adk_skills_agent.sandbox.policy import resolve_policy
from adk_skills_agent.sandbox.presets import PRESETS, preset

if TYPE_CHECKING:
    import yaml

TABLE = ("tool", "adk-skills", "policy")
PRESET_KEY = "preset"
MAX_FILE_BYTES = 1 << 20
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
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in {".toml", ".yaml", ".yml"}:
        raise ConfigError(f"{path} is no policy file: its name must end with .toml, .yaml or .yml.")
    text = _read(path)
    settings = _from_toml(path, text) if suffix == ".toml" else _from_yaml(path, text)
    return _policy(settings)


class _Setting:
    """One key of the file, its value and its place."""

    def __init__(self, path: Path, key: object, value: object, line: int | None) -> None:
        self.key = key
        self.value = value
        self.place = f"{path}, line {line}" if line is not None else str(path)


def _policy(settings: list[_Setting]) -> SandboxPolicy:
    base = PRESETS["default"]
    for setting in settings:
        if setting.key == PRESET_KEY:
            try:
                base = preset(setting.value)  # type: ignore[arg-type]  # checked there
            except ConfigError as error:
                raise ConfigError(f"{setting.place}, key 'preset': {error.message}") from None
    layer: dict[str, object] = {}
    for setting in settings:
        if setting.key == PRESET_KEY:
            continue
        if setting.key not in _FIELDS:
            raise ConfigError(f"{setting.place}: there is no policy setting {setting.key!r}. {_nearest(setting.key)}")
        key = str(setting.key)
        try:
            layer[key] = _value(key, setting.value)
            resolve_policy({key: layer[key]}, default=base)
        except ConfigError as error:
            sentence = error.message.replace(" (call)", "")
            raise ConfigError(f"{setting.place}, key {key!r}: {sentence}") from None
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


def _read(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"The policy file {path} cannot be read: {error.strerror}.") from error
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"The policy file {path} is larger than {MAX_FILE_BYTES:,} bytes; that is no policy.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"The policy file {path}, line {line}: it is not UTF-8 text.") from None


def _from_toml(path: Path, text: str) -> list[_Setting]:
    import tomllib

    try:
        table: object = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"The policy file {path} is no TOML: {error}.") from None
    for part in TABLE:
        table = table.get(part) if isinstance(table, Mapping) else None
        if table is None:
            near = _near_table(text)
            raise ConfigError(f"{path} has no table [{'.'.join(TABLE)}]{near}. Put the policy's settings under it.")
    if not isinstance(table, Mapping):
        raise ConfigError(f"{path}: {'.'.join(TABLE)} must be a table of settings, not of type {type(table).__name__}.")
    return [_Setting(path, key, value, _toml_line(text, key)) for key, value in table.items()]


def _near_table(text: str) -> str:
    """A hint at a header that was probably meant."""
    headers = [match.group(1).strip() for match in re.finditer(r"(?m)^\s*\[([^\[\]]+)\]", text)]
    close = difflib.get_close_matches(".".join(TABLE), headers, n=1)
    return f"; [{close[0]}] looks like it" if close else ""


def _toml_line(text: str, key: str) -> int | None:
    """The line a key of the policy's table is on; the parser does not say."""
    header = ".".join(TABLE)
    inside = False
    spelled = re.compile(r"""\s*["']?""" + re.escape(key) + r"""["']?\s*[.=]""")
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.split("#")[0].strip().replace('"', "").replace("'", "")
        if bare.startswith("["):
            name = bare.strip("[]").replace(" ", "")
            inside = name == header
            if name == f"{header}.{key}" or name.startswith(f"{header}.{key}."):
                return number
        elif inside and spelled.match(line):
            return number
    return None


def _from_yaml(path: Path, text: str) -> list[_Setting]:
    import yaml

    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            raise ConfigError(f"The policy file {path} is empty. Name at least one setting or a preset.")
        if not isinstance(node, yaml.MappingNode):
            raise ConfigError(f"{path}, line {node.start_mark.line + 1}: a policy is a mapping of settings to values.")
        return list(_yaml_settings(path, loader, node))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"The policy file {path}{line} is no YAML: {error.problem}.") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"The policy file {path} is no YAML: {error}.") from None
    finally:
        loader.dispose()


def _yaml_settings(path: Path, loader: yaml.SafeLoader, node: yaml.MappingNode) -> Iterator[_Setting]:
    lines: dict[object, int] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise ConfigError(f"{path}, line {line}: {key!r} is no name of a setting.")
        if key in lines:
            raise ConfigError(f"{path}, line {line}: the setting {key!r} is there twice; first in line {lines[key]}.")
        lines[key] = line
        yield _Setting(path, key, loader.construct_object(value_node, deep=True), line)


def _nearest(key: object) -> str:
    close = difflib.get_close_matches(str(key), (*_FIELDS, PRESET_KEY), n=1)
    return f"Did you mean {close[0]!r}?" if close else f"Known settings: {PRESET_KEY}, {', '.join(_FIELDS)}."
