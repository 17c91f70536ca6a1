"""Whether a file of a skill may be read. To read its SKILL.md is to load it, whatever tool does so (S4-21)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from adk_skills_agent.adk.approvals import may_stay_in_force, weigh
from adk_skills_agent.adk.known_skill import is_skill_file
from adk_skills_agent.adk.permissions import Decision, Verdict

if TYPE_CHECKING:
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.known_skill import KnownSkill
    from adk_skills_agent.adk.skill_runtime import SkillRuntime


async def permit_reading(
    runtime: SkillRuntime, tool_context: ToolContext, skill: KnownSkill, path: str
) -> dict[str, Any] | None:
    """As :func:`permit` for a file. To read the instructions is to load them, unless they are in force already."""
    decision = runtime.permissions.decide(skill, "read", path)
    if is_skill_file(path):
        load = runtime.permissions.decide(skill, "activate")
        in_force = skill.name in runtime.active.active(tool_context)
        if load.verdict is not Verdict.ALLOW and not (
            in_force and await may_stay_in_force(runtime, tool_context, skill)
        ):
            decision = _both(decision, load)
    return (await weigh(tool_context, skill, decision, runtime)).refusal


def _both(one: Decision, other: Decision) -> Decision:
    """What two decisions about one call come to: the stricter one, and all that must be approved."""
    strict = max(one, other, key=lambda decision: decision.verdict.strictness)
    subjects = tuple(dict.fromkeys((*one.subjects, *other.subjects)))
    return replace(strict, subjects=subjects, requested=one.requested | other.requested)
