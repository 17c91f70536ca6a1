"""One session of one runner, for asking several questions in it."""

from __future__ import annotations

from typing import Any

from google.adk.runners import Runner
from google.genai import types


def user(text: str) -> types.Content:
    return types.Content(role="user", parts=[types.Part(text=text)])


class Talk:
    """One session of one runner."""

    def __init__(self, runner: Runner, session_id: str) -> None:
        self.runner = runner
        self.session_id = session_id

    @classmethod
    async def start(cls, runner: Runner) -> Talk:
        session = await runner.session_service.create_session(app_name=runner.app_name, user_id="u")
        return cls(runner, session.id)

    async def say(self, text: str) -> list[Any]:
        run = self.runner.run_async(user_id="u", session_id=self.session_id, new_message=user(text))
        return [event async for event in run]

    async def state(self) -> dict[str, Any]:
        session = await self.runner.session_service.get_session(
            app_name=self.runner.app_name, user_id="u", session_id=self.session_id
        )
        assert session is not None
        return session.state
