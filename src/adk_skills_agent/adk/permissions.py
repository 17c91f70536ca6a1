"""The owner's rules for skills, and the questions to the user that they demand (S4-21, C25, C26).

A rule gives ``allow``, ``ask`` or ``deny`` to a skill, a script or a tool; names may have wildcards. They are weighed
like this:

1. A skill that is denied does not exist for the agent, and no narrower rule brings a part of it back.
2. Among the rules of one kind that match, the most specific wins: one without wildcards beats one with, then the one
   with more fixed characters; between equals ``deny`` beats ``ask``, and ``ask`` beats ``allow``. Names are compared
   without regard to letter case and Unicode normal form; a tool has the toolset's prefix or not, as the rule likes.
3. For a script, a rule under ``scripts`` beats one under ``tools``. A rule for a script or tool comes on top of the
   skill's own: both must let it pass. Only an ``allow`` that names its skill without wildcards stands alone.
4. Where no rule speaks: a skill of the project asks the first time (``project_skills``), any other follows ``default``.
   What a skill brings along follows the skill: once the skill may be used, its files may be read and its scripts may
   run in the sandbox. A tool that a skill brings is asked for by itself when the skill was, except when the skill's
   ``allowed-tools`` names it: that request counts once this very version of the skill was approved.

To read a skill's SKILL.md is to load it. A tool that is denied for one active skill is denied, whoever else brings it.
``allowed-tools`` never beats a rule, and nothing here changes a limit of the sandbox but its network: rules for
``hosts`` are in :mod:`.hosts`, rules for ``commands`` of a shell in :mod:`.shell.command_rules`; how a rule is written
is in :mod:`.rules`.

The user is asked through google-adk's own tool confirmation. An approval is of one *version* of a skill, the sha256
over all its bytes. It is kept in the session's state, or on the owner's list (``catalog/trust.py``), always with that
version; when a byte changes it no longer matches, and the user is asked anew. The question carries the version too, so
that an answer about bytes that changed meanwhile does not count.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from adk_skills_agent.adk.events.events import ApprovalDecided, ApprovalRequested, origin_of
from adk_skills_agent.adk.guard import call_key, text_in
from adk_skills_agent.adk.rules import (
    WILDCARD,
    Keep,
    Rule,
    Verdict,
    check_host_rule,
    folded,
    one_of,
    require_grammar,
    rules_of,
)
from adk_skills_agent.adk.skills.known import is_skill_file
from adk_skills_agent.catalog.scopes import Scope
from adk_skills_agent.catalog.skill import name_in_rules
from adk_skills_agent.catalog.trust import Approval, ApprovedSkills
from adk_skills_agent.errors import ConfigError, ErrorCode, did_you_mean, nearest, some_of
from adk_skills_agent.sandbox import in_worker
from adk_skills_agent.scripts.grants import written_grants
from adk_skills_agent.settings import SettingsKind, read_settings

if TYPE_CHECKING:
    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.tools.tool_confirmation import ToolConfirmation
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.runtime import SkillRuntime
    from adk_skills_agent.adk.skills.known import KnownSkill
    from adk_skills_agent.scripts.grants import GrantsByName, NearestFiles

Action = Literal["activate", "read", "run", "tool", "execute"]
"""Loading instructions, reading a file, running a script, calling a tool that a skill brings, a command line."""

OWN_TOOLS: Mapping[Action, tuple[str, ...]] = {
    "activate": ("load_skill", "use_skill"),
    "read": ("load_skill_resource", "read_reference"),
    "run": ("run_skill_script", "execute_skill_script", "run_script"),
}
"""The toolset's tools, by what they do; a rule names them in full and without a prefix."""
SKILL = "skill"
"""The subject of an approval that covers a version of a skill as a whole."""
HOST = "host:"
"""Before the name of a host, the subject of an approval that lets a skill's scripts connect to it."""
_PROJECT_SCOPES = frozenset({Scope.PROJECT, Scope.ANCESTOR})


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict of the rules on one call."""

    verdict: Verdict
    action: Action
    target: str = ""
    reason: str = ""
    rule: Rule | None = None  # the rule that decided, or None for a default
    # what must be approved when ``verdict`` is ``ask``: ``skill``, ``script:<path>``, ``tool:<name>``
    subjects: tuple[str, ...] = ()
    # of these, those that the skill's ``allowed-tools`` asks for: approving ``skill`` covers them
    requested: frozenset[str] = frozenset()


class Permissions:
    """The owner's rules.

    Args:
        default: For skills that no rule names.
        project_skills: For skills that came with a project, where no rule names them.
        skills: Patterns of skill names to verdicts: ``{"db-*": "ask"}``.
        scripts: Patterns of ``skill/path``: ``{"reporter/scripts/publish.py": "ask", "*.sh": "deny"}``; a pattern
            without ``/`` is for a file name in any skill, and the folder ``scripts/`` may be left out.
        tools: Patterns of tools that skills bring, of one skill when written ``skill/tool``; and the toolset's own
            tools (``load_skill``, ``load_skill_resource``, ``run_skill_script``), which only their full name means.
        hosts: Hosts of the network: ``api.example.org``, ``*.example.org`` or ``*``, of one skill when written
            ``skill/host``. ``allow`` grants it, ``ask`` asks when a script tried it, ``deny`` wins over every grant.
        commands: Patterns of simple commands of a shell: ``{"git push *": "ask", "rm -rf *": "deny"}``.
        grants: What is granted to a skill or script, as the toolset's ``grants`` has it; in a file a mapping of
            ``hosts``, ``env`` and ``programs``.
        remember: How long the approval of the user in the conversation holds at most. ``owner`` writes it into the
            owner's list for all sessions: only for an agent whose user is its owner.
        approvals: The file with the owner's approvals; None for the one in the user's settings.

    Raises:
        ConfigError: A verdict or pattern cannot be used.
    """

    def __init__(
        self,
        *,
        default: Verdict | str = Verdict.ALLOW,
        project_skills: Verdict | str = Verdict.ASK,
        skills: Mapping[str, Verdict | str] | None = None,
        scripts: Mapping[str, Verdict | str] | None = None,
        tools: Mapping[str, Verdict | str] | None = None,
        hosts: Mapping[str, Verdict | str] | None = None,
        commands: Mapping[str, Verdict | str] | None = None,
        grants: GrantsByName | Mapping[str, object] | None = None,
        remember: Keep | str = Keep.SESSION,
        approvals: Path | None = None,
    ) -> None:
        self.default = one_of(Verdict, default, "default")
        self.project_skills = one_of(Verdict, project_skills, "project_skills")
        self.remember = one_of(Keep, remember, "remember")
        self.approvals = approvals
        self.rules = (*rules_of("skills", skills), *rules_of("scripts", scripts), *rules_of("tools", tools))
        self.hosts = tuple(rules_of("hosts", hosts))
        for rule in self.hosts:
            check_host_rule(rule)
        self.commands = tuple(rules_of("commands", commands))
        if self.commands:
            require_grammar()
        self.grants = written_grants(grants)
        self._prefix = ""
        self._trusting = False

    def __repr__(self) -> str:
        rules = ", ".join(map(str, (*self.rules, *self.hosts, *self.commands)))
        return f"Permissions(default={self.default.value}, project_skills={self.project_skills.value}, rules=[{rules}])"

    @classmethod
    def from_file(cls, path: str | Path) -> Permissions:
        """The rules of a YAML file, or of the table ``[tool.adk-skills.permissions]`` of a TOML file.

        Raises:
            ConfigError: The file cannot be read, or has a key or value that is not possible; with file and line.
        """
        settings = read_settings(Path(path), _PERMISSIONS)
        settings.check_keys((*_WORDS, *_TABLES))
        for key, value in settings.values.items():
            if key in _TABLES and not isinstance(value, Mapping):
                what = "grants" if key == "grants" else "verdicts"
                raise ConfigError(f"{settings.place(key)}: {key!r} maps names to {what}.")
            names = [(key, name) for name in value] if key in _TABLES else [(key,)]
            for place in names:  # one at a time, so that the sentence has the line
                given: dict[str, Any] = {key: {place[1]: value[place[1]]} if len(place) > 1 else value}
                try:
                    cls(**given)
                except ConfigError as error:
                    deepest, reason = cls._refused_part(place, value[place[1]] if len(place) > 1 else None, error)
                    raise ConfigError(f"{settings.place(*deepest)}: {reason.message}") from None
        return cls(**settings.values)

    @classmethod
    def _refused_part(
        cls, place: tuple[str, ...], value: object, error: ConfigError
    ) -> tuple[tuple[str, ...], ConfigError]:
        """The keys of the narrowest part that is refused by itself, and why."""
        for key, part in value.items() if isinstance(value, Mapping) else ():
            given: Any = part
            for outer in reversed((*place, key)):
                given = {outer: given}
            try:
                cls(**given)
            except ConfigError as narrower:
                return cls._refused_part((*place, str(key)), part, narrower)
        return place, error

    def with_prefix(self, prefix: str, *, trusting: bool = False) -> Permissions:
        """The same rules where the model sees tools with a prefix: a rule may name them with it or without.

        Args:
            prefix: With its underscore, or empty.
            trusting: Whether a tool that the skill's ``allowed-tools`` names is not asked about by itself.
        """
        prefixed = copy.copy(self)
        prefixed._trusting = trusting
        prefixed._prefix = prefix
        return prefixed

    def hides(self, name: str, scope: Scope = Scope.EXPLICIT) -> bool:
        """Whether the agent must not know that this skill exists."""
        return self._of_skill(name, scope)[0] is Verdict.DENY

    def names(self, skill: str) -> bool:
        """Whether a rule allows something to a skill of this very name."""
        rules = (rule for rule in (*self.rules, *self.hosts) if rule.verdict is Verdict.ALLOW and rule.names_its_skill)
        return any(rule.is_for(skill) for rule in rules)

    def keeps_apart(self, outer: tuple[str, Scope], inner: tuple[str, Scope]) -> bool:
        """Whether a skill in another one's folder has rules that would not hold if it were a part of that one."""
        of_outer, rule_of_outer, _ = self._of_skill(*outer)
        of_inner, rule_of_inner, _ = self._of_skill(*inner)
        if of_inner is not Verdict.ALLOW and (of_inner, rule_of_inner) != (of_outer, rule_of_outer):
            return True
        strict = filter(_is_strict_below, self.rules)
        return any(rule.is_for(inner[0]) and not rule.is_for(outer[0]) for rule in strict)

    def decide(self, skill: KnownSkill, action: Action, target: str = "") -> Decision:
        """The verdict of the rules on one call; asks nothing, and reads only which files exist.

        Args:
            skill: Whose it is.
            action: What is to be done.
            target: The path of the file or script, as the skill has it; the name of the tool.
        """
        verdict, rule, reason = self._of_skill(skill.name, skill.scope)
        if verdict is Verdict.DENY:
            return Decision(Verdict.DENY, action, target, reason, rule)
        own = self._of_target(skill, action, target)
        if own is not None and own.verdict is Verdict.DENY:
            return Decision(Verdict.DENY, action, target, f"the rule '{own}' says so", own)
        if own is not None and own.verdict is Verdict.ALLOW and own.names_its_skill:
            return Decision(Verdict.ALLOW, action, target, f"the rule '{own}' says so", own)
        subjects = [SKILL] if verdict is Verdict.ASK else []
        requested: set[str] = set()
        subject = subject_of(action, target)
        if own is not None and self._trusting and action == "tool" and target in skill.allowed_tools:
            own = None if own.verdict is Verdict.ASK else own
            requested.add(subject)
        if own is not None and own.verdict is Verdict.ASK:
            subjects.append(subject)
            rule, reason = own, f"the rule '{own}' says so"
        elif own is None and action == "tool" and verdict is Verdict.ASK:
            subjects.append(subject)
            if target in skill.allowed_tools:
                requested.add(subject)
        if subjects:
            return Decision(Verdict.ASK, action, target, reason, rule, tuple(subjects), frozenset(requested))
        return Decision(Verdict.ALLOW, action, target, reason, own or rule)

    def kept_for(self, answered: object) -> Keep:
        """How long an approval holds: as the user chose in the payload of the answer, at most as the owner allows."""
        wish = answered.get("remember") if isinstance(answered, Mapping) else None
        order = list(Keep)
        return min(Keep(wish) if wish in order else self.remember, self.remember, key=order.index)

    def _of_skill(self, name: str, scope: Scope) -> tuple[Verdict, Rule | None, str]:
        rule = self._best("skills", name)
        if rule is not None:
            return rule.verdict, rule, f"the rule '{rule}' says so"
        if scope in _PROJECT_SCOPES and self.project_skills.strictness > self.default.strictness:
            return self.project_skills, None, "it came with the project"
        return self.default, None, "no rule is about it"

    def _of_target(self, skill: KnownSkill, action: Action, target: str) -> Rule | None:
        if not self.rules:
            return None
        if action == "tool":
            name = name_in_rules(skill.name)
            return self._best("tools", f"{name}/{target}", f"{name}/{self._prefix}{target}")
        if action == "run":
            script = self._script_rule(skill, target)
            if script is not None:
                return script
        names = OWN_TOOLS.get(action, ())
        own = {*names, *(folded(self._prefix + name) for name in names)}
        named = [rule for rule in self.rules if rule.kind == "tools" and folded(rule.pattern) in own]
        return max(named, key=lambda rule: rule.rank, default=None)

    def _script_rule(self, skill: KnownSkill, path: str) -> Rule | None:
        """The rule for a script; ``scripts/`` may be left out, but allows only where no other file is called so."""
        name, short = name_in_rules(skill.name), path.removeprefix("scripts/")
        full = f"{name}/{path}"
        found = self._best("scripts", full, f"{name}/{short}")
        if short == path or found is None or found.verdict is not Verdict.ALLOW:
            return found
        exact = self._best("scripts", full)
        return exact if found != exact and skill.has_file(short) else found

    def unknown(self, skills: Iterable[str], like: NearestFiles = lambda _skill, _path: None) -> list[str]:
        """One sentence for each rule that spells out what is not there."""
        names = list(skills)
        known = {folded(text): name for name in names for text in (name, name_in_rules(name))}
        sentences = []
        for rule in (*self.rules, *self.hosts):
            if not rule.names_its_skill:
                continue
            skill = known.get(folded(rule.skill))
            close: Sequence[str] | None
            if skill is None:
                kind, close = "for a skill this agent does not have", nearest(rule.skill, names)
            elif rule.kind == "scripts" and not WILDCARD.search(rule.target):
                kind, close = "for a script the skill does not have", like(skill, rule.target)
            else:
                continue
            if close is not None:
                hint = f" Nearest: {', '.join(close)}." if close else ""
                sentences.append(f"The rule '{rule}' is {kind}.{hint}")
        return sentences

    def _best(self, kind: str, *names: str) -> Rule | None:
        matching = [rule for rule in self.rules if rule.kind == kind and rule.covers(*names)]
        return max(matching, key=lambda rule: rule.rank, default=None)


