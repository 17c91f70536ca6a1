"""Ending a model's loop of misses: a mild answer, a fatal one, then no work and the end of the turn (S2, S2-12).

google-adk counts wrong paths and tells the model to stop; nothing stops a model that goes on. Here the call after the
fatal answer is refused: nothing is looked up or run, and ``skip_summarization`` ends the turn, because the result of a
hidden or failing tool would only be read as advice to try again. Counts are kept for one invocation, under google-adk's
``temp:`` keys, so they are in no stored session and the next question starts anew; in ``run_live``, which is one
invocation for a whole stream, so does every question in it.

Calls that one answer of the model makes in parallel were made before it could read any of the results. They are
counted one by one, as google-adk does, but none of them is refused for what its siblings did.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import ChainMap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.events.event import Event
from google.adk.workflow import FunctionNode
from google.genai import types

from adk_skills_agent.adk.events.events import GuardTripped, origin_of

if TYPE_CHECKING:
    from google.adk.agents.invocation_context import InvocationContext
    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.events.events import Events
    from adk_skills_agent.adk.options import SkillLimits


Kind = Literal["script", "resource", "skill", "registry", "executor", "run", "repeat", "denied"]
"""A wrong script path, a wrong path of a file, an unknown skill, a registry that fails, no way to run scripts, a run
that fails again and again in the same way, a call whose answer the model already has, a call that the owner or the user
forbade."""

USER_TEXT = "final_text"
"""The key of a refusal with the sentence for the user."""

_KEYS: Mapping[str, str] = {
    "script": "temp:_adk_skill_script_not_found_count_",  # google-adk's own
    "resource": "temp:_adk_skill_resource_not_found_count_",  # google-adk's own
    "skill": "temp:_adk_skill_skill_not_found_count_",
    "registry": "temp:_adk_skill_registry_error_count_",
    "executor": "temp:_adk_skill_no_code_executor_count_",
    "run": "temp:_adk_skill_same_failure_count_",
    "repeat": "temp:_adk_skill_repeated_call_count_",
    "denied": "temp:_adk_skill_denied_call_count_",
}
_FATAL = "temp:_adk_skill_fatal_"
_CALLS = "temp:_adk_skill_calls_"
_OWN = "temp:_adk_skill_own_count_"
_SAME = "temp:_adk_skill_same_answer_"
_SPENT = " spent"
_REPEATED = {"error": "You have the answer to this call already.", "error_code": "REPEATED_CALL"}
_WHAT: Mapping[str, str] = {
    "script": "script lookup failure #{count} this invocation. Do not retry any script path",
    "resource": "resource lookup failure #{count} this invocation. Do not retry any path",
    "skill": "skill lookup failure #{count} this invocation. Do not retry any skill name",
    "registry": "registry failure #{count} this invocation. Do not retry",
    "executor": "failure #{count} this invocation. Do not retry; no script can run here",
    "run": "failure #{count} of this very call. Do not retry it",
    "repeat": "call #{count} for the same answer. Do not retry it; use what you have",
    "denied": "refusal #{count} of this. Do not retry it",
}
_FOR_THE_USER: Mapping[str, str] = {
    "script": "I could not find a script that I needed, so I stopped here.",
    "resource": "I could not find a file that I needed, so I stopped here.",
    "skill": "I could not find a skill that I needed, so I stopped here.",
    "registry": "The place where skills come from did not answer, so I stopped here.",
    "executor": "I cannot run scripts here, so I stopped.",
    "run": "A script kept failing in the same way, so I stopped here.",
    "repeat": "I made no progress with this task, so I stopped here.",
    "denied": "I was not allowed to do what I needed, so I stopped here.",
}
_ENCODER = json.JSONEncoder(sort_keys=True, default=str, ensure_ascii=True)
_MAX_ERROR_CHARS = 200
_LEAST_SHOWN = 40
_SHARED = frozenset({"script", "resource"})
"""Kinds that google-adk counts for all agents of an invocation together. Its codes say so; but nobody is refused before
their own count is too high: an agent is not to end for what another one missed."""
_TRIED_AGAIN = frozenset({"run", "denied", "registry"})
"""Kinds for which ``identical_failures`` holds: what failed may work the next time."""
_PER_CALL = frozenset({"run", "repeat", "denied"})
"""Kinds that are counted for each call by itself; the others for all of their kind together."""


class RetryGuard:
    """Counts misses in the session's state; holds none itself, so one object serves all sessions.

    ``toolset`` tells the toolset from others of the same agent.
    """

    def __init__(self, limits: SkillLimits, events: Events | None = None, toolset: str = "") -> None:
        self._toolset = toolset
        self._limits = limits
        self._events = events

    def refused(self, tool_context: ToolContext, kind: Kind, key: str | None = None) -> dict[str, Any] | None:
        """The answer for a call after a fatal one, and the end of the turn; None when the call may go on.

        ``key`` says which call it is (:func:`call_key`), for ``run`` and ``denied``.
        """
        fatal = tool_context.state.get(self._fatal_key(tool_context, kind, key))
        if not isinstance(fatal, Mapping):
            return None
        turn = model_answer(tool_context)
        if turn is not None and turn == fatal.get("turn"):
            return None  # made together with the call that was answered fatally
        code = str(fatal.get("code") or "")
        text = _FOR_THE_USER[kind]
        tool_context.actions.skip_summarization = True
        return {
            "error": "Refused: an earlier answer said to stop. Nothing was done, and the turn ends here.",
            "error_code": code,
            USER_TEXT: text,
        }

    def refused_name(self, tool_context: ToolContext) -> dict[str, Any] | None:
        """The refusal of a call whose skill would have to be looked up; None when it may go on."""
        return self.refused(tool_context, "skill") or self.refused(tool_context, "registry")

    def miss(
        self,
        tool_context: ToolContext,
        kind: Kind,
        error: Mapping[str, Any],
        key: str | None = None,
        skill: str = "",
    ) -> dict[str, Any]:
        """Count a miss; the answer is the error itself, or the fatal form of it once there were too many.

        ``error`` is the answer as it would be without the guard. ``key`` is what was asked for; for ``run`` and
        ``repeat`` the call (:func:`call_key`).
        """
        count = own = _one_more(tool_context, self._counter_key(tool_context, kind, key))
        if kind in _SHARED:
            own = _one_more(tool_context, f"{_OWN}{kind}_{self._whose(tool_context)}")
        allowed = self._limits.identical_failures if kind in _TRIED_AGAIN else self._limits.misses
        fatal = count > allowed
        answer = dict(error)
        if fatal:
            code = str(error.get("error_code") or "EXECUTION_ERROR")
            answer["error_code"] = code if code.endswith("_FATAL") else f"{code}_FATAL"
            answer["error"] = _fatal_sentence(kind, str(error.get("error") or ""), count)
            known = tool_context.state.get(self._fatal_key(tool_context, kind, key))
            if own > allowed and not isinstance(
                known, Mapping
            ):  # the first one counts: its siblings are excused, later turns are not
                mark = {"code": answer["error_code"], "turn": model_answer(tool_context)}
                tool_context.state[self._fatal_key(tool_context, kind, key)] = mark
        if self._events is not None:
            event = GuardTripped(
                origin=origin_of(tool_context),
                skill=skill,
                kind=kind,
                error_code=str(answer.get("error_code") or ""),
                count=count,
                fatal=fatal,
                target=key or "",
            )
            self._events.emit(event)
        return answer

    def repeated(
        self, tool_context: ToolContext, key: str, answer: Mapping[str, Any], free: int = 0, skill: str = ""
    ) -> dict[str, Any]:
        """Count a call whose answer the model has already: the answer, then the fatal one, then the end of the turn.

        One fatal answer holds for all such calls, because a model without a next step alternates between them (#6280).
        ``free`` calls are not counted: 1 where the first one tells something new.
        """
        refused = self.refused(tool_context, "repeat")
        count = _one_more(tool_context, f"{_CALLS}{self._whose(tool_context)}_{key}")
        if count <= free:
            return dict(answer)
        if refused is not None:
            return refused
        counted = self.miss(tool_context, "repeat", _REPEATED, key, skill)
        return counted if counted["error_code"].endswith("_FATAL") else dict(answer)

    def spent(self, tool_context: ToolContext, key: str) -> dict[str, Any] | None:
        """The refusal of a call that got the same answer too often; None when the call may go on."""
        known = tool_context.state.get(f"{_SAME}{turn_of(tool_context)}_{key}")
        if not isinstance(known, str) or not known.endswith(_SPENT):
            return None
        return self.refused(tool_context, "repeat")

    def same_answer(self, tool_context: ToolContext, key: str, answer: Any, free: int, skill: str = "") -> Any:
        """Count a call that gets, word for word, the answer it got before: the answer, or the fatal one.

        What was counted in another way during the call is left alone.
        """
        if self._is_counted(tool_context) or tool_context.actions.requested_tool_confirmations:
            return answer
        slot = f"{_SAME}{turn_of(tool_context)}_{key}"
        digest = call_key(answer)
        before, _, counted_before = str(tool_context.state.get(slot)).partition(" ")
        count = int(counted_before.removesuffix(_SPENT)) + 1 if before == digest else 1
        # A text, because google-adk copies what is read from the state, and a mapping piece by piece.
        tool_context.state[slot] = f"{digest} {count}{_SPENT if count > free else ''}"
        if count <= free:
            return answer
        counted = self.miss(tool_context, "repeat", _REPEATED, key, skill)
        return counted if counted["error_code"].endswith("_FATAL") else answer

    @staticmethod
    def _is_counted(tool_context: ToolContext) -> bool:
        """Whether this call was counted by one of the kinds, or refused."""
        if tool_context.actions.skip_summarization is True:
            return True
        written = tool_context.actions.state_delta
        counters = (*_KEYS.values(), _CALLS)
        return isinstance(written, Mapping) and any(
            bool(value) for key, value in written.items() if key.startswith(counters)
        )

    def success(self, tool_context: ToolContext, kind: Kind, key: str | None = None) -> None:
        """A call that worked. Only what is counted for a call by itself is forgotten.

        The other counts stay, as with google-adk: a model that alternates a good path and a wrong one does not stop.
        """
        if kind in _PER_CALL and key is not None:
            counter = self._counter_key(tool_context, kind, key)
            if isinstance(tool_context.state.get(counter), int):
                tool_context.state[counter] = 0

    def _counter_key(self, tool_context: ToolContext, kind: Kind, key: str | None) -> str:
        whose = turn_of(tool_context) if kind in _SHARED else self._whose(tool_context)
        return f"{_KEYS[kind]}{whose}{_suffix(kind, key)}"

    def _fatal_key(self, tool_context: ToolContext, kind: Kind, key: str | None) -> str:
        own = None if kind == "repeat" else key
        return f"{_FATAL}{kind}_{self._whose(tool_context)}{_suffix(kind, own)}"

    def _whose(self, tool_context: ToolContext) -> str:
        return f"{turn_of(tool_context)}:{tool_context.agent_name}:{self._toolset}"


def entries_of(state: Any) -> Mapping[str, Any]:
    """All entries of a session's state: a mapping, or google-adk's State, which is not a mapping.

    State copies what it is asked for, and all of its keys for ``to_dict()``; a client may have put any number into it
    (rows 430 and 435). So they are read where it has them.
    """
    if isinstance(state, Mapping):
        return state
    changed, kept = getattr(state, "_delta", None), getattr(state, "_value", None)
    if isinstance(changed, dict) and isinstance(kept, dict):
        return ChainMap(changed, kept)
    whole = state.to_dict() if hasattr(state, "to_dict") else {}
    return whole if isinstance(whole, Mapping) else {}


def texts_in(state: Any, key: str, most: int) -> list[str]:
    """The last so many texts of a list in a session's state, into which a client may have put anything, of any size."""
    value = entries_of(state).get(key)
    return [text for text in value[-most:] if isinstance(text, str)] if isinstance(value, (list, tuple)) else []


def text_in(state: Any, key: str) -> str | None:
    """A text of a session's state; None when there is something else."""
    value = entries_of(state).get(key)
    return value if isinstance(value, str) else None


def turn_of(context: ReadonlyContext) -> str:
    """The turn a context is in: the invocation and, in ``run_live``, how often the user has spoken in it.

    ``run_live`` is one invocation for the whole stream. Its ``turn_complete`` does not end a turn: the model's part of
    one has several when it calls tools.
    """
    invocation = context.invocation_id
    spoken = 0
    events: object = getattr(context.session, "events", None)
    for event in reversed(events) if isinstance(events, list) else ():
        if event.invocation_id != invocation:
            break
        spoken += event.author == "user" and not event.partial and not event.get_function_responses()
    return f"{invocation}#{spoken}" if spoken > 1 else str(invocation)


def _one_more(tool_context: ToolContext, counter: str) -> int:
    before = tool_context.state.get(counter)
    count = (before if isinstance(before, int) and not isinstance(before, bool) else 0) + 1
    tool_context.state[counter] = count
    return count


def call_key(*parts: object) -> str:
    """A short name for one call: the same arguments give the same one."""
    text = _ENCODER.encode(parts)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def _suffix(kind: Kind, key: str | None) -> str:
    return f"_{key}" if kind in _PER_CALL and key is not None else ""


def _fatal_sentence(kind: Kind, error: str, count: int) -> str:
    """google-adk's words behind what happened, which is shortened when both do not fit."""
    tail = f" This is {_WHAT[kind].format(count=count)} — report the error to the user and stop."
    room = max(_MAX_ERROR_CHARS - len(tail), _LEAST_SHOWN)
    head = error if len(error) <= room else error[: room - 3] + "..."
    return head + tail


def model_answer(tool_context: ToolContext) -> str | None:
    """The id of the model's answer that made this call; None when that cannot be told."""
    call = tool_context.function_call_id
    if not isinstance(call, str) or not call:
        return None
    for event in reversed(tool_context.session.events):
        if any(one.id == call for one in event.get_function_calls()):
            return str(event.id)
    return None


# A last sentence for the user when the guard ends a turn, which otherwise ends with a tool's answer that nobody sees.
#
# google-adk shows the text of a tool only for agents that are tools. Its public way to let a tool say something is a
# node of the workflow: what the node yields is an event of the invocation, stored and shown like the agent's own
# words. It comes before the refusal and not after it, because google-adk calls nobody between a tool's answer and the
# end of the turn; so the answer has the words, too, for whoever keeps only the last event. Below a root that is no
# ``LlmAgent`` (a ``SequentialAgent``, an agent of one's own) no node can run, and ``AgentTool`` does not return what
# one says: there the model says the last words itself, in one more request that allows no call. A live stream goes on
# after any answer; it is closed when its model does not heed refusals.

logger = logging.getLogger(__name__)

LIVE_REFUSALS = 5
"""The number of refusals a live model gets in one turn before the stream is closed."""

_SAID = "temp:_adk_skill_final_text_"
_REFUSALS = "temp:_adk_skill_live_refusals_"
_LAST_WORDS = "Refused: an earlier answer said to stop. Nothing was done. Tell the user now, without another call."


async def say_final_text(tool_context: ToolContext, answer: Any) -> None:
    """Say what a refusal has for the user, once in an agent's turn; where that cannot be, the answer still has it."""
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
    # An agent with ``output_key`` promises a value there; google-adk only takes it from the text of a model.
    key = getattr(invocation.agent, "output_key", None)
    if isinstance(key, str) and key and getattr(invocation.agent, "output_schema", None) is None:
        tool_context.state[key] = text
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
    the refusal.
    """
    running = invocation.agent
    if isinstance(running, BaseAgent) and not isinstance(running.root_agent, LlmAgent):
        return True
    return is_called_as_tool(invocation)


def is_called_as_tool(invocation: InvocationContext) -> bool:
    """Whether ``AgentTool`` runs the agent: then another agent's model wrote what looks like the user's message.

    It has no public sign of itself but what it hands its agent, a service of its own whose class is not public;
    tests/adk/toolset/test_last_words.py fails when that is called otherwise.
    """
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
