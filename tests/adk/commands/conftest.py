"""A rehearsed model, and a copy of the sample agents, for google-adk's own command line."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from adk_commands import REPOSITORY

from adk_skills_agent.testing import GeminiServer, parse_conversation


@pytest.fixture
def model() -> Iterator[Callable[..., GeminiServer]]:
    with contextlib.ExitStack() as stack:
        yield lambda *texts: stack.enter_context(GeminiServer([parse_conversation(text) for text in texts]))


@pytest.fixture
def agents(tmp_path: Path) -> Path:
    """A copy of the sample agents: google-adk keeps its sessions in the folder."""
    target = tmp_path / "examples" / "agents"
    shutil.copytree(REPOSITORY / "examples" / "agents", target)
    shutil.copytree(REPOSITORY / "examples" / "skills", tmp_path / "examples" / "skills")
    return target
