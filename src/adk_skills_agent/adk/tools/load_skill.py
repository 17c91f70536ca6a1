"""``load_skill``: activate a skill and get its instructions (S0-157, C28, C29, C33 to C35, C38)."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from adk_skills_agent.adk.activation.instructions import fenced, put_in_force
from adk_skills_agent.adk.events.events import SkillActivated, SkillDropped, origin_of
from adk_skills_agent.adk.guard import call_key
from adk_skills_agent.adk.options import SkillLifecycleMode
from adk_skills_agent.adk.permissions import may_stay_in_force, permit
from adk_skills_agent.adk.tools.base import ToolsetTool, failure, required_text, skill_name_schema
from adk_skills_agent.errors import RegistryError, SkillNotActive, SkillNotFound, SkillsError
from adk_skills_agent.format import normalise_name
from adk_skills_agent.sandbox import in_worker
from adk_skills_agent.scripts.interpreters import is_runnable

if TYPE_CHECKING:
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.activation.active_skills import Activation
    from adk_skills_agent.adk.activation.instructions import SkillText
    from adk_skills_agent.adk.runtime import SkillRuntime
    from adk_skills_agent.adk.skills.known import KnownSkill


logger = logging.getLogger(__name__)

LOAD_SKILL = "load_skill"
_REQUIRED = 20  # of the skills that one says it needs, named in an answer
_NAME = re.compile(r"[\s]*([^\s@<>=!~;,]+)")


class LoadSkillTool(ToolsetTool):
    """Activates a skill: its instructions are in the answer and then in the system instruction of every request."""

    required = ("skill_name",)

    def __init__(self, runtime: SkillRuntime, description: str = "") -> None:
        super().__init__(runtime, LOAD_SKILL, description or "Loads the SKILL.md instructions for a given skill.")

    def properties(self) -> dict[str, dict[str, object]]:
        """One argument: the name, an enum of the valid ones while it fits (C29)."""
        return {self.skill_argument: skill_name_schema(self.runtime.listing.names)}

    async def answer(self, args: dict[str, Any], tool_context: ToolContext) -> dict[str, Any]:
        """The instructions, the files, and what had to make room."""
        runtime = self.runtime
        refused = runtime.guard.refused_name(tool_context)
        if refused is not None:
            return refused
        name = required_text(args, self.skill_argument)
        origin = origin_of(tool_context)
        try:
            skill = await runtime.skill(tool_context, name)
            pending = await permit(runtime, tool_context, skill, "activate")
            if pending is not None:
                return pending
            text = await runtime.text(skill, tool_context)
            if not await may_stay_in_force(runtime, tool_context, skill):
                raise SkillNotActive(f"Skill '{skill.name}' changed since the user approved it. Load it again to ask.")
        except SkillNotFound as error:
            runtime.events.emit(SkillActivated(origin=origin, skill=name, error_code=error.code.value))
            return runtime.guard.miss(tool_context, "skill", failure(error, runtime.grants.forms), name, name)
        except RegistryError as error:
            runtime.events.emit(SkillActivated(origin=origin, skill=name, error_code=error.code.value))
            return runtime.guard.miss(tool_context, "registry", failure(error, runtime.grants.forms), name, name)
        except SkillsError as error:
            runtime.events.emit(SkillActivated(origin=origin, skill=name, error_code=error.code.value))
            raise
        earlier = next((one for one in runtime.active.records(tool_context) if one.name == skill.name), None)
        version = await version_of(skill)
        activation = runtime.active.activate(tool_context, skill.name, tokens=text.tokens, digest=text.digest)
        runtime.guard.success(tool_context, "skill")
        tell_of_activation(runtime, tool_context, skill, text, activation, version)
        said = self._displaced(skill, activation) | self._required(skill, tool_context)
        missing = await runtime.missing_tools(skill, tool_context)
        if missing:
            # Else a model asks for the skill and its list again and again, to find the tool (google-adk issue 6280).
            said["missing_tools"] = missing
            said["missing_tools_note"] = "These tools do not exist here. Do without them; do not look for them."
        if earlier is None or earlier.digest != text.digest:
            return await self.loaded(skill, text) | said
        key = call_key(LOAD_SKILL, skill.name)
        return runtime.guard.repeated(tool_context, key, _already(skill) | said, skill=skill.name)

    async def loaded(self, skill: KnownSkill, text: SkillText) -> dict[str, object]:
        """The answer to a first load."""
        body = text.instructions
        if text.whole_chars is not None:
            body = f"{body}\n{text.cut_note(self.runtime.tool_name('load_skill_resource'))}"
        answer: dict[str, object] = {
            "skill_name": skill.name,
            "instructions": body,
            "frontmatter": fenced(skill.frontmatter()),
        }
        if self.runtime.file_list:
            answer["base_directory"] = text.directory
            answer["files"] = fenced(list(text.files))
            if text.more_files:
                answer["more_files"] = text.more_files
        return answer

    def _required(self, skill: KnownSkill, tool_context: ToolContext) -> dict[str, object]:
        """The skills that this one needs and that are not loaded yet: the model loads them when it needs them."""
        said = skill.metadata.get("requires-skills")
        texts = said.split(",") if isinstance(said, str) else said if isinstance(said, list) else ()
        names = list(dict.fromkeys(filter(None, (_required_name(text) for text in texts if isinstance(text, str)))))
        if not names:
            return {}
        active = {one.name for one in self.runtime.active.records(tool_context)}
        source = self.runtime.source
        there = [name for name in names[:_REQUIRED] if name not in active and source.local(name) is not None]
        missing = [name for name in names[:_REQUIRED] if name not in active and source.local(name) is None]
        answer: dict[str, object] = {}
        if there:
            answer["required_skills"] = there
            answer["required_skills_note"] = "This skill needs these skills. Load each one before you use it."
        if missing:
            answer["missing_skills"] = missing
            answer["missing_skills_note"] = (
                "This skill needs these skills, and they do not exist here. Do without them."
            )
        return answer

    def _displaced(self, skill: KnownSkill, activation: Activation) -> dict[str, object]:
        said: dict[str, object] = {}
        if activation.released:
            said["unloaded_skills"] = list(activation.released)
        if activation.dropped:
            said["dropped_skills"] = list(activation.dropped)
            said["note"] = "The dropped skills had no room any more; their instructions no longer apply."
        if self.runtime.active.lifecycle.mode_of(skill.name) is SkillLifecycleMode.EPHEMERAL:
            said["lifecycle_notice"] = (
                "This skill is released at the end of the current turn. Do what it is needed for now; "
                "in a later turn, load it again."
            )
        return said


def _required_name(text: str) -> str:
    """The name in an entry of ``requires-skills``: ``pdf`` in ``pdf>=1.2 @ owner/repo``."""
    found = _NAME.match(text)
    return normalise_name(found[1]) if found else ""


def _already(skill: KnownSkill) -> dict[str, object]:
    """The text is in the request already, once."""
    return {
        "skill_name": skill.name,
        "status": "active",
        "detail": "The skill was loaded before and its instructions are in force. Follow them; do not load it again.",
    }


async def version_of(skill: KnownSkill) -> str:
    """The version for the owner's log; empty when a file cannot be read, which is no reason not to load the skill."""
    try:
        return await in_worker(skill.version)
    except SkillsError as error:
        logger.warning("the version of skill %s is not known: %s", skill.name, error.message)
        return ""


