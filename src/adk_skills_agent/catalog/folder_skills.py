"""Every skill of one folder, also those that a catalog would shadow: what a check of a whole folder works on."""

from __future__ import annotations

from pathlib import Path

from adk_skills_agent.catalog.config import RegistryConfig
from adk_skills_agent.catalog.discovery import scan
from adk_skills_agent.catalog.scopes import explicit_root
from adk_skills_agent.format.diagnostic import Diagnostic


def skills_below(folder: Path) -> list[Path]:
    """The folders of all skills in ``folder``, sorted; skills of the same name each count."""
    root = explicit_root(folder, RegistryConfig(cache=False))
    if isinstance(root, Diagnostic):
        return []
    return sorted(Path(skill.location).parent for skill in scan(root, {}).skills)
