"""YAML text to plain values that keep their spelling, with the line of each field. Bounded against hostile input."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from adk_skills_agent.format.models import YamlValue
from adk_skills_agent.format.reading import MAX_HEAD_BYTES

MAX_DEPTH = 50
"""Deepest nesting of a frontmatter. Unbounded, libyaml's composer overflows the C stack and ends the process."""
MAX_NODES = 10_000
"""Most values of a frontmatter, aliases counted each time they are used (a "YAML bomb" has billions)."""
MAX_CHARACTERS = 4 * MAX_HEAD_BYTES
"""Most characters of all values together, aliases counted each time: some kilobytes of YAML can say gigabytes."""
TOO_COMPLEX = "yaml-too-complex"
_ANCHOR = re.compile(r"(?:^|[\s\[{,])&[^\s&]", re.MULTILINE)  # what may be an anchor; "a &b" in prose looks the same
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_NOT_TEXT = _NULLS | {"=", "<<"}


class YamlProblem(Exception):
    """The text gives no fields."""

    def __init__(self, code: str, message: str, line: int | None = None) -> None:
        super().__init__(message)
        # ``invalid-yaml``, ``yaml-too-complex`` (deeper or larger than is read) or ``frontmatter-not-mapping``
        self.code = code
        self.message = message  # why, as the end of a sentence
        self.line = line  # 0-based in the text, if known


@dataclass(slots=True)
class YamlFields:
    """The top-level mapping of a frontmatter."""

    values: dict[str, YamlValue] = field(default_factory=dict)  # field name to value, in the order of the file
    lines: dict[str, int] = field(default_factory=dict)  # field name to its 0-based line in the text
    # field name and 0-based line of every repetition; the last one counts
    duplicates: list[tuple[str, int]] = field(default_factory=list)
    # YAML features that skills-ref refuses (``flow-style``, ``yaml-tag``, ``yaml-alias``, ``complex-key``,
    # ``uneven-mappings``, ``special-scalar``) to the 0-based line of their first use
    features: dict[str, int] = field(default_factory=dict)


def load_fields(text: str, *, libyaml: bool = True) -> YamlFields:
    """Read the YAML of a frontmatter.

    ``libyaml`` uses it where PyYAML was built with it; else the pure Python parser. Returns the fields. Raises
    ``YamlProblem`` when not YAML, not a mapping, nested deeper than ``MAX_DEPTH``, more than ``MAX_NODES`` values or
    more than ``MAX_CHARACTERS`` characters.
    """
    plain = plain_fields(text)
    return YamlFields(*plain) if plain is not None else parsed_fields(text, libyaml=libyaml)


def parsed_fields(text: str, *, libyaml: bool = True) -> YamlFields:
    """As ``load_fields``, always by the YAML parser."""
    loader_class, yaml_error = _loader(libyaml)
    try:
        loader = loader_class(text)
        try:
            root = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml_error as error:
        raise _invalid(error) from error
    if root is None:
        raise YamlProblem("frontmatter-not-mapping", "there is nothing between the `---` lines")
    if root.id != "mapping":
        raise YamlProblem("frontmatter-not-mapping", f"it is a {root.id}", root.start_mark.line)
    fields = _Conversion().fields(root)
    if "&" in text and _ANCHOR.search(text):
        for event in parse_events(text, libyaml=libyaml):
            if getattr(event, "anchor", None) is not None:
                fields.features["yaml-alias"] = event.start_mark.line
                break
    return fields


def plain_values(text: str) -> Iterator[tuple[str, int]]:
    """The fields with a plain value: neither quoted nor a block, list or mapping.

    Yields:
        Field name, and the index in the text just after the value.
    """
    events = parse_events(text)
    depth = 0
    key: str | None = None
    for event in events:
        kind = type(event).__name__
        if kind.endswith(("SequenceStartEvent", "MappingStartEvent")):
            depth += 1
        elif kind.endswith(("SequenceEndEvent", "MappingEndEvent")):
            depth -= 1
        elif depth == 1 and kind == "ScalarEvent" and key is None:
            key = event.value
            continue
        elif depth == 1 and kind == "ScalarEvent" and key is not None and not event.style and event.value:
            yield key, event.end_mark.index
        if depth == 1:
            key = None  # that was the value


