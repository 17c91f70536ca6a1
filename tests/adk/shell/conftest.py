"""Calls of a shell's tools through a real Runner."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tool_calls import agent_with, many_calls

COUNT = """\
import pathlib, sys
print(len(pathlib.Path(sys.argv[1]).read_text().split()))
pathlib.Path("out.txt").write_text("from the script")
"""
FILES: dict[str, str | bytes] = {"scripts/count.py": COUNT, "data/words.txt": "alpha beta", "logo.bin": b"\0\1\2"}


@pytest.fixture
def counter(make_skill: Callable[..., Path]) -> Path:
    """A folder with the skill ``counter``, whose script counts the words of a file."""
    return make_skill("counter", files=FILES).parent


@pytest.fixture
def calls(rehearse: Any, ask: Any) -> Any:
    """Make calls one after the other and get their answers: ``await calls(toolset, ("execute", {...}), ...)``."""

    async def run(toolset: Any, *wanted: tuple[str, dict[str, Any]], session_of: Any = None) -> Any:
        answered = await ask(agent_with(rehearse(many_calls(*wanted)), toolset), "go", session_of=session_of)
        run.last = answered  # type: ignore[attr-defined]
        return [answer for _, answer in answered.results]

    run.ask, run.rehearse = ask, rehearse  # type: ignore[attr-defined]
    return run
