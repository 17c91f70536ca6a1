"""Keeping a change of state that is made while a request is prepared.

google-adk commits what a tool call writes, and throws away what is written before: the context of a request's
preparation never becomes an event. So the change is appended to the session as an event of its own, without content,
which is google-adk's public way for an application to change a session's state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions

if TYPE_CHECKING:
    from google.adk.tools.tool_context import ToolContext


async def commit(tool_context: ToolContext, keys: tuple[str, ...]) -> None:
    """Append what was written to ``tool_context.state`` as an event.

    Args:
        tool_context: The context of the request's preparation.
        keys: Beginnings of the keys that are ours; what others wrote there is left alone.

    Raises:
        StaleSessionError: Somebody else changed the session meanwhile; the invocation cannot go on anyway.
    """
    delta = {key: value for key, value in tool_context.actions.state_delta.items() if key.startswith(keys)}
    if not delta:
        return
    invocation = tool_context.get_invocation_context()
    events = invocation.session.events
    if events and events[-1].get_function_calls():
        return  # a resumed invocation: google-adk looks whether calls come last; the next request commits
    event = Event(
        invocation_id=invocation.invocation_id,
        author=tool_context.agent_name,
        branch=invocation.branch,
        actions=EventActions(state_delta=delta),
    )
    await invocation.session_service.append_event(session=invocation.session, event=event)
