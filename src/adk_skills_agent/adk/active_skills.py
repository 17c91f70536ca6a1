"""Which skills are active for an agent of a session: read from the session's state, changed in tool calls only.

Two places hold it. google-adk's list (``_adk_activated_skill_<agent>``) is what others read; next to it each skill has
a key of its own (``adk_skills:<agent>:<skill>``). A session service merges two concurrent changes key by key, so the
list may lose one of two activations; the skills' own keys cannot, and they win. A name that only the list has was put
there by google-adk's toolset and counts as well.

What is written while a request is prepared is not committed, so everything here that writes belongs into a tool call
(or goes through :mod:`~adk_skills_agent.adk.committing`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from google.adk.agents import BaseAgent

from adk_skills_agent.adk.lifecycle import SkillLifecycleConfig, SkillLifecycleMode

if TYPE_CHECKING:
    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.tools.tool_context import ToolContext


@dataclass(frozen=True, slots=True)
class ActiveSkill:
    """One activation.

    Attributes:
        name: The skill.
        order: Grows with each activation of the agent; the lowest is released first.
        tokens: Of its instructions when it was loaded; 0 when unknown.
        digest: Of its instructions when it was loaded; empty when unknown.
        turn: The turn it was loaded in, for EPHEMERAL ones.
        tool: The name of the tool that loaded it: an agent may have several toolsets, each with skills of its own.
            Empty when only google-adk's list has the skill.
    """

    name: str
    order: int = 0
    tokens: int = 0
    digest: str = ""
    turn: str | None = None
    tool: str = ""


@dataclass(frozen=True, slots=True)
class Activation:
    """What loading a skill changed.

    Attributes:
        already: It was active before.
        released: Skills whose turn is over or that the cap released, oldest first.
        dropped: Skills that the token budget has no room for any more, oldest first.
    """

    already: bool = False
    released: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


def state_key(agent: str) -> str:
    """google-adk's key of the list of active skills."""
    return f"_adk_activated_skill_{agent}"


def skill_key(agent: str, name: str) -> str:
    """The key of one activation. The colon keeps it out of a ``state_schema``, as google-adk's own state is."""
    return f"adk_skills:{agent}:{name}"


class ActiveSkills:
    """The rules of one toolset; the state itself is the session's.

    Args:
        lifecycle: How long skills stay active.
        budget_tokens: Most tokens of all active skills of an agent; None for no bound.
        tool: The name of the toolset's tool that loads skills, with its prefix.
    """

    def __init__(self, lifecycle: SkillLifecycleConfig, budget_tokens: int | None, tool: str = "load_skill") -> None:
        self.lifecycle = lifecycle
        self._budget = budget_tokens
        self._tool = tool

    def active(self, context: ReadonlyContext) -> list[str]:
        """The names of the active skills, least recently loaded first. Read-only."""
        return [found.name for found in self.records(context)]

    def records(self, context: ReadonlyContext) -> list[ActiveSkill]:
        """The activations, least recently loaded first. Read-only."""
        turn = turn_of(context)
        return [found for found in self._own(context) if not self._is_over(found, turn)]

    def activate(self, context: ToolContext, name: str, *, tokens: int = 0, digest: str = "") -> Activation:
        """Make a skill active and release what that displaces. Only in a tool call.

        Args:
            context: Of the tool call.
            name: The skill.
            tokens: Of its instructions as they are shown.
            digest: Of its instructions.
        """
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
        new = ActiveSkill(name, order, tokens, digest, its_turn, self._tool)
        kept = sorted([*others, new], key=lambda found: found.order)
        capped = self._over_cap(kept)
        kept = [found for found in kept if found.name not in capped]
        dropped = self._over_budget(kept, name)
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

    def mend_list(self, context: ToolContext) -> bool:
        """Make google-adk's list, which is all that others read, say what is active; whether it did not.

        A concurrent change may have taken a name from it, and the turn of an EPHEMERAL skill may be over. Only where
        the change is committed.
        """
        key = state_key(context.agent_name)
        listed = context.state.get(key)
        turn = turn_of(context)
        stored = [
            found.name
            for found in _stored(context.state, context.agent_name)
            if found.tool not in {"", self._tool} or not self._is_over(found, turn)
        ]
        if not isinstance(listed, list) or set(listed) == set(stored) or _schema_refuses(context, key):
            return False
        context.state[key] = stored
        return True

    def over_budget(self, tokens: Mapping[str, int]) -> tuple[str, ...]:
        """Which of the skills have no room together, oldest first; the newest always has.

        Args:
            tokens: By name, in the order of activation.
        """
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
        return [found for found in _stored(context.state, context.agent_name) if found.tool in {"", self._tool}]

    def _others(self, context: ReadonlyContext) -> list[str]:
        """What other toolsets of the agent have loaded."""
        stored = _stored(context.state, context.agent_name)
        return [found.name for found in stored if found.tool not in {"", self._tool}]

    def _over_budget(self, kept: list[ActiveSkill], newest: str) -> tuple[str, ...]:
        ordered = sorted(kept, key=lambda found: found.name == newest)
        return self.over_budget({found.name: found.tokens for found in ordered})

    def _over_cap(self, kept: list[ActiveSkill]) -> tuple[str, ...]:
        bounded = [f.name for f in kept if self.lifecycle.mode_of(f.name) is SkillLifecycleMode.BOUNDED]
        return tuple(bounded[: max(0, len(bounded) - self.lifecycle.max_active_skills)])

    @staticmethod
    def _is_over(found: ActiveSkill, turn: str) -> bool:
        return found.turn is not None and found.turn != turn


