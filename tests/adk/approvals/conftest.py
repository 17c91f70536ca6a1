"""Conversations with an agent whose skills ask."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from approval_chat import Chat
from google.adk.agents import LlmAgent
from google.adk.runners import InMemoryRunner


@pytest.fixture
async def chat() -> AsyncIterator[Callable[..., Any]]:
    runners = []

    async def start(agent: LlmAgent) -> Chat:
        runner = InMemoryRunner(agent=agent, app_name="tests")
        runners.append(runner)
        session = await runner.session_service.create_session(app_name="tests", user_id="user")
        return Chat(runner, session.id)

    yield start
    for runner in runners:
        await runner.close()


@pytest.fixture
def skills(make_skill: Callable[..., Path]) -> Path:
    make_skill("other", body="# Other\n\nNothing to see.\n")
    folder = make_skill(
        "reporter",
        body="# Reporter\n\nRun `scripts/publish.py`.\n",
        files={
            "scripts/publish.py": "print('published')",
            "scripts/safe.py": "print('safe')",
            "references/guide.md": "the guide",
        },
    )
    return folder.parent
