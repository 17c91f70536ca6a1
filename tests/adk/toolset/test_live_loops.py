"""The retry guard in ``run_live``, whose stream is one invocation: each question has its own count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.runners import InMemoryRunner
from live_gemini import LiveGemini, calls, says
from test_run_live import stream
from toolset_agents import lazily

# google-adk itself calls the deprecated method.
pytestmark = pytest.mark.filterwarnings("ignore:The `session.send` method is deprecated:DeprecationWarning")


async def test_what_was_fatal_in_one_question_is_not_refused_in_the_next(five: Path) -> None:
    left = [3]

    def script(heard: str) -> dict[str, Any]:
        if heard == "go":
            left[0] = 3
        left[0] -= 1
        if left[0] >= 0:
            return calls("run_skill_script", skill_name="one", file_path=f"nope{left[0]}.py")
        return says("heard enough")

    async with LiveGemini(script) as server:
        agent = LlmAgent(name="assistant", model=server.model(), tools=[lazily(five)])
        runner = InMemoryRunner(agent=agent, app_name="tests")
        session = await runner.session_service.create_session(app_name="tests", user_id="u")
        events = await stream(runner, session, "go", "go")
        answers = [response.response or {} for event in events for response in event.get_function_responses()]
        fatal = "SCRIPT_NOT_FOUND_FATAL"
        assert [answer["error_code"] for answer in answers] == ["SCRIPT_NOT_FOUND", fatal, fatal] * 2
        assert ["final_text" in answer for answer in answers] == [False, False, True] * 2
        await runner.close()
