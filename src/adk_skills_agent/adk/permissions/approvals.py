"""Asking the user before something happens with a skill, through google-adk's own tool confirmation (S4-21).

An approval is of one *version* of a skill, the sha256 over all its bytes. It is kept in the session's state, or on the
owner's list (``catalog/trust.py``), always with that version; when a byte changes it no longer matches, and the
user is asked anew. The question carries the version too, so that an answer about bytes that changed meanwhile does not
count.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from adk_skills_agent.adk.events.events import ApprovalDecided, ApprovalRequested, Events, origin_of
from adk_skills_agent.adk.guard import call_key
from adk_skills_agent.adk.permissions.rules import SKILL, Action, Decision, Keep, Permissions, Verdict
from adk_skills_agent.adk.skills.known import is_skill_file
from adk_skills_agent.catalog.trust import Approval, ApprovedSkills
from adk_skills_agent.errors import ConfigError, ErrorCode

if TYPE_CHECKING:
    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.tools.tool_confirmation import ToolConfirmation
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.runtime import SkillRuntime
    from adk_skills_agent.adk.skills.known import KnownSkill


logger = logging.getLogger(__name__)

_MARK = "skill_approval"
"""The key of our part of a confirmation's payload; a confirmation without it asked something else."""
_SHOWN_DIGEST = 12
_NAMED_TOOLS = 20
_ACTIONS: Mapping[Action, str] = {
    "activate": "Load the skill {skill!r}",
    "read": "Read {target!r} of the skill {skill!r}",
    "run": "Run {target!r} of the skill {skill!r}",
    "tool": "Call the tool {target!r} that the skill {skill!r} brings",
}


async def permit(
    runtime: SkillRuntime, tool_context: ToolContext, skill: KnownSkill, action: Action, target: str = ""
) -> dict[str, Any] | None:
    """Whether a call may go on: the rules, and the user where they say so.

    Args:
        runtime: The toolset's permissions and events.
        tool_context: The call.
        skill: Whose it is.
        action: What is to be done.
        target: The path of the file or script, as the skill has it; the name of the tool.

    Returns:
        None to go on, else the tool's answer.

    Raises:
        SkillsError: The skill cannot be read, so its version is not known.
    """
    return (await weigh(tool_context, skill, runtime.permissions.decide(skill, action, target), runtime)).refusal


@dataclass(frozen=True, slots=True)
class Weighed:
    """What came of a decision.

    Attributes:
        refusal: The tool's answer when the call may not go on, else None.
        version: Of the skill that was approved: nothing else may run. Empty when no approval was needed.
    """

    refusal: dict[str, Any] | None = None
    version: str = ""


async def weigh(tool_context: ToolContext, skill: KnownSkill, decision: Decision, runtime: SkillRuntime) -> Weighed:
    """Act on a decision: go on, refuse, or ask and pause the invocation until the user answered.

    Args:
        tool_context: The call; ``tool_confirmation`` has the user's answer when it is resumed.
        skill: Whose it is.
        decision: What the rules say.
        runtime: Its permissions say how long an approval may hold and where the owner's are; its events are told.

    A refusal is counted for what was to be done, whatever the arguments: a model that repeats it ends its turn.

    Raises:
        SkillsError: As :func:`permit`.
    """
    if decision.verdict is Verdict.ALLOW:
        return Weighed()
    key = call_key("denied", skill.name, decision.action, decision.target)
    if tool_context.tool_confirmation is None:
        stopped = runtime.guard.refused(tool_context, "denied", key)
        if stopped is not None:
            return Weighed(stopped)
    question = _Question(tool_context, skill, decision, runtime.permissions, runtime.events)
    refusal = question.denied() if decision.verdict is Verdict.DENY else await question.put()
    if refusal is not None and refusal["error_code"] == ErrorCode.PERMISSION_DENIED:
        refusal = runtime.guard.miss(tool_context, "denied", refusal, key, skill.name)
    return Weighed(refusal, question.version)


