"""The skill in whose folder a file of cases lies."""

from __future__ import annotations

from pathlib import Path

_LEVELS = 3  # evals/evals.json is one below the skill's folder; more is unusual


def skill_around(path: Path) -> tuple[Path | None, str]:
    """The folder of the nearest skill above a file, and the skill's name; ``(None, "")`` where there is none."""
    from adk_skills_agent.catalog import RegistryConfig, SkillsRegistry
    from adk_skills_agent.format import find_skill_md

    for folder in list(path.resolve().parents)[:_LEVELS]:
        if find_skill_md(folder) is not None:
            registry = SkillsRegistry(RegistryConfig(cache=False))
            registry.discover([folder])
            names = [name for name in registry if Path(registry.load_skill(name).skill_dir) == folder]
            return (folder, names[0]) if names else (None, "")
    return None, ""