def tell_of_activation(
    runtime: SkillRuntime,
    tool_context: ToolContext,
    skill: KnownSkill,
    text: SkillText,
    activation: Activation,
    version: str,
    how: str = "tool",
) -> None:
    """The events of an activation: the skill itself and those that made room for it."""
    origin = origin_of(tool_context)
    runtime.events.emit(
        SkillActivated(
            origin=origin,
            skill=skill.name,
            version=version,
            tokens=text.tokens,
            how=how,
            again=activation.already,
        )
    )
    for name in activation.dropped:
        runtime.events.emit(SkillDropped(origin=origin, skill=name, reason="budget"))
    for name in activation.released:
        bounded = runtime.active.lifecycle.mode_of(name) is SkillLifecycleMode.BOUNDED
        runtime.events.emit(SkillDropped(origin=origin, skill=name, reason="bounded" if bounded else "expired"))


# ``use_skill``: ``load_skill`` under the name of ``with_skills``, the catalogue in its description (S4-3 to S4-5).

USE_SKILL = "use_skill"

_INTRODUCTION = (
    "Load the instructions of a skill. A skill is a folder of instructions, scripts and references for one kind of "
    "task. When the task matches a skill listed here, call this tool first, then follow its instructions; loading a "
    "skill does not finish the task. Use only skills and files that are listed; do not guess names."
)


