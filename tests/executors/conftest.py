"""google-adk's own toolsets over our executors, in a real Runner with a rehearsed model."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.runners import InMemoryRunner
from google.adk.skills import load_skill_from_dir
from google.adk.tools.skill_toolset import SkillToolset
from google.genai import types

from adk_skills_agent import SandboxPolicy
from adk_skills_agent.executors import LocalSandboxCodeExecutor, SandboxEnvironment
from adk_skills_agent.testing import GeminiServer, parse_conversation


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = f"{Path(__file__).parent}/"
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.filterwarnings("ignore::adk_skills_agent.errors.SecurityWarning"))


@pytest.fixture(params=["process", "auto"])
def isolation(request: pytest.FixtureRequest) -> str:
    """The weakest level, which works everywhere, and the strongest that works here."""
    return str(request.param)


@pytest.fixture
def executor(isolation: str) -> LocalSandboxCodeExecutor:
    return LocalSandboxCodeExecutor(policy=SandboxPolicy(isolation=isolation, min_isolation="process"))


@dataclass
class Turn:
    """What one call of a tool led to."""

    response: dict[str, Any]
    runner: InMemoryRunner
    session_id: str
    server: GeminiServer

    async def artifact(self, name: str) -> bytes | None:
        part = await self.runner.artifact_service.load_artifact(
            app_name="tests", user_id="user", session_id=self.session_id, filename=name
        )
        return part.inline_data.data if part else None


@pytest.fixture
async def call() -> Any:
    """``await call(tools, "run_skill_script", skill_name=..., ...)``: a rehearsed model calls one tool of an agent."""
    runners: list[InMemoryRunner] = []
    with contextlib.ExitStack() as stack:

        async def ask(tools: Any, name: str, /, **args: Any) -> Turn:
            text = f"turns:\n  - call: {{name: {name}, args: {json.dumps(args)}}}\n  - text: done\n"
            server = stack.enter_context(GeminiServer([parse_conversation(text)]))
            agent = LlmAgent(name="assistant", model=server.model(), tools=tools)
            runner = InMemoryRunner(agent=agent, app_name="tests")
            runners.append(runner)
            session = await runner.session_service.create_session(app_name="tests", user_id="user")
            message = types.Content(role="user", parts=[types.Part(text="go")])
            responses = [
                dict(response.response or {})
                async for event in runner.run_async(user_id="user", session_id=session.id, new_message=message)
                for response in event.get_function_responses()
            ]
            assert len(responses) == 1
            return Turn(responses[0], runner, session.id, server)

        yield ask
        for runner in runners:
            await runner.close()


@pytest.fixture
def skill_tools(make_skill: Callable[..., Path]) -> Callable[..., SkillToolset]:
    """google-adk's own SkillToolset with one real skill called ``tools`` that has the given files."""

    def make(files: dict[str, str | bytes], **settings: Any) -> SkillToolset:
        folder = make_skill("tools", files=files)
        return SkillToolset(skills=[load_skill_from_dir(folder)], **settings)

    return make


@pytest.fixture
def environment(isolation: str) -> SandboxEnvironment:
    return SandboxEnvironment(policy=SandboxPolicy(isolation=isolation, min_isolation="process"))


@pytest.fixture
async def env_tools(skill_tools: Callable[..., SkillToolset], environment: SandboxEnvironment) -> Any:
    """google-adk's SkillToolset over our environment."""
    await environment.initialize()
    yield lambda files, **settings: skill_tools(files, environment=environment, **settings)
    await environment.close()
