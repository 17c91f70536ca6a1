"""Folders of skills on disk, and the corpus of real ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def corpus() -> list[Path]:
    """Every SKILL.md of the corpus."""
    root = Path(os.environ.get("ADK_SKILLS_CORPUS", REPOSITORY.parent / "shared" / "corpus"))
    if not root.is_dir():
        pytest.skip(f"no corpus at {root}; set ADK_SKILLS_CORPUS")
    return sorted(root.rglob("SKILL.md"))


@pytest.fixture
def make_skill(tmp_path: Path) -> Callable[..., Path]:
    """Write a skill folder; returns the folder."""

    def make(
        frontmatter: str | None = "name: pdf\ndescription: Reads PDF files. Use when one is mentioned.",
        body: str = "# PDF\n\nRead it.\n",
        *,
        folder: str = "pdf",
        text: str | bytes | None = None,
        file: str = "SKILL.md",
    ) -> Path:
        path = tmp_path / folder
        path.mkdir(parents=True, exist_ok=True)
        if text is None:
            text = f"---\n{frontmatter}\n---\n\n{body}"
        (path / file).write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return make