def turn_of(context: ReadonlyContext) -> str:
    """What names the turn a context is in: the invocation, and in ``run_live`` how often the user has spoken in it.

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


def _stored(state: Any, agent: str) -> list[ActiveSkill]:
    """Every activation in the state, those whose turn is over included, oldest first."""
    entries = _entries(state)
    prefix = skill_key(agent, "")
    own = {key[len(prefix) :]: value for key, value in entries.items() if key.startswith(prefix)}
    found = [_from_state(name, value) for name, value in own.items() if isinstance(value, dict) and value.get("active")]
    listed = state.get(state_key(agent))
    theirs = _their_records(state, agent)
    for position, name in enumerate(listed if isinstance(listed, (list, tuple)) else ()):
        if isinstance(name, str) and not isinstance(own.get(name), dict):
            found.append(ActiveSkill(name, order=position - len(listed), turn=theirs.get(name)))
    return sorted(found, key=lambda one: (one.order, one.name))


def _entries(state: Any) -> Mapping[str, Any]:
    """All of a state: a mapping, or google-adk's State, which is none."""
    if isinstance(state, Mapping):
        return state
    whole = state.to_dict() if hasattr(state, "to_dict") else {}
    return whole if isinstance(whole, Mapping) else {}


def _their_records(state: Any, agent: str) -> dict[str, str]:
    """Turns of the EPHEMERAL skills that google-adk's own toolset loaded earlier in this session."""
    records = state.get(f"_adk_skill_meta_{agent}")
    if not isinstance(records, dict):
        return {}
    return {
        name: str(record["activated_in"])
        for name, record in records.items()
        if isinstance(record, dict)
        and record.get("lifecycle") == SkillLifecycleMode.EPHEMERAL.value
        and record.get("activated_in")
    }


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
    """What is left of an activation: it says that the list is wrong when a concurrent change brings the name back."""
    return {"active": False}


def _write(context: ToolContext, changes: Mapping[str, dict[str, object]], names: list[str]) -> None:
    agent, state = context.agent_name, context.state
    state.update({skill_key(agent, name): record for name, record in changes.items()})
    if not _schema_refuses(context, state_key(agent)):
        state[state_key(agent)] = names


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
