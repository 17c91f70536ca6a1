"""The server under a real google-adk Runner."""

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.runners import InMemoryRunner
from google.genai import types
from google.genai.errors import ClientError

from adk_skills_agent.testing import GeminiServer, parse_conversation

CONVERSATION = """
turns:
  - when: {user_contains: Oslo, system_contains: Be brief, tools: forecast}
    text: Let me see.
    call: [{name: forecast, args: {city: Oslo}}, {name: forecast, args: {city: Bergen}}]
  - when: {last_tool: [forecast, forecast], tool_result: {city: Oslo, sky: clear}}
    text: "Clear in Oslo and ${last.sky} in Bergen."
  - when: {user_contains: Thanks}
    text: You are welcome.
"""


def forecast(city: str, days: int = 1, tags: list[str] | None = None) -> dict:
    """Look up the weather.

    Args:
        city: Where.
        days: How many.
        tags: What for.
    """
    return {"city": city, "sky": "clear" if city == "Oslo" else "rain"}


async def ask(runner, session, text, mode=StreamingMode.NONE):
    message = types.Content(role="user", parts=[types.Part(text=text)])
    run = runner.run_async(
        user_id="u", session_id=session.id, new_message=message, run_config=RunConfig(streaming_mode=mode)
    )
    return [event async for event in run]


@pytest.mark.parametrize("mode", [StreamingMode.NONE, StreamingMode.SSE])
async def test_an_agent_calls_its_tools_and_answers_over_several_messages(mode):
    async with GeminiServer(parse_conversation(CONVERSATION)) as server:
        agent = LlmAgent(name="guide", model=server.model(), instruction="Be brief.", tools=[forecast])
        runner = InMemoryRunner(agent=agent)
        session = await runner.session_service.create_session(app_name=runner.app_name, user_id="u")
        events = await ask(runner, session, "Weather in Oslo?", mode)
        final = events[-1]
        assert final.content.parts[0].text == "Clear in Oslo and rain in Bergen."
        assert final.usage_metadata.total_token_count > 0
        assert any(event.partial for event in events) == (mode is StreamingMode.SSE)
        again = await ask(runner, session, "Thanks!", mode)
        assert again[-1].content.parts[0].text == "You are welcome."
        await runner.close()
        server.assert_finished()
        assert [r.response["sky"] for r in server.requests[1].last_function_responses] == ["clear", "rain"]
        expected = "generateContent" if mode is StreamingMode.NONE else "streamGenerateContent"
        assert {r.method for r in server.requests} == {expected}


async def test_an_agent_that_asks_something_else_fails_with_the_sentence():
    async with GeminiServer(parse_conversation(CONVERSATION)) as server:
        agent = LlmAgent(name="guide", model=server.model(), instruction="Be brief.", tools=[forecast])
        runner = InMemoryRunner(agent=agent)
        session = await runner.session_service.create_session(app_name=runner.app_name, user_id="u")
        with pytest.raises(ClientError, match="expected the user's text to contain 'Oslo'; it is 'Weather in Rome"):
            await ask(runner, session, "Weather in Rome?")
        await runner.close()
        assert len(server.mismatches) == 1


async def test_agents_that_hand_over_each_have_a_conversation():
    root = parse_conversation(
        """
when: {system_contains: You greet}
turns: [{when: {tools: transfer_to_agent}, call: {name: transfer_to_agent, args: {agent_name: seller}}}]
"""
    )
    seller = parse_conversation(
        """
when: {system_contains: You sell}
turns: [{when: {user_contains: transfer_to_agent}, text: Ten euros.}]
"""
    )
    async with GeminiServer([root, seller]) as server:
        sub = LlmAgent(name="seller", description="Sells.", model=server.model(), instruction="You sell flowers.")
        agent = LlmAgent(name="greeter", model=server.model(), instruction="You greet people.", sub_agents=[sub])
        runner = InMemoryRunner(agent=agent)
        session = await runner.session_service.create_session(app_name=runner.app_name, user_id="u")
        events = await ask(runner, session, "A rose, please.")
        await runner.close()
        assert events[-1].content.parts[0].text == "Ten euros."
        server.assert_finished()


def test_the_model_is_google_adks_own_and_the_environment_is_untouched(monkeypatch):
    from google.adk.models import Gemini

    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    with GeminiServer(parse_conversation("turns: [{text: a}]")) as server:
        model = server.model("gemini-3-pro-preview")
        assert type(model) is Gemini
        assert (model.model, model.base_url) == ("gemini-3-pro-preview", server.base_url)
        import os

        assert "GOOGLE_API_KEY" not in os.environ