async def may_stay_in_force(runtime: SkillRuntime, context: ReadonlyContext, skill: KnownSkill) -> bool:
    """Whether an active skill may still tell the model what it says now.

    A skill that was approved is not, once a byte of it changed: its new instructions need a new approval.

    Raises:
        SkillsError: The skill cannot be read, so its version is not known.
    """
    decision = runtime.permissions.decide(skill, "activate")
    if decision.verdict is not Verdict.ASK:
        return decision.verdict is Verdict.ALLOW
    approvals = _Approvals(context, skill, runtime.permissions)
    await asyncio.to_thread(approvals.look_up)
    return not approvals.missing(decision) or context.state.get(approvals.loaded_key) == approvals.version


class _Approvals:
    """What is approved of one skill, for one agent in one session."""

    def __init__(self, context: ReadonlyContext, skill: KnownSkill, permissions: Permissions) -> None:
        self._state = context.state
        self._agent = context.agent_name
        self._skill = skill
        self._file = permissions.approvals
        self._by_owner: dict[str, str] = {}
        self.version = ""

    @property
    def loaded_key(self) -> str:
        """Where the state keeps the version that the user let the agent load."""
        return f"_adk_skill_approved_load:{self._agent}:{self._skill.name}"

    def key(self, subject: str) -> str:
        """Where the state keeps the version in which something is approved for the session."""
        return f"_adk_skill_approval:{self._agent}:{self._skill.name}:{subject}"

    def look_up(self) -> None:
        """Find the version and the owner's approvals. Reads files.

        Raises:
            SkillsError: The skill cannot be read.
        """
        self.version = self._skill.version()
        try:
            listed = ApprovedSkills(self._file).read()
        except ConfigError as error:
            logger.warning("%s Nothing is approved by it.", error.message)
            return
        self._by_owner = {one.subject: one.version for one in listed if one.skill == self._skill.name}

    def missing(self, decision: Decision) -> tuple[str, ...]:
        """What the user must still say yes to."""
        # What allowed-tools requests is approved with the skill, which is then among the subjects itself.
        wanted = [subject for subject in decision.subjects if subject not in decision.requested]
        return tuple(subject for subject in wanted if self.version not in self._versions(subject))

    def was_another_version(self, subjects: Collection[str]) -> bool:
        """Whether one of them is approved in other bytes."""
        return any(self._versions(subject) - {None, self.version} for subject in subjects)

    def _versions(self, subject: str) -> set[object]:
        return {self._state.get(self.key(subject)), self._by_owner.get(subject)}


