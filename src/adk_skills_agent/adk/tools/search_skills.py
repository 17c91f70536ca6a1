"""``search_skills``: find skills the catalogue has no room for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from google.adk.tools.base_tool import BaseTool
from google.genai import types

from adk_skills_agent.adk.answers import failure, required_text
from adk_skills_agent.adk.listing import SEARCH_TOOL
from adk_skills_agent.errors import SkillsError

if TYPE_CHECKING:
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.listing import SkillListing

NAME = SEARCH_TOOL
RESULTS = 10
DESCRIPTION_CHARS = 300


class SearchSkillsTool(BaseTool):
    """Searches names, descriptions and headings. Declared only when the catalogue was cut."""

    def __init__(self, listing: SkillListing) -> None:
        super().__init__(
            name=NAME,
            description=(
                "Search all skills by what they are for. Use it when no listed skill fits the task; "
                "then call use_skill with a name it returns."
            ),
        )
        self._listing = listing

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters_json_schema={
                "type": "object",
                "properties": {"query": {"type": "string", "description": "A few words that describe the task."}},
                "required": ["query"],
            },
        )

    async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:
        """Declare the tool when the catalogue does not say everything."""
        if not self._listing.empty and not self._listing.complete:
            await super().process_llm_request(tool_context=tool_context, llm_request=llm_request)

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> dict[str, object]:
        """Return the best matches, best first."""
        try:
            query = required_text(args, "query")
            hits = await asyncio.to_thread(self._listing.skills.search, query, RESULTS)
        except SkillsError as error:
            return failure(error)
        if not hits:
            return {"skills": [], "note": "No skill matches. Try other words, or do the task without a skill."}
        return {"skills": [{"name": hit.name, "description": hit.description[:DESCRIPTION_CHARS]} for hit in hits]}
