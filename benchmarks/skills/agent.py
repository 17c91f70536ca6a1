"""An agent with the eight skills, for ``adk web benchmarks`` and ``adk eval benchmarks/skills``."""

import os
import sys
from pathlib import Path

from google.adk.agents import LlmAgent

from adk_skills_agent import SkillToolset

if not any(map(os.environ.get, ("ADK_SKILLS_MODEL", "GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI"))):
    print(
        "benchmarks/skills: no key for Gemini is set, so every case will fail. Set GOOGLE_API_KEY, or run offline: "
        "adk-skills eval benchmarks/skills --model scripted:benchmarks/skills/model.yaml",
        file=sys.stderr,
    )

root_agent = LlmAgent(
    name="skills",
    model=os.environ.get("ADK_SKILLS_MODEL", "gemini-2.5-flash"),
    description="Works on data, text and code with the help of eight skills.",
    instruction="You help with the user's tasks. Use a skill when one fits. Say in your final answer what you found.",
    tools=[SkillToolset.from_dirs([Path(__file__).parent])],
)
