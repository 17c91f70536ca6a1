"""An active skill's instructions, in every request exactly once (S2, C37, C38; GOOGLE_ADK rows A3 and A4).

They are rendered anew into the system instruction of each request, from the session's state and the skill's file, so
that neither compaction nor truncation of the history can lose them and an edited file is in force at once. What the
history still says of them (the answers of the tool that loads skills) is replaced in the request by a short note.
The history itself is shared with the session's events and is never changed.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from google.genai import types

from adk_skills_agent.adk.activation.active_skills import ActiveSkill, commit, own_keys
from adk_skills_agent.adk.events.events import SkillDropped, origin_of
from adk_skills_agent.adk.permissions import may_stay_in_force
from adk_skills_agent.adk.skills.known import SKILL_FILE
from adk_skills_agent.adk.skills.resources import HEAD_BYTES, usage_line
from adk_skills_agent.catalog.budget import UNITS_PER_TOKEN, estimate_tokens, size_units
from adk_skills_agent.errors import SkillNotFound, SkillsError
from adk_skills_agent.recent import Recent
from adk_skills_agent.sandbox import SKILL_DIR
from adk_skills_agent.scripts.interpreters import is_runnable

if TYPE_CHECKING:
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.runtime import SkillRuntime
    from adk_skills_agent.adk.skills.known import KnownSkill


logger = logging.getLogger(__name__)

_OTHER_AGENT = re.compile(r"\A\[(?P<agent>[^\]\n]+)\] `(?:[^`\s]*_)?(?:load_skill|use_skill)` tool returned result:")
"""How google-adk shows an agent the tool answers of another."""
_SKILL_NAME = re.compile(r"'skill_name': '([^']*)'")
_UNREADABLE = "it cannot be read. Go on without it, and tell the user."
_LEFT_OUT = frozenset({"instructions", "frontmatter", "files", "more_files"})
"""Of an answer that is replaced: what the system instruction says, or said, of the skill."""


@dataclass(slots=True)
class InForce:
    """The part of one request that is about active skills."""

    texts: dict[str, SkillText] = field(default_factory=dict)  # by name, in the order of activation
    changed: set[str] = field(default_factory=set)  # those whose file is not the one that was loaded
    # skills that were active and are not any more, with the reason for the model; empty for one that the model must not
    # know
    lost: dict[str, str] = field(default_factory=dict)

    def block(self, resource_tool: str, unload_tool: str | None = None) -> str:
        """The part of the system instruction; empty when nothing is to be said."""
        told = {name: why for name, why in self.lost.items() if why}
        if not self.texts and not told:
            return ""
        parts = ["<active_skills>"]
        if self.texts:
            release = f" When the task of one is finished, you may call {unload_tool}." if unload_tool else ""
            parts.append(f"These skills are loaded. Follow their instructions; do not load them again.{release}")
        parts += [text.block(resource_tool, name in self.changed) for name, text in self.texts.items()]
        parts += [f"The skill {name} is not active any more: {why}" for name, why in told.items()]
        parts.append("</active_skills>")
        return "\n".join(parts)


async def put_in_force(
    runtime: SkillRuntime, tool_context: ToolContext, llm_request: LlmRequest, *, unloadable: bool = False
) -> None:
    """Write the active skills into the system instruction and take them out of the history of this request.

    A skill whose text cannot be had, or that has no room, is released for good, so that the state never claims what
    the request does not say.
    """
    adopted = runtime.active.adopt(tool_context, _toolsets_of(tool_context), runtime.source.local)
    expired = runtime.active.expire(tool_context)
    for name in expired:
        runtime.events.emit(SkillDropped(origin=origin_of(tool_context), skill=name, reason="expired"))
    found = await _in_force(runtime, tool_context)
    mended = runtime.active.mend_list(tool_context)
    if found.lost:
        runtime.active.deactivate(tool_context, *found.lost)
    if found.lost or mended or adopted or expired:
        await commit(tool_context, own_keys(tool_context.agent_name))
    unload = runtime.tool_name("unload_skill") if unloadable else None
    block = found.block(runtime.tool_name("load_skill_resource"), unload)
    if block:
        llm_request.append_instructions([block])
    contents = getattr(llm_request, "contents", None)
    if contents:
        load = runtime.tool_name("load_skill")
        contents[:] = [_without_bodies(content, load, found.texts) for content in contents]


def _toolsets_of(tool_context: ToolContext) -> set[str]:
    """The signatures of the activations of the agent's toolsets."""
    tools = getattr(tool_context.get_invocation_context().agent, "tools", None)
    runtimes = [getattr(tool, "runtime", None) for tool in tools] if isinstance(tools, list) else []
    return {runtime.active.tool for runtime in runtimes if runtime is not None and hasattr(runtime, "active")}


