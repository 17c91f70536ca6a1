"""Which skills are active for an agent of a session: read from the session's state, changed in tool calls only.

Two places hold it. google-adk's list (``_adk_activated_skill_<agent>``) is what others read; next to it each skill has
a key of its own (``_adk_skills:<agent>:<skill>``). A session service merges two concurrent changes key by key, so the
list may lose one of two activations; the skills' own keys cannot, and they win. Others write the list, too: the toolset
of google-adk, and applications. Therefore a key says what we wrote there last: a list that differs from it is
somebody's wish, which wins over our keys; one that does not differ has at most lost a change of ours.

What is written while a request is prepared is not committed, so everything here that writes belongs into a tool call
(or goes through :mod:`~adk_skills_agent.adk.activation.active_skills`).
"""

from __future__ import annotations

from collections import ChainMap, deque
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from google.adk.agents import BaseAgent
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions

from adk_skills_agent.adk.guard import entries_of, turn_of
from adk_skills_agent.adk.options import SkillLifecycleConfig, SkillLifecycleMode
from adk_skills_agent.errors import SkillNotActive

if TYPE_CHECKING:
    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.tools.tool_context import ToolContext


MOST_ACTIVE = 256
"""Activations of one agent in a session, the newest: a client may have put any number of names into the state."""
_MOST_READ = 4 * MOST_ACTIVE
"""Entries about activations that are read at all, the last ones: each costs more than to pass it over (row 360)."""
_MOST_KEYS = 10_000
"""Keys of a state that are searched for those of skills, several times in each call."""


@dataclass(frozen=True, slots=True)
class ActiveSkill:
    """One activation."""

    name: str
    order: int = 0  # grows with each activation of the agent; the lowest is released first
    tokens: int = 0  # of its instructions when it was loaded; 0 when unknown
    digest: str = ""  # of its instructions when it was loaded; empty when unknown
    turn: str | None = None  # the turn it was loaded in, for EPHEMERAL ones
    # The name of the tool that loaded it: an agent may have several toolsets, each with skills of its own. Empty when
    # only google-adk's list has the skill.
    tool: str = ""


@dataclass(frozen=True, slots=True)
class Activation:
    """The changes that loading a skill made."""

    already: bool = False  # it was active before
    released: tuple[str, ...] = ()  # skills whose turn is over or that the cap released, oldest first
    dropped: tuple[str, ...] = ()  # skills that the token budget has no room for any more, oldest first


def state_key(agent: str) -> str:
    """google-adk's key of the list of active skills."""
    return f"_adk_activated_skill_{agent}"


def skill_key(agent: str, name: str) -> str:
    """The key of one activation.

    The colon keeps it out of a ``state_schema``, as google-adk's own state is, and ``_adk`` out of the sessions of
    agents that are tools.
    """
    return f"_adk_skills:{agent}:{name}"


def written_key(agent: str) -> str:
    """The key of what google-adk's list was when we last wrote it."""
    return f"_adk_skills_list:{agent}"


def own_keys(agent: str) -> tuple[str, ...]:
    """The beginnings of all keys that are written here."""
    return state_key(agent), written_key(agent), skill_key(agent, "")


