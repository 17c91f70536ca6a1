"""Reading a rehearsed conversation from YAML. Strict: whatever is not understood is an error with file and line.

name: greeting                          # for messages; default is the file's name
about: One line for a reader.
when: {system_contains: ...}            # which requests it is for, among several conversations
turns:
  - when: {user_contains: hello}        # user_contains system_contains tools last_tool tool_result_contains tool_result
                                        # skills called not_called
    call: {name: look_up, args: {key: a}}   # one, or a list
  - when: {last_tool: look_up, tool_result: {status: success}}
    error: {code: 429, times: 1}        # code status message times
    text: The value is ${last.value}.
    stream_chunks: 4                    # a number of equal pieces, or the pieces
    usage: {prompt: 100, output: 5, cached: 0}
    finish_reason: STOP
    finish_message: What the service says about it.
    thought: What the model thought first; sent as a signed thought.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.testing.conversation import Answer, Call, Conversation, Refusal, Turn, Usage, When

T = TypeVar("T")
D = TypeVar("D")

STATUS_OF_CODE = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
"""Google's name for each HTTP status of its API."""

FINISH_REASONS = (
    "STOP",
    "MAX_TOKENS",
    "SAFETY",
    "RECITATION",
    "LANGUAGE",
    "OTHER",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "MALFORMED_FUNCTION_CALL",
    "UNEXPECTED_TOOL_CALL",
    "TOO_MANY_TOOL_CALLS",
)
"""What ``finish_reason`` may be."""

_TEXT_CONDITIONS = (
    "user_contains",
    "system_contains",
    "tools",
    "last_tool",
    "tool_result_contains",
    "skills",
    "called",
    "not_called",
)
TURN_FIELDS = ("when", "text", "call", "error", "finish_reason", "finish_message", "thought", "usage", "stream_chunks")
"""What a turn may have."""
_BOOL, _TIME = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp"
_MAPPING, _LIST = "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"


_RESOLVERS = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != _TIME and (tag != _BOOL or first in "tTfF")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class JsonLoader(yaml.SafeLoader):
    """YAML whose plain scalars mean what they mean in JSON: ``2024-01-01`` and ``yes`` are text."""

    yaml_implicit_resolvers = _RESOLVERS


class _FastJsonLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    yaml_implicit_resolvers = _RESOLVERS


def read_json_yaml(read: Callable[[Any], T]) -> T:
    """What ``read`` makes of a text with a loader like :class:`JsonLoader`.

    libyaml is ten times as fast as PyYAML's own parser. That one judges what libyaml refuses: it takes lone surrogates,
    and says better where a mistake is. Raises ``yaml.YAMLError`` when the text is not YAML.
    """
    try:
        return read(_FastJsonLoader)
    except yaml.YAMLError:
        return read(JsonLoader)


def load_conversation(path: str | Path) -> Conversation:
    """Read a rehearsed conversation.

    Raises ``ConfigError`` when it cannot be read, or something in it is not understood; the message has file and line.
    """
    path = Path(path)
    return parse_conversation(read_yaml(path, "rehearsed conversation"), source=str(path), name=path.stem)


