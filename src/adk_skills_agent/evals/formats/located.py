"""JSON and YAML as values that know their line, so that every complaint can name it."""

from __future__ import annotations

import bisect
import json
import re
from dataclasses import dataclass
from typing import Any, Union

import yaml

MAX_BYTES = 32 * 1024 * 1024
"""Largest file of cases that is read."""
_BLANK = re.compile(r"[ \t\n\r]*")
_SCALAR = re.compile(r"-?\d[\d.eE+-]*|true|false|null|NaN|-?Infinity")
_BOOL, _TIME = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp"
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
    """Read JSON.

    Raises:
        Unreadable: It is none, nests too deeply, or gives a key twice.
    """
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

    Raises:
        Unreadable: It is none, it is empty, uses anchors, nests too deeply, or gives a key twice.
    """
    try:
        _check_tokens(text)
        root = yaml.compose(text, Loader=_Loader)
        if root is None:
            raise Unreadable("The file is empty.", 1)
        return _from_yaml(root, _Loader(""))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise Unreadable(f"This is not valid YAML: {error.problem or error}.", mark.line + 1 if mark else 1) from None
    except yaml.YAMLError as error:
        raise Unreadable(f"This is not valid YAML: {' '.join(str(error).split())}.", 1) from None
    except RecursionError:
        raise Unreadable("It nests too deeply to be a file of cases.", 1) from None


def _check_tokens(text: str) -> None:
    """Refuse what makes YAML larger or deeper than it looks, before anything is built of it."""
    depth = 0
    for token in yaml.scan(text, Loader=_Loader):
        if isinstance(token, yaml.AliasToken):
            raise Unreadable("Aliases (*name) are not read here. Write the value out.", token.start_mark.line + 1)
        depth += isinstance(token, _OPENING) - isinstance(token, _CLOSING)
        if depth > _MOST_DEPTH:
            raise Unreadable("It nests too deeply to be a file of cases.", token.start_mark.line + 1)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


class _JsonWalk:
    """Walks text that the json module has found valid, and notes where each value begins."""

    def __init__(self, text: str) -> None:
        self._text = text
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


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {  # noqa: RUF012  (the attribute PyYAML reads)
        first: [(tag, regexp) for tag, regexp in resolvers if tag != _TIME and (tag != _BOOL or first in "tTfF")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def _from_yaml(node: yaml.Node, loader: _Loader) -> Node:
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


def _scalar(node: yaml.Node, loader: _Loader) -> Any:
    try:
        return loader.construct_object(node, deep=True)
    except (ValueError, LookupError, AttributeError) as error:  # PyYAML's constructors trust their text
        kind = node.tag.rsplit(":", 1)[-1]
        raise Unreadable(f"This is no value of the kind {kind!r} ({error}).", node.start_mark.line + 1) from None