async def _in_force(runtime: SkillRuntime, tool_context: ToolContext) -> InForce:
    records = runtime.active.records(tool_context)
    texts = await asyncio.gather(*(_text_of(runtime, tool_context, record) for record in records))
    result = InForce()
    origin = origin_of(tool_context)
    for record, text in zip(records, texts, strict=True):
        if isinstance(text, str):
            if record.tool:  # what only google-adk's list has may belong to another toolset of the agent
                result.lost[record.name] = text
                runtime.events.emit(SkillDropped(origin=origin, skill=record.name, reason="gone"))
            continue
        result.texts[record.name] = text
        if record.digest and record.digest != text.digest:
            result.changed.add(record.name)
    sizes = {name: text.tokens for name, text in result.texts.items()}
    for name in runtime.active.over_budget(sizes):
        del result.texts[name]
        result.lost[name] = "there is no room for its instructions. Load it again if you need it."
        runtime.events.emit(SkillDropped(origin=origin, skill=name, reason="budget"))
    return result


async def _text_of(runtime: SkillRuntime, tool_context: ToolContext, record: ActiveSkill) -> SkillText | str:
    """The text of an active skill, or why there is none."""
    try:
        skill = await runtime.skill(tool_context, record.name)
        if not await may_stay_in_force(runtime, tool_context, skill):
            return "it changed since the user approved it. Load it again if you need it; the user is asked."
        text = await runtime.text(skill, tool_context)
    except SkillsError as error:
        logger.warning("the active skill %s cannot be read: %s", record.name, error.message)
        if isinstance(error, SkillNotFound) and runtime.source.hides(record.name):
            return ""  # the model must not know that there is such a skill
        known = None if isinstance(error, SkillNotFound) else runtime.last_text(record.name)
        return known if known is not None else _UNREADABLE
    except Exception:  # an object in memory may raise anything; one skill is not to end the session
        logger.exception("the active skill %s cannot be read", record.name)
        return _UNREADABLE
    return text


def _without_bodies(content: types.Content, load: str, texts: Mapping[str, SkillText]) -> types.Content:
    parts = content.parts or []
    replaced = [_without_body(part, load, texts) for part in parts]
    if all(new is old for new, old in zip(replaced, parts, strict=True)):
        return content
    return content.model_copy(update={"parts": replaced})


def _without_body(part: types.Part, load: str, texts: Mapping[str, SkillText]) -> types.Part:
    response = part.function_response
    if response is not None and response.name == load and isinstance(response.response, dict):
        short = _short_answer(response.response, texts.__contains__)
        if short is None:
            return part
        return part.model_copy(update={"function_response": response.model_copy(update={"response": short})})
    told = _OTHER_AGENT.match(part.text) if isinstance(part.text, str) else None
    if told is not None and part.text is not None:
        named = _SKILL_NAME.search(part.text)
        skill = f" the skill {named.group(1)}" if named else " a skill"
        agent = told.group("agent")
        return part.model_copy(update={"text": f"[{agent}] loaded{skill}; its instructions are for {agent}."})
    return part


