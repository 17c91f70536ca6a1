"""A skill in an agent of its own, which returns a summary (C39): google-adk's ``AgentTool`` over our toolset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.tools.agent_tool import AgentTool
from toolset_agents import bodies, lazily

MODEL = """
turns:
  - {when: {system_contains: "You do the work", last_tool: load_skill}, text: "The summary."}
  - {when: {system_contains: "You do the work"}, call: {name: load_skill, args: {skill_name: one}}}
  - {when: {last_tool: worker}, text: done}
  - {call: {name: worker, args: {request: "Do what one does."}}}
"""


@pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated:DeprecationWarning")  # google-adk's own call
@pytest.mark.behaviour("same", "A skill in a subagent, by `AgentTool`", ours="only its summary comes back")
@pytest.mark.requirement("C39")
async def test_only_the_summary_of_a_skill_comes_back(five: Path, says: Any, talk: Any) -> None:
    server = says(MODEL)
    worker = LlmAgent(
        name="worker", model=server.model(), instruction="You do the work.", tools=[lazily(five)], description="Works."
    )
    boss = LlmAgent(name="boss", model=server.model(), instruction="You ask.", tools=[AgentTool(agent=worker)])
    session = await talk(boss)
    events = await session.say("go")
    answers = [response.response for event in events for response in event.get_function_responses()]
    assert answers == [{"result": "The summary."}]
    asked = [request for request in server.requests if "You ask." in request.system_text]
    assert [bodies(request, "one")["one"] for request in asked] == [0, 0]
    worked = [request for request in server.requests if "You do the work." in request.system_text]
    assert [bodies(request, "one")["one"] for request in worked] == [0, 1]
