"""A last sentence for the user when the guard ends a turn, which otherwise ends with a tool's answer that nobody sees.

google-adk shows the text of a tool only for agents that are tools. Its public way to let a tool say something is a node
of the workflow: what the node yields is an event of the invocation, stored and shown like the agent's own words.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from google.adk.events.event import Event
from google.adk.workflow import FunctionNode
from google.genai import types

from adk_skills_agent.adk.active_skills import turn_of
from adk_skills_agent.adk.retry_guard import USER_TEXT

if TYPE_CHECKING:
    from google.adk.tools.tool_context import ToolContext

logger = logging.getLogger(__name__)

_SAID = "temp:_adk_skill_final_text_"


async def say_final_text(tool_context: ToolContext, answer: Any) -> None:
    """Say what a refusal has for the user, once in an invocation. Where it cannot be said, the answer still has it.

    Args:
        tool_context: The refused call.
        answer: Its answer; without a text for the user nothing happens.
    """
    text = answer.get(USER_TEXT) if isinstance(answer, dict) else None
    if not isinstance(text, str):
        return
    said = f"{_SAID}{turn_of(tool_context)}"
    if tool_context.state.get(said) is True:
        return  # a sibling of the same model answer has said it
    tool_context.state[said] = True
    agent = tool_context.agent_name
    _keep_as_output(tool_context, text)

    async def speak() -> Any:
        yield Event(author=agent, content=types.Content(role="model", parts=[types.Part(text=text)]))

    try:
        # Named like the agent: google-adk takes a node's name for the author, and other authors for strangers.
        await tool_context.run_node(FunctionNode(func=speak, name=agent))
    except Exception:  # no node can run in a live session or outside of a runner; ending the turn matters more
        logger.info("the final text could not be said: %s", text, exc_info=True)


def _keep_as_output(tool_context: ToolContext, text: str) -> None:
    """An agent with ``output_key`` promises a value there; google-adk only takes it from the text of a model."""
    agent = tool_context.get_invocation_context().agent
    key = getattr(agent, "output_key", None)
    if isinstance(key, str) and key and getattr(agent, "output_schema", None) is None:
        tool_context.state[key] = text