def _short_answer(answer: Mapping[str, Any], is_active: Callable[[str], bool]) -> dict[str, Any] | None:
    """The replacement of an answer with a body; None if it has no body."""
    name = answer.get("skill_name")
    if "instructions" not in answer or not isinstance(name, str):
        return None
    if is_active(name):
        status = {
            "status": "active",
            "detail": f'Its instructions are in the system instruction, in <skill_content name="{name}">.',
        }
    else:
        status = {
            "status": "unloaded",
            "detail": "This skill is not active; its instructions no longer apply. Load it again if you need it.",
        }
    return {**{key: value for key, value in answer.items() if key not in _LEFT_OUT}, **status}


# What active skills say, put together once and again only when something of the skill changed.
#
# Every request to the model says it anew, so it has to cost no more than a look at the stamps of the folders.

_KEPT = 64


@dataclass(frozen=True, slots=True)
class _Known:
    skill: KnownSkill
    made_of: tuple[str, str]
    stamp: object
    text: SkillText


class SkillTexts:
    """The texts of the skills of one toolset. May be used by several threads."""

    def __init__(
        self,
        budget_tokens: int | None,
        manifest_files: int,
        directory: Callable[[str], str] = lambda _name: str(SKILL_DIR),
    ) -> None:
        self._budget = budget_tokens
        self._files = manifest_files
        self._directory = directory
        self._lock = threading.Lock()
        self._known: Recent[str, _Known] = Recent(_KEPT)

    def text(self, skill: KnownSkill, instructions: str, injected: str) -> SkillText:
        """The instructions of a skill. May block. Raises ``SkillsError`` when it cannot be read."""
        with self._lock:
            known = self._known.get(skill.name)
        since = time.time_ns()
        same = known is not None and known.skill is skill and known.made_of == (instructions, injected)
        if known is not None and same and skill.stamp(known.text.usages_of, since) == known.stamp:
            return known.text
        text = skill_text(
            skill,
            instructions,
            injected,
            budget_tokens=self._budget,
            manifest_files=self._files,
            directory=self._directory(skill.name),
        )
        stamp = skill.stamp(text.usages_of, since)
        if stamp is not None:
            with self._lock:
                self._known[skill.name] = _Known(skill, (instructions, injected), stamp, text)
        return text


# What an active skill says to the model: its body, cut to the budget, its files and scripts (C32 to C35).

MAX_USAGES = 20
"""Scripts whose first lines are read for a usage line."""

