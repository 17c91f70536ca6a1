"""The parts that google-adk sees: toolsets and ``with_skills``. Each name is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adk_skills_agent.lazy_names import names_on_first_use

if TYPE_CHECKING:
    from adk_skills_agent.adk.attach import (
        create_read_reference_tool,
        create_run_script_tool,
        create_search_skills_tool,
        create_use_skill_tool,
        with_skills,
    )
    from adk_skills_agent.adk.options import SkillDiscoveryMode, SkillLifecycleConfig, SkillLifecycleMode, SkillLimits
    from adk_skills_agent.adk.shell.commands import ShellSettings
    from adk_skills_agent.adk.shell_toolset import ShellToolset
    from adk_skills_agent.adk.skill_tools import SkillTools
    from adk_skills_agent.adk.skill_toolset import SkillToolset

_NAMES = {
    "attach": (
        "create_read_reference_tool create_run_script_tool create_search_skills_tool create_use_skill_tool with_skills"
    ),
    "options": "SkillDiscoveryMode SkillLifecycleConfig SkillLifecycleMode SkillLimits",
    "shell.commands": "ShellSettings",
    "shell_toolset": "ShellToolset",
    "skill_tools": "SkillTools",
    "skill_toolset": "SkillToolset",
}
__getattr__, __all__ = names_on_first_use(__name__, _NAMES)
