"""Which file of a folder is its SKILL.md."""

from __future__ import annotations

import os
from pathlib import Path

SKILL_FILE_NAMES = ("SKILL.md", "skill.md")
"""Best first. The second is accepted as skills-ref does; the catalog reports it (C4)."""


def find_skill_md(skill_dir: str | os.PathLike[str]) -> Path | None:
    """The SKILL.md of a folder, else its skill.md.

    Args:
        skill_dir: The folder.

    Returns:
        The path, or None when there is neither.
    """
    for name in SKILL_FILE_NAMES:
        path = Path(skill_dir) / name
        if path.exists():
            return path
    return None


def skill_folder(path: str | os.PathLike[str]) -> Path:
    """The skill's folder, from a path to it or to the SKILL.md in it."""
    folder = Path(path)
    try:
        if folder.name.lower() == "skill.md" and not folder.is_dir() and os.path.lexists(folder):
            return folder.parent
    except ValueError:  # a NUL character; the caller's own look at the path says so
        pass
    return folder
