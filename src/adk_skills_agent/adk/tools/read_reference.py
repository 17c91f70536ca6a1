"""``read_reference``: ``load_skill_resource`` under the name and arguments of ``with_skills`` (S4-7, C36)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adk_skills_agent.adk.tools.load_skill_resource import LoadSkillResourceTool

if TYPE_CHECKING:
    from adk_skills_agent.adk.known_skill import KnownSkill
    from adk_skills_agent.adk.skill_runtime import SkillRuntime

NAME = "read_reference"


class ReadReferenceTool(LoadSkillResourceTool):
    """Reads any file of a skill."""

    skill_argument = "skill"
    path_argument = "reference"
    required = ("skill", "reference")

    def __init__(self, runtime: SkillRuntime) -> None:
        super().__init__(
            runtime,
            description="Read a file of a skill: a reference, template, example or the source of a script. "
            "Use the paths the skill's instructions or its file list name. Not for files of the user.",
        )

    def shown(self, skill: KnownSkill, path: str) -> dict[str, object]:
        """What an answer begins with."""
        return {"skill": skill.name, "reference": path}