_OWN_TAG = re.compile(
    r"<(?=\s*+(?:/\s*+)?(?:active_skills|skill_content|skill_resources|available_skills)\b)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class SkillText:
    """An active skill as a model reads it."""

    name: str
    body: str  # its instructions, cut to the budget, state injected
    digest: str  # of the whole instructions as they are in the file
    files: tuple[str, ...] = ()  # ``path`` or ``path: usage``, at most as many as are listed
    more_files: int = 0  # how many files are not listed
    compatibility: str | None = None  # what the author says it needs, or None
    whole_chars: int | None = None  # length of the body before it was cut; None when it was not
    usages_of: tuple[str, ...] = ()  # paths of the scripts whose first lines were read
    directory: str = str(SKILL_DIR)  # where the skill is, as the model's tools see it

    @property
    def instructions(self) -> str:
        """The body as a model may read it: without tags of ours."""
        return _fenced(self.body)

    @property
    def tokens(self) -> int:
        """Of the block in the system instruction."""
        return estimate_tokens(self.block())

    def block(self, resource_tool: str = "load_skill_resource", changed: bool = False) -> str:
        """The skill between ``<skill_content>`` tags (C33)."""
        attributes = ' changed="true"' if changed else ""
        parts = [f'<skill_content name="{escape(self.name)}"{attributes}>', _fenced(self.body.strip())]
        if self.whole_chars is not None:
            parts.append(self.cut_note(resource_tool))
        parts.append("")
        if self.compatibility:
            parts.append(f"Compatibility: {_fenced(self.compatibility)}")
        parts += [
            f"Skill directory: {self.directory}",
            "Relative paths in this skill are relative to the skill directory.",
        ]
        if self.files:
            parts.append("<skill_resources>")
            parts += [f"<file>{escape(file, quote=False)}</file>" for file in self.files]
            if self.more_files:
                parts.append(f"<!-- {self.more_files} more files are not listed -->")
            parts.append("</skill_resources>")
        parts.append("</skill_content>")
        return "\n".join(parts)

    def cut_note(self, resource_tool: str) -> str:
        """Advice to the model about a body that was cut."""
        return (
            f"[The instructions are cut here: {len(self.body)} of {self.whole_chars} characters. Read on with "
            f"{resource_tool}, file {SKILL_FILE}.]"
        )


def _fenced(text: str) -> str:
    """A skill's text without our own tags: it can neither end its block nor pose as another skill."""
    return _OWN_TAG.sub("&lt;", text)


def fenced(value: Any) -> Any:
    """A skill's own text without our tags, as in the system instruction; also what is inside lists and mappings."""
    if isinstance(value, str):
        return _fenced(value)
    if isinstance(value, dict):
        return {fenced(key): fenced(one) for key, one in value.items()}
    return [fenced(one) for one in value] if isinstance(value, list) else value


def text_digest(instructions: str) -> str:
    """An identifier of one version of a body, short enough for the session's state."""
    return hashlib.sha256(instructions.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def skill_text(
    skill: KnownSkill,
    instructions: str,
    injected: str,
    *,
    budget_tokens: int | None,
    manifest_files: int,
    directory: str = str(SKILL_DIR),
) -> SkillText:
    """Put together what a skill says. May block.

    ``injected`` is the body with the session's state and the skill's path put in.
    """
    body = cut_text(injected, budget_tokens)
    # What the author measures the skill with is no help to the model: the expected answers are in it.
    files = [path for path in skill.files() if _is_for_models(path)] if manifest_files else []
    return SkillText(
        name=skill.name,
        body=body,
        digest=text_digest(instructions),
        files=_with_usage(skill, files[:manifest_files]),
        more_files=max(0, len(files) - manifest_files),
        compatibility=skill.compatibility,
        whole_chars=len(injected) if len(body) < len(injected) else None,
        usages_of=tuple(path for path in files[:manifest_files] if is_runnable(path))[:MAX_USAGES],
        directory=directory,
    )


def cut_text(text: str, budget_tokens: int | None) -> str:
    """The beginning of a text that fits a budget, whole lines where possible."""
    if budget_tokens is None or size_units(text) <= budget_tokens * UNITS_PER_TOKEN:
        return text
    low, high = 0, len(text)
    while low < high:  # the longest beginning that fits
        middle = (low + high + 1) // 2
        if size_units(text[:middle]) <= budget_tokens * UNITS_PER_TOKEN:
            low = middle
        else:
            high = middle - 1
    line = text.rfind("\n", 0, low)
    return text[: line + 1] if line > low // 2 else text[:low]


def _is_for_models(path: str) -> bool:
    """Whether a file is listed: no eval cases, and no bytecode that the author's own run of a script left."""
    return not path.startswith("evals/") and "__pycache__" not in path.split("/")


def _with_usage(skill: KnownSkill, files: Sequence[str]) -> tuple[str, ...]:
    shown = []
    left = MAX_USAGES
    for path in files:
        usage = ""
        if is_runnable(path) and left:
            left -= 1
            try:
                usage = usage_line(path, skill.read_bytes(path, HEAD_BYTES))
            except SkillsError:
                pass  # a file that cannot be read is listed without a line; reading it will say why
        shown.append(f"{path}: {usage}" if usage else path)
    return tuple(shown)
