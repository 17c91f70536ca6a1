"""``use_skill``: ``load_skill`` under the name of ``with_skills``, the catalogue in its description (S4-3 to S4-5)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from adk_skills_agent.adk.instructions_in_force import put_in_force
from adk_skills_agent.adk.tools.load_skill import LoadSkillTool
from adk_skills_agent.sandbox.contract import SKILL_DIR

if TYPE_CHECKING:
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.known_skill import KnownSkill
    from adk_skills_agent.adk.skill_runtime import SkillRuntime
    from adk_skills_agent.adk.skill_text import SkillText

NAME = "use_skill"

_INTRODUCTION = (
    "Load the instructions of a skill. A skill is a folder of instructions, scripts and references for one kind of "
    "task. When the task matches a skill listed here, call this tool first, then follow its instructions; loading a "
    "skill does not finish the task. Use only skills and files that are listed; do not guess names."
)


class UseSkillTool(LoadSkillTool):
    """Activates a skill. Its description has the catalogue, so that the system prompt has only active skills (S4-4).

    Args:
        runtime: What the toolset's tools share.
        alone: Whether there is no toolset that puts active skills in force; then the tool does it.
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
        files = await asyncio.to_thread(skill.files)
        return {
            "skill_name": skill.name,
            "base_directory": str(SKILL_DIR),
            "has_scripts": any(path.startswith("scripts/") for path in files),
            "has_references": any(path.startswith("references/") for path in files),
            "instructions": text.block(self.runtime.tool_name("load_skill_resource")),
        }