class UseSkillTool(LoadSkillTool):
    """Activates a skill. Its description has the catalogue, so that the system prompt has only active skills (S4-4).

    With ``alone`` there is no toolset that puts active skills in force; then the tool does it.
    """

    skill_argument = "name"
    required = ("name",)

    def __init__(self, runtime: SkillRuntime, *, alone: bool = False) -> None:
        super().__init__(runtime, _INTRODUCTION)
        self._alone = alone

    def full_description(self) -> str:
        """The behavioural instruction and, next to it, the catalogue (C23, C24)."""
        return f"{_INTRODUCTION}\n\n{self.runtime.listing.text.text}"

    def offered(self, tool_context: ToolContext) -> bool:
        """Never without skills (C27)."""
        return not self.runtime.empty

    async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:
        """Look for changes on disk, then declare the tool."""
        await self.runtime.source.refresh_if_due()
        await super().process_llm_request(tool_context=tool_context, llm_request=llm_request)
        if self._alone:
            await put_in_force(self.runtime, tool_context, llm_request)

    async def loaded(self, skill: KnownSkill, text: SkillText) -> dict[str, object]:
        """The skill as it stands in the system instruction, and what there is to use."""
        files = await in_worker(skill.files)
        return {
            "skill_name": skill.name,
            "base_directory": text.directory,
            "has_scripts": any(map(is_runnable, files)),
            "has_references": any(path.startswith("references/") for path in files),
            "instructions": text.block(self.runtime.tool_name("load_skill_resource")),
        }


# ``unload_skill``: release a skill whose task is done (S0-157).

UNLOAD_SKILL = "unload_skill"


class UnloadSkillTool(ToolsetTool):
    """Ends an activation: the instructions and tools of the skill are in no later request. Nothing is fetched."""

    required = ("skill_name",)

    def __init__(self, runtime: SkillRuntime) -> None:
        super().__init__(
            runtime,
            UNLOAD_SKILL,
            "Unloads an active skill once its task is complete, releasing its instructions and tools.",
        )

    def properties(self) -> dict[str, dict[str, object]]:
        """One argument: the name."""
        return {"skill_name": {"type": "string", "description": "The name of the active skill to unload."}}

    def offered(self, tool_context: ToolContext) -> bool:
        """With an active skill, and in ``run_live``, whose tools are declared once for the whole stream."""
        live = tool_context.get_invocation_context().live_request_queue is not None
        return live or bool(self.runtime.active.active(tool_context))

    async def answer(self, args: dict[str, Any], tool_context: ToolContext) -> dict[str, object]:
        """The skills that stay active."""
        name = required_text(args, "skill_name")
        known = self.runtime.source.local(name)
        if name not in self.runtime.active.active(tool_context) and known is not None:
            name = known.name  # as the catalog spells it
        if not self.runtime.active.deactivate(tool_context, name):
            raise SkillNotActive(f"Skill '{name}' is not active.")
        self.runtime.events.emit(SkillDropped(origin=origin_of(tool_context), skill=name, reason="unloaded"))
        return {"skill_name": name, "unloaded": True, "active_skills": self.runtime.active.active(tool_context)}
