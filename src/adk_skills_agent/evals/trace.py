"""What an agent did in one conversation, as plain values: what every metric, the judge and the report read.

A trace comes from the events of a session (:func:`from_events`), from google-adk's own evaluation
(:func:`from_invocations`), or from a results file (:meth:`Trace.from_json`): the same trace each way, for the same run.
What a case expects is a trace too: its turns hold the expected calls and the reference text.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.adk.evaluation.eval_case import Invocation
    from google.adk.events.event import Event
    from google.genai import types

JsonObject = dict[str, Any]

LOADING_TOOLS = ("load_skill", "use_skill")
"""The tools that activate a skill; a toolset may put a prefix before them."""
SKILL_ARGUMENTS = ("skill_name", "name", "skill")
"""What a skill's name is called in a call, by tool and by version of google-adk."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, as the model's service counted them; thoughts are part of the output."""

    prompt: int = 0
    output: int = 0
    total: int = 0
    cached: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt + other.prompt, self.output + other.output, self.total + other.total, self.cached + other.cached
        )

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Usage:
        """The inverse of :meth:`to_json`."""
        return cls(data.get("prompt", 0), data.get("output", 0), data.get("total", 0), data.get("cached", 0))


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool."""

    name: str
    args: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)  # its arguments, JSON values
    # what it answered, JSON values; None when nothing came, or nothing is known of it
    response: Mapping[str, Any] | None = None
    id: str = ""

    @property
    def failed(self) -> bool:
        """Whether the tool answered with an error: of its own (``error``, ``error_code``) or of a script's status."""
        answer = self.response or {}
        return bool(answer.get("error") or answer.get("error_code")) or answer.get("status") == "error"

    def is_a(self, tool: str) -> bool:
        """Whether it calls ``tool``, with or without a toolset's prefix."""
        return self.name == tool or self.name.endswith(f"_{tool}")

    @property
    def skill(self) -> str:
        """The skill the arguments name, or empty."""
        return next((v for key in SKILL_ARGUMENTS if isinstance(v := self.args.get(key), str)), "")

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        response = None if self.response is None else dict(self.response)
        return {"name": self.name, "args": dict(self.args), "response": response, "id": self.id}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ToolCall:
        """The inverse of :meth:`to_json`."""
        return cls(data["name"], data.get("args") or {}, data.get("response"), data.get("id") or "")


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of the user and what it led to: google-adk's invocation.

    Attributes:
        user_text: What the user wrote.
        calls: The tool calls, in order.
        final_text: What the agent said at the end; in what a case expects, the reference (empty: none).
        usage: Tokens of every model call of the turn; None when not known.
        seconds: How long it took; None when not measured.
        error: Why the turn ended without an answer, as a sentence, or empty.
    """

    user_text: str = ""
    calls: tuple[ToolCall, ...] = ()
    final_text: str = ""
    usage: Usage | None = None
    seconds: float | None = None
    error: str = ""

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {
            "user_text": self.user_text,
            "calls": [call.to_json() for call in self.calls],
            "final_text": self.final_text,
            "usage": None if self.usage is None else self.usage.to_json(),
            "seconds": self.seconds,
            "error": self.error,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Turn:
        """The inverse of :meth:`to_json`."""
        usage = data.get("usage")
        return cls(
            user_text=data.get("user_text", ""),
            calls=tuple(ToolCall.from_json(call) for call in data.get("calls") or ()),
            final_text=data.get("final_text", ""),
            usage=None if usage is None else Usage.from_json(usage),
            seconds=data.get("seconds"),
            error=data.get("error", ""),
        )


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file the agent left behind."""

    size: int
    content: bytes | None = None  # what is in it; None when it was too large to keep

    @classmethod
    def of(cls, content: bytes, *, keep_bytes: int | None = None) -> OutputFile:
        """A file with its content, or only its size when it has more than ``keep_bytes``."""
        return cls(len(content), content if keep_bytes is None or len(content) <= keep_bytes else None)

    def to_json(self) -> JsonObject:
        """As a JSON object: the content as ``text``, or as ``base64`` if it is not text."""
        if self.content is None:
            return {"size": self.size}
        try:
            return {"size": self.size, "text": self.content.decode()}
        except UnicodeDecodeError:
            return {"size": self.size, "base64": base64.b64encode(self.content).decode("ascii")}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> OutputFile:
        """The inverse of :meth:`to_json`."""
        if "text" in data:
            return cls(data["size"], data["text"].encode())
        return cls(data["size"], base64.b64decode(data["base64"]) if "base64" in data else None)


