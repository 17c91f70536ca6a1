"""Instructions in force in ``run_live``, whose request is prepared once; google-genai's live client, on the wire."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LiveRequestQueue, LlmAgent, RunConfig
from google.adk.runners import InMemoryRunner
from google.genai import types
from live_gemini import LiveGemini, calls, says
from toolset_agents import MARK, lazily

from adk_skills_agent.adk.options import SkillLifecycleConfig, SkillLifecycleMode

# google-adk itself calls the deprecated method.
pytestmark = pytest.mark.filterwarnings("ignore:The `session.send` method is deprecated:DeprecationWarning")
EPHEMERAL = SkillLifecycleConfig(default_mode=SkillLifecycleMode.EPHEMERAL)
BODY = MARK.format(name="one")


def script(heard: str) -> dict[str, Any]:
    if heard in {"load", "load again"}:
        return calls("load_skill", skill_name="one")
    if heard == "unload":
        return calls("unload_skill", skill_name="one")
    return says(f"heard {heard}")


async def stream(runner: InMemoryRunner, session: Any, *texts: str) -> list[Any]:
    """Say each text when the turn before is over."""
    queue = LiveRequestQueue()
    left = list(texts)
    queue.send_content(types.Content(role="user", parts=[types.Part(text=left.pop(0))]))
    events = []
    run = runner.run_live(
        user_id="u",
        session_id=session.id,
        live_request_queue=queue,
        run_config=RunConfig(response_modalities=["TEXT"]),
    )
    async with asyncio.timeout(20):
        async for event in run:
            events.append(event)
            said = [part.text for part in (event.content.parts or [] if event.content else []) if part.text]
            if said and said[0].startswith("heard") and not event.partial:
                if not left:
                    queue.close()
                    break
                queue.send_content(types.Content(role="user", parts=[types.Part(text=left.pop(0))]))
    await run.aclose()
    return events


async def test_the_body_is_in_the_tool_answer_once_and_in_the_system_instruction_of_later_runs(five: Path) -> None:
    async with LiveGemini(script) as server:
        agent = LlmAgent(name="assistant", model=server.model(), tools=[lazily(five)])
        runner = InMemoryRunner(agent=agent, app_name="tests")
        session = await runner.session_service.create_session(app_name="tests", user_id="u")
        await stream(runner, session, "load", "hello", "load again", "hello")
        assert BODY not in json.dumps(server.setups[0])
        assert json.dumps(server.messages).count(BODY) == 1
        stored = await runner.session_service.get_session(app_name="tests", user_id="u", session_id=session.id)
        assert stored.state["_adk_activated_skill_assistant"] == ["one"]
        server.messages.clear()
        await stream(runner, session, "hello")
        assert json.dumps(server.setups[1]).count(BODY) == 1
        assert json.dumps(server.messages).count(BODY) == 0
        await stream(runner, session, "unload", "hello")
        server.messages.clear()
        await stream(runner, session, "hello")
        assert BODY not in json.dumps(server.setups[-1])
        assert BODY not in json.dumps(server.messages)
        await runner.close()


@pytest.mark.behaviour(
    "better",
    "EPHEMERAL skills in `run_live`",
    google="active until the stream ends",
    ours="until the user speaks again",
)
async def test_an_ephemeral_skill_ends_with_the_turn_of_the_stream(five: Path) -> None:
    """GOOGLE_ADK row A7: google-adk keeps it until the stream ends."""
    toolset = lazily(five, lifecycle_config=EPHEMERAL)
    async with LiveGemini(script) as server:
        agent = LlmAgent(name="assistant", model=server.model(), tools=[toolset])
        runner = InMemoryRunner(agent=agent, app_name="tests")
        session = await runner.session_service.create_session(app_name="tests", user_id="u")
        events = await stream(runner, session, "load", "hello", "load", "hello")
        answers = [r.response for event in events for r in event.get_function_responses()]
        assert ["instructions" in answer for answer in answers] == [True, True]  # the second time it was over
        await runner.close()