def _is_strict_below(rule: Rule) -> bool:
    """Whether a rule denies or asks about scripts or tools of the skills it names."""
    return rule.kind != "skills" and bool(rule.skill) and rule.verdict is not Verdict.ALLOW


def subject_of(action: Action, target: str) -> str:
    """What an approval of one call covers."""
    if action == "run":
        return f"script:{target}"
    return f"tool:{target}" if action == "tool" else action


def permissions_of(value: Permissions | Mapping[str, object] | str | Path | None) -> Permissions:
    """The permissions an owner gave in one of the forms a toolset takes: an object, its arguments, or a file.

    Raises ``ConfigError`` when it has another type, or cannot be used.
    """
    if value is None:
        return Permissions()
    if isinstance(value, Permissions):
        return value
    if isinstance(value, Mapping):
        known = (*_WORDS, *_TABLES, "approvals")
        for key in value:
            if key not in known:
                hint = did_you_mean(key, known, f"There are {', '.join(known)}.")
                raise ConfigError(f"permissions: there is no key {key!r}. {hint}")
        try:
            return Permissions(**value)  # type: ignore[arg-type]  # checked there
        except ConfigError as error:
            raise ConfigError(f"permissions: {error.message}") from None
    if not isinstance(value, str | Path):
        raise ConfigError(
            f"permissions must be Permissions(...), a mapping of its arguments, or a file, not {type(value).__name__}."
        )
    return Permissions.from_file(value)


