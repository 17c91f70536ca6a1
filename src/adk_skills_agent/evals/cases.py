"""Eval cases: what is asked, which skill it is about, and what a good run does. One form for every kind of file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from adk_skills_agent.evals.judge import Rubric
from adk_skills_agent.evals.trace import OutputFile, ToolCall, Trace, Turn
from adk_skills_agent.format.models import Diagnostic

_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Source:
    """Where a case was read: file and 1-based line."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class CaseTurn:
    """One message of the user, and what is expected of the agent then."""

    user_text: str
    expected_calls: tuple[ToolCall, ...] = ()  # tools that are to be called, with the arguments that matter
    reference: str = ""  # lines that the final text is to hold; empty for none
    rubrics: tuple[Rubric, ...] = ()


@dataclass(frozen=True, slots=True)
class CaseFile:
    """A file the user gives to the agent: its name there, and where it is here."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class ExpectedFile:
    """A file that a good run leaves behind."""

    name: str  # its name; ``*`` and ``?`` stand for any characters
    contains: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scenario:
    """A conversation whose user is played by a model: google-adk's user simulator."""

    plan: Mapping[str, Any]  # google-adk's ``ConversationScenario``, as JSON
    # its ``LlmBackedUserSimulatorConfig``, as JSON without the model
    simulator: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    model: str = ""  # the name of the model that plays the user; empty when nobody has named one

    @property
    def template_code(self) -> str:
        """The first piece of its templates that is more than a name, or names that stand for too much; empty for none.

        google-adk renders the texts of a persona and ``custom_instructions`` with Jinja, whose sandbox is none there:
        the persona is an object with methods that read files and unpickle (row 489).
        """
        own, persona = str(self.simulator.get("custom_instructions") or ""), self.plan.get("user_persona") or {}
        texts = json.dumps(persona)
        if code := _more_than_names(own, _TEXT_NAMES | _OWN_NAMES) or _more_than_names(texts, _TEXT_NAMES):
            return code
        # Each name is a text of the file, at most all of them, and that of a loop as often as there are behaviors.
        pieces = _PIECE.findall(own + texts)
        times = len(pieces) * (len(persona.get("behaviors") or ()) if "{%" in own else 1)
        size = len(own) + len(json.dumps(self.plan))
        return f"{pieces[0]} {times:,} times" if times * size > _MAX_RENDERED_CHARS else ""


_TEXT_NAMES = frozenset({"{{stop_signal}}", "{{conversation_plan}}", "{{conversation_history}}"})
_OWN_NAMES = frozenset(
    {
        "{{persona}}",
        "{{persona.name}}",
        "{{persona.description}}",
        "{%forbinpersona.behaviors%}",
        "{{b.name}}",
        "{{b.description}}",
        "{{b.get_behavior_instructions_str()}}",
        "{%endfor%}",
    }
)
"""What the template of google-adk itself has, but for a filter that it does not let others use."""
_MAX_RENDERED_CHARS = 1 << 27
_PIECE = re.compile(r"\{\{[^{}]*\}\}|\{%[^{}]*%\}")


def _more_than_names(text: str, names: frozenset[str]) -> str:
    pieces = [(piece, "".join(piece.split())) for piece in _PIECE.findall(text)]
    odd = [piece for piece, plain in pieces if plain not in names]
    loops = [piece for piece, plain in pieces if plain.startswith("{%for")]
    left = re.search(r"\{[{%#][^\n]{0,60}", _PIECE.sub("", text)) or re.search(r"\{\{\{", text)
    return next(iter([*odd, *loops[1:], *([left[0]] if left else [])]), "")


@dataclass(frozen=True, slots=True)
class EvalCase:
    """One thing to ask an agent, and how to tell whether it went well."""

    id: str
    turns: tuple[CaseTurn, ...]
    source: Source
    skills: tuple[str, ...] = ()  # the skills it is about, absent in the arm without; empty: every skill the agent has
    skill_folder: Path | None = None  # where the skill is when the file lies in its folder
    files: tuple[CaseFile, ...] = ()
    expected_files: tuple[ExpectedFile, ...] = ()
    expected_output: str = ""  # a good outcome in words, for the judge
    should_trigger: bool | None = None  # for a trigger query: whether the skill is to be loaded; None for a task
    split: str = ""  # ``train`` or ``validation`` of a trigger query (C47), or empty
    initial_state: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    # metric to its criterion (a threshold, or a mapping with it and more), as google-adk's EvalConfig has it; empty
    # takes every metric that applies
    criteria: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    # who plays the user after the first message; then ``turns`` has that message alone, and its rubrics are asked of
    # every turn
    scenario: Scenario | None = None

    @property
    def kind(self) -> str:
        """``task`` or ``trigger``."""
        return "task" if self.should_trigger is None else "trigger"

    @property
    def judged(self) -> bool:
        """Whether a judge is asked."""
        return any(turn.rubrics for turn in self.turns)

    @property
    def expected(self) -> Trace:
        """What the case expects, as a trace: calls and references by turn."""
        return Trace(tuple(Turn(turn.user_text, turn.expected_calls, turn.reference) for turn in self.turns))


@dataclass(frozen=True, slots=True)
class EvalFile:
    """What was read from one file."""

    path: Path
    cases: tuple[EvalCase, ...]
    diagnostics: tuple[Diagnostic, ...] = ()


# The files an agent left, as a judge reads them.

_MOST_FILES = 20
_MOST_CHARS = 8_000


def files_shown(trace: Trace) -> list[str]:
    """A paragraph for each file: its name, its size, and its beginning when it is text; what is not shown is said."""
    files = sorted(trace.output_files.items())
    parts = [f"File left by the agent: {name} ({_shown(file)}" for name, file in files[:_MOST_FILES]]
    if len(files) > _MOST_FILES:
        parts.append(f"The agent left {len(files) - _MOST_FILES} more files, which are not shown.")
    return parts


def _shown(file: OutputFile) -> str:
    """The rest of a line about a file."""
    size = f"{file.size:,} bytes"
    try:
        text = file.content.decode() if file.content is not None else ""
    except UnicodeDecodeError:
        text = ""
    if not text:
        return f"{size}; not shown)"
    cut = f"; its first {_MOST_CHARS:,} characters" if len(text) > _MOST_CHARS else ""
    return f"{size}{cut}): {text[:_MOST_CHARS]}"
