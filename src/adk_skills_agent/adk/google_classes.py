"""Ours are virtual subclasses of google-adk's: its optimizer and its analytics ask with ``isinstance``."""

from __future__ import annotations

from google.adk.tools import skill_toolset as theirs

from adk_skills_agent.adk.skill_toolset import SkillToolset
from adk_skills_agent.adk.tools.list_skills import ListSkillsTool
from adk_skills_agent.adk.tools.load_skill import LoadSkillTool
from adk_skills_agent.adk.tools.load_skill_resource import LoadSkillResourceTool
from adk_skills_agent.adk.tools.run_skill_script import RunSkillScriptTool
from adk_skills_agent.adk.tools.search_skills import SearchSkillsTool
from adk_skills_agent.adk.tools.unload_skill import UnloadSkillTool


def register() -> None:
    """Tell google-adk's classes; doing it again changes nothing."""
    theirs.SkillToolset.register(SkillToolset)
    theirs.ListSkillsTool.register(ListSkillsTool)
    theirs.LoadSkillTool.register(LoadSkillTool)
    theirs.LoadSkillResourceTool.register(LoadSkillResourceTool)
    theirs.RunSkillScriptTool.register(RunSkillScriptTool)
    theirs.SearchSkillsTool.register(SearchSkillsTool)
    theirs.UnloadSkillTool.register(UnloadSkillTool)
