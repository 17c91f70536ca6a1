"""``unload_skill``: release a skill whose task is done (S0-157)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adk_skills_agent.adk.answers import required_text
from adk_skills_agent.adk.events import SkillDropped, origin_of
from adk_skills_agent.adk.tools.toolset_tool import ToolsetTool
from adk_skills_agent.errors import SkillNotActive

if TYPE_CHECKING:
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.skill_runtime import SkillRuntime

NAME = "unload_skill"


class UnloadSkillTool(ToolsetTool):
    """Ends an activation: the instructions and tools of the skill are in no later request. Nothing is fetched."""

    required = ("skill_name",)

    def __init__(self, runtime: SkillRuntime) -> None:
        super().__init__(
            runtime, NAME, "Unloads an active skill once its task is complete, releasing its instructions and tools."
        )

    def properties(self) -> dict[str, dict[str, object]]:
        """One argument: the name."""
        return {"skill_name": {"type": "string", "description": "The name of the active skill to unload."}}

    def offered(self, tool_context: ToolContext) -> bool:
        """With an active skill, and in ``run_live``, whose tools are declared once for the whole stream."""
        live = tool_context.get_invocation_context().live_request_queue is not None
        return live or bool(self.runtime.active.active(tool_context))

    async def answer(self, args: dict[str, Any], tool_context: ToolContext) -> dict[str, object]:
        """What stays active."""
        name = required_text(args, "skill_name")
        known = self.runtime.source.local(name)
        if name not in self.runtime.active.active(tool_context) and known is not None:
            name = known.name  # as the catalog spells it
        if not self.runtime.active.deactivate(tool_context, name):
            raise SkillNotActive(f"Skill '{name}' is not active.")
        self.runtime.events.emit(SkillDropped(origin=origin_of(tool_context), skill=name, reason="unloaded"))
        return {"skill_name": name, "unloaded": True, "active_skills": self.runtime.active.active(tool_context)}
