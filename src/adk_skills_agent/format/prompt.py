"""The ``<available_skills>`` block of a prompt, exactly as skills-ref writes it (S4-15, S4-32)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from adk_skills_agent.format.models import SkillMetadata
from adk_skills_agent.format.properties import read_properties
from adk_skills_agent.format.skill_file import find_skill_md


def to_available_skills_xml(items: Iterable[SkillMetadata], *, location: bool = False) -> str:
    r"""The catalog as XML: every tag and every value on its own line, values escaped.

    Args:
        items: The skills, in the order wanted.
        location: Also give the absolute path of each SKILL.md on this host; for agents that read files themselves.

    Returns:
        The block; for no skills ``<available_skills>\n</available_skills>``.
    """
    lines = ["<available_skills>"]
    for item in items:
        path = item.file if location else None
        lines.extend(_skill(item.name, item.description, path))
    lines.append("</available_skills>")
    return "\n".join(lines)


def to_prompt(skill_dirs: Iterable[str | os.PathLike[str]]) -> str:
    """The block for some skill folders, read strictly, with locations; skills-ref's function of that name.

    Args:
        skill_dirs: The folders.

    Returns:
        The block.

    Raises:
        ParseError: A folder has no SKILL.md, or its frontmatter cannot be read.
        ValidationError: ``name`` or ``description`` is missing or empty.
    """
    lines = ["<available_skills>"]
    for skill_dir in skill_dirs:
        folder = Path(skill_dir).resolve()
        properties = read_properties(folder)
        lines.extend(_skill(properties.name, properties.description, str(find_skill_md(folder))))
    lines.append("</available_skills>")
    return "\n".join(lines)


def _skill(name: str, description: str, path: str | None) -> list[str]:
    lines = ["<skill>", "<name>", _escape(name), "</name>", "<description>", _escape(description), "</description>"]
    if path is not None:
        lines += ["<location>", _escape(path), "</location>"]
    lines.append("</skill>")
    return lines


def _escape(text: str) -> str:
    # html.escape, without the 3 ms that importing html costs for its table of entities.
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace('"', "&quot;").replace("'", "&#x27;")
