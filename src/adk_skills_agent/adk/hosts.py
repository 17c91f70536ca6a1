"""Which hosts a skill's scripts may reach: the owner's rules, asking the user, and what is said of a refusal.

A grant, a rule that allows and the toolset's policy open a host. A rule that denies closes it, whatever else opens it,
and nobody is asked about it. Every other host is refused, and the answer of the script names it. Where a rule says
``ask`` the name is kept in the session: **before the next run** of a script of that skill the user is asked. The
question cannot come earlier, because which hosts a program reaches is known when it tries, and a program cannot wait in
the middle of its work for days until somebody answers. The answer is of this version of the skill and holds as long as
other approvals do. Who says no is not asked again in that session.

Only names that the proxy was asked for become a question. What a script prints about hosts is a hint for the model and
the owner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from adk_skills_agent.adk.events.events import HostRefused, Origin
from adk_skills_agent.adk.guard import texts_in
from adk_skills_agent.adk.permissions import HOST, Approvals, Decision, Weighed, weigh
from adk_skills_agent.adk.rules import Verdict
from adk_skills_agent.errors import ConfigError, ErrorCode
from adk_skills_agent.sandbox import in_worker, parse_host
from adk_skills_agent.scripts.grants import NO_HOST_RULES, HostRules, within

if TYPE_CHECKING:
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.permissions import Permissions
    from adk_skills_agent.adk.runtime import SkillRuntime
    from adk_skills_agent.adk.skills.known import KnownSkill
    from adk_skills_agent.scripts.outcome import RefusedHost

_MOST_ASKED = 5
"""Hosts in one question: nobody reads more."""
_MOST_KEPT = 20
_MOST_REJECTED = 500


def host_rules(permissions: Permissions, skill: str) -> HostRules:
    """The owner's rules for the hosts of one skill."""
    if not permissions.hosts:
        return NO_HOST_RULES
    mine: dict[Verdict, list[str]] = {verdict: [] for verdict in Verdict}
    for rule in permissions.hosts:
        if rule.is_for(skill):
            mine[rule.verdict].append(rule.target)
    return HostRules(tuple(mine[Verdict.ALLOW]), tuple(mine[Verdict.DENY]), tuple(mine[Verdict.ASK]))


def rules_without_skill(permissions: Permissions, active: Sequence[str]) -> HostRules:
    """The rules for a command that belongs to no skill, or to several: what is denied to one of them stays denied.

    What a rule asks about is closed, too: a question is about a skill.
    """
    rules = [host_rules(permissions, skill) for skill in ("", *active)]
    closed = dict.fromkeys(host for one in rules for host in (*one.denied, *one.asked))
    return HostRules(denied=tuple(closed)) if closed else NO_HOST_RULES


@dataclass(frozen=True, slots=True)
class HostsOfCall:
    """The hosts of one call."""

    rules: HostRules = NO_HOST_RULES  # what rules and earlier answers say
    pending: tuple[str, ...] = ()  # hosts that an earlier run tried and the user has not been asked about

    def decision(self, script: str) -> Decision:
        """The question about the pending ones."""
        hosts = ", ".join(self.pending)
        reason = f"an earlier run tried to connect to {hosts}, which nobody granted to the skill"
        subjects = tuple(f"{HOST}{host}" for host in self.pending)
        return Decision(Verdict.ASK, "run", script, reason, subjects=subjects)

    def approved(self) -> HostRules:
        """The rules once the user has said yes to what is pending."""
        return replace(self.rules, allowed=(*self.rules.allowed, *self.pending)) if self.pending else self.rules

    async def weigh(
        self, tool_context: ToolContext, skill: KnownSkill, decision: Decision, runtime: SkillRuntime
    ) -> Weighed:
        """Act on a decision that asks about the pending ones; a no is kept for the rest of the session."""
        weighed = await weigh(tool_context, skill, decision, runtime)
        if (weighed.refusal or {}).get("error_code") == ErrorCode.PERMISSION_DENIED:
            key = _key("rejected", tool_context, skill.name)
            tool_context.state[key] = list(dict.fromkeys((*_rejected(tool_context, skill.name), *self.pending)))
        return weighed


