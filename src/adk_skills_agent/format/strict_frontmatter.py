"""The strict reading of a SKILL.md: what skills-ref 0.1.1 reads, refuses and cuts, reproduced with PyYAML.

It exists so that ``validate`` says what the reference says. Its quirks (SPEC.md 3) are kept on purpose; loading uses
:mod:`adk_skills_agent.format.parser`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeAlias

from adk_skills_agent.errors import ParseError
from adk_skills_agent.format.reading import MAX_HEAD_BYTES
from adk_skills_agent.format.yaml_nodes import MAX_DEPTH, YamlProblem, parse_events

StrictValue: TypeAlias = "str | None | list[StrictValue] | dict[str, StrictValue]"
"""strictyaml makes every scalar a string, null included; None stands for a plain ``=`` or ``<<``, which it does not."""

_DOCUMENT_ENDS = re.compile(r"^\.\.\.(?=\s|$)", re.MULTILINE)
_NOT_STRINGS = ("=", "<<")  # YAML 1.1's "value" and "merge" types, for which strictyaml has no constructor
_FOLDED = re.compile("[ \t]*+(\ue085(?:[ \t]*+\ue085)*+)[ \t]*+")  # a line break for strictyaml, inside a value
_SEPARATORS = {"\x85": "\ue085", "\u2028": "\ue028", "\u2029": "\ue029"}
_HIDE = str.maketrans(_SEPARATORS)
_SHOW = str.maketrans({hidden: separator for separator, hidden in _SEPARATORS.items()})


def parse_strict(text: str) -> tuple[dict[str, StrictValue], str]:
    """The fields and body of a SKILL.md as skills-ref sees them.

    Args:
        text: The whole file.

    Returns:
        Fields and trimmed body. The file is split at the first two ``---``, wherever they are.

    Raises:
        ParseError: With the message of skills-ref; after ``Invalid YAML in frontmatter:`` the reason is ours.
    """
    if not text.startswith("---"):
        raise ParseError("SKILL.md must start with YAML frontmatter (---)")
    parts = text.split("---", 2)
    if len(parts) < 3:
        raise ParseError("SKILL.md frontmatter not properly closed with ---")
    try:
        value = _document(parts[1])
    except YamlProblem as problem:
        # The frontmatter starts on the line of its fence, so its first line is line 1 of the file.
        place = f" (line {problem.line + 1})" if problem.line is not None else ""
        raise ParseError(f"Invalid YAML in frontmatter: {problem.message}{place}") from problem
    if not isinstance(value, dict):
        raise ParseError("SKILL.md frontmatter must be a YAML mapping")
    own = value.get("metadata")
    if isinstance(own, dict):
        value["metadata"] = {key: item if isinstance(item, str) else str(item) for key, item in own.items()}
    return value, parts[2].strip()


def _document(text: str) -> StrictValue | None:
    if len(text) > MAX_HEAD_BYTES:
        raise YamlProblem("invalid-yaml", f"the frontmatter has {len(text)} characters, {MAX_HEAD_BYTES} are read")
    # These end a line in YAML 1.1, which PyYAML follows, and are ordinary characters in 1.2, which strictyaml follows.
    events = parse_events(text.translate(_HIDE), libyaml=False)
    if len(_DOCUMENT_ENDS.findall(text)) > 1:  # PyYAML passes over a second one
        raise YamlProblem("invalid-yaml", "only one `...` line is allowed")
    root: StrictValue | None = None
    documents = 0
    for event in events:
        kind = type(event).__name__
        if kind == "DocumentStartEvent":
            documents += 1
            if documents > 1:
                raise _refused("only one YAML document is allowed", event)
        elif kind not in ("StreamStartEvent", "StreamEndEvent", "DocumentEndEvent"):
            root = _value(event, events, 0)
    return root


def _value(event: Any, events: Iterator[Any], depth: int) -> StrictValue:
    if depth > MAX_DEPTH:
        raise _refused(f"nested more than {MAX_DEPTH} levels deep", event)
    kind = type(event).__name__
    if kind == "AliasEvent" or event.anchor is not None:
        raise _refused("anchors and aliases are not allowed; write the value out", event)
    if event.tag is not None:
        raise _refused("tags are not allowed; remove the one that starts with `!`", event)
    if kind == "ScalarEvent":
        return _scalar(event)
    if event.flow_style:
        raise _refused("lists and mappings in brackets are not allowed; use the block form or quotes", event)
    if kind == "SequenceStartEvent":
        items: list[StrictValue] = []
        while type(item := next(events)).__name__ != "SequenceEndEvent":
            items.append(_value(item, events, depth + 1))
        return items
    return _mapping(events, depth)


def _scalar(event: Any) -> str | None:
    text = str(event.value)
    if "\ue085" in text and event.style not in ("|", ">"):
        text = _FOLDED.sub(lambda match: "\n" * (match.group().count("\ue085") - 1) or " ", text)
    if event.style:
        return text.translate(_SHOW)
    return None if text in _NOT_STRINGS else text.translate(_SHOW).strip("".join(_SEPARATORS))


def _mapping(events: Iterator[Any], depth: int) -> dict[str, StrictValue]:
    result: dict[str, StrictValue] = {}
    column: int | None = None
    while type(event := next(events)).__name__ != "MappingEndEvent":
        key = _value(event, events, depth + 1)
        item = next(events)
        value = _value(item, events, depth + 1)
        if key is None and event.value == "<<":
            _check_merge(value, item)
            continue  # skills-ref loses what it brings
        if key is None:
            key = str(event.value)  # "=", which is a string when it is a key
        if not isinstance(key, str):
            raise _refused("a key must be plain text", event)
        if key in result:
            raise _refused(f"duplicate key {key!r}", event)
        result[key] = value
        if type(item).__name__ == "MappingStartEvent":
            column = item.start_mark.column if column is None else column
            if item.start_mark.column != column:
                raise _refused("mappings of one level must be indented alike", item)
    return result


def _check_merge(value: StrictValue, event: Any) -> None:
    """A ``<<`` key takes a mapping or a list of them."""
    if not all(isinstance(source, dict) for source in (value if isinstance(value, list) else [value])):
        raise _refused("a `<<` key needs a mapping", event)


def _refused(message: str, event: Any) -> YamlProblem:
    return YamlProblem("invalid-yaml", message, event.start_mark.line)
