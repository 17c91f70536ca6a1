"""The parts that google-adk sees: toolsets and ``with_skills``. Each name is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

__all__ = [
    "ShellSettings",
    "ShellToolset",
    "SkillDiscoveryMode",
    "SkillLifecycleConfig",
    "SkillLifecycleMode",
    "SkillLimits",
    "SkillTools",
    "SkillToolset",
    "create_read_reference_tool",
    "create_run_script_tool",
    "create_search_skills_tool",
    "create_use_skill_tool",
    "with_skills",
]

_MODULE_OF = {
    "ShellSettings": "shell.commands",
    "ShellToolset": "shell_toolset",
    "SkillDiscoveryMode": "options",
    "SkillLifecycleConfig": "options",
    "SkillLifecycleMode": "options",
    "SkillLimits": "options",
    "SkillToolset": "skill_toolset",
    "SkillTools": "skill_tools",
    "create_read_reference_tool": "attach",
    "create_run_script_tool": "attach",
    "create_search_skills_tool": "attach",
    "create_use_skill_tool": "attach",
    "with_skills": "attach",
}


def __getattr__(name: str) -> object:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{module}"), name)
