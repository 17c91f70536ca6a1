"""Skill folders with any text, good or bad, and the files of the corpus."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def corpus_files(corpus: Path) -> list[Path]:
    """Every SKILL.md of the corpus."""
    return sorted(corpus.rglob("SKILL.md"))


@pytest.fixture
def write_skill(tmp_path: Path) -> Callable[..., Path]:
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
