"""One agent, two skills: small computations, and building a tool server."""

import os

from google.adk.agents import LlmAgent
from google.adk.apps import App

from adk_skills_agent import ModelErrorsPlugin, SkillToolset, ToolCallsPlugin

root_agent = LlmAgent(
    name="skill_script_demo",
    model=os.environ.get("ADK_SKILLS_MODEL", "gemini-2.5-flash"),
    description="Answers with the help of skills and their scripts.",
    instruction="You help with small computations and with building tool servers. Answer briefly.",
    tools=[SkillToolset.from_dirs(["skills"], relative_to=__file__)],
)

# In the terminal of adk run: which tools the model calls, and an error of the model's service in one line.
app = App(name="skill_script_demo", root_agent=root_agent, plugins=[ToolCallsPlugin(), ModelErrorsPlugin()])