def read_yaml(path: Path, what: str) -> str:
    """The text of a file. Raises ``ConfigError`` when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"There is no {what} at {path}. Check the path.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The {what} {path} cannot be read: {error}.") from error


def parse_conversation(text: str, *, source: str = "<text>", name: str = "conversation") -> Conversation:
    """Read a rehearsed conversation from its YAML text.

    ``source`` is what to call it in messages, ``name`` its name when the text gives none. Raises ``ConfigError`` when
    something in it is not understood; the message has ``source`` and line.
    """
    return YamlReader(source).conversation(text, name)


class YamlReader:
    """Semaphore YAML nodes, which know their line, into values."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._loader = JsonLoader("")

    def fail(self, node: yaml.Node | int, problem: str) -> NoReturn:
        """Say what is wrong, with file and line."""
        line = node if isinstance(node, int) else node.start_mark.line + 1
        raise ConfigError(f"{self._source}:{line}: {problem}")

    def root(self, text: str) -> yaml.Node | None:
        """What the text holds; None when it is empty."""
        try:
            found: yaml.Node | None = read_json_yaml(lambda loader: yaml.compose(text, Loader=loader))
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self.fail(mark.line + 1 if mark else 1, f"This is not valid YAML: {error.problem or error}.")
        except yaml.YAMLError as error:
            self.fail(1, f"This is not valid YAML: {error}.")
        return found

    def conversation(self, text: str, name: str) -> Conversation:
        """A whole file."""
        root = self.root(text)
        if root is None:
            self.fail(1, "The conversation is empty. It needs `turns:` with a list of turns.")
        fields = self.fields(root, "the conversation", ("name", "about", "when", "turns"))
        if "turns" not in fields:
            self.fail(root, "The conversation has no turns. Add `turns:` with a list of turns.")
        turns = tuple(self.turn(node) for node in self.items(fields["turns"], "`turns`"))
        if not turns:
            self.fail(fields["turns"], "`turns` is empty. Add at least one turn.")
        return Conversation(
            name=self.optional(fields, "name", self.text, name),
            turns=turns,
            when=self.optional(fields, "when", self.when, When()),
            about=self.optional(fields, "about", self.text, ""),
            source=self._source,
        )

    def turn(self, node: yaml.Node) -> Turn:
        """One turn."""
        return self.turn_of(node, self.fields(node, "a turn", TURN_FIELDS))

    def turn_of(self, node: yaml.Node, fields: dict[str, yaml.Node]) -> Turn:
        """A turn from its fields."""
        said = self.optional(fields, "finish_message", self.text, "")
        thought = self.optional(fields, "thought", self.text, "")
        chunks = self.optional(fields, "stream_chunks", self.chunks, 3)
        pieces = "".join(chunks) if isinstance(chunks, tuple) else None
        text = self.optional(fields, "text", self.text, pieces or "")
        if pieces is not None and pieces != text:
            self.fail(fields["stream_chunks"], "The pieces in `stream_chunks` do not join to `text`. Give only one.")
        calls = self.optional(fields, "call", self.calls, ())
        reason = self.optional(fields, "finish_reason", self.text, "STOP")
        if reason not in FINISH_REASONS:
            self.fail(
                fields["finish_reason"],
                f"{reason!r} is not a finish reason. Use one of: {', '.join(FINISH_REASONS)}.",
            )
        answers = "text" in fields or bool(calls) or pieces is not None or "finish_reason" in fields
        if not answers and "error" not in fields:
            self.fail(node, "This turn says nothing. Give it `text`, `call` or `error`.")
        usage = self.optional(fields, "usage", self.usage, Usage())
        refusal = self.refusal(fields["error"], answers=answers) if "error" in fields else None
        return Turn(
            when=self.optional(fields, "when", self.when, When()),
            answer=Answer(text, calls, reason, usage, chunks, said, thought) if answers else None,
            refusal=refusal,
            line=node.start_mark.line + 1,
        )

    def when(self, node: yaml.Node) -> When:
        """The conditions of a request."""
        fields = self.fields(node, "`when`", (*_TEXT_CONDITIONS, "tool_result"))
        result = self.data(fields["tool_result"]) if "tool_result" in fields else {}
        if not isinstance(result, dict):
            self.fail(fields["tool_result"], "`tool_result` must be a mapping, e.g. `{status: success}`.")
        return When(
            **{key: self.texts(fields[key]) for key in _TEXT_CONDITIONS if key in fields},
            tool_result=result,
        )

    def calls(self, node: yaml.Node) -> tuple[Call, ...]:
        """One call or a list of them."""
        nodes = self.items(node, "`call`") if isinstance(node, yaml.SequenceNode) else [node]
        return tuple(self.call(each) for each in nodes)

    def call(self, node: yaml.Node) -> Call:
        """One call."""
        fields = self.fields(node, "a call", ("name", "args", "undeclared"))
        if "name" not in fields:
            self.fail(node, "This call has no `name`. Write `call: {name: TOOL, args: {...}}`.")
        args = self.data(fields["args"]) if "args" in fields else {}
        if not isinstance(args, dict):
            self.fail(fields["args"], "`args` must be a mapping of argument names to values.")
        undeclared = self.data(fields["undeclared"]) if "undeclared" in fields else False
        if not isinstance(undeclared, bool):
            self.fail(fields["undeclared"], "`undeclared` must be true or false.")
        return Call(self.text(fields["name"]), args, undeclared)

    def refusal(self, node: yaml.Node, *, answers: bool) -> Refusal:
        """An error of the service."""
        fields = self.fields(node, "`error`", ("code", "status", "message", "times"))
        if "code" not in fields:
            self.fail(node, "This error has no `code`. Write e.g. `error: {code: 429, times: 1}`.")
        code = self.count(fields["code"])
        if not 400 <= code <= 599:
            self.fail(fields["code"], f"{code} is not the HTTP status of an error. Use 400 to 599.")
        status = self.optional(fields, "status", self.text, STATUS_OF_CODE.get(code, "UNKNOWN"))
        message = self.optional(fields, "message", self.text, f"This error was rehearsed ({status}).")
        times = self.optional(fields, "times", self.count, 1 if answers else None)
        if times is not None and not answers:
            self.fail(
                fields["times"],
                "`times` needs something to say after the error. Give the turn `text` or `call` too, or drop `times`.",
            )
        return Refusal(code, status, message, times)

    def usage(self, node: yaml.Node) -> Usage:
        """Token counts."""
        fields = self.fields(node, "`usage`", ("prompt", "output", "cached"))
        return Usage(**{key: self.count(value) for key, value in fields.items()})

    def chunks(self, node: yaml.Node) -> tuple[str, ...] | int:
        """How a text is streamed."""
        if isinstance(node, yaml.SequenceNode):
            return tuple(self.text(each) for each in node.value)
        number = self.count(node)
        if number < 1:
            self.fail(node, "`stream_chunks` must be at least 1, or the list of pieces.")
        return number

    # Kinds of value

    def fields(self, node: yaml.Node, what: str, known: Collection[str]) -> dict[str, yaml.Node]:
        """The fields of a mapping, each known and given once."""
        if not isinstance(node, yaml.MappingNode) or node.tag != _MAPPING:
            self.fail(node, f"Expected {what} to be a mapping with some of: {', '.join(known)}.")
        fields: dict[str, yaml.Node] = {}
        for key_node, value in node.value:
            key = str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else "(not a text)"
            if key not in known:
                self.fail(key_node, f"{what.capitalize()} has no field {key!r}. Known are: {', '.join(known)}.")
            if key in fields:
                self.fail(key_node, f"{key!r} is given twice in {what}. Keep one.")
            fields[key] = value
        return fields

    def items(self, node: yaml.Node, what: str) -> list[yaml.Node]:
        """The items of a list."""
        if not isinstance(node, yaml.SequenceNode) or node.tag != _LIST:
            self.fail(node, f"Expected {what} to be a list.")
        return list(node.value)

    def text(self, node: yaml.Node) -> str:
        """A text."""
        value = self.data(node)
        if not isinstance(value, str):
            self.fail(node, f"Expected text, found {json.dumps(value)}. Put it in quotes if it is meant as text.")
        return value

    def texts(self, node: yaml.Node) -> tuple[str, ...]:
        """A text or a list of them."""
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        return tuple(self.text(each) for each in nodes)

    def count(self, node: yaml.Node) -> int:
        """A whole number from 0."""
        value = self.data(node)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            self.fail(node, f"Expected a whole number, found {json.dumps(value)}.")
        return value

    def data(self, node: yaml.Node) -> Any:
        """Any JSON value."""
        try:
            value = self._loader.construct_object(node, deep=True)
            json.dumps(value, allow_nan=False)
        except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
            problem = error.problem if isinstance(error, yaml.MarkedYAMLError) else error
            self.fail(node, f"This value cannot be sent as JSON: {problem}.")
        return value

    @staticmethod
    def optional(fields: dict[str, yaml.Node], key: str, read: Callable[[yaml.Node], T], default: D) -> T | D:
        """A field, or a default where it is not given."""
        return read(fields[key]) if key in fields else default
