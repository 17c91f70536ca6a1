"""``scripted:FILE``: a model of rules on the loopback interface, for trying things without a key."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.adk.models import BaseLlm

_REMEMBERED = 10
"""Requests the server keeps: what a run of thousands of trials says is in its results."""


@contextlib.contextmanager
def scripted_model(path: Path) -> Iterator[BaseLlm]:
    """google-adk's own Gemini class, answered by the rules of a file (see :mod:`adk_skills_agent.testing`).

    Raises:
        ConfigError: The file cannot be read as rules; file and line are named.
    """
    from adk_skills_agent.testing import GeminiServer, load_rules

    with GeminiServer(load_rules(path), remember=_REMEMBERED) as server:
        yield server.model()