# Like a policy, permissions belong to whoever owns the agent: a file is read only where its path is given.
_PERMISSIONS = SettingsKind("tool.adk-skills.permissions", "permissions file", "permissions", "are")
_WORDS = ("default", "project_skills", "remember")
_TABLES = ("skills", "scripts", "tools", "hosts", "commands", "grants")

logger = logging.getLogger(__name__)

_MARK = "skill_approval"
"""The key of our part of a confirmation's payload; a confirmation without it asked something else."""
_CONFIRMATION = "adk_request_confirmation"
"""The call that puts google-adk's question. Its name for it is in a private module."""
_SHOWN_DIGEST = 12
_REFUSED = "The user refused this call. Do not try it again; go on without it, or ask what to do instead."
_NAMED_TOOLS = 20
_MOST_SHOWN = 60  # characters of a name in a question
_ACTIONS: Mapping[Action, str] = {
    "activate": "Load the skill {skill!r}",
    "read": "Read {target!r} of the skill {skill!r}",
    "run": "Run {target!r} of the skill {skill!r}",
    "tool": "Call the tool {target!r} that the skill {skill!r} brings",
    "execute": "Run the command {target!r}",
}


async def permit(
    runtime: SkillRuntime, tool_context: ToolContext, skill: KnownSkill, action: Action, target: str = ""
) -> dict[str, Any] | None:
    """Whether a call may go on: the rules, and the user where they say so.

    Returns None to go on, else the tool's answer. Raises ``SkillsError`` when the skill is gone.
    """
    return (await weigh(tool_context, skill, runtime.permissions.decide(skill, action, target), runtime)).refusal


