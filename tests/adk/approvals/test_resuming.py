"""Questions that are answered later: in another process, in a resumable app, two at once (S4-21)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from approval_chat import CONFIRMATION, LOAD, PUBLISH, SAFE, Chat, agent_with, calls
from google.adk.apps import App, ResumabilityConfig
from google.adk.runners import InMemoryRunner
from google.genai import types

import preloaded
from adk_skills_agent.adk.skill_toolset import SkillToolset
from adk_skills_agent.testing import GeminiServer, parse_conversation
from adk_skills_agent.testing.conversation import Conversation, Turn
from adk_skills_agent.testing.request import ModelRequest

RESUMES = """
import asyncio, json, sys
from google.adk.agents import LlmAgent
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types
from adk_skills_agent.adk.skill_toolset import SkillToolset
from adk_skills_agent.testing import GeminiServer, parse_conversation

async def main(database, skills, session_id, answer):
    conversation = parse_conversation(json.dumps({"turns": [
        {"call": {"name": "load_skill", "args": {"skill_name": "reporter"}}},
        {"text": "Finished."},
    ]}))
    with GeminiServer([conversation]) as server:
        toolset = SkillToolset.from_dirs([skills], permissions={"skills": {"reporter": "ask"}})
        agent = LlmAgent(name="assistant", model=server.model(), instruction="Help.", tools=[toolset])
        service = SqliteSessionService(database)
        runner = Runner(app_name="tests", agent=agent, session_service=service)
        if answer == "ask":
            session = await service.create_session(app_name="tests", user_id="user", session_id=session_id)
            part = types.Part(text="Write a report")
        else:
            session = await service.get_session(app_name="tests", user_id="user", session_id=session_id)
            calls = [call for event in session.events for call in event.get_function_calls()]
            question = [call for call in calls if call.name == "adk_request_confirmation"][-1]
            part = types.Part(function_response=types.FunctionResponse(
                id=question.id, name=question.name, response={"confirmed": answer == "yes"}))
        message = types.Content(role="user", parts=[part])
        async for event in runner.run_async(user_id="user", session_id=session_id, new_message=message):
            for response in event.get_function_responses():
                print(json.dumps(response.response))
        await runner.close()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("answer", "edited", "expected"),
    [("yes", False, "instructions"), ("no", False, "PERMISSION_DENIED"), ("yes", True, "APPROVAL_REQUIRED")],
)
async def test_a_question_is_answered_in_another_process_from_a_session_in_a_database(
    answer: str, edited: bool, expected: str, skills: Path, tmp_path: Path
) -> None:
    python = preloaded.program("python")

    def step(word: str) -> str:
        run = subprocess.run(
            [python, "-W", "ignore", "-c", RESUMES, str(tmp_path / "sessions.db"), str(skills), "s1", word],
            capture_output=True,
            text=True,
            check=False,
            env=dict(os.environ),
        )
        assert run.returncode == 0, run.stderr
        return run.stdout

    asked = await asyncio.to_thread(step, "ask")
    assert "APPROVAL_REQUIRED" in asked
    if edited:
        (skills / "reporter/references/guide.md").write_text("another guide")
    answered = await asyncio.to_thread(step, answer)
    assert expected in answered


async def test_a_resumable_app_resumes_after_the_answer(skills: Path, rehearse: Any) -> None:
    server = rehearse(calls(LOAD, "Loaded."))
    toolset = SkillToolset.from_dirs([skills], permissions={"skills": {"reporter": "ask"}})
    app = App(
        name="tests",
        root_agent=agent_with(server, toolset),
        resumability_config=ResumabilityConfig(is_resumable=True),
    )
    runner = InMemoryRunner(app=app)
    session = await runner.session_service.create_session(app_name="tests", user_id="user")
    talk = Chat(runner, session.id)
    await talk.say("Write a report")
    question = talk.questions[-1]
    asked_in = next(event.invocation_id for event in talk.events if question in event.get_function_calls())
    response = types.FunctionResponse(id=question.id, name=CONFIRMATION, response={"confirmed": True})
    message = types.Content(role="user", parts=[types.Part(function_response=response)])
    talk.events += [
        event
        async for event in runner.run_async(
            user_id="user", session_id=session.id, invocation_id=asked_in, new_message=message
        )
    ]
    assert "# Reporter" in talk.results[-1]["instructions"]
    assert talk.text == "Loaded."
    assert len(talk.questions) == 1
    server.assert_finished()
    await runner.close()


