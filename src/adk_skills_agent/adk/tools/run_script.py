"""``run_script``: ``run_skill_script`` under the name and arguments of ``with_skills`` (S4-6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adk_skills_agent.adk.declarations import skill_name_schema
from adk_skills_agent.adk.tools.run_skill_script import RunSkillScriptTool

if TYPE_CHECKING:
    from adk_skills_agent.adk.skill_runtime import SkillRuntime

NAME = "run_script"


class RunScriptTool(RunSkillScriptTool):
    """Runs one script of a skill. A failing script is an answer with ``status: error``, never an exception."""

    skill_argument = "skill"
    path_argument = "script"
    required = ("skill", "script")

    def __init__(self, runtime: SkillRuntime) -> None:
        super().__init__(
            runtime,
            description="Run a script from a skill's scripts/ folder and get its output. Load the skill first; its "
            "instructions say which script to run and how. The script starts in a working directory where the "
            "skill's files can be read by their relative paths; files it writes there are kept for the session. "
            "If a script is not found, do not guess other paths.",
        )

    def properties(self) -> dict[str, dict[str, object]]:
        """Skill, script, its arguments, and artifacts it should find."""
        return {
            "skill": skill_name_schema(self.runtime.listing.names),
            "script": {"type": "string", "description": "The script's path, such as 'scripts/run.py'."},
            "args": {
                "anyOf": [
                    {"type": "object"},
                    {"type": "array", "items": {"type": "string"}},
                    {"type": "string"},
                ],
                "description": (
                    "Arguments. An object becomes long options ({'top': 3} is --top 3, true is a bare flag, "
                    "a list repeats the option, '_positional' lists positional arguments); an array is the "
                    "complete argument list; a string is split like a command line."
                ),
            },
            "files": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Names of artifacts of this session to put into the working directory first.",
            },
        }