def parse_events(text: str, *, libyaml: bool = True) -> Iterator[Any]:
    """The YAML events of a text.

    Yields:
        PyYAML events.

    Raises:
        YamlProblem: Not YAML.
    """
    loader_class, yaml_error = _loader(libyaml)
    try:
        loader = loader_class(text)
        while loader.check_event():
            yield loader.get_event()
    except yaml_error as error:
        raise _invalid(error) from error


def _invalid(error: Exception) -> YamlProblem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    return YamlProblem("invalid-yaml", str(problem), mark.line if mark else None)


@cache
def _loader(libyaml: bool) -> tuple[Any, type[Exception]]:
    # Here and not at the top of the module: importing yaml takes longer than anything else in this layer, and a
    # process that finds everything in the index cache never needs it.
    import yaml

    base: Any = yaml.cyaml.CParser if libyaml and yaml.__with_libyaml__ else _python_parser(yaml)  # type: ignore[attr-defined]

    class BoundedLoader(base):  # type: ignore[misc]
        """Composes nodes without resolving types, so that scalars keep their spelling; bounded in depth and number."""

        depth = 0
        count = 0

        def __init__(self, stream: str) -> None:
            base.__init__(self, stream)

        def resolve(self, *_: object) -> str:
            return ""

        def descend_resolver(self, *_: object) -> None:
            # Called for every node before it is composed: the place to stop a document before it exists.
            self.depth += 1
            self.count += 1
            if self.depth > MAX_DEPTH:
                raise YamlProblem(TOO_COMPLEX, f"it is nested more than {MAX_DEPTH} levels deep")
            if self.count > MAX_NODES:
                raise YamlProblem(TOO_COMPLEX, f"it has more than {MAX_NODES} values")

        def ascend_resolver(self) -> None:
            self.depth -= 1

    return BoundedLoader, yaml.YAMLError


def _python_parser(yaml: Any) -> Any:
    class PythonParser(yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser, yaml.composer.Composer):  # type: ignore[misc]
        def __init__(self, stream: str) -> None:
            yaml.reader.Reader.__init__(self, stream)
            yaml.scanner.Scanner.__init__(self)
            yaml.parser.Parser.__init__(self)
            yaml.composer.Composer.__init__(self)

    return PythonParser


class _Conversion:
    """Nodes to values, once; counts every value, aliased ones again."""

    __slots__ = ("characters_left", "left", "result")

    def __init__(self) -> None:
        self.left = MAX_NODES
        self.characters_left = MAX_CHARACTERS
        self.result = YamlFields()

    def fields(self, root: Any) -> YamlFields:
        values, lines = self.result.values, self.result.lines
        if root.flow_style or root.tag:
            self._note(root)
        column: int | None = None
        for key_node, value_node in root.value:
            key = self._key(key_node)
            line = key_node.start_mark.line
            if key in values:
                self.result.duplicates.append((key, line))
            lines[key] = line
            if value_node.id == "scalar" and not value_node.tag:
                text = value_node.value
                self._count(text)
                values[key] = self._plain(value_node) if text in _NOT_TEXT and not value_node.style else text
            else:
                column = self._same_column(value_node, column)
                values[key] = self.value(value_node, 1)
        return self.result

    def value(self, node: Any, depth: int) -> YamlValue:
        self.left -= 1
        if self.left < 0:
            raise YamlProblem(TOO_COMPLEX, f"it has more than {MAX_NODES} values, aliases expanded")
        if depth > MAX_DEPTH:
            raise YamlProblem(TOO_COMPLEX, f"it is nested more than {MAX_DEPTH} levels deep", node.start_mark.line)
        if node.tag:
            self._note(node)
        if node.id == "scalar":
            self._count(node.value)
            return self._plain(node) if node.value in _NOT_TEXT and not node.style else str(node.value)
        if node.flow_style:
            self._note(node)
        if node.id == "sequence":
            return [self.value(item, depth + 1) for item in node.value]
        result: dict[str, YamlValue] = {}
        column: int | None = None
        for key_node, value_node in node.value:
            key = self._key(key_node)
            if key in result:
                self.result.duplicates.append((key, key_node.start_mark.line))
            column = self._same_column(value_node, column)
            result[key] = self.value(value_node, depth + 1)
        return result

    def _plain(self, node: Any) -> str | None:
        """A plain scalar that YAML 1.1 does not take for text."""
        if node.value in _NULLS:
            return None
        self.result.features.setdefault("special-scalar", node.start_mark.line)
        return str(node.value)

    def _key(self, node: Any) -> str:
        if node.id == "scalar":
            if node.tag:
                self._note(node)
            self._count(node.value)
            return str(node.value)
        self.result.features.setdefault("complex-key", node.start_mark.line)
        return as_text(self.value(node, 1))

    def _count(self, text: str) -> None:
        self.characters_left -= len(text)
        if self.characters_left < 0:
            raise YamlProblem(TOO_COMPLEX, f"its values have more than {MAX_CHARACTERS} characters, aliases expanded")

    def _same_column(self, node: Any, column: int | None) -> int | None:
        """Notes a mapping that is indented differently from its neighbours; the column they share."""
        if node.id != "mapping":
            return column
        own: int = node.start_mark.column
        if column is not None and own != column:
            self.result.features.setdefault("uneven-mappings", node.start_mark.line)
        return own if column is None else column

    def _note(self, node: Any) -> None:
        line = node.start_mark.line
        if node.tag:
            self.result.features.setdefault("yaml-tag", line)
        if node.id != "scalar" and node.flow_style:
            self.result.features.setdefault("flow-style", line)


