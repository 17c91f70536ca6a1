"""The skills an agent may discover in a task: loaded leniently, every repair on a list (S0-133)."""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass
from pathlib import Path

from adk_skills_agent.catalog import CatalogReader, RegistryConfig, SkillsRegistry

MAX_SKILLS_BYTES = 8 << 20
"""Of a tar of skills an agent wrote."""


@dataclass(frozen=True, slots=True)
class TaskSkills:
    """Skills of a folder.

    Attributes:
        folder: Where they are on the host.
        catalog: What the toolset lists and loads.
        names: Of those that could be loaded.
        found: How many SKILL.md there are.
        repairs: Everything that was repaired or refused, one sentence each.
    """

    folder: Path
    catalog: CatalogReader
    names: tuple[str, ...]
    found: int
    repairs: tuple[str, ...]


def load_skills(folder: Path) -> TaskSkills | None:
    """The skills of a folder of skills; None when it is missing or holds none that can be loaded."""
    if not folder.is_dir():
        return None
    # No cache on the disk, and never looked at again: what is measured must not change in the middle.
    registry = SkillsRegistry(RegistryConfig(cache=False, refresh_interval=float("inf")))
    registry.discover([folder])
    names = tuple(registry)
    found = sum(1 for entry in folder.iterdir() if any((entry / name).is_file() for name in ("SKILL.md", "skill.md")))
    repairs = tuple(str(diagnostic) for diagnostic in registry.diagnostics)
    return TaskSkills(folder, registry, names, found, repairs) if found else None


def unpack_skills(packed: bytes, folder: Path) -> None:
    """Unpack a tar that came out of a box: files and folders that stay below ``folder``, nothing else."""
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:") as archive:
        for member in archive:
            if member.isfile() or member.isdir():
                try:
                    archive.extract(member, folder, filter="data")
                except tarfile.FilterError:
                    continue  # it would leave the folder
