"""A rehearsed model that answers by what it is asked, not by how often: history may be compacted under it."""

from __future__ import annotations

from dataclasses import dataclass

from adk_skills_agent.testing import parse_conversation
from adk_skills_agent.testing.conversation import Conversation, Mismatch, Turn
from adk_skills_agent.testing.request import ModelRequest


@dataclass(frozen=True, slots=True)
class Speaking(Conversation):
    """The first turn whose conditions hold answers; a turn without ``last_tool`` only answers a user's text."""

    def turn_for(self, request: ModelRequest) -> tuple[int, Turn]:
        came = bool(request.last_function_responses)
        for index, turn in enumerate(self.turns):
            if bool(turn.when.last_tool) == came and turn.when.objection(request) is None:
                return index, turn
        raise Mismatch(f"nothing to say to {request.user_text!r} after {request.last_function_responses!r}")


def speaking(text: str) -> Speaking:
    found = parse_conversation(text)
    return Speaking(found.name, found.turns, found.when)
