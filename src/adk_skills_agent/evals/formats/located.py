"""JSON and YAML as values that know their line, so that every complaint can name it."""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Union

import yaml

from adk_skills_agent.errors import did_you_mean
from adk_skills_agent.evals.cases import CaseFile, Source
from adk_skills_agent.format.models import Diagnostic, Severity
from adk_skills_agent.testing.conversation_file import JsonLoader, read_json_yaml

MAX_BYTES = 8 * 1024 * 1024
"""Largest file of cases that is read."""
_MOST_VALUES = 200_000
_TOO_MANY = f"It has more than {_MOST_VALUES:,} values. Split it into several files."
_BLANK = re.compile(r"[ \t\n\r]*")
_SCALAR = re.compile(r"-?\d[\d.eE+-]*|true|false|null|NaN|-?Infinity")
_MAPPING, _LIST = "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"

_OPENING = (
    yaml.FlowSequenceStartToken,
    yaml.FlowMappingStartToken,
    yaml.BlockSequenceStartToken,
    yaml.BlockMappingStartToken,
)
_CLOSING = (yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken, yaml.BlockEndToken)
_MOST_DEPTH = 100
_decoder = json.JSONDecoder()

Value = Union[dict[str, "Node"], list["Node"], str, int, float, bool, None]  # noqa: UP007 - "Node" comes later


@dataclass(frozen=True, slots=True)
class Node:
    """A value and its 1-based line. Mappings and lists hold nodes."""

    value: Value
    line: int

    @property
    def plain(self) -> Any:
        """The value without lines."""
        if isinstance(self.value, dict):
            return {key: node.plain for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain for node in self.value]
        return self.value

    @property
    def kind(self) -> str:
        """What it is, for a person."""
        names = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", type(None): "nothing"}
        return names.get(type(self.value), "a number")


class Unreadable(Exception):
    """The text is not JSON or YAML; ``line`` is where that shows."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


def json_document(text: str) -> Node:
    """Read JSON. Raises ``Unreadable`` when the text is not JSON, nests too deeply, or gives a key twice."""
    try:
        json.loads(text, parse_constant=_no_constant)
        return _JsonWalk(text).document()
    except json.JSONDecodeError as error:
        raise Unreadable(f"This is not valid JSON: {error.msg} (column {error.colno}).", error.lineno) from None
    except RecursionError:
        raise Unreadable("It nests too deeply to be a file of cases.", 1) from None
    except ValueError as error:  # a number of too many digits, NaN
        raise Unreadable(f"This is not valid JSON: {error}.", 1) from None


def yaml_document(text: str) -> Node:
    """Read YAML whose plain words mean what they mean in JSON (``yes`` and ``2024-01-01`` are text).

    Raises ``Unreadable`` when the text is not YAML, is empty, uses anchors, nests too deeply, or gives a key twice.
    """
    try:
        root = read_json_yaml(lambda loader: _composed(text, loader))
        if root is None:
            raise Unreadable("The file is empty.", 1)
        return _from_yaml(root, JsonLoader(""))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise Unreadable(f"This is not valid YAML: {error.problem or error}.", mark.line + 1 if mark else 1) from None
    except yaml.YAMLError as error:
        raise Unreadable(f"This is not valid YAML: {' '.join(str(error).split())}.", 1) from None
    except RecursionError:
        raise Unreadable("It nests too deeply to be a file of cases.", 1) from None


def _composed(text: str, loader: Any) -> yaml.Node | None:
    """Its nodes; what makes YAML larger or deeper than it looks is refused before anything is built of it."""
    depth = 0
    for count, token in enumerate(yaml.scan(text, Loader=loader)):
        if count > 4 * _MOST_VALUES:  # a value of a mapping has four
            raise Unreadable(_TOO_MANY, token.start_mark.line + 1)
        if isinstance(token, yaml.AliasToken):
            raise Unreadable("Aliases (*name) are not read here. Write the value out.", token.start_mark.line + 1)
        depth += isinstance(token, _OPENING) - isinstance(token, _CLOSING)
        if depth > _MOST_DEPTH:
            raise Unreadable("It nests too deeply to be a file of cases.", token.start_mark.line + 1)
    root: yaml.Node | None = yaml.compose(text, Loader=loader)
    return root


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


class _JsonWalk:
    """Walks text that the json module has found valid, and notes where each value begins."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._values = 0
        self._breaks = [match.start() for match in re.finditer("\n", text)]

    def document(self) -> Node:
        return self._value(self._after_blank(0))[0]

    def _line(self, index: int) -> int:
        return bisect.bisect_left(self._breaks, index) + 1

    def _after_blank(self, index: int) -> int:
        match = _BLANK.match(self._text, index)
        return match.end() if match else index

    def _value(self, index: int) -> tuple[Node, int]:
        first, line = self._text[index], self._line(index)
        self._values += 1
        if self._values > _MOST_VALUES:
            raise Unreadable(_TOO_MANY, line)
        if first == '"':
            text, end = _decoder.raw_decode(self._text, index)
            return Node(text, line), end
        if first == "{":
            return self._mapping(index, line)
        if first == "[":
            return self._list(index, line)
        match = _SCALAR.match(self._text, index)
        if match is None:
            raise Unreadable("This is not valid JSON.", line)
        return Node(json.loads(match[0]), line), match.end()

    def _mapping(self, index: int, line: int) -> tuple[Node, int]:
        found: dict[str, Node] = {}
        index = self._after_blank(index + 1)
        while self._text[index] != "}":
            key_line = self._line(index)
            key, index = _decoder.raw_decode(self._text, index)
            if key in found:
                raise Unreadable(f"The key {key!r} is given twice. Keep one.", key_line)
            index = self._after_blank(self._after_blank(index) + 1)  # the colon
            found[key], index = self._value(index)
            index = self._after_comma(index)
        return Node(found, line), index + 1

    def _list(self, index: int, line: int) -> tuple[Node, int]:
        found: list[Node] = []
        index = self._after_blank(index + 1)
        while self._text[index] != "]":
            node, index = self._value(index)
            found.append(node)
            index = self._after_comma(index)
        return Node(found, line), index + 1

    def _after_comma(self, index: int) -> int:
        index = self._after_blank(index)
        return self._after_blank(index + 1) if self._text[index] == "," else index


