"""An active skill's instructions, in every request exactly once (S2, C37, C38; GOOGLE_ADK rows A3 and A4).

They are rendered anew into the system instruction of each request, from the session's state and the skill's file, so
that neither compaction nor truncation of the history can lose them and an edited file is in force at once. What the
history still says of them (the answers of the tool that loads skills) is replaced in the request by a short note.
The history itself is shared with the session's events and is never changed.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from google.genai import types

from adk_skills_agent.adk.active_skills import ActiveSkill, own_keys
from adk_skills_agent.adk.approvals import may_stay_in_force
from adk_skills_agent.adk.committing import commit
from adk_skills_agent.adk.events import SkillDropped, origin_of
from adk_skills_agent.errors import SkillNotFound, SkillsError

if TYPE_CHECKING:
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.skill_runtime import SkillRuntime
    from adk_skills_agent.adk.skill_text import SkillText

logger = logging.getLogger(__name__)

_OTHER_AGENT = re.compile(r"\A\[(?P<agent>[^\]\n]+)\] `(?:[^`\s]*_)?(?:load_skill|use_skill)` tool returned result:")
"""How google-adk shows an agent the tool answers of another."""
_SKILL_NAME = re.compile(r"'skill_name': '([^']*)'")
_UNREADABLE = "it cannot be read. Go on without it, and tell the user."
_LEFT_OUT = frozenset({"instructions", "frontmatter", "files", "more_files"})
"""Of an answer that is replaced: what the system instruction says, or said, of the skill."""


@dataclass(slots=True)
class InForce:
    """What one request says of active skills.

    Attributes:
        texts: By name, in the order of activation.
        changed: Those whose file is not the one that was loaded.
        lost: Skills that were active and are not any more, with the reason for the model; empty for one that the model
            must not know.
    """

    texts: dict[str, SkillText] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    lost: dict[str, str] = field(default_factory=dict)

    def block(self, resource_tool: str, unload_tool: str | None = None) -> str:
        """The part of the system instruction; empty when nothing is to be said.

        Args:
            resource_tool: The tool that reads files of a skill.
            unload_tool: The tool that releases a skill, when the model has it.
        """
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

    Args:
        runtime: The toolset.
        tool_context: Of the request's preparation.
        llm_request: The request.
        unloadable: Whether the model has the tool that releases a skill.
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
    """What the toolsets of the agent sign their activations with."""
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
    """What stands for an answer with a body; None when it has none."""
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
