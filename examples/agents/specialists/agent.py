"""A coordinator without skills, and two specialists that each see only their own."""

import os
from pathlib import Path

from google.adk.agents import LlmAgent

from adk_skills_agent import SkillsRegistry, SkillToolset

MODEL = os.environ.get("ADK_SKILLS_MODEL", "gemini-2.5-flash")
EXAMPLES = Path(__file__).resolve().parents[2] / "skills"


def skills(*names: str) -> SkillToolset:
    """A toolset over a registry of its own."""
    registry = SkillsRegistry()
    registry.discover([EXAMPLES / name for name in names])
    return SkillToolset.from_catalog(registry)


analyst = LlmAgent(
    name="analyst",
    model=MODEL,
    description="Reports on tables and log files.",
    instruction="You analyse data. Use your skills; take every number from their scripts.",
    tools=[skills("csv-report", "log-triage")],
)
writer = LlmAgent(
    name="writer",
    model=MODEL,
    description="Writes postmortems of incidents.",
    instruction="You write. Use your skills for the form of a document.",
    tools=[skills("incident-postmortem")],
)
root_agent = LlmAgent(
    name="coordinator",
    model=MODEL,
    description="Passes each request to the right specialist.",
    instruction="Pass data questions to the analyst and documents to the writer. Do nothing else yourself.",
    sub_agents=[analyst, writer],
)
