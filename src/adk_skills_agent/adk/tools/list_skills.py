"""``list_skills``: the catalogue, when the model asks for it (S0-157)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adk_skills_agent.adk.arguments import whole_number
from adk_skills_agent.adk.events import SkillDiscovered, origin_of
from adk_skills_agent.adk.retry_guard import call_key
from adk_skills_agent.adk.tools.toolset_tool import ToolsetTool
from adk_skills_agent.catalog.budget import fit_catalog

if TYPE_CHECKING:
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.skill_runtime import SkillRuntime

NAME = "list_skills"


class ListSkillsTool(ToolsetTool):
    """Names and descriptions of the local skills, a page at a time."""

    def __init__(self, runtime: SkillRuntime) -> None:
        super().__init__(
            runtime,
            NAME,
            "Lists all available skills with their names and descriptions. Call it to see whether one fits the task.",
        )

    def properties(self) -> dict[str, dict[str, object]]:
        """Where to start, when they do not fit one answer."""
        if self.runtime.listing.complete:
            return {}
        return {"offset": {"type": "integer", "description": "Skill to start at, for the next page. Default 0."}}

    async def answer(self, args: dict[str, Any], tool_context: ToolContext) -> str | dict[str, Any]:
        """The catalogue as google-adk writes it; what does not fit is said."""
        runtime = self.runtime
        start = whole_number(args, "offset")
        too_often = runtime.guard.repeated(tool_context, call_key(NAME, start), {}, free=1)
        if too_often:
            return too_often
        items = runtime.source.list_metadata()[start:]
        text = fit_catalog(items[: runtime.limits.list_skills], runtime.listing.budget_tokens)
        names = [name for name in text.shown if name not in text.shortened]
        shown = len(text.shown)
        runtime.events.emit(SkillDiscovered.of(origin_of(tool_context), "list", names or text.shown))
        more = len(items) - shown
        if more <= 0:
            return text.text
        search = runtime.tool_name("search_skills")
        body = text.text.rpartition("</available_skills>")[0] + "</available_skills>"
        return f"{body}\n{more} more skills: {search}(query) finds one, offset {start + shown} lists on."
