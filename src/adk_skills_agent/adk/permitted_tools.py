"""Tools that skills bring (``adk_additional_tools``), under the owner's rules: left out, asked for, or as they are."""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from adk_skills_agent.adk.answers import failure
from adk_skills_agent.adk.approvals import permit
from adk_skills_agent.adk.final_text import say_final_text
from adk_skills_agent.adk.permissions import Verdict
from adk_skills_agent.errors import SkillsError

if TYPE_CHECKING:
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.known_skill import KnownSkill
    from adk_skills_agent.adk.skill_runtime import SkillRuntime

logger = logging.getLogger(__name__)


def permitted_tools(runtime: SkillRuntime, tools: Iterable[BaseTool], active: Sequence[KnownSkill]) -> list[BaseTool]:
    """The tools an agent may have for its active skills.

    A tool that several skills bring is as free as the freest of them makes it, except that ``deny`` always wins.

    Args:
        runtime: The toolset's permissions.
        tools: What the skills bring.
        active: The active skills.
    """
    offered = []
    for tool in tools:
        bringing = [skill for skill in active if tool.name in skill.additional_tools]
        verdicts = [(runtime.permissions.decide(skill, "tool", tool.name).verdict, skill) for skill in bringing]
        if any(verdict is Verdict.DENY for verdict, _ in verdicts):
            continue
        asking = [skill for verdict, skill in verdicts if verdict is Verdict.ASK]
        if any(verdict is Verdict.ALLOW for verdict, _ in verdicts):
            offered.append(tool)
        elif asking and inspect.isasyncgenfunction(getattr(tool, "func", None)):
            # google-adk starts these itself in run_live and never calls run_async, so nobody would be asked.
            logger.warning("the streaming tool %s needs an approval, which cannot be asked for: left out", tool.name)
        elif asking:
            offered.append(_asking_first(runtime, tool, asking[0]))
    return offered


def _asking_first(runtime: SkillRuntime, tool: BaseTool, skill: KnownSkill) -> BaseTool:
    """A copy of the tool that needs the user's word; its class, declaration and settings stay."""
    name, run = tool.name, tool.run_async

    async def run_async(*, args: dict[str, Any], tool_context: ToolContext) -> Any:
        try:
            refusal = await permit(runtime, tool_context, skill, "tool", name)
        except SkillsError as error:
            return failure(error)
        if refusal is None:
            return await run(args=args, tool_context=tool_context)
        await say_final_text(tool_context, refusal)
        return refusal

    asking = copy.copy(tool)
    asking.run_async = run_async  # type: ignore[method-assign]  # of this copy alone, as google-adk does for prefixes
    return asking