async def hosts_of_call(runtime: SkillRuntime, tool_context: ToolContext, skill: KnownSkill) -> HostsOfCall:
    """The hosts that a call may reach, and those that the user has to approve first.

    Raises ``SkillsError`` when the skill is gone.
    """
    rules = host_rules(runtime.permissions, skill.name)
    if not rules.asked:
        return HostsOfCall(rules)
    # No more than is kept, whatever a client wrote there: each name is compared with all rules (row 317).
    kept = _wanted(tool_context, skill.name)
    wanted = [host for host in kept if _is_asked_about(rules, host)]
    approvals = Approvals(tool_context, skill, runtime.permissions)
    await in_worker(approvals.look_up)
    subjects = approvals.of_kind(HOST, [f"{HOST}{host}" for host in wanted])
    approved = [subject.removeprefix(HOST) for subject in subjects]
    rejected = set(_rejected(tool_context, skill.name))
    pending = [host for host in wanted if host not in approved and host not in rejected]
    return HostsOfCall(replace(rules, allowed=(*rules.allowed, *approved)), tuple(pending[:_MOST_ASKED]))


def _is_asked_about(rules: HostRules, host: str) -> bool:
    """Whether a name in the state may be one of those: a client may write any text there, and its own yes (row 324)."""
    try:
        name, port, _ = parse_host(host)
    except ConfigError:
        return False
    return host == (name if port is None else f"{name}:{port}") and verdict_of(rules, host) is Verdict.ASK


def verdict_of(rules: HostRules, host: str) -> Verdict | None:
    """The verdict of the rules on a refused host; None if no rule matches."""
    if any(within(host, pattern) for pattern in rules.denied):
        return Verdict.DENY
    return Verdict.ASK if any(within(host, pattern) for pattern in rules.asked) else None


def tell_refused(
    runtime: SkillRuntime,
    tool_context: ToolContext,
    skill: str,
    script: str,
    run: str,
    origin: Origin,
    refused: Sequence[RefusedHost],
    answer: dict[str, Any],
) -> None:
    """Tell the model and the owner which hosts a run was refused, and keep those the user is to be asked about.

    ``answer`` gets ``refused_hosts`` and sentences in ``notes``; the call's state keeps the names.
    """
    rules = host_rules(runtime.permissions, skill)
    if not skill:
        rules = replace(rules, asked=())
    rejected = set(_rejected(tool_context, skill))
    groups: dict[str, list[str]] = {}
    for one in refused:
        verdict = verdict_of(rules, one.host)
        word = "not_granted"
        if verdict is Verdict.DENY:
            word = "denied"
        elif verdict is Verdict.ASK and one.certain:
            word = "rejected" if one.host in rejected else "ask"
        groups.setdefault(word, []).append(one.host)
        seen = "proxy" if one.certain else "output"
        runtime.events.emit(
            HostRefused(origin=origin, skill=skill, script=script, run=run, host=one.host, verdict=word, seen=seen)
        )
    if "ask" in groups:
        kept = dict.fromkeys((*_wanted(tool_context, skill), *groups["ask"]))
        tool_context.state[_key("wanted", tool_context, skill)] = list(kept)[-_MOST_KEPT:]
    answer["refused_hosts"] = [one.host for one in refused]
    notes = answer.get("notes")
    texts = _SENTENCES if skill else dict.fromkeys(_SENTENCES, _NO_SKILL)
    sentences = [texts[word].format(hosts=", ".join(hosts), skill=skill) for word, hosts in groups.items()]
    answer["notes"] = [*(notes if isinstance(notes, list) else []), *sentences]


_SENTENCES = {
    "not_granted": "The owner has not granted the hosts {hosts} to the skill '{skill}'. Do not retry; do it without "
    "them, or tell the user which hosts the owner would have to grant.",
    "ask": "The skill '{skill}' may not connect to {hosts} yet. Run it again: the user is asked first.",
    "rejected": "The user does not want the skill '{skill}' to connect to {hosts}. Do not retry; do it without them.",
    "denied": "The skill '{skill}' must never connect to {hosts} here. Do not retry; do it without them.",
}


_NO_SKILL = (
    "A command that belongs to no skill may not connect to {hosts}. Name the active skill that needs it as 'skill', or "
    "do it without."
)


def _key(what: str, tool_context: ToolContext, skill: str) -> str:
    return f"_adk_skill_hosts_{what}:{tool_context.agent_name}:{skill}"


def _wanted(tool_context: ToolContext, skill: str) -> list[str]:
    """Hosts that earlier runs tried, of which a rule says ``ask``."""
    return texts_in(tool_context.state, _key("wanted", tool_context, skill), _MOST_KEPT)


def _rejected(tool_context: ToolContext, skill: str) -> list[str]:
    """Hosts that the user does not want."""
    return texts_in(tool_context.state, _key("rejected", tool_context, skill), _MOST_REJECTED)