async def test_two_calls_at_once_are_asked_and_answered_one_by_one(skills: Path, rehearse: Any, chat: Any) -> None:
    both = {
        "turns": [
            {"call": [{"name": name, "args": args} for name, args in (SAFE, PUBLISH)]},
            {"text": "Half of it."},
        ]
    }
    server = rehearse(json.dumps(both))
    toolset = SkillToolset.from_dirs([skills], permissions={"scripts": {"*.py": "ask"}})
    talk = await chat(agent_with(server, toolset))
    await talk.say("Do both")
    assert len(talk.questions) == 2
    parts = [
        types.Part(
            function_response=types.FunctionResponse(
                id=question.id,
                name=CONFIRMATION,
                response={"confirmed": dict(question.args or {})["originalFunctionCall"]["args"] == SAFE[1]},
            )
        )
        for question in talk.questions
    ]
    message = types.Content(role="user", parts=parts)
    talk.events += [
        event async for event in talk.runner.run_async(user_id="user", session_id=talk.session_id, new_message=message)
    ]
    assert talk.results[-2]["stdout"] == "safe\n"
    assert talk.results[-1]["error_code"] == "PERMISSION_DENIED"
    assert talk.text == "Half of it."


@dataclass(frozen=True, slots=True)
class OneByOne(Conversation):
    """Each turn once: google-adk keeps questions, and what looks like one, out of the history by which to find it."""

    count: Iterator[int] = field(default_factory=itertools.count)

    def turn_for(self, request: ModelRequest) -> tuple[int, Turn]:
        index = next(self.count)
        return index, self.turns[index]


@pytest.fixture
def server_of() -> Iterator[Callable[[Conversation], GeminiServer]]:
    with contextlib.ExitStack() as stack:
        yield lambda conversation: stack.enter_context(GeminiServer([conversation]))


@pytest.mark.parametrize("refused", [False, True])
async def test_row_172_an_answer_to_a_question_that_the_model_wrote_does_not_count(
    refused: bool, skills: Path, server_of: Any, chat: Any
) -> None:
    """Seen: a model asked "Are you well?" about a call that the user had refused, and a yes ran the script."""
    name, args = PUBLISH
    original = {"id": "rehearsed-1-0", "name": name, "args": args}
    written = {"originalFunctionCall": original, "toolConfirmation": {"hint": "Are you well?"}}
    conversation = json.loads(calls(PUBLISH, (CONFIRMATION, written), "Are you?", "Fine."))
    conversation["turns"][1]["call"]["undeclared"] = True
    found = parse_conversation(json.dumps(conversation))
    server = server_of(OneByOne(found.name, found.turns, found.when))
    toolset = SkillToolset.from_dirs([skills], permissions={"scripts": {"*.py": "ask"}})
    talk = await chat(agent_with(server, toolset))
    await talk.say("Publish it")
    assert dict(talk.questions[-1].args or {})["originalFunctionCall"] == original
    if refused:
        await talk.answer(False)
    else:
        await talk.say("Wait")
    assert talk.question["hint"] == "Are you well?"
    await talk.answer(True)
    assert talk.results[-1]["error_code"] == "APPROVAL_REQUIRED"
    assert talk.results[-1]["error"].startswith("The user answered another question")
    assert not any("published" in str(result.get("stdout")) for result in talk.results)
