"""Which folders a scan and a file listing pass over, and why."""

from __future__ import annotations

from typing import Final

VERSION_CONTROL: Final = frozenset({".git", ".hg", ".svn", ".jj", ".bzr", "CVS"})
"""Not part of a skill: never scanned, never listed, never read (a ``.git/config`` can hold a token)."""

INSTALLED: Final = frozenset({"node_modules", ".venv", ".tox", ".nox"})
"""Rebuilt from a manifest and huge: neither scanned nor listed, but a file named in a skill can be read."""

_CACHES: Final = frozenset({"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".cache", ".eggs"})

NOT_SCANNED: Final = VERSION_CONTROL | INSTALLED | _CACHES
"""Discovery does not look for skills in these (C5)."""

NOT_LISTED: Final = VERSION_CONTROL | INSTALLED
"""``Skill.files()`` does not list what is in these. Caches are listed: real skills ship files in them."""

RESOURCE_FOLDERS: Final = frozenset({"scripts", "references", "assets"})
"""A skill's own three folders (S2). A SKILL.md in them is a sample or a template, not a skill to offer."""

VIRTUAL_ENVIRONMENT_MARK: Final = "pyvenv.cfg"
"""A folder with this file is a Python virtual environment, whatever its name."""
