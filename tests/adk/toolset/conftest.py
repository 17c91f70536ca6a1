"""Skills with bodies that can be counted in what the server received."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.adk.runners import InMemoryRunner, Runner
from speaking import speaking
from talking import Talk
from toolset_agents import MARK

from adk_skills_agent.testing import GeminiServer


@pytest.fixture
def five(make_skill: Callable[..., Path]) -> Path:
    """Five skills, ``one`` to ``five``, each with a body of its own."""
    for name in ("one", "two", "three", "four", "five"):
        folder = make_skill(
            name,
            description=f"Does what {name} does.",
            body=f"# {name}\n\n{MARK.format(name=name)}\n\nRun `scripts/go.py`.\n",
            files={
                "scripts/go.py": f'"""Says {name}."""\nprint("{name}")\n',
                "references/guide.md": f"guide of {name}",
            },
        )
    return folder.parent


@pytest.fixture
def says() -> Iterator[Callable[..., GeminiServer]]:
    """Start a model that answers by what it is asked: ``server = says(yaml_text)``."""
    with contextlib.ExitStack() as stack:
        yield lambda text: stack.enter_context(GeminiServer(speaking(text)))


@pytest.fixture
async def talk() -> Any:
    started: list[Runner] = []

    async def start(agent: Any, **more: Any) -> Talk:
        runner = InMemoryRunner(agent=agent, app_name="tests", **more) if not isinstance(agent, Runner) else agent
        started.append(runner)
        return await Talk.start(runner)

    yield start
    for runner in started:
        await runner.close()
