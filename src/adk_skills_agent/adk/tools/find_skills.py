"""``list_skills``: the catalogue, when the model asks for it (S0-157)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from adk_skills_agent.adk.activation.listing import SEARCH_TOOL
from adk_skills_agent.adk.events.events import SkillDiscovered, origin_of
from adk_skills_agent.adk.guard import call_key
from adk_skills_agent.adk.tools.base import ToolsetTool, failure, required_text, whole_number
from adk_skills_agent.catalog.budget import fit_catalog
from adk_skills_agent.errors import CatalogError, RegistryError

if TYPE_CHECKING:
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.runtime import SkillRuntime


LIST_SKILLS = "list_skills"


class ListSkillsTool(ToolsetTool):
    """Names and descriptions of the local skills, a page at a time."""

    def __init__(self, runtime: SkillRuntime) -> None:
        super().__init__(
            runtime,
            LIST_SKILLS,
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
        too_often = runtime.guard.repeated(tool_context, call_key(LIST_SKILLS, start), {}, free=1)
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


# ``search_skills``: find skills the catalogue has no room for.

SEARCH_SKILLS = SEARCH_TOOL
RESULTS = 10
DESCRIPTION_CHARS = 300
_DESCRIPTION = "Search all skills by what they are for. Use it when no listed skill fits the task."

logger = logging.getLogger(__name__)


class SearchSkillsTool(ToolsetTool):
    """Searches the local skills that are not all listed, and the registry. Absent when it could find nothing new."""

    required = ("query",)

    def __init__(self, runtime: SkillRuntime, description: str = "") -> None:
        registry = runtime.source.registry
        own = registry.search_tool_description() if registry is not None else None
        super().__init__(runtime, SEARCH_SKILLS, own or description or _DESCRIPTION)

    def properties(self) -> dict[str, dict[str, object]]:
        """The words to look for."""
        return {"query": {"type": "string", "description": "A few words that describe the task."}}

    def offered(self, tool_context: ToolContext) -> bool:
        """With a registry, or when the catalogue does not say everything."""
        return self.runtime.source.registry is not None or self.runtime.searches_local

    async def answer(self, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """The best matches, best first."""
        query = required_text(args, "query")
        runtime = self.runtime
        refused = runtime.guard.refused(tool_context, "registry")
        if refused is not None:
            return refused
        found: list[dict[str, Any]] = []
        if runtime.searches_local:
            hits = await runtime.source.search(query, runtime.limits.search_results)
            found = [{"name": hit.name, "description": hit.description[:DESCRIPTION_CHARS]} for hit in hits]
        registry = runtime.source.registry
        if registry is not None:
            try:
                remote = _shown(await registry.search_skills(query=query))
            except Exception as error:  # noqa: BLE001  # each registry has its own; the model gets one code for all
                if not found:
                    problem = RegistryError(f"Failed to search skills from registry: {error}")
                    answer = failure(problem, runtime.grants.forms)
                    return runtime.guard.miss(tool_context, "registry", answer)
                logger.warning("the registry could not be searched: %s", error)
                remote = []
            # A local skill of the same name wins, so the registry's cannot be loaded; a hidden one is not known here.
            source = runtime.source
            found += [one for one in remote if source.local(one["name"]) is None and not source.hides(one["name"])]
        names = [str(item.get("name")) for item in found]
        runtime.events.emit(SkillDiscovered.of(origin_of(tool_context), "search", names, query))
        if registry is not None:
            return found
        if not found:
            return {"skills": [], "note": "No skill matches. Try other words, or do the task without a skill."}
        return {"skills": found}


def _shown(found: object) -> list[dict[str, Any]]:
    """The findings of a registry, as google-adk shows them; they may be anything, whatever the signature says."""
    if not isinstance(found, (list, tuple)):
        raise CatalogError(f"the registry answered with a {type(found).__name__} instead of a list")
    for item in found:
        if not isinstance(getattr(item, "name", None), str) or not callable(getattr(item, "model_dump", None)):
            raise CatalogError(f"the registry listed a {type(item).__name__} instead of a frontmatter")
    return [{**item.model_dump(), "name": item.name} for item in found]