@dataclass(frozen=True, slots=True)
class Weighed:
    """The outcome of a decision."""

    refusal: dict[str, Any] | None = None
    version: str = ""  # Of the skill that was approved: nothing else may run. Empty when no approval was needed.


async def weigh(tool_context: ToolContext, skill: KnownSkill, decision: Decision, runtime: SkillRuntime) -> Weighed:
    """Act on a decision: go on, refuse, or ask and pause the invocation until the user answered.

    A refusal is counted for what was to be done, whatever the arguments: a model that repeats it ends its turn. Raises
    ``SkillsError`` as :func:`permit` does.
    """
    if decision.verdict is Verdict.ALLOW:
        return Weighed()
    key = call_key("denied", skill.name, decision.action, decision.target)
    if tool_context.tool_confirmation is None:
        stopped = runtime.guard.refused(tool_context, "denied", key)
        if stopped is not None:
            return Weighed(stopped)
    question = _Question(runtime, tool_context, skill, decision)
    answer = question.denied() if decision.verdict is Verdict.DENY else await question.put()
    if answer is not None and answer["error_code"] == ErrorCode.PERMISSION_DENIED:
        answer = runtime.guard.miss(tool_context, "denied", answer, key, skill.name)
    return Weighed(answer, question.version)


async def may_stay_in_force(runtime: SkillRuntime, context: ReadonlyContext, skill: KnownSkill) -> bool:
    """Whether an active skill may still tell the model what it says now.

    A skill that was approved is not, once a byte of it changed: its new instructions need a new approval. Raises
    ``SkillsError`` when the skill cannot be read, so its version is not known.
    """
    decision = runtime.permissions.decide(skill, "activate")
    if decision.verdict is not Verdict.ASK:
        return decision.verdict is Verdict.ALLOW
    approvals = Approvals(context, skill, runtime.permissions)
    await in_worker(approvals.look_up)
    return not approvals.missing(decision) or text_in(context.state, approvals.loaded_key) == approvals.version


