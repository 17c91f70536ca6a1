"""One agent, two skills: small computations, and building a tool server."""

import os
from pathlib import Path

from google.adk.agents import LlmAgent

from adk_skills_agent import SkillToolset

root_agent = LlmAgent(
    name="skill_script_demo",
    model=os.environ.get("ADK_SKILLS_MODEL", "gemini-2.5-flash"),
    description="Answers with the help of skills and their scripts.",
    instruction="You help with small computations and with building tool servers. Answer briefly.",
    tools=[SkillToolset.from_dirs([Path(__file__).parent / "skills"])],
)