class ActiveSkills:
    """The rules of one toolset; the state itself is the session's.

    ``budget_tokens`` is for all active skills of an agent; None for no bound. ``tool``, the name of the toolset's
    loading tool with its prefix, signs the activations.
    """

    def __init__(self, lifecycle: SkillLifecycleConfig, budget_tokens: int | None, tool: str = "load_skill") -> None:
        self.lifecycle = lifecycle
        self._budget = budget_tokens
        self.tool = tool

    def active(self, context: ReadonlyContext) -> list[str]:
        """The names of the active skills, least recently loaded first. Read-only."""
        return [found.name for found in self.records(context)]

    def records(self, context: ReadonlyContext) -> list[ActiveSkill]:
        """The activations, least recently loaded first. Read-only."""
        turn = turn_of(context)
        return [found for found in self._own(context) if not self._is_over(found, turn)]

    def check(self, context: ReadonlyContext, name: str, load: str) -> None:
        """Refuse what needs the skill to be active; ``load`` is the tool that makes it so.

        Raises ``SkillNotActive`` when it is not.
        """
        if name not in self.active(context):
            raise SkillNotActive(f"Skill '{name}' is not active. Call {load} with it first.")

    def activate(self, context: ToolContext, name: str, *, tokens: int = 0, digest: str = "") -> Activation:
        """Make a skill active and release what that displaces. Only in a tool call."""
        turn = turn_of(context)
        stored = self._own(context)
        current = [found for found in stored if not self._is_over(found, turn)]
        known = next((found for found in current if found.name == name), None)
        over = [found.name for found in stored if self._is_over(found, turn) and found.name != name]
        mode = self.lifecycle.mode_of(name)
        others = [found for found in current if found.name != name]
        moves = known is None or mode is not SkillLifecycleMode.PERSISTENT  # reloading is a use, which spares it
        order = max((found.order for found in stored), default=0) + 1 if moves or known is None else known.order
        if known is not None and not tokens:
            tokens, digest = known.tokens, known.digest
        its_turn = turn if mode is SkillLifecycleMode.EPHEMERAL else None
        new = ActiveSkill(name, order, tokens, digest, its_turn, self.tool)
        kept = sorted([*others, new], key=lambda found: found.order)
        bounded = [f.name for f in kept if self.lifecycle.mode_of(f.name) is SkillLifecycleMode.BOUNDED]
        capped = bounded[: max(0, len(bounded) - self.lifecycle.max_active_skills)]
        kept = [found for found in kept if found.name not in capped]
        ordered = sorted(kept, key=lambda found: found.name == name)
        dropped = self.over_budget({found.name: found.tokens for found in ordered})
        kept = [found for found in kept if found.name not in dropped]
        changes: dict[str, dict[str, object]] = {gone: _released() for gone in (*over, *capped, *dropped)}
        changes[name] = _as_state(new)
        _write(context, changes, [*self._others(context), *(found.name for found in kept)])
        return Activation(known is not None, (*over, *capped), dropped)

    def deactivate(self, context: ToolContext, *names: str) -> bool:
        """Release skills; whether one of them was active. Only in a tool call."""
        turn = turn_of(context)
        stored = self._own(context)
        gone = [found for found in stored if found.name in names]
        if gone:
            rest = [found.name for found in stored if found.name not in names]
            released = {found.name: _released() for found in gone}
            _write(context, released, [*self._others(context), *rest])
        return any(not self._is_over(found, turn) for found in gone)

    def expire(self, context: ToolContext) -> tuple[str, ...]:
        """Release the skills whose turn is over; their names, once. Only where the change is committed."""
        turn = turn_of(context)
        over = tuple(found.name for found in self._own(context) if self._is_over(found, turn))
        self.deactivate(context, *over)
        return over

    def adopt(self, context: ToolContext, toolsets: Set[str], known: Callable[[str], object | None]) -> tuple[str, ...]:
        """Take over what a toolset activated that the agent no longer has: its prefix or its kind was changed.

        Only where the change is committed. ``toolsets`` are the names that the agent's toolsets sign with. Returns the
        names that were taken over.
        """
        signed = {"", self.tool, *toolsets}
        stored = _stored(context.state, context.agent_name)
        orphans = [found for found in stored if found.tool not in signed and known(found.name) is not None]
        if orphans:
            changes = {found.name: _as_state(replace(found, tool=self.tool)) for found in orphans}
            _write(context, changes, [found.name for found in stored])
        return tuple(found.name for found in orphans)

    def mend_list(self, context: ToolContext) -> bool:
        """Make google-adk's list, which is all that others read, say what is active; whether it did not.

        A concurrent change may have taken a name from it, and the turn of an EPHEMERAL skill may be over. Only where
        the change is committed.
        """
        key = state_key(context.agent_name)
        listed = _names_in(entries_of(context.state).get(key))
        turn = turn_of(context)
        stored = [
            found.name
            for found in _stored(context.state, context.agent_name)
            if found.tool not in {"", self.tool} or not self._is_over(found, turn)
        ]
        if listed is None or set(listed) == set(stored) or _schema_refuses(context, key):
            return False
        _write(context, {}, stored)
        return True

    def over_budget(self, tokens: Mapping[str, int]) -> tuple[str, ...]:
        """Which of the skills have no room together, oldest first; the newest always has."""
        if self._budget is None:
            return ()
        total = sum(tokens.values())
        gone = []
        for name in list(tokens)[:-1]:
            if total <= self._budget:
                break
            total -= tokens[name]
            gone.append(name)
        return tuple(gone)

    def _own(self, context: ReadonlyContext) -> list[ActiveSkill]:
        return [found for found in _stored(context.state, context.agent_name) if found.tool in {"", self.tool}]

    def _others(self, context: ReadonlyContext) -> list[str]:
        """The skills that other toolsets of the agent have loaded."""
        stored = _stored(context.state, context.agent_name)
        return [found.name for found in stored if found.tool not in {"", self.tool}]

    @staticmethod
    def _is_over(found: ActiveSkill, turn: str) -> bool:
        return found.turn is not None and found.turn != turn


def _stored(state: Any, agent: str) -> list[ActiveSkill]:
    """Every activation in the state, those whose turn is over included, oldest first."""
    state = entries_of(state)
    own = _own_records(state, agent)
    listed = _names_in(state.get(state_key(agent)))
    added, removed = _foreign_edit(listed, _names_in(state.get(written_key(agent))), own)
    found = [
        _from_state(name, value)
        for name, value in own.items()
        if value.get("active") and name not in added and name not in removed
    ]
    theirs = state.get(f"_adk_skill_meta_{agent}")
    for position, name in enumerate(listed or ()):
        if name in added or name not in own:
            found.append(ActiveSkill(name, order=position - len(listed or ()), turn=_their_turn(theirs, name)))
    return sorted(found, key=lambda one: (one.order, one.name))[-MOST_ACTIVE:]