class Approvals:
    """The approvals of one skill, for one agent in one session."""

    def __init__(self, context: ReadonlyContext, skill: KnownSkill, permissions: Permissions) -> None:
        self._state = context.state
        self._agent = context.agent_name
        self._skill = skill
        self._file = permissions.approvals
        self._by_owner: dict[str, str] = {}
        self.version = ""

    @property
    def loaded_key(self) -> str:
        """The key in the state for the version that the user let the agent load."""
        return f"_adk_skill_approved_load:{self._agent}:{self._skill.name}"

    def key(self, subject: str) -> str:
        """The key in the state for the version in which something is approved for the session."""
        return f"_adk_skill_approval:{self._agent}:{self._skill.name}:{subject}"

    def look_up(self) -> None:
        """Find the version and the owner's approvals. Reads files. Raises ``SkillsError`` when the skill is gone."""
        self.version = self._skill.version()
        try:
            listed = ApprovedSkills(self._file).read()
        except ConfigError as error:
            logger.warning("%s Nothing is approved by it.", error.message)
            return
        self._by_owner = {one.subject: one.version for one in listed if one.skill == self._skill.name}

    def missing(self, decision: Decision) -> tuple[str, ...]:
        """The subjects that still need the user's yes."""
        # What allowed-tools requests is approved with the skill, which is then among the subjects itself.
        wanted = [subject for subject in decision.subjects if subject not in decision.requested]
        return tuple(subject for subject in wanted if self.version not in self._versions(subject))

    def of_kind(self, prefix: str, known: Iterable[str] = ()) -> list[str]:
        """The approved subjects of this very version that begin alike."""
        subjects = dict.fromkeys((*known, *(subject for subject in self._by_owner if subject.startswith(prefix))))
        return [subject for subject in subjects if self.version in self._versions(subject)]

    def was_another_version(self, subjects: Collection[str]) -> bool:
        """Whether one of them is approved in other bytes."""
        return any(self._versions(subject) - {None, self.version} for subject in subjects)

    def _versions(self, subject: str) -> set[str | None]:
        return {text_in(self._state, self.key(subject)), self._by_owner.get(subject)}


