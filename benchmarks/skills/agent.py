"""An agent with the eight skills, for ``adk web benchmarks`` and ``adk eval benchmarks/skills``."""

import os
from pathlib import Path

from google.adk.agents import LlmAgent

from adk_skills_agent import SkillToolset

root_agent = LlmAgent(
    name="skills",
    model=os.environ.get("ADK_SKILLS_MODEL", "gemini-2.5-flash"),
    description="Works on data, text and code with the help of eight skills.",
    instruction="You help with the user's tasks. Use a skill when one fits. Say in your final answer what you found.",
    tools=[SkillToolset.from_dirs([Path(__file__).parent])],
)
