"""Every skill of one folder, also those that a catalog would shadow: what a check of a whole folder works on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from adk_skills_agent.catalog.config import RegistryConfig
from adk_skills_agent.catalog.discovery import scan
from adk_skills_agent.catalog.scopes import explicit_root
from adk_skills_agent.format.diagnostic import Diagnostic, Severity


@dataclass(frozen=True, slots=True)
class FolderSkills:
    """What a folder holds.

    Attributes:
        skills: The folders of all skills, sorted; skills of the same name each count.
        unread: An error for everything that may be a skill and could not be read.
    """

    skills: tuple[Path, ...]
    unread: tuple[Diagnostic, ...]


def skills_below(folder: Path) -> FolderSkills:
    """All skills in ``folder``, at any depth."""
    root = explicit_root(folder, RegistryConfig(cache=False))
    if isinstance(root, Diagnostic):
        return FolderSkills((), (root,))
    found = scan(root, {})
    loaded = {skill.location for skill in found.skills}
    unread = tuple(
        problem for problem in found.problems if problem.severity is Severity.ERROR and problem.file not in loaded
    )
    return FolderSkills(tuple(sorted(Path(location).parent for location in loaded)), unread)
