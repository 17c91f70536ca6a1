"""``python -m adk_skills_agent`` is ``adk-skills``."""

from adk_skills_agent.cli import program

program()
