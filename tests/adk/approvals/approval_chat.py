"""A conversation in which the user is asked, with the real Runner."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.events import Event
from google.adk.runners import InMemoryRunner
from google.genai import types

from adk_skills_agent.adk.skill_toolset import SkillToolset

CONFIRMATION = "adk_request_confirmation"


PENDING = "The user is asked to approve this call. Do not repeat it; it continues by itself once they answer."


REFUSED = "The user refused this call. Do not try it again; go on without it, or ask what to do instead."


@dataclass
class Chat:
    """A conversation with one agent, in one session of the real Runner."""

    runner: InMemoryRunner
    session_id: str
    events: list[Event] = field(default_factory=list)

    async def say(self, text: str) -> list[Event]:
        return await self._send(types.Part(text=text))

    async def answer(self, confirmed: bool, *, payload: Any = None, question: types.FunctionCall | None = None) -> Any:
        question = question or self.questions[-1]
        response = {"confirmed": confirmed} | ({"payload": payload} if payload is not None else {})
        return await self._send(
            types.Part(function_response=types.FunctionResponse(id=question.id, name=CONFIRMATION, response=response))
        )

    async def _send(self, part: types.Part) -> list[Event]:
        message = types.Content(role="user", parts=[part])
        new = [
            event
            async for event in self.runner.run_async(user_id="user", session_id=self.session_id, new_message=message)
        ]
        self.events += new
        return new

    @property
    def questions(self) -> list[types.FunctionCall]:
        calls = [call for event in self.events for call in event.get_function_calls()]
        return [call for call in calls if call.name == CONFIRMATION]

    @property
    def question(self) -> dict[str, Any]:
        """The last question: hint and payload."""
        return dict((self.questions[-1].args or {})["toolConfirmation"])

    @property
    def results(self) -> list[dict[str, Any]]:
        return [
            dict(response.response or {})
            for event in self.events
            for response in event.get_function_responses()
            if response.name != CONFIRMATION
        ]

    @property
    def text(self) -> str:
        parts = [part for event in self.events if event.content for part in event.content.parts or []]
        return [part.text for part in parts if part.text][-1]

    async def state(self) -> dict[str, Any]:
        session = await self.runner.session_service.get_session(
            app_name=self.runner.app_name, user_id="user", session_id=self.session_id
        )
        assert session is not None
        return dict(session.state)


def agent_with(server: Any, toolset: SkillToolset) -> LlmAgent:
    return LlmAgent(name="assistant", model=server.model(), instruction="Help.", tools=[toolset])


def calls(*steps: tuple[str, dict[str, Any]] | str) -> str:
    """A conversation whose model makes these calls, one a turn; a string is said."""
    turns: list[dict[str, Any]] = [
        {"text": step} if isinstance(step, str) else {"call": {"name": step[0], "args": step[1]}} for step in steps
    ]
    return json.dumps({"turns": turns})


LOAD = ("load_skill", {"skill_name": "reporter"})


PUBLISH = ("run_skill_script", {"skill_name": "reporter", "file_path": "scripts/publish.py"})


SAFE = ("run_skill_script", {"skill_name": "reporter", "file_path": "scripts/safe.py"})