def _from_yaml(node: yaml.Node, loader: JsonLoader) -> Node:
    line = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode) and node.tag == _MAPPING:
        found: dict[str, Node] = {}
        for key_node, value in node.value:
            key = _scalar(key_node, loader) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                raise Unreadable("A key must be text. Put it in quotes.", key_node.start_mark.line + 1)
            if key in found:
                raise Unreadable(f"The key {key!r} is given twice. Keep one.", key_node.start_mark.line + 1)
            found[key] = _from_yaml(value, loader)
        return Node(found, line)
    if isinstance(node, yaml.SequenceNode) and node.tag == _LIST:
        return Node([_from_yaml(item, loader) for item in node.value], line)
    value = _scalar(node, loader)
    if value is not None and not isinstance(value, str | int | float | bool):
        raise Unreadable(f"A value of the kind {node.tag.rsplit(':', 1)[-1]!r} cannot be used here.", line)
    return Node(value, line)


def _scalar(node: yaml.Node, loader: JsonLoader) -> Any:
    try:
        return loader.construct_object(node, deep=True)
    except (ValueError, LookupError, AttributeError) as error:  # PyYAML's constructors trust their text
        kind = node.tag.rsplit(":", 1)[-1]
        raise Unreadable(f"This is no value of the kind {kind!r} ({error}).", node.start_mark.line + 1) from None


# Taking the fields of a case out of located values: every complaint names file, line and field, and all are kept.

MAX_INPUT_BYTES = 128 * 1024 * 1024
"""Largest file that is given to an agent: each trial under way holds its own."""