class _Question:
    """One call that needs the user's word."""

    def __init__(
        self,
        tool_context: ToolContext,
        skill: KnownSkill,
        decision: Decision,
        permissions: Permissions,
        events: Events,
    ) -> None:
        self._context = tool_context
        self._skill = skill
        self._decision = decision
        self._permissions = permissions
        self._events = events
        self._approvals = _Approvals(tool_context, skill, permissions)
        self._missing: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """Of the skill that is approved or asked about; empty until :meth:`put` looked."""
        return self._approvals.version

    async def put(self) -> dict[str, Any] | None:
        """Find out what is missing, and ask for it or take the answer."""
        await asyncio.to_thread(self._approvals.look_up)
        self._missing = self._approvals.missing(self._decision)
        if self._context.tool_confirmation is not None:
            return await self._answered(self._context.tool_confirmation)
        return self._ask() if self._missing else None

    def denied(self) -> dict[str, Any]:
        """The answer when a rule forbids it."""
        self._tell_decision("denied", "rule")
        if self._decision.rule is None or self._decision.rule.kind == "skills":
            return _refusal(ErrorCode.SKILL_NOT_FOUND, f"Skill '{self._skill.name[:100]}' not found.")  # hidden (C26)
        return _refusal(
            ErrorCode.PERMISSION_DENIED,
            f"{self._what()} is not allowed here. Do not try again; go on without it and tell the user.",
        )

    def _ask(self) -> dict[str, Any]:
        """Put the question to the user and pause."""
        if self._refused_before():
            self._tell_decision("rejected", "user", reason="the user refused it earlier in this turn")
            return self._rejection()
        if not self._context.function_call_id:
            self._tell_decision("denied", "rule", reason="the call has no id, so nobody can be asked")
            return _refusal(ErrorCode.PERMISSION_DENIED, f"{self._what()} needs the user's approval.")
        if self._approvals.was_another_version(self._missing):
            self._tell_decision("revoked", "change", reason="the skill changed since it was approved")
        self._events.emit(
            ApprovalRequested(
                origin=origin_of(self._context),
                skill=self._skill.name,
                action=self._decision.action,
                target=self._decision.target,
                version=self.version,
                subjects=self._missing,
                rule=self._rule(),
                reason=self._decision.reason,
            )
        )
        self._context.request_confirmation(hint=self._hint(), payload=self._payload())
        self._context.actions.skip_summarization = True  # the pause is no result for the model to speak about
        return _refusal(
            ErrorCode.APPROVAL_REQUIRED,
            "The user is asked to approve this call. Do not repeat it; it goes on by itself once they answer.",
        )

    async def _answered(self, answer: ToolConfirmation) -> dict[str, Any] | None:
        """Act on the user's answer."""
        asked = _asked(self._context)
        if asked is not None and not answer.confirmed:  # a refusal counts, whatever was approved or changed meanwhile
            self._missing = asked.subjects
            for subject in asked.subjects:
                self._context.state[self._refusal_key(subject)] = self.version
            self._tell_decision("rejected", "user")
            return self._rejection()
        if not self._missing:
            return None
        if asked is None or asked.version != self.version or not set(self._missing) <= set(asked.subjects):
            # google-adk puts no second question for one call, so the model has to make a new one.
            self._tell_decision("revoked", "change", reason="the skill changed after the question was asked")
            return _refusal(
                ErrorCode.APPROVAL_REQUIRED,
                f"Skill '{self._skill.name[:60]}' changed since the user was asked, so the answer does not count. "
                "Call the tool again to ask anew.",
            )
        kept = await self._keep(self._how_long(answer.payload))
        if self._decision.action == "activate":
            self._context.state[self._approvals.loaded_key] = self.version
        self._tell_decision("approved", "user", kept=kept)
        return None

    def _refused_before(self) -> bool:
        return any(self._context.state.get(self._refusal_key(subject)) == self.version for subject in self._missing)

    async def _keep(self, keep: Keep) -> Keep:
        if keep is Keep.OWNER:
            lines = [Approval(self._skill.name, subject, self.version) for subject in self._missing]
            try:
                await asyncio.to_thread(ApprovedSkills(self._permissions.approvals).add, lines)
            except ConfigError as error:
                logger.warning("%s The approval holds for this session only.", error.message)
                keep = Keep.SESSION
        if keep is Keep.SESSION:
            for subject in self._missing:
                self._context.state[self._approvals.key(subject)] = self.version
        return keep

    def _how_long(self, payload: object) -> Keep:
        """What the user wishes, but never longer than the owner lets it hold."""
        order = list(Keep)
        wish = payload.get("remember") if isinstance(payload, Mapping) else None
        wished = Keep(wish) if wish in order else self._permissions.remember
        return min(wished, self._permissions.remember, key=order.index)

    def _refusal_key(self, subject: str) -> str:
        invocation = self._context.invocation_id
        return f"temp:_adk_skill_refused_{invocation}:{self._context.agent_name}:{self._skill.name}:{subject}"

    def _rule(self) -> str:
        return str(self._decision.rule) if self._decision.rule is not None else ""

    def _what(self) -> str:
        return _ACTIONS[self._decision.action].format(skill=self._skill.name[:60], target=self._decision.target[:60])

    def _rejection(self) -> dict[str, Any]:
        return _refusal(
            ErrorCode.PERMISSION_DENIED,
            "The user refused this call. Do not try it again; go on without it, or ask what to do instead.",
        )

    def _hint(self) -> str:
        sentences = [f"{self._what()}? ({self._decision.reason}; version {self.version[:_SHOWN_DIGEST]})"]
        if SKILL in self._missing:
            sentences.append("If you approve, its files may be read and its scripts may run in the sandbox.")
            if self._skill.allowed_tools:
                sentences.append(f"It also asks to use without asking: {_listed(self._skill.allowed_tools)}.")
        lasting = {
            Keep.ONCE: "It holds for this call.",
            Keep.SESSION: "It holds for this session, until a byte of the skill changes.",
            Keep.OWNER: "It holds for all sessions, until a byte of the skill changes.",
        }
        return " ".join([*sentences, lasting[self._permissions.remember]])

    def _payload(self) -> dict[str, Any]:
        payload: dict[str, Any] = {
            _MARK: {
                "skill": self._skill.name,
                "action": self._decision.action,
                "target": self._decision.target,
                "version": self.version,
                "approves": list(self._missing),
            },
            "remember": self._permissions.remember.value,
        }
        if SKILL in self._missing and self._skill.allowed_tools:
            payload[_MARK]["allowed_tools"] = list(self._skill.allowed_tools)
        return payload

    def _tell_decision(self, decision: str, by: str, *, kept: str = "", reason: str = "") -> None:
        self._events.emit(
            ApprovalDecided(
                origin=origin_of(self._context),
                skill=self._skill.name,
                decision=decision,
                by=by,
                kept=str(kept),
                action=self._decision.action,
                target=self._decision.target,
                version=self.version,
                subjects=self._missing,
                rule=self._rule(),
                reason=reason or self._decision.reason,
            )
        )


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the user was asked for this call."""

    version: str
    subjects: tuple[str, ...]


def _asked(tool_context: ToolContext) -> _Asked | None:
    """Our own question, from the session's events; what the answer says it was is not believed."""
    for event in reversed(tool_context.session.events):
        requested = event.actions.requested_tool_confirmations.get(tool_context.function_call_id or "")
        if requested is None:
            continue
        ours = requested.payload.get(_MARK) if isinstance(requested.payload, Mapping) else None
        if isinstance(ours, Mapping) and isinstance(ours.get("approves"), list):
            return _Asked(str(ours.get("version")), tuple(map(str, ours["approves"])))
    return None


