"""docs/reference/api.md has every public name with the first sentence of its docstring.

Write it anew with ``ADK_SKILLS_WRITE_DOCS=1 .venv/bin/python -m pytest tests/docs/test_public_names.py``.
"""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path

import adk_skills_agent

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "api.md"
TITLES = {
    "adk": "For google-adk",
    "catalog": "Finding skills",
    "format": "Skill files",
    "packages": "Packages of skills",
    "sources": "Skills from elsewhere",
    "sandbox": "Running scripts",
    "scripts": "Granting",
    "errors": "Errors",
}
INTRODUCTION = """# Public names

All of them are imported from `adk_skills_agent`; what is not here may change without notice. Their docstrings have the
arguments, units and errors; [Toolsets](python/toolsets.md) and the pages after it show them. The executors for
google-adk are in [`adk_skills_agent.executors`](../how-to/executors.md), the rehearsed model in
[`adk_skills_agent.testing`](../how-to/measure/testing.md).
"""


def summary(name: str) -> str:
    """The first paragraph of a docstring as Markdown in a cell."""
    text = " ".join((inspect.getdoc(getattr(adk_skills_agent, name)) or "").split("\n\n")[0].split())
    text = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", text).replace("``", "`")
    return re.sub(r" \((?:[A-Z]+\d|SANDBOX)[^)]*\)", "", text).replace("|", "\\|")


def area(name: str) -> str:
    return str(getattr(adk_skills_agent, name).__module__).split(".")[1]


def page() -> str:
    parts = [INTRODUCTION]
    for module, title in TITLES.items():
        names = [name for name in adk_skills_agent.__all__ if area(name) == module]
        rows = "\n".join(f"| `{name}` | {summary(name)} |" for name in names)
        parts.append(f"## {title}\n| | |\n|---|---|\n{rows}\n")
    return "\n".join(parts)


def test_every_public_name_is_on_the_page() -> None:
    if os.environ.get("ADK_SKILLS_WRITE_DOCS"):
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page(), "run this test with ADK_SKILLS_WRITE_DOCS=1"
    assert {area(name) for name in adk_skills_agent.__all__} == set(TITLES)
    assert all(summary(name).endswith((".", "`")) for name in adk_skills_agent.__all__)
