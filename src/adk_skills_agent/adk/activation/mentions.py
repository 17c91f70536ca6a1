"""A user who writes ``$skill-name`` or ``/skill-name`` activates that skill (C30).

It happens while the first request of the turn is prepared, so that its instructions are in force before the model says
anything; the activation is kept by an event of its own (see ``committing``). In ``run_live`` only what was written
before the stream began is seen: its request is prepared once.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adk_skills_agent.adk.activation.active_skills import commit, own_keys
from adk_skills_agent.adk.guard import is_called_as_tool, text_in
from adk_skills_agent.adk.rules import Verdict
from adk_skills_agent.adk.tools.load_skill import tell_of_activation, version_of
from adk_skills_agent.errors import SkillsError

if TYPE_CHECKING:
    from google.adk.tools.tool_context import ToolContext
    from google.genai import types

    from adk_skills_agent.adk.runtime import SkillRuntime


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Asked:
    """The outcome of a user's message."""

    text: str = ""  # what the model is told of it in this request; empty when nothing was named
    activated: tuple[str, ...] = ()  # the skills that became active just now


async def activate_mentioned(runtime: SkillRuntime, tool_context: ToolContext) -> Asked:
    """Activate what the user's message names, once for each message."""
    source = runtime.source
    message = tool_context.user_content
    if message is not None and (unsearched := _unsearched(_texts(message))):
        logger.warning(
            "%d characters in the middle of a user's message were not searched for names of skills ($name): only its "
            "first and last %d are",
            unsearched,
            MAX_SEARCHED,
        )
    names = mentioned_skills(message, lambda name: source.for_user(name) is not None)
    if names and not _is_of_user(tool_context):
        names = [name for name in names if source.local(name) is not None]
    if not names:
        return Asked()
    agent, invocation = tool_context.agent_name, tool_context.invocation_id
    handled = f"_adk_skills_asked:{agent}"
    before = runtime.active.active(tool_context)
    waiting: list[str] = []
    if text_in(tool_context.state, handled) != invocation:
        waiting = [name for name in names if not await _activated(runtime, tool_context, name)]
        tool_context.state[handled] = invocation
        await commit(tool_context, (handled, *own_keys(agent)))
    active = runtime.active.active(tool_context)
    told = [f"The user asked for the skill {name} by name; it is loaded. Use it." for name in names if name in active]
    load = runtime.tool_name("load_skill")
    told += [f"The user asked for the skill {name} by name. Call {load} with it." for name in waiting]
    return Asked("\n".join(told), tuple(name for name in active if name not in before))


def _is_of_user(tool_context: ToolContext) -> bool:
    """Whether a user wrote the message, and not the model of an agent that gives this one a task (row 243).

    The skills that only a user may ask for are nobody else's to name.
    """
    message = tool_context.user_content
    if message is None or is_called_as_tool(tool_context.get_invocation_context()):
        return False
    written = _texts(message)  # a plugin may have taken the files out of one of them
    events = reversed(tool_context.session.events)
    return any(event.author == "user" and event.content and _texts(event.content) == written for event in events)


def _texts(content: types.Content) -> list[str]:
    return [part.text for part in content.parts or () if part.text]


async def _activated(runtime: SkillRuntime, tool_context: ToolContext, name: str) -> bool:
    """Whether a skill is active now; not when the user must be asked first, which only a tool call can do."""
    try:
        skill = runtime.source.for_user(name)
        if skill is None:
            return False
        if runtime.permissions.decide(skill, "activate").verdict is not Verdict.ALLOW:
            return False
        text = await runtime.text(skill, tool_context)
        version = await version_of(skill)
    except SkillsError as error:
        logger.warning("the skill %s that the user asked for cannot be read: %s", name, error.message)
        return False
    except Exception:  # an object in memory may raise anything; the run goes on without it
        logger.exception("the skill %s that the user asked for cannot be read", name)
        return False
    activation = runtime.active.activate(tool_context, skill.name, tokens=text.tokens, digest=text.digest)
    tell_of_activation(runtime, tool_context, skill, text, activation, version, how="user")
    return True


# ``$skill-name`` and ``/skill-name`` in what a user writes (C30).

MAX_MENTIONS = 5
MAX_LOOKED_UP = 1_000
"""Different words of a message that are looked up: a message may have millions, and nothing else runs meanwhile."""
MAX_SEARCHED = 100_000
"""Characters of a message that are searched at its beginning, and as many at its end, at each request of the turn: what
is between was not written by hand (row 365).
"""
_MENTION = re.compile(r"(?:^|(?<=[\s(\"'`,;]))[$/]([^\W_][\w-]{0,63})(?![\w/-])")
"""At the beginning or after a space or bracket, and not the beginning of a path such as ``/usr/bin``."""


def mentioned_skills(content: types.Content | None, known: Callable[[str], bool]) -> list[str]:
    """The skills a message names, in its order.

    ``known`` tells skills from ``$HOME`` and ``/tmp``.
    """
    names: dict[str, None] = {}
    looked_up: set[str] = set()
    for name in _mentions(_texts(content) if content is not None else []):
        if name in looked_up:
            continue
        looked_up.add(name)
        if known(name):
            names[name] = None
        if len(names) == MAX_MENTIONS or len(looked_up) == MAX_LOOKED_UP:
            break
    return list(names)


def _unsearched(texts: list[str]) -> int:
    """Characters that are neither among the first ones of a message nor among the last ones of its last part."""
    written = sum(map(len, texts))
    return max(written - MAX_SEARCHED - min(len(texts[-1]), MAX_SEARCHED), 0) if texts else 0


def _mentions(texts: list[str]) -> Iterator[str]:
    """What looks like a skill's name at the beginning and at the end of what was written."""
    left = MAX_SEARCHED
    for number, text in enumerate(texts, 1):
        end = min(left, len(text))
        left -= end
        found = [each for each in _MENTION.finditer(text, 0, end) if each.end() < end or end == len(text)]
        if number == len(texts):
            found += _MENTION.finditer(text, max(end, len(text) - MAX_SEARCHED))
        yield from (each.group(1).rstrip("-") for each in found)