def _refusal(code: ErrorCode, sentence: str) -> dict[str, Any]:
    return {"error": sentence, "error_code": code.value}


def _listed(names: Collection[str]) -> str:
    shown = list(names)[:_NAMED_TOOLS]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return ", ".join(name[:60] for name in shown) + more


# Whether a file of a skill may be read. To read its SKILL.md is to load it, whatever tool does so (S4-21).


async def permit_reading(
    runtime: SkillRuntime, tool_context: ToolContext, skill: KnownSkill, path: str
) -> dict[str, Any] | None:
    """As :func:`permit` for a file. To read the instructions is to load them, unless they are in force already."""
    decision = runtime.permissions.decide(skill, "read", path)
    if is_skill_file(path):
        load = runtime.permissions.decide(skill, "activate")
        in_force = skill.name in runtime.active.active(tool_context)
        if load.verdict is not Verdict.ALLOW and not (
            in_force and await may_stay_in_force(runtime, tool_context, skill)
        ):
            decision = _both(decision, load)
    return (await weigh(tool_context, skill, decision, runtime)).refusal


def _both(one: Decision, other: Decision) -> Decision:
    """What two decisions about one call come to: the stricter one, and all that must be approved."""
    strict = max(one, other, key=lambda decision: decision.verdict.strictness)
    subjects = tuple(dict.fromkeys((*one.subjects, *other.subjects)))
    return replace(strict, subjects=subjects, requested=one.requested | other.requested)