class FieldReader:
    """Reads one file; what is wrong is kept in ``problems``, what is not used in ``notes``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[str] = []
        self.notes: list[Diagnostic] = []

    def source(self, node: Node) -> Source:
        """Where a value is."""
        return Source(str(self.path), node.line)

    def problem(self, node: Node | int, field: str, message: str) -> None:
        """Something that keeps the file from being used."""
        line = node if isinstance(node, int) else node.line
        self.problems.append(f"{self.path}:{line}: {field}: {message}" if field else f"{self.path}:{line}: {message}")

    def note(self, node: Node, code: str, message: str, severity: Severity = Severity.WARNING) -> None:
        """Something of which the owner should know."""
        self.notes.append(Diagnostic(code, severity, message, str(self.path), node.line))

    def mapping(
        self,
        node: Node,
        field: str,
        known: Collection[str],
        *,
        required: Collection[str] = (),
        strict: bool = True,
    ) -> dict[str, Node]:
        """The fields of a mapping; empty if the node is not a mapping.

        ``field`` names it in messages. An unknown field is a problem, or a note if not ``strict``.
        """
        if not isinstance(node.value, dict):
            self.problem(node, field, f"Expected a mapping, found {node.kind}.")
            return {}
        for name in required:
            if name not in node.value:
                self.problem(node, _below(field, name), "This field is missing.")
        for name, value in node.value.items():
            if name in known:
                continue
            if strict:
                hint = did_you_mean(name, known, f"Known are: {', '.join(known)}.")
                self.problem(value, _below(field, name), f"There is no such field. {hint}")
            else:
                self.note(value, "unused-field", f"{_below(field, name)} is not used.", Severity.INFO)
        return {name: value for name, value in node.value.items() if name in known}

    def items(self, node: Node | None, field: str) -> list[Node]:
        """The items of a list; of nothing, none."""
        if node is None:
            return []
        if not isinstance(node.value, list):
            self.problem(node, field, f"Expected a list, found {node.kind}.")
            return []
        return node.value

    def text(self, node: Node | None, field: str, *, empty: bool = False) -> str:
        """A text; of nothing, an empty one."""
        if node is None:
            return ""
        if not isinstance(node.value, str):
            self.problem(node, field, f"Expected text, found {node.kind}.")
            return ""
        if not empty and not node.value.strip():
            self.problem(node, field, "This text is empty.")
        return node.value

    def texts(self, node: Node | None, field: str) -> tuple[str, ...]:
        """A list of texts, or one text."""
        if node is not None and isinstance(node.value, str):
            return (self.text(node, field),)
        return tuple(self.text(item, f"{field}[{number}]") for number, item in enumerate(self.items(node, field)))

    def identifier(self, node: Node | None, field: str) -> str:
        """A name or a whole number, as text."""
        if node is not None and isinstance(node.value, int) and not isinstance(node.value, bool):
            return str(node.value)
        return self.text(node, field)

    def truth(self, node: Node | None, field: str) -> bool | None:
        """True, false, or None for nothing."""
        if node is None:
            return None
        if not isinstance(node.value, bool):
            self.problem(node, field, f"Expected true or false, found {node.kind}.")
            return None
        return node.value

    def values(self, node: Node | None, field: str) -> Mapping[str, Any]:
        """A mapping of any JSON values."""
        if node is None:
            return {}
        if not isinstance(node.value, dict):
            self.problem(node, field, f"Expected a mapping, found {node.kind}.")
            return {}
        plain = node.plain
        return plain if isinstance(plain, dict) else {}

    def input_files(self, node: Node | None, field: str, root: Path) -> tuple[CaseFile, ...]:
        """Files given to the agent, relative to ``root`` and inside of it."""
        found: dict[str, CaseFile] = {}
        for number, item in enumerate(self.items(node, field)):
            place = f"{field}[{number}]"
            text = self.text(item, place)
            if not text:
                continue
            relative = PurePosixPath(text)
            if relative.is_absolute() or ".." in relative.parts or "\\" in text or "\0" in text:
                self.problem(item, place, f"{text!r} is not inside {root}. Give a path relative to it.")
                continue
            path = root / relative
            if not path.is_file():
                self.problem(item, place, f"There is no file {path}: paths start at {root.absolute()}.")
            elif not path.resolve().is_relative_to(root.resolve()):
                self.problem(item, place, f"{text!r} is a link out of {root}.")
            elif path.stat().st_size > MAX_INPUT_BYTES:
                self.problem(item, place, f"{text!r} has more than {MAX_INPUT_BYTES:,} bytes, the most there may be.")
            elif path.name in found:
                self.problem(item, place, f"Two files are called {path.name!r}; the agent sees the names only.")
            else:
                found[path.name] = CaseFile(path.name, path)
        return tuple(found.values())


def _below(field: str, name: str) -> str:
    return f"{field}.{name}" if field else name


# The skill in whose folder a file of cases lies.

_LEVELS = 3  # evals/evals.json is one below the skill's folder; more is unusual


def skill_around(path: Path) -> tuple[Path | None, str]:
    """The folder of the nearest skill above a file, and the skill's name; ``(None, "")`` where there is none."""
    from adk_skills_agent.catalog import RegistryConfig, SkillsRegistry
    from adk_skills_agent.format import find_skill_md

    for folder in list(path.resolve().parents)[:_LEVELS]:
        if find_skill_md(folder) is not None:
            registry = SkillsRegistry(RegistryConfig(cache=False))
            registry.discover([folder])
            names = [name for name in registry if Path(registry.load_skill(name).skill_dir) == folder]
            return (folder, names[0]) if names else (None, "")
    return None, ""
