"""Skills without skill tools: the catalogue names each SKILL.md, and the agent reads it with its own file tool.

This is what an agent does that has files anyway, such as a coding agent. Nothing runs a script here.
"""

import os
from pathlib import Path

from google.adk.agents import LlmAgent
from google.adk.agents.readonly_context import ReadonlyContext

from adk_skills_agent import SkillsRegistry

SKILLS = Path(__file__).resolve().parents[2] / "skills"
MAX_CHARS = 20_000

registry = SkillsRegistry()
registry.discover([SKILLS])


def read_file(path: str, offset: int = 0) -> dict[str, object]:
    """Read a text file of a skill.

    Args:
        path: Absolute, as the catalogue has it, or one that a SKILL.md names, joined to its folder.
        offset: Character to start at, for the next page of a long file.
    """
    file = Path(path).resolve()
    if not file.is_relative_to(SKILLS.resolve()):
        return {"error": "Only files of the skills can be read."}
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return {"error": "There is no such text file. Use a path of the catalogue, or one that a SKILL.md names."}
    page = text[offset : offset + MAX_CHARS]
    return {"content": page, "next_offset": offset + MAX_CHARS if len(text) > offset + MAX_CHARS else None}


def instruction(_context: ReadonlyContext) -> str:
    """A function, because google-adk would fill in braces in a text."""
    return (
        "When a task matches a skill below, read the file at its location first and follow it. "
        "Paths in it are relative to the folder it is in.\n\n" + registry.to_available_skills_xml(location=True)
    )


root_agent = LlmAgent(
    name="filesystem_pattern",
    model=os.environ.get("ADK_SKILLS_MODEL", "gemini-2.5-flash"),
    description="Follows skills it reads as files.",
    instruction=instruction,
    tools=[read_file],
)
