"""Settings an owner wrote in a file: a table of a TOML file such as ``pyproject.toml``, or a YAML mapping.

Every mistake is one sentence with file and line. Settings decide what may happen on this machine, so a file is read
only where its path is given, never because it lies where somebody happens to stand.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adk_skills_agent.errors import ConfigError

if TYPE_CHECKING:
    import yaml

MAX_FILE_BYTES = 1 << 20
_MAPPING = "tag:yaml.org,2002:map"
_PART = r"""(?:"[^"]*"|'[^']*'|[\w-]+)"""
_TOML_KEY = re.compile(rf"\s*({_PART}(?:\s*\.\s*{_PART})*)\s*=")
_TOML_HEADER = re.compile(rf"\s*\[+\s*({_PART}(?:\s*\.\s*{_PART})*)\s*\]")

_MOST_PARTS = 20
_DEEPEST_LINE = 5  # keys above one whose line is kept; grants, the deepest settings, have four
_LONG_KEY = re.compile(rf"""(?:\.[ \t]*+(?:[A-Za-z0-9_-]++|"(?:\\.|[^"\\\n])*+"|'[^'\n]*+')[ \t]*+){{{_MOST_PARTS}}}""")

_Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SettingsKind:
    """What a file is about.

    Attributes:
        table: The table that has the settings in a TOML file.
        file: What such a file is called: ``policy file``.
        settings: What it holds, as ``there is no such setting in ...`` can have it: ``a policy``.
        are: ``is``, or ``are`` for a plural.
    """

    table: str
    file: str
    settings: str
    are: str = "is"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a file says.

    Attributes:
        path: The file.
        kind: What it is about.
        values: The settings, in the order of the file.
        lines: The line of each setting and of each key below it, as far as they are known.
    """

    path: Path
    kind: SettingsKind
    values: Mapping[str, Any]
    lines: Mapping[_Path, int]

    def place(self, *keys: str) -> str:
        """Where a setting, or a key in it, stands: the file and the nearest line that is known."""
        for length in range(len(keys), 0, -1):
            if (line := self.lines.get(keys[:length])) is not None:
                return f"{self.path}, line {line}"
        return str(self.path)

    def check_keys(self, known: Collection[str]) -> None:
        """Refuse a setting that does not exist.

        Raises:
            ConfigError: With the nearest one that does, or all of them.
        """
        for key in self.values:
            if key not in known:
                close = difflib.get_close_matches(key, known, n=1)
                hint = f"Did you mean {close[0]!r}?" if close else f"Known settings: {', '.join(known)}."
                raise ConfigError(f"{self.place(key)}: there is no setting {key!r} in {self.kind.settings}. {hint}")


def read_settings(path: Path, kind: SettingsKind) -> Settings:
    """Read a file of settings.

    Args:
        path: A ``.toml`` file with the kind's table, or a ``.yaml``/``.yml`` file with a mapping.
        kind: What it is about.

    Raises:
        ConfigError: It cannot be read, is too large, is no text, TOML or YAML, has no settings, or says one twice.
    """
    suffix = path.suffix.lower()
    if suffix not in {".toml", ".yaml", ".yml"}:
        raise ConfigError(f"{path} is no {kind.file}: its name must end with .toml, .yaml or .yml.")
    if suffix == ".toml":
        text = _read(path, kind.file)
        return Settings(path, kind, _table(path, text, kind), _toml_lines(text, kind.table))
    return _from_yaml(path, _read(path, kind.file), kind)


def read_toml(path: Path, what: str) -> Mapping[str, Any]:
    """A whole TOML file.

    Raises:
        ConfigError: It cannot be read, is too large, or is no TOML.
    """
    return _toml(path, _read(path, what), what)


def _read(path: Path, what: str) -> str:
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"The {what} {path} cannot be read: {error.strerror}.") from error
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"The {what} {path} cannot be read: it is larger than {MAX_FILE_BYTES:,} bytes.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"The {what} {path} cannot be read, line {line}: it is not UTF-8 text.") from None


def parsed_toml(text: str) -> dict[str, Any]:
    """TOML that anybody may have written.

    Raises:
        ValueError: It is no TOML, or has a key of very many parts: tomllib takes memory with the square of them, and a
            file of 120 KB took all that the agent could have (row 144).
        RecursionError: It is nested too deeply.
    """
    import tomllib

    if _LONG_KEY.search(text):
        raise ValueError(f"it has a key of more than {_MOST_PARTS} parts")
    return tomllib.loads(text)


def parsed_json(data: bytes, most: int) -> Any:
    """JSON that anybody may have written, with at most so many values: an object for each takes fifty times its bytes.

    Raises:
        ValueError: It is no JSON, or has more values.
        RecursionError: It is nested too deeply.
    """
    import json

    if len(data) > most:  # each has a byte
        marks = _JSON_TEXT.sub(b"", data)
        if sum(map(marks.count, (b",", b"[", b"{"))) > most:
            raise ValueError(f"it has more than {most:,} values")
    return json.loads(data)


# A text that is never closed ends with the data, and nothing is tried twice (row 314).
_JSON_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)


def _toml(path: Path, text: str, what: str) -> Mapping[str, Any]:
    import tomllib

    try:
        return parsed_toml(text)
    except (RecursionError, ValueError) as error:  # ValueError alone: Python reads no number of more than 4,300 digits
        line = "" if isinstance(error, tomllib.TOMLDecodeError) else _long_number(text)
        raise ConfigError(f"The {what} {path}{line} cannot be read: it is no TOML: {error}.") from None


def _table(path: Path, text: str, kind: SettingsKind) -> Mapping[str, Any]:
    table: object = _toml(path, text, kind.file)
    for part in kind.table.split("."):
        table = table.get(part) if isinstance(table, Mapping) else None
    if table is None:
        headers = [match[1].strip() for match in re.finditer(r"(?m)^\s*\[([^\[\]]+)\]", text)]
        close = difflib.get_close_matches(kind.table, headers, n=1)
        near = f"; [{close[0]}] looks like it" if close else ""
        raise ConfigError(f"{path} has no table [{kind.table}]{near}. Put the settings under it.")
    if not isinstance(table, Mapping):
        raise ConfigError(f"{path}: {kind.table} must be a table of settings, not of type {type(table).__name__}.")
    return table


def _toml_lines(text: str, table: str) -> dict[_Path, int]:
    """The lines of the keys, which the parser does not say; only what is written plainly is found."""
    lines: dict[_Path, int] = {}
    above = tuple(table.split("."))
    inside: _Path | None = None
    for number, line in enumerate(text.split("\n"), 1):
        header = _TOML_HEADER.match(line)
        key = None if header else _TOML_KEY.match(line)
        if header:
            name = _parts(header[1])
            inside = name[len(above) :] if name[: len(above)] == above else None
            found = inside or ()
        elif key and inside is not None:
            found = (*inside, *_parts(key[1]))
        else:
            continue
        for length in range(1, len(found) + 1):
            lines.setdefault(found[:length], number)
    return lines


def _parts(key: str) -> _Path:
    return tuple(part[1:-1] if part[0] in "\"'" else part for part in re.findall(_PART, key))


def _from_yaml(path: Path, text: str, kind: SettingsKind) -> Settings:
    import yaml

    loader = None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            raise ConfigError(f"The {kind.file} {path} is empty. Name at least one setting.")
        if not isinstance(node, yaml.MappingNode):
            line = node.start_mark.line + 1
            raise ConfigError(f"{path}, line {line}: {kind.settings} {kind.are} a mapping of settings to values.")
        lines: dict[_Path, int] = {}
        return Settings(path, kind, _mapping(path, loader, node, lines, ()), lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place, problem = f", line {mark.line + 1}" if mark is not None else "", str(error.problem)
    except yaml.reader.ReaderError as error:  # a character that YAML forbids
        place, problem = f", line {text.count(chr(10), 0, error.position) + 1}", str(error.reason)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        place, problem = _long_number(text), str(error)
    finally:
        if loader is not None:
            loader.dispose()
    raise ConfigError(f"The {kind.file} {path}{place} cannot be read: it is no YAML: {problem}.")


def _mapping(
    path: Path, loader: yaml.SafeLoader, node: yaml.MappingNode, lines: dict[_Path, int], above: _Path
) -> dict[str, Any]:
    """The settings, and below each the keys of a mapping. No deeper, or aliases would multiply what is built."""
    import yaml

    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            what = "no text" if above else "no name of a setting"
            raise ConfigError(f"{path}, line {line}: {key!r} is {what}. Put it in quotes.")
        if key in found:
            raise ConfigError(f"{path}, line {line}: {key!r} is there twice; first in line {lines[*above, key]}.")
        lines[*above, key] = line
        if not above and isinstance(value_node, yaml.MappingNode) and value_node.tag == _MAPPING:
            found[key] = _mapping(path, loader, value_node, lines, (key,))
        else:
            found[key] = loader.construct_object(value_node, deep=True)
            _lines_below(value_node, lines, (*above, key), set())
    return found


def _lines_below(node: yaml.Node, lines: dict[_Path, int], above: _Path, seen: set[int]) -> None:
    """The lines of deeper keys. A node that aliases repeat is looked at once, or they would multiply the work."""
    import yaml

    if not isinstance(node, yaml.MappingNode) or id(node) in seen or len(above) > _DEEPEST_LINE:
        return
    seen.add(id(node))
    for key_node, value_node in node.value:
        if isinstance(key_node, yaml.ScalarNode):
            path = (*above, str(key_node.value))
            lines.setdefault(path, key_node.start_mark.line + 1)
            _lines_below(value_node, lines, path, seen)


def _long_number(text: str) -> str:
    """Where the number is that was too long to be read; empty when it is not found."""
    found = re.search(r"[\d_]{4301,}", text)
    return f", line {text.count(chr(10), 0, found.start()) + 1}" if found else ""