@dataclass(frozen=True, slots=True)
class Trace:
    """What an agent did in one conversation, or what a case expects of it."""

    turns: tuple[Turn, ...] = ()
    # What it left in its workspace or as artifacts, by name. Events tell only what scripts say of their files, names
    # and sizes; who has the files puts them in their place.
    output_files: Mapping[str, OutputFile] = field(default_factory=dict)
    activated: tuple[str, ...] = ()  # skills that came into force without a call: a user wrote ``$name``

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls of every turn, in order."""
        return tuple(call for turn in self.turns for call in turn.calls)

    @property
    def skills_loaded(self) -> tuple[str, ...]:
        """The skills that were activated, each once, in order; a call that failed activates none."""
        return tuple(dict.fromkeys([*self.activated, *loaded_by(self.calls)]))

    @property
    def usage(self) -> Usage | None:
        """Tokens of every turn; None when none is known."""
        known = [turn.usage for turn in self.turns if turn.usage is not None]
        return sum(known, Usage()) if known else None

    @property
    def seconds(self) -> float | None:
        """Seconds of every turn; None when none was measured."""
        known = [turn.seconds for turn in self.turns if turn.seconds is not None]
        return sum(known) if known else None

    def to_json(self) -> JsonObject:
        """As a JSON object; ``skills_loaded`` is in it for readers."""
        return {
            "turns": [turn.to_json() for turn in self.turns],
            "output_files": {name: file.to_json() for name, file in self.output_files.items()},
            "activated": list(self.activated),
            "skills_loaded": list(self.skills_loaded),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Trace:
        """The inverse of :meth:`to_json`. Raises ``ValueError`` when something is missing or of another type."""
        try:
            return cls(
                turns=tuple(Turn.from_json(turn) for turn in data["turns"]),
                output_files={n: OutputFile.from_json(f) for n, f in (data.get("output_files") or {}).items()},
                activated=tuple(data.get("activated") or ()),
            )
        except KeyError as error:
            raise ValueError(f"This is not a trace: {error} is missing.") from error
        except (TypeError, AttributeError) as error:
            raise ValueError(f"This is not a trace: {error}.") from error


def loaded_by(calls: Iterable[ToolCall]) -> list[str]:
    """The skills that these calls activated, in order, with repeats."""
    loads = (call for call in calls if any(call.is_a(tool) for tool in LOADING_TOOLS) and not call.failed)
    return [call.skill for call in loads if call.skill]


def from_events(events: Iterable[Event], *, seconds: Mapping[str, float] | None = None) -> Trace:
    """The trace of a session.

    ``events`` are the session's (``session.events`` holds the user's messages too; what ``Runner.run_async`` yields
    only the agent's). ``seconds`` says how long each invocation took, by its id.
    """
    by_invocation: dict[str, list[Event]] = {}
    for event in events:
        if not event.partial and event.actions.compaction is None:
            by_invocation.setdefault(event.invocation_id, []).append(event)
    turns = tuple(_turn(found, (seconds or {}).get(name)) for name, found in by_invocation.items())
    return Trace(turns, _files_of(turns))


def from_invocations(invocations: Iterable[Invocation]) -> Trace:
    """The trace of what google-adk's evaluation recorded, or what an EvalSet expects (which holds no usage data)."""
    from google.adk.evaluation import eval_case

    turns = []
    for invocation in invocations:
        data = invocation.intermediate_data
        usages = [usage_of(usage) for usage in eval_case.get_all_usage_metadata(invocation)]
        turns.append(
            Turn(
                user_text=text_of(invocation.user_content),
                calls=_calls(eval_case.get_all_tool_calls(data), eval_case.get_all_tool_responses(data)),
                final_text=text_of(invocation.final_response),
                usage=sum(usages, Usage()) if usages else None,
                seconds=invocation.duration,
            )
        )
    return Trace(tuple(turns), _files_of(turns))


def text_of(content: types.Content | None) -> str:
    """The text of a content, without the model's thoughts."""
    parts = (content.parts if content is not None else None) or ()
    return "".join(part.text for part in parts if part.text and not part.thought)


def plain(value: Any) -> Any:
    """``value`` as JSON values only; what JSON cannot say becomes text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    dump = getattr(value, "model_dump", None)
    return plain(dump(mode="json")) if callable(dump) else str(value)


def _turn(events: Sequence[Event], seconds: float | None) -> Turn:
    user_text, final, error = "", None, ""
    calls: list[types.FunctionCall] = []
    responses: list[types.FunctionResponse] = []
    usages: list[Usage] = []
    for event in events:
        if event.author == "user":
            user_text = text_of(event.content) or user_text
            continue
        calls += event.get_function_calls()
        responses += event.get_function_responses()
        if event.usage_metadata is not None:
            usages.append(usage_of(event.usage_metadata))
        if event.error_code or event.error_message:
            error = ": ".join(filter(None, [event.error_code, event.error_message]))
        # google-adk's rule for the final response: the last one, one with text rather than one without.
        if event.content and event.content.parts and event.is_final_response():
            has_text = any(part.text for part in event.content.parts)
            if has_text or final is None or not any(part.text for part in final.parts or ()):
                final = event.content
            if has_text and not event.error_code:
                error = ""
    return Turn(
        user_text=user_text,
        calls=_calls(calls, responses),
        final_text=text_of(final),
        usage=sum(usages, Usage()) if usages else None,
        seconds=seconds,
        error=error,
    )


def _files_of(turns: Iterable[Turn]) -> dict[str, OutputFile]:
    """What the answers of scripts say of the files they left (``output_files``)."""
    found = {}
    for call in (call for turn in turns for call in turn.calls):
        files = (call.response or {}).get("output_files")
        for file in files if isinstance(files, list) else ():
            if isinstance(file, Mapping) and isinstance(file.get("name"), str):
                size = file.get("size")
                found[file["name"]] = OutputFile(size if isinstance(size, int) else 0)
    return found


def _calls(calls: Sequence[types.FunctionCall], responses: Sequence[types.FunctionResponse]) -> tuple[ToolCall, ...]:
    # By id; hand-written data has none, there the n-th answer of a tool belongs to its n-th call.
    left = list(responses)
    found = []
    for call in calls:
        fits = (r for r in left if (r.id == call.id if call.id and r.id else r.name == call.name))
        response = next(fits, None)
        if response is not None:
            left.remove(response)
        answer = None if response is None else plain(response.response or {})
        found.append(ToolCall(call.name or "", plain(call.args or {}), answer, call.id or ""))
    return tuple(found)


def usage_of(data: types.GenerateContentResponseUsageMetadata) -> Usage:
    """The tokens of one answer of a model."""
    output = (data.candidates_token_count or 0) + (data.thoughts_token_count or 0)
    prompt = (data.prompt_token_count or 0) + (data.tool_use_prompt_token_count or 0)
    return Usage(prompt, output, data.total_token_count or prompt + output, data.cached_content_token_count or 0)
