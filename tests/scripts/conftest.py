from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from adk_skills_agent.catalog.skill import Skill
from adk_skills_agent.format import parse_head


@pytest.fixture
def skill_with(make_skill: Callable[..., Path]) -> Callable[..., Skill]:
    """A loaded skill with the scripts given: ``skill_with({"scripts/run.py": "..."})``."""

    def load(files: dict[str, str | bytes], name: str = "sample") -> Skill:
        return Skill(parse_head(make_skill(name, files=files) / "SKILL.md").metadata)

    return load