def as_text(value: YamlValue) -> str:
    """A value as one line of text: items joined by ``, ``, entries written ``key: value`` and joined by ``; ``."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return "; ".join(key if item is None else f"{key}: {as_text(item)}" for key, item in value.items())
    return ", ".join(as_text(item) for item in value)


# The shortest way through a frontmatter: most real ones need no YAML parser to be read exactly as one would.
#
# Reading thousands of skills for the first time is mostly the YAML parser's time. What is recognised here is a part
# of YAML in which nothing can be meant in two ways: ``key: value`` lines, the value in quotes without escapes or
# starting with a letter or digit and without ``:`` and ``#``, and one level of such lines, two spaces in, below a key
# without a value. Everything else is left to the parser, errors included.

_MAX_LINES = 100  # far below the bounds of the parser, which counts its values
_PLAIN_NULLS = frozenset({"null", "Null", "NULL"})  # the other spellings do not start with a letter or digit

# What every YAML parser takes as it is: neither control characters nor the line ends that only Unicode knows.
_CHARACTERS = r" !$-9;-\[\]-~\u00a1-\u2027\u202a-\ud7ff"  # without " # : and \
_LINE = re.compile(
    rf"""(\ \ )?
    ([A-Za-z][A-Za-z0-9_-]{{0,99}}):
    (?:\ +(?:
        "([{_CHARACTERS}\#:]*)"
      | '((?:(?!')[{_CHARACTERS}\#:"\\])*)'
      | ([A-Za-z0-9][{_CHARACTERS}"\\]*+)  # possessive, else a line of spaces takes quadratic time
    ))?
    \ *""",
    re.VERBOSE,
)


def plain_fields(text: str) -> tuple[dict[str, YamlValue], dict[str, int]] | None:
    """The fields of a frontmatter in plain form.

    Returns field name to value, and to the 0-based line; None when a YAML parser must look at it.
    """
    values: dict[str, YamlValue] = {}
    lines: dict[str, int] = {}
    inner: dict[str, YamlValue] | None = None  # of the key above, while it has no value of its own
    match_line = _LINE.fullmatch
    rows = text.removesuffix("\n").split("\n")
    if len(rows) > _MAX_LINES:
        return None
    for number, row in enumerate(rows):
        match = match_line(row)
        if match is None:
            return None
        indent, key, double_quoted, single_quoted, plain = match.groups()
        value: str | None = plain
        if plain is not None:
            value = plain.rstrip(" ")
            if value in _PLAIN_NULLS:
                return None
        else:
            value = double_quoted if double_quoted is not None else single_quoted
        if indent:
            if inner is None or value is None or key in inner:
                return None
            inner[key] = value
            continue
        if inner is not None and not inner:
            return None  # the key above has no value at all
        if key in values:
            return None
        inner = None
        if value is None:
            inner = {}
            values[key] = inner
        else:
            values[key] = value
        lines[key] = number
    if inner is not None and not inner:
        return None
    return values, lines
