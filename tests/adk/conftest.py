"""A real google-adk Runner, the real google-genai client, and a rehearsed model on the loopback interface."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.events import Event
from google.adk.runners import InMemoryRunner
from google.genai import types

from adk_skills_agent import SandboxPolicy
from adk_skills_agent.testing import GeminiServer, parse_conversation

PROCESS = SandboxPolicy(min_isolation="process")
"""The weakest level, chosen explicitly: what these tests are about does not depend on it, and it is the quickest."""


@pytest.fixture
def policy() -> SandboxPolicy:
    return PROCESS


@pytest.fixture
def rehearse() -> Iterator[Callable[..., GeminiServer]]:
    """Start a model that answers from conversations: ``server = rehearse(yaml_text)``."""
    with contextlib.ExitStack() as stack:
        yield lambda *texts: stack.enter_context(GeminiServer([parse_conversation(text) for text in texts]))


@dataclass
class Answered:
    """What one question led to."""

    events: list[Event]
    runner: InMemoryRunner
    session_id: str

    @property
    def results(self) -> list[tuple[str, dict[str, Any]]]:
        """Every tool response, in order."""
        return [
            (str(response.name), dict(response.response or {}))
            for event in self.events
            for response in event.get_function_responses()
        ]

    @property
    def text(self) -> str:
        """The last text of the model."""
        texts = [part.text for event in self.events if event.content for part in event.content.parts or [] if part.text]
        return texts[-1] if texts else ""

    async def artifact(self, name: str) -> bytes | None:
        part = await self.runner.artifact_service.load_artifact(
            app_name=self.runner.app_name, user_id="user", session_id=self.session_id, filename=name
        )
        return part.inline_data.data if part else None


@pytest.fixture
async def ask() -> Any:
    """Ask an agent one question in a session: ``await ask(agent, "question")``; ask again with ``session_of=``."""
    runners: list[InMemoryRunner] = []

    async def run(
        agent: LlmAgent,
        question: str,
        *,
        session_of: Answered | None = None,
        artifacts: dict[str, bytes] | None = None,
        user: str = "user",
    ) -> Answered:
        if session_of is None:
            runner = InMemoryRunner(agent=agent, app_name="tests")
            runners.append(runner)
            session_id = (await runner.session_service.create_session(app_name="tests", user_id=user)).id
        else:
            runner, session_id = session_of.runner, session_of.session_id
        for name, content in (artifacts or {}).items():
            await runner.artifact_service.save_artifact(
                app_name="tests",
                user_id=user,
                session_id=session_id,
                filename=name,
                artifact=types.Part.from_bytes(data=content, mime_type="application/octet-stream"),
            )
        message = types.Content(role="user", parts=[types.Part(text=question)])
        events = [event async for event in runner.run_async(user_id=user, session_id=session_id, new_message=message)]
        return Answered(events, runner, session_id)

    yield run
    for runner in runners:
        await runner.close()


Ask = Callable[..., Awaitable[Answered]]