def _foreign_edit(
    listed: list[str] | None, written: list[str] | None, own: Mapping[str, object]
) -> tuple[set[str], set[str]]:
    """Which names somebody else put into the list and took from it since we wrote it."""
    if listed is None or written is None or set(listed) == set(written):
        return set(), set()
    # An empty list is meant for all skills, also for one that a concurrent change had taken from it.
    return set(listed) - set(written), (set(written) if listed else set(own)) - set(listed)


def _own_records(state: Any, agent: str) -> dict[str, Mapping[str, Any]]:
    """The skills' own keys. Among very many keys only those are looked for that a list names (row 435)."""
    prefix, entries = skill_key(agent, ""), entries_of(state)
    keys: Iterable[str]
    if sum(map(len, entries.maps if isinstance(entries, ChainMap) else (entries,))) > _MOST_KEYS:
        lists = (_names_in(entries.get(key)) or [] for key in (state_key(agent), written_key(agent)))
        keys = filter(entries.__contains__, dict.fromkeys(prefix + name for names in lists for name in names))
    else:
        keys = deque((key for key in entries if key.startswith(prefix)), _MOST_READ)
    found = {key[len(prefix) :]: entries[key] for key in keys}
    return {name: value for name, value in found.items() if isinstance(value, dict)}


def _names_in(value: object) -> list[str] | None:
    """The last names in a list of the state, which may have anything in it; None for anything else."""
    if not isinstance(value, (list, tuple)):
        return None
    return list(dict.fromkeys(name for name in value[-_MOST_READ:] if isinstance(name, str)))


def _their_turn(records: object, name: str) -> str | None:
    """The turn of an EPHEMERAL skill that google-adk's own toolset loaded earlier in this session; None for others."""
    record = records.get(name) if isinstance(records, dict) else None
    if not isinstance(record, dict) or record.get("lifecycle") != SkillLifecycleMode.EPHEMERAL.value:
        return None
    return str(record["activated_in"]) if record.get("activated_in") else None


def _from_state(name: str, value: Mapping[str, Any]) -> ActiveSkill:
    turn = value.get("turn")
    return ActiveSkill(
        name,
        _number(value.get("order")),
        _number(value.get("tokens")),
        str(value.get("digest") or ""),
        turn if isinstance(turn, str) else None,
        str(value.get("tool") or ""),
    )


def _number(value: object) -> int:
    return int(value) if isinstance(value, (int, float)) else 0  # a database may give a whole number back as a float


def _as_state(skill: ActiveSkill) -> dict[str, object]:
    record: dict[str, object] = {
        "active": True,
        "order": skill.order,
        "tokens": skill.tokens,
        "digest": skill.digest,
        "tool": skill.tool,
    }
    if skill.turn is not None:
        record["turn"] = skill.turn
    return record


def _released() -> dict[str, object]:
    """The trace of an ended activation: it shows when a concurrent change has wrongly brought the name back."""
    return {"active": False}


def _write(context: ToolContext, changes: Mapping[str, dict[str, object]], names: list[str]) -> None:
    agent, state = context.agent_name, context.state
    records = {**_settled(state, agent), **changes}
    state.update({skill_key(agent, name): record for name, record in records.items()})
    if not _schema_refuses(context, state_key(agent)):
        listed = list(dict.fromkeys(names))  # two toolsets may have loaded the same skill
        state[state_key(agent)] = listed
        state[written_key(agent)] = list(listed)


def _settled(state: Any, agent: str) -> dict[str, dict[str, object]]:
    """Our keys as somebody else's edit of the list wants them; once we write the list, nothing else tells of it."""
    stored = {found.name: found for found in _stored(state, agent)}
    changes: dict[str, dict[str, object]] = {}
    for name, record in _own_records(state, agent).items():
        if name not in stored:
            if record.get("active"):
                changes[name] = _released()
        elif not record.get("active") or _from_state(name, record) != stored[name]:
            changes[name] = _as_state(stored[name])
    return changes


def _schema_refuses(context: ToolContext, key: str) -> bool:
    """Whether the agent declares a ``state_schema`` without google-adk's key: then writing it would end the run.

    The skills' own keys say everything; google-adk checks no key with a colon.
    """
    agent: Any = context.get_invocation_context().agent
    while isinstance(agent, BaseAgent):
        if agent.state_schema is not None:
            return key not in agent.state_schema.model_fields
        agent = agent.parent_agent
    return False


# Keeping a change of state that is made while a request is prepared.
#
# google-adk commits what a tool call writes, and throws away what is written before: the context of a request's
# preparation never becomes an event. So the change is appended to the session as an event of its own, without
# content, which is google-adk's public way for an application to change a session's state.


async def commit(tool_context: ToolContext, keys: tuple[str, ...]) -> None:
    """Append what was written to ``tool_context.state`` as an event.

    ``keys`` are the beginnings of ours; what others wrote there is left alone. Raises ``StaleSessionError`` when
    somebody else changed the session meanwhile; the invocation cannot go on anyway.
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
