"""Permissions written in a file: YAML, or ``[tool.adk-skills.permissions]`` of a TOML file such as ``pyproject.toml``.

Like a policy, permissions belong to whoever owns the agent: a file is read only where its path is given.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adk_skills_agent.adk.permissions import Permissions
from adk_skills_agent.errors import ConfigError

if TYPE_CHECKING:
    import yaml

TABLE = "tool.adk-skills.permissions"
MAX_FILE_BYTES = 1 << 20
_WORDS = ("default", "project_skills", "remember")
_TABLES = ("skills", "scripts", "tools")
_KEYS = (*_WORDS, *_TABLES)

_Lines = dict[tuple[str, ...], int]
"""The line of a key, and of a pattern under it."""


def load_permissions(path: str | Path) -> Permissions:
    """The permissions a file describes.

    Args:
        path: A ``.yaml`` or ``.yml`` file, or a ``.toml`` file with the table ``[tool.adk-skills.permissions]``.

    Raises:
        ConfigError: The file cannot be read or says nothing, a key is not known, or a value is not possible; the
            sentence has the file, the line and, for a key, the nearest known one.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in {".toml", ".yaml", ".yml"}:
        raise ConfigError(f"{path} is no file of permissions: its name must end with .toml, .yaml or .yml.")
    text = _read(path)
    settings, lines = _from_toml(path, text) if suffix == ".toml" else _from_yaml(path, text)
    for key, value in settings.items():
        if key not in _KEYS:
            close = difflib.get_close_matches(str(key), _KEYS, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"Known settings: {', '.join(_KEYS)}."
            raise ConfigError(f"{_place(path, lines, key)}: there is no setting {key!r} in permissions. {hint}")
        rules = value.items() if key in _TABLES and isinstance(value, Mapping) else [(None, value)]
        for pattern, verdict in rules:
            given: dict[str, Any] = {key: verdict if pattern is None else {pattern: verdict}}
            try:  # one at a time, so that the sentence has the line
                Permissions(**given)
            except ConfigError as error:
                raise ConfigError(f"{_place(path, lines, key, pattern)}: {error.message}") from None
    return Permissions(**settings)


def _place(path: Path, lines: _Lines, *keys: object) -> str:
    named = tuple(str(key) for key in keys if key is not None)
    line = lines.get(named)
    return f"{path}, line {line}" if line is not None else str(path)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"The file of permissions {path} cannot be read: {error.strerror}.") from error
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"The file of permissions {path} is larger than {MAX_FILE_BYTES:,} bytes.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"The file of permissions {path}, line {line}: it is not UTF-8 text.") from None


def _from_toml(path: Path, text: str) -> tuple[dict[str, Any], _Lines]:
    import tomllib

    try:
        table: object = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"The file of permissions {path} is no TOML: {error}.") from None
    except (RecursionError, ValueError) as error:  # Python reads no number of more than 4,300 digits
        raise ConfigError(f"The file of permissions {path}{_long_number(text)} is no TOML: {error}.") from None
    for part in TABLE.split("."):
        table = table.get(part) if isinstance(table, Mapping) else None
    if table is None:
        raise ConfigError(f"{path} has no table [{TABLE}]. Put the permissions under it.")
    if not isinstance(table, Mapping):
        raise ConfigError(f"{path}: {TABLE} must be a table of settings, not of type {type(table).__name__}.")
    return dict(table), _toml_lines(text)


def _long_number(text: str) -> str:
    """Where the number is that was too long to be read; empty when it is not found."""
    found = re.search(r"[\d_]{4301,}", text)
    return f", line {text.count(chr(10), 0, found.start()) + 1}" if found else ""


def _toml_lines(text: str) -> _Lines:
    """The lines of the keys, which the parser does not say; only what is written plainly is found."""
    lines: _Lines = {}
    inside: tuple[str, ...] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[([^\[\]]+)\]", line)
        if header:
            name = header[1].replace(" ", "").replace('"', "").replace("'", "")
            inside = tuple(filter(None, name.removeprefix(TABLE).split("."))) if name.startswith(TABLE) else None
            if inside:
                lines.setdefault(inside[:1], number)
        elif inside is not None and (found := re.match(r"""\s*("[^"]*"|'[^']*'|[\w.-]+)\s*=""", line)):
            key = found[1]
            parts = (key[1:-1],) if key[0] in "\"'" else tuple(key.split("."))
            lines.setdefault((*inside, *parts), number)
            if not inside:  # skills = { "db-*" = "ask" }
                for pattern in re.findall(r"""["']([^"']+)["']\s*=""", line[found.end() :]):
                    lines.setdefault((*parts, pattern), number)
    return lines


def _from_yaml(path: Path, text: str) -> tuple[dict[str, Any], _Lines]:
    import yaml

    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:  # a character that YAML forbids
        number = text.count("\n", 0, error.position) + 1
        raise ConfigError(f"The file of permissions {path}, line {number} is no YAML: {error.reason}.") from None
    try:
        node = loader.get_single_node()
        if node is None:
            raise ConfigError(f"The file of permissions {path} is empty. Name at least one setting.")
        lines: _Lines = {}
        return _mapping(path, loader, node, lines, ()), lines
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"The file of permissions {path}{line} is no YAML: {error.problem}.") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"The file of permissions {path}{_long_number(text)} is no YAML: {error}.") from None
    finally:
        loader.dispose()


def _mapping(
    path: Path, loader: yaml.SafeLoader, node: yaml.Node, lines: _Lines, above: tuple[str, ...]
) -> dict[str, Any]:
    import yaml

    if not isinstance(node, yaml.MappingNode):
        what = f"'{above[0]}' maps names to verdicts" if above else "permissions are a mapping of settings to values"
        raise ConfigError(f"{path}, line {node.start_mark.line + 1}: {what}.")
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise ConfigError(f"{path}, line {line}: {key!r} is no text. Put it in quotes.")
        if key in found:
            first = lines[*above, key]
            raise ConfigError(f"{path}, line {line}: {key!r} is there twice; first in line {first}.")
        lines[*above, key] = line
        if not above and key in _TABLES:
            found[key] = _mapping(path, loader, value_node, lines, (key,))
        else:
            found[key] = loader.construct_object(value_node, deep=True)
    return found
