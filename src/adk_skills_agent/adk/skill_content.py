"""The text an activation puts before the model: instructions, wrapped, with a list of files (C32 to C35)."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from adk_skills_agent.sandbox.contract import SKILL_DIR

if TYPE_CHECKING:
    from adk_skills_agent.catalog import Skill

MANIFEST_FILES = 60
"""Most files listed; some real skills have hundreds, and each line costs about ten tokens."""


def skill_content(skill: Skill, *, manifest_files: int = MANIFEST_FILES) -> str:
    """The body of a skill between ``<skill_content>`` tags.

    Args:
        skill: The skill being activated; its body is read now, its other files are only listed.
        manifest_files: Most bundled files to list; 0 leaves the list out.
    """
    parts = [f'<skill_content name="{escape(skill.name)}">', skill.instructions.strip(), ""]
    if skill.metadata.compatibility:
        parts.append(f"Compatibility: {skill.metadata.compatibility}")
    parts += [
        f"Skill directory: {SKILL_DIR}",
        "Relative paths in this skill are relative to the skill directory.",
    ]
    files = skill.files() if manifest_files else ()
    if files:
        parts.append("<skill_resources>")
        parts += [f"<file>{escape(file.path)}</file>" for file in files[:manifest_files]]
        if len(files) > manifest_files:
            parts.append(f"<!-- {len(files) - manifest_files} more files are not listed -->")
        parts.append("</skill_resources>")
    parts.append("</skill_content>")
    return "\n".join(parts)
