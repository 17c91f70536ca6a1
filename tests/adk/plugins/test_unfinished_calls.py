"""``UnfinishedCallsPlugin``: a call whose server ended has an answer in the next request: it is unknown."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.events import Event
from google.adk.runners import InMemoryRunner
from google.adk.sessions import InMemorySessionService
from google.genai import types
from google.genai.errors import ClientError

from adk_skills_agent import UnfinishedCallsPlugin

TALK = "turns:\n  - call: {name: send_mail, args: {to: ada}}\n  - text: I see.\n  - text: Still.\n"


def send_mail(to: str) -> str:
    """Sends a mail."""
    raise AssertionError("nobody calls it here")


async def left_behind(
    server: Any, *calls: types.FunctionCall, waits: set[str] | None = None, plugin: bool = True
) -> InMemoryRunner:
    """A session that ends with calls nobody answered, as a killed server leaves it."""
    agent = LlmAgent(name="assistant", model=server.model(), tools=[send_mail])
    runner = InMemoryRunner(
        app=App(name="tests", root_agent=agent, plugins=[UnfinishedCallsPlugin()] if plugin else [])
    )
    sessions = runner.session_service
    session = await sessions.create_session(app_name="tests", user_id="user", session_id="s")
    asked = types.Content(role="user", parts=[types.Part(text="Mail ada.")])
    await sessions.append_event(session, Event(invocation_id="i1", author="user", content=asked))
    called = types.Content(role="model", parts=[types.Part(function_call=call) for call in calls])
    event = Event(invocation_id="i1", author="assistant", content=called, long_running_tool_ids=waits)
    await sessions.append_event(session, event)
    return runner


async def ask(runner: InMemoryRunner, text: str = "And?") -> None:
    message = types.Content(role="user", parts=[types.Part(text=text)])
    async for _ in runner.run_async(user_id="user", session_id="s", new_message=message):
        pass


def told(server: Any) -> list[dict[str, Any]]:
    return [
        part["functionResponse"]["response"]
        for content in server.requests[-1].contents
        for part in content["parts"]
        if "functionResponse" in part
    ]


async def test_the_model_is_told_that_a_call_is_unknown_and_once(rehearse: Any) -> None:
    server = rehearse(TALK)
    calls = [types.FunctionCall(id=f"c{each}", name="send_mail", args={"to": "ada"}) for each in range(2)]
    runner = await left_behind(server, *calls)
    await ask(runner)
    assert [answer["status"] for answer in told(server)] == ["unknown", "unknown"]
    assert "look before you do it again" in told(server)[0]["error"]
    assert json.dumps(server.requests[-1].contents).count("functionCall") == 2
    await ask(runner)
    assert len(told(server)) == 2
    session = await runner.session_service.get_session(app_name="tests", user_id="user", session_id="s")
    assert session is not None
    assert sum(bool(event.get_function_responses()) for event in session.events) == 1
    await runner.close()


async def test_row_307_of_calls_without_number_the_newest_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: for 8,000 in the events of a client's session (1 MB) nothing else of the agent ran for 36 s."""
    monkeypatch.setattr("adk_skills_agent.adk.plugins._MOST_UNFINISHED", 3)
    sessions = InMemorySessionService()
    session = await sessions.create_session(app_name="tests", user_id="user")
    for number in range(5):
        call = types.Part(function_call=types.FunctionCall(id=f"c{number}", name="send_mail", args={}))
        content = types.Content(role="model", parts=[call])
        await sessions.append_event(session, Event(invocation_id="i1", author="assistant", content=content))
    invocation: Any = SimpleNamespace(session=session, session_service=sessions, invocation_id="i2")
    message = types.Content(role="user", parts=[types.Part(text="And?")])
    await UnfinishedCallsPlugin().on_user_message_callback(invocation_context=invocation, user_message=message)
    found = [one.id for event in session.events for one in event.get_function_responses()]
    assert found == ["c2", "c3", "c4"]


async def test_calls_that_wait_for_somebody_are_left_alone(rehearse: Any) -> None:
    server = rehearse(TALK)
    runner = await left_behind(server, types.FunctionCall(id="c", name="send_mail", args={"to": "a"}), waits={"c"})
    with pytest.raises(ClientError, match="number of function response parts"):
        await ask(runner)  # google-adk has no answer for it yet, and neither have we
    session = await runner.session_service.get_session(app_name="tests", user_id="user", session_id="s")
    assert session is not None
    assert not any(event.get_function_responses() for event in session.events)
    await runner.close()


async def test_without_the_plugin_the_model_does_not_know_of_the_call(rehearse: Any) -> None:
    server = rehearse("turns:\n  - text: I see.\n")
    runner = await left_behind(server, types.FunctionCall(id="c", name="send_mail", args={"to": "a"}), plugin=False)
    await ask(runner)
    assert "functionCall" not in json.dumps(server.requests[-1].contents)  # why there is a plugin
    await runner.close()