class _Question:
    """One call that needs the user's word."""

    def __init__(self, runtime: SkillRuntime, tool_context: ToolContext, skill: KnownSkill, decision: Decision) -> None:
        self._context = tool_context
        self._skill = skill
        self._decision = decision
        self._permissions = runtime.permissions
        self._events = runtime.events
        self._approvals = Approvals(tool_context, skill, runtime.permissions)
        self._missing: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """Of the skill that is approved or asked about; empty until :meth:`put` looked."""
        return self._approvals.version

    async def put(self) -> dict[str, Any] | None:
        """Find out what is missing, and ask for it or take the answer."""
        await in_worker(self._approvals.look_up)
        self._missing = self._approvals.missing(self._decision)
        if self._context.tool_confirmation is not None:
            return await self._answered(self._context.tool_confirmation)
        return self._ask() if self._missing else None

    def denied(self) -> dict[str, Any]:
        """The answer when a rule forbids it."""
        self._tell_decision("denied", "rule")
        if self._decision.rule is None or self._decision.rule.kind == "skills":
            return refusal(ErrorCode.SKILL_NOT_FOUND, f"Skill '{self._skill.name[:100]}' not found.")  # hidden (C26)
        return refusal(
            ErrorCode.PERMISSION_DENIED,
            f"{self._what()} is not allowed here. Do not try again; go on without it and tell the user.",
        )

    def _ask(self) -> dict[str, Any]:
        """Put the question to the user and pause."""
        if any(text_in(self._context.state, self._refusal_key(subject)) == self.version for subject in self._missing):
            self._tell_decision("rejected", "user", reason="the user refused it earlier in this turn")
            return refusal(ErrorCode.PERMISSION_DENIED, _REFUSED)
        if not self._context.function_call_id:
            self._tell_decision("denied", "rule", reason="the call has no id, so nobody can be asked")
            return refusal(ErrorCode.PERMISSION_DENIED, f"{self._what()} needs the user's approval.")
        if self._approvals.was_another_version(self._missing):
            self._tell_decision("revoked", "change", reason="the skill changed since it was approved")
        self._events.emit(self._about())
        return ask_user(
            self._context,
            self._hint(),
            self._payload(),
            "The user is asked to approve this call. Do not repeat it; it continues by itself once they answer.",
        )

    async def _answered(self, answer: ToolConfirmation) -> dict[str, Any] | None:
        """Act on the user's answer."""
        asked = _asked(self._context)
        if asked is not None and not answer.confirmed:  # a refusal counts, whatever was approved or changed meanwhile
            _, self._missing = asked
            for subject in self._missing:
                self._context.state[self._refusal_key(subject)] = self.version
            self._tell_decision("rejected", "user")
            return refusal(ErrorCode.PERMISSION_DENIED, _REFUSED)
        if not self._missing:
            return None
        if asked is None or asked[0] != self.version or not set(self._missing) <= set(asked[1]):
            # google-adk puts no second question for one call, so the model has to make a new one.
            if asked is None:
                self._tell_decision("revoked", "change", reason="another question than this call's was answered")
                why = "The user answered another question than that of this call"
            else:
                self._tell_decision("revoked", "change", reason="the skill changed after the question was asked")
                why = f"Skill '{self._skill.name[:64]}' changed since the user was asked"
            return refusal(
                ErrorCode.APPROVAL_REQUIRED, f"{why}, so the answer does not count. Call the tool again to ask anew."
            )
        kept = await self._keep(self._permissions.kept_for(answer.payload))
        if self._decision.action == "activate":
            self._context.state[self._approvals.loaded_key] = self.version
        self._tell_decision("approved", "user", kept=kept)
        return None

    async def _keep(self, keep: Keep) -> Keep:
        if keep is Keep.OWNER:
            lines = [Approval(self._skill.name, subject, self.version) for subject in self._missing]
            try:
                await in_worker(ApprovedSkills(self._permissions.approvals).add, lines)
            except ConfigError as error:
                logger.warning("%s The approval holds for this session only.", error.message)
                keep = Keep.SESSION
        if keep is Keep.SESSION:
            for subject in self._missing:
                self._context.state[self._approvals.key(subject)] = self.version
        return keep

    def _refusal_key(self, subject: str) -> str:
        invocation = self._context.invocation_id
        return f"temp:_adk_skill_refused_{invocation}:{self._context.agent_name}:{self._skill.name}:{subject}"

    def _what(self) -> str:
        return _ACTIONS[self._decision.action].format(
            skill=_shortened(self._skill.name), target=_shortened(self._decision.target)
        )

    def _hint(self) -> str:
        sentences = [f"{self._what()}? ({self._decision.reason}; version {self.version[:_SHOWN_DIGEST]})"]
        if SKILL in self._missing:
            sentences.append("If you approve, its files may be read and its scripts may run in the sandbox.")
            if self._skill.allowed_tools:
                sentences.append(f"It also asks to use without asking: {_tools(self._skill)}.")
            if self._skill.injects_state:
                sentences.append(
                    "Values of this session, and your files, are put into its instructions where it names them."
                )
        hosts = [subject.removeprefix(HOST) for subject in self._missing if subject.startswith(HOST)]
        if hosts:
            whole = ", ".join(f"'{host}'" for host in hosts)  # the end of a name says whose it is (row 429)
            sentences.append(f"If you approve, this skill's scripts may connect to {whole}.")
        lasting = {
            Keep.ONCE: "Your yes holds for this call.",
            Keep.SESSION: "Your yes holds for this session, until a byte of the skill changes.",
            Keep.OWNER: "Your yes holds for all sessions, until a byte of the skill changes.",
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
        self._events.emit(decided(self._about(), decision, by, kept=str(kept), reason=reason))

    def _about(self) -> ApprovalRequested:
        return ApprovalRequested(
            origin=origin_of(self._context),
            skill=self._skill.name,
            action=self._decision.action,
            target=self._decision.target,
            version=self.version,
            subjects=self._missing,
            rule=str(self._decision.rule or ""),
            reason=self._decision.reason,
        )


def decided(about: ApprovalRequested, decision: str, by: str, *, kept: str = "", reason: str = "") -> ApprovalDecided:
    """The event of what came of a question, or of what needed none."""
    fields = {name: getattr(about, name) for name in ("origin", "skill", "action", "target", "version", "subjects")}
    return ApprovalDecided(
        **fields, decision=decision, by=by, kept=kept, rule=about.rule, reason=reason or about.reason
    )


def ask_user(tool_context: ToolContext, hint: str, payload: dict[str, Any], sentence: str) -> dict[str, Any]:
    """Put a question with google-adk's tool confirmation, which pauses; the tool's answer says the sentence."""
    tool_context.request_confirmation(hint=hint, payload=payload)
    tool_context.actions.skip_summarization = True  # the pause is no result for the model to speak about
    return refusal(ErrorCode.APPROVAL_REQUIRED, sentence)


def _asked(tool_context: ToolContext) -> tuple[str, tuple[str, ...]] | None:
    """The version and the subjects of the question that the user got for this call."""
    ours = own_question(tool_context, _MARK)
    if ours is None or not isinstance(ours.get("approves"), list):
        return None
    return str(ours.get("version")), tuple(map(str, ours["approves"]))


def own_question(tool_context: ToolContext, mark: str) -> Mapping[str, Any] | None:
    """The question of this very call, from the session's events; None if it asked nothing, or another one was answered.

    What the answer says the question was is not believed. ``mark`` is the key of the question's payload that says whose
    it is.
    """
    if tool_context.tool_confirmation is not None and not _answers_google_adk(tool_context):
        return None
    for event in reversed(tool_context.session.events):
        requested = event.actions.requested_tool_confirmations.get(tool_context.function_call_id or "")
        if requested is None:
            continue
        ours = requested.payload.get(mark) if isinstance(requested.payload, Mapping) else None
        if isinstance(ours, Mapping):
            return ours
    return None


def _answers_google_adk(tool_context: ToolContext) -> bool:
    """Whether the user answered google-adk's question about this call, and none that the model wrote (row 172).

    google-adk takes an answer to any call of that name. Its own calls are marked as waiting for their answer; a model's
    are not, because there is no tool of that name.
    """
    events = tool_context.session.events
    last = next((event for event in reversed(events) if event.author == "user"), None)
    answered = {one.id for one in last.get_function_responses() if one.name == _CONFIRMATION} if last else set()
    is_own = [
        call.id in (event.long_running_tool_ids or ())
        for event in events
        for call in event.get_function_calls()
        if call.name == _CONFIRMATION and call.id in answered and _call_of(call.args) == tool_context.function_call_id
    ]
    return bool(is_own) and all(is_own)


def _call_of(question: Mapping[str, Any] | None) -> object:
    """The id of the call that a question of google-adk is about."""
    call = (question or {}).get("originalFunctionCall")
    return call.get("id") if isinstance(call, Mapping) else None


def refusal(code: ErrorCode, sentence: str) -> dict[str, Any]:
    """The answer of a tool that does not do what was asked."""
    return {"error": sentence, "error_code": code.value}


def _shortened(name: str) -> str:
    """A name as a question shows it: the beginning and the end of a long one."""
    return name if len(name) <= _MOST_SHOWN else f"{name[: _MOST_SHOWN - 28]}...{name[-25:]}"


def _tools(skill: KnownSkill) -> str:
    """What ``allowed-tools`` ask for: what a yes can allow, all of it, before the others (row 193)."""
    counts = [name for name in skill.allowed_tools if name in skill.additional_tools or name.startswith("Bash")]
    others = [name for name in skill.allowed_tools if name not in counts]
    text = ", ".join(filter(None, [*counts, some_of(others, _NAMED_TOOLS, _shortened)]))
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


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
            decision = both(decision, load)
    return (await weigh(tool_context, skill, decision, runtime)).refusal


def both(one: Decision, other: Decision) -> Decision:
    """Two decisions about one call combined: the stricter one, and all that must be approved."""
    strict = max(one, other, key=lambda decision: decision.verdict.strictness)
    subjects = tuple(dict.fromkeys((*one.subjects, *other.subjects)))
    reasons = [strict.reason]
    if one.verdict is other.verdict:  # the user learns all of why (row 429)
        reasons = list(dict.fromkeys((one.reason, other.reason)))
    reason = "; ".join(filter(None, reasons))
    return replace(strict, reason=reason, subjects=subjects, requested=one.requested | other.requested)
