"""``search_skills``: find skills the catalogue has no room for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from adk_skills_agent.adk.answers import required_text
from adk_skills_agent.adk.listing import SEARCH_TOOL
from adk_skills_agent.adk.tools.skill_tool import SkillTool

if TYPE_CHECKING:
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.listing import SkillListing

NAME = SEARCH_TOOL
RESULTS = 10
DESCRIPTION_CHARS = 300


class SearchSkillsTool(SkillTool):
    """Searches names, descriptions and headings. Declared only when the catalogue was cut."""

    required = ("query",)

    def __init__(self, listing: SkillListing) -> None:
        super().__init__(
            NAME,
            "Search all skills by what they are for. Use it when no listed skill fits the task; "
            "then call use_skill with a name it returns.",
            listing,
        )

    def properties(self) -> dict[str, dict[str, object]]:
        """The words to look for."""
        return {"query": {"type": "string", "description": "A few words that describe the task."}}

    def offered(self) -> bool:
        """Only when the catalogue does not say everything."""
        return super().offered() and not self.listing.complete

    async def answer(self, args: dict[str, Any], tool_context: ToolContext) -> dict[str, object]:
        """The best matches, best first."""
        hits = await asyncio.to_thread(self.listing.skills.search, required_text(args, "query"), RESULTS)
        if not hits:
            return {"skills": [], "note": "No skill matches. Try other words, or do the task without a skill."}
        return {"skills": [{"name": hit.name, "description": hit.description[:DESCRIPTION_CHARS]} for hit in hits]}
