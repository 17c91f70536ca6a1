"""An office desk: upload a spreadsheet, get a chart and a document back."""

import os

from google.adk.agents import LlmAgent
from google.adk.apps import App

from adk_skills_agent import ModelErrorsPlugin, SkillToolset, ToolCallsPlugin

root_agent = LlmAgent(
    name="workbench",
    model=os.environ.get("ADK_SKILLS_MODEL", "gemini-2.5-flash"),
    description="Works on files: reads spreadsheets, draws charts, writes documents.",
    instruction=(
        "You work on the user's files, which are in uploads/. Load the skill that fits, follow it, and name the files "
        "you made. Answer briefly."
    ),
    # A shell beside the scripts, and the packages they name: the user is asked once before anything is installed.
    tools=[SkillToolset.from_dirs(["skills"], relative_to=__file__, shell=True, dependencies="ask")],
)

# In the terminal of adk run: which tools the model calls, and an error of the model's service in one line.
app = App(name="workbench", root_agent=root_agent, plugins=[ToolCallsPlugin(), ModelErrorsPlugin()])
