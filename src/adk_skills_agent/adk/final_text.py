"""A last sentence for the user when the guard ends a turn, which otherwise ends with a tool's answer that nobody sees.

google-adk shows the text of a tool only for agents that are tools. Its public way to let a tool say something is a node
of the workflow: what the node yields is an event of the invocation, stored and shown like the agent's own words. It
comes before the refusal and not after it, because google-adk calls nobody between a tool's answer and the end of the
turn; so the answer has the words, too, for whoever keeps only the last event. Below
a root that is no ``LlmAgent`` (a ``SequentialAgent``, an agent of one's own) no node can run, and ``AgentTool`` does
not return what one says: there the model says the last words itself, in one more request that allows no call. A live
stream goes on after any answer; it is closed when its model does not heed refusals.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.events.event import Event
from google.adk.workflow import FunctionNode
from google.genai import types

from adk_skills_agent.adk.active_skills import turn_of
from adk_skills_agent.adk.retry_guard import USER_TEXT, model_answer

if TYPE_CHECKING:
    from google.adk.agents.invocation_context import InvocationContext
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools.tool_context import ToolContext

logger = logging.getLogger(__name__)

LIVE_REFUSALS = 5
"""How many refusals a live model gets in one turn before the stream is closed."""

_SAID = "temp:_adk_skill_final_text_"
_REFUSALS = "temp:_adk_skill_live_refusals_"
_LAST_WORDS = "Refused: an earlier answer said to stop. Nothing was done. Tell the user now, without another call."


async def say_final_text(tool_context: ToolContext, answer: Any) -> None:
    """Say what a refusal has for the user, once in an agent's turn. Where it cannot be said, the answer still has it.

    Args:
        tool_context: The refused call.
        answer: Its answer; without a text for the user nothing happens.
    """
    text = answer.get(USER_TEXT) if isinstance(answer, dict) else None
    if not isinstance(text, str):
        return
    invocation = tool_context.get_invocation_context()
    live = invocation.live_request_queue is not None
    if live:
        _close_when_unheeded(tool_context)
    said = _said_key(tool_context)
    before = tool_context.state.get(said)
    if before is True:
        return  # a sibling of the same model answer has said it
    if isinstance(before, str):
        if before and before == model_answer(tool_context):
            _leave_it_to_the_model(tool_context, answer)  # a sibling of the call that began it
        return
    _keep_as_output(tool_context, text)
    if not live and _needs_last_words(invocation):
        tool_context.state[said] = model_answer(tool_context) or ""
        _leave_it_to_the_model(tool_context, answer)
        return
    tool_context.state[said] = True
    agent = tool_context.agent_name

    async def speak() -> Any:
        yield Event(author=agent, content=types.Content(role="model", parts=[types.Part(text=text)]))

    try:
        # Named like the agent: google-adk takes a node's name for the author, and other authors for strangers.
        await tool_context.run_node(FunctionNode(func=speak, name=agent))
    except Exception:  # no node can run in a live session or outside of a runner; ending the turn matters more
        logger.info("the final text could not be said: %s", text, exc_info=True)


def allow_only_words(tool_context: ToolContext, llm_request: LlmRequest) -> None:
    """In the request for a model's last words, forbid calls of any tool.

    Not where an ``output_schema`` makes the model answer by a tool. A model that calls one all the same is refused, and
    that ends the turn.
    """
    if not isinstance(tool_context.state.get(_said_key(tool_context)), str):
        return
    if getattr(tool_context.get_invocation_context().agent, "output_schema", None) is not None:
        return
    none = types.FunctionCallingConfig(mode=types.FunctionCallingConfigMode.NONE)
    # A copy: the configuration may be the agent's own.
    llm_request.config = llm_request.config.model_copy(
        update={"tool_config": types.ToolConfig(function_calling_config=none)}
    )


def _needs_last_words(invocation: InvocationContext) -> bool:
    """Whether nobody would get what a node says.

    No node runs below a root that is no ``LlmAgent``, and ``AgentTool`` returns the text of the last event, which is
    the refusal. It has no public sign of itself but what it hands its agent, a service of its own whose class is not
    public; tests/adk/toolset/test_last_words.py fails when that is called otherwise.
    """
    running = invocation.agent
    if isinstance(running, BaseAgent) and not isinstance(running.root_agent, LlmAgent):
        return True
    return type(invocation.artifact_service).__name__ == "ForwardingArtifactService"


def _leave_it_to_the_model(tool_context: ToolContext, answer: dict[str, Any]) -> None:
    tool_context.actions.skip_summarization = None
    answer["error"] = _LAST_WORDS


def _said_key(tool_context: ToolContext) -> str:
    return f"{_SAID}{tool_context.agent_name}_{turn_of(tool_context)}"


def _close_when_unheeded(tool_context: ToolContext) -> None:
    """A live stream does not end with a tool's answer; closing its queue is google-adk's public way to end it."""
    queue = tool_context.get_invocation_context().live_request_queue
    key = f"{_REFUSALS}{tool_context.agent_name}_{turn_of(tool_context)}"
    before = tool_context.state.get(key)
    count = (before if isinstance(before, int) else 0) + 1
    tool_context.state[key] = count
    if queue is not None and count == LIVE_REFUSALS:
        logger.warning("the live stream is closed: the model repeated a refused call %d times", count)
        queue.close()


def _keep_as_output(tool_context: ToolContext, text: str) -> None:
    """An agent with ``output_key`` promises a value there; google-adk only takes it from the text of a model."""
    agent = tool_context.get_invocation_context().agent
    key = getattr(agent, "output_key", None)
    if isinstance(key, str) and key and getattr(agent, "output_schema", None) is None:
        tool_context.state[key] = text
