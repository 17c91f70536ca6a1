"""``use_skill``: activate a skill and get its instructions (S4-3 to S4-5, C28, C29, C33)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from adk_skills_agent.adk.answers import required_text
from adk_skills_agent.adk.declarations import skill_name_schema
from adk_skills_agent.adk.skill_content import MANIFEST_FILES, skill_content
from adk_skills_agent.adk.tools.skill_tool import SkillTool
from adk_skills_agent.sandbox.contract import SKILL_DIR

if TYPE_CHECKING:
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.listing import SkillListing

logger = logging.getLogger(__name__)

NAME = "use_skill"

_INTRODUCTION = (
    "Load the instructions of a skill. A skill is a folder of instructions, scripts and references for one kind of "
    "task. When the task matches a skill listed here, call this tool first, then follow the instructions it returns; "
    "loading a skill does not finish the task. Use only skills and files that are listed; do not guess names."
)


class UseSkillTool(SkillTool):
    """Activates a skill. Its description carries the catalogue, so the system prompt stays untouched (S4-4)."""

    required = ("name",)

    def __init__(self, listing: SkillListing, *, manifest_files: int = MANIFEST_FILES) -> None:
        super().__init__(NAME, _INTRODUCTION, listing)
        self._manifest_files = manifest_files

    def full_description(self) -> str:
        """The behavioural instruction and, next to it, the catalogue (C23, C24)."""
        return f"{_INTRODUCTION}\n\n{self.listing.text.text}"

    def properties(self) -> dict[str, dict[str, object]]:
        """One argument: the name, an enum of the valid ones (C29)."""
        return {"name": skill_name_schema(self.listing.names)}

    async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:
        """Look for changes on disk, then declare the tool."""
        await self.listing.skills.refresh_if_due()
        await super().process_llm_request(tool_context=tool_context, llm_request=llm_request)

    async def answer(self, args: dict[str, Any], tool_context: ToolContext) -> dict[str, object]:
        """The skill's instructions and file list."""
        return await asyncio.to_thread(self._activate, required_text(args, "name"), tool_context.agent_name)

    def _activate(self, name: str, agent: str) -> dict[str, object]:
        skill = self.listing.skills.load_skill(name)
        content = skill_content(skill, manifest_files=self._manifest_files)
        logger.info("agent %s activated skill %s", agent, skill.name)
        return {
            "skill_name": skill.name,
            "base_directory": str(SKILL_DIR),
            "has_scripts": skill.has_scripts,
            "has_references": skill.has_references,
            "instructions": content,
        }
