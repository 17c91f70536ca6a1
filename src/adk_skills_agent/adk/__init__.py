"""What google-adk sees: tools, and one line that gives an agent skills."""

from adk_skills_agent.adk.attach import (
    create_read_reference_tool,
    create_run_script_tool,
    create_search_skills_tool,
    create_use_skill_tool,
    with_skills,
)
from adk_skills_agent.adk.toolset import SkillTools

__all__ = [
    "SkillTools",
    "create_read_reference_tool",
    "create_run_script_tool",
    "create_search_skills_tool",
    "create_use_skill_tool",
    "with_skills",
]
