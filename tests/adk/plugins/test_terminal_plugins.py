"""Tool calls in the terminal, and an error of the model's service told once (issue 17, item 7)."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import InMemoryRunner
from google.genai import types

from adk_skills_agent import ModelErrorsPlugin, SkillToolset, ToolCallsPlugin

Ask = Callable[..., Any]

FAILS = "when: {user_contains: Hello}\nturns:\n  - error: {code: 400}\n"
ANSWERS = "when: {user_contains: Again}\nturns:\n  - text: still here\n"


def calls(*steps: tuple[str, dict[str, Any]] | str) -> str:
    turns: list[dict[str, Any]] = [
        {"text": step} if isinstance(step, str) else {"call": {"name": step[0], "args": step[1]}} for step in steps
    ]
    return json.dumps({"turns": turns})


async def events_of(agent: LlmAgent, plugins: list[BasePlugin], *questions: str) -> list[list[Any]]:
    """The events of each question, asked in one session."""
    runner = InMemoryRunner(app=App(name="terminal", root_agent=agent, plugins=plugins))
    session = await runner.session_service.create_session(app_name="terminal", user_id="u")
    try:
        return [
            [
                event
                async for event in runner.run_async(
                    user_id="u",
                    session_id=session.id,
                    new_message=types.Content(role="user", parts=[types.Part(text=question)]),
                )
            ]
            for question in questions
        ]
    finally:
        await runner.close()


async def test_each_call_and_its_end_is_one_line(make_skill: Callable[..., Path], rehearse: Any) -> None:
    skill = make_skill(
        "talker", files={"scripts/say.py": "print('hello')\nprint('more')\n", "scripts/fail.sh": "exit 3\n"}
    )
    server = rehearse(
        calls(
            ("load_skill", {"skill_name": "talker"}),
            ("run_skill_script", {"skill_name": "talker", "file_path": "scripts/say.py"}),
            ("run_skill_script", {"skill_name": "talker", "file_path": "scripts/fail.sh"}),
            ("load_skill", {"skill_name": "talkr"}),
            "done",
        )
    )
    stream = io.StringIO()
    agent = LlmAgent(name="a", model=server.model(), tools=[SkillToolset.from_dirs([skill.parent])])
    await events_of(agent, [ToolCallsPlugin(stream=stream)], "Talk.")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 8
    assert lines[0] == "→ load_skill(skill_name='talker')"
    assert lines[1].startswith("← load_skill (")
    assert lines[2] == "→ run_skill_script(skill_name='talker', file_path='scripts/say.py')"
    assert lines[3].endswith(": success: hello")
    assert "exited with status 3" in lines[5]
    assert lines[7].endswith(": error: Skill 'talkr' not found.")


async def test_a_question_and_an_answer_in_json_say_what_they_are(
    make_skill: Callable[..., Path], rehearse: Any
) -> None:
    skill = make_skill(
        "talker", files={"scripts/a.py": "print('{\\n  \"total\": 3\\n}')\n", "scripts/b.py": "print()\n"}
    )
    one = ("run_skill_script", {"skill_name": "talker", "file_path": "scripts/a.py"})
    two = ("run_skill_script", {"skill_name": "talker", "file_path": "scripts/b.py"})
    server = rehearse(calls(one, two, "done"))
    stream = io.StringIO()
    toolset = SkillToolset.from_dirs([skill.parent], permissions={"scripts": {"b.py": "ask"}})
    agent = LlmAgent(name="a", model=server.model(), tools=[toolset])
    await events_of(agent, [ToolCallsPlugin(stream=stream)], "Talk.")
    lines = stream.getvalue().splitlines()
    assert lines[1].endswith(': success: { "total": 3 }')
    assert lines[3].endswith(": waits for the user's answer")


async def test_what_is_printed_stays_one_line_and_commands_no_terminal(rehearse: Any) -> None:
    def evil(text: str) -> dict[str, str]:
        """Say something."""
        return {"result": "\x1b]52;c;QUJD\x07" + text + "\nsecond line"}

    def breaks() -> None:
        """Break."""
        raise ValueError("broke\nin two")

    server = rehearse(calls(("evil", {"text": "\x1b[2J" + "y" * 500}), ("breaks", {})))
    stream = io.StringIO()
    agent = LlmAgent(name="a", model=server.model(), tools=[evil, breaks])
    with pytest.raises(ValueError, match="broke"):
        await events_of(agent, [ToolCallsPlugin(stream=stream, width=100)], "Talk.")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4
    assert max(map(len, lines)) <= 100
    assert "\x1b" not in stream.getvalue()
    assert "\x07" not in stream.getvalue()
    assert lines[3].endswith("ValueError: broke in two")


async def test_an_error_of_the_model_is_one_event_one_line_and_no_end(rehearse: Any) -> None:
    server = rehearse(FAILS, ANSWERS)
    stream = io.StringIO()
    agent = LlmAgent(name="a", model=server.model())
    first, second = await events_of(agent, [ModelErrorsPlugin(stream=stream)], "Hello?", "Again?")
    told = [event for event in first if event.error_code or event.error_message]
    assert [(event.error_code, event.error_message) for event in told] == [
        ("INVALID_ARGUMENT", "This error was rehearsed (INVALID_ARGUMENT).")
    ]
    assert stream.getvalue() == (
        "Error of the model gemini-2.5-flash: INVALID_ARGUMENT: This error was rehearsed (INVALID_ARGUMENT).\n"
    )
    assert [part.text for event in second for part in event.content.parts] == ["still here"]


async def test_without_the_plugin_the_error_is_raised_as_google_adk_does(rehearse: Any) -> None:
    server = rehearse(FAILS)
    with pytest.raises(Exception, match="This error was rehearsed"):
        await events_of(LlmAgent(name="a", model=server.model()), [], "Hello?")
