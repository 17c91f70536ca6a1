"""The state that the tools of one toolset share."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from google.adk.utils import instructions_utils

from adk_skills_agent.adk.activation.active_skills import ActiveSkills
from adk_skills_agent.adk.activation.additional_tools import AdditionalTools
from adk_skills_agent.adk.activation.instructions import SkillTexts
from adk_skills_agent.adk.activation.listing import SEARCH_TOOL, SkillListing
from adk_skills_agent.adk.events.audit_log import AuditLog
from adk_skills_agent.adk.events.events import Events, Listener, Telemetry
from adk_skills_agent.adk.guard import RetryGuard
from adk_skills_agent.adk.options import WORKSPACES, SkillLimits, lifecycle_of
from adk_skills_agent.adk.permissions import Permissions, permissions_of
from adk_skills_agent.adk.shell.commands import ShellSettings, shell_of
from adk_skills_agent.adk.shell.skills import SKILLS_DIR, skill_folder
from adk_skills_agent.adk.skills.source import SkillSource
from adk_skills_agent.errors import CatalogError, ConfigError, RegistryError, SkillNotFound, SkillsError
from adk_skills_agent.recent import Recent
from adk_skills_agent.sandbox import SKILL_DIR, in_worker
from adk_skills_agent.scripts import Grants, RunSettings
from adk_skills_agent.scripts.plan import with_skill_path

if TYPE_CHECKING:
    from pathlib import Path

    import google.adk.skills
    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.code_executors import BaseCodeExecutor
    from google.adk.environment import BaseEnvironment

    from adk_skills_agent.adk.activation.instructions import SkillText
    from adk_skills_agent.adk.options import SkillToolsSettings
    from adk_skills_agent.adk.running.workspace_stores import WorkspaceStores
    from adk_skills_agent.adk.skills.known import KnownSkill
    from adk_skills_agent.catalog import CatalogReader
    from adk_skills_agent.sandbox import Sandbox, SecretForms


logger = logging.getLogger(__name__)

_LAST_TEXTS = 64
_MOST_TRUSTED = 200  # entries of allowed-tools, each of which is compared with each command of a line (row 323)
DEFAULT_SCRIPT_TIMEOUT = 300.0
"""google-adk's default. The object itself says that nobody gave a time: a time of somebody's own then comes first."""


@dataclass(slots=True, eq=False)
class SkillRuntime:
    """One toolset's skills, state and settings; every tool gets it."""

    source: SkillSource
    listing: SkillListing
    active: ActiveSkills
    guard: RetryGuard
    permissions: Permissions
    events: Events
    additional: AdditionalTools = field(default_factory=AdditionalTools)
    limits: SkillLimits = field(default_factory=SkillLimits)
    settings: RunSettings = field(default_factory=RunSettings)
    grants: Grants = field(default_factory=Grants)  # variables, hosts and programs granted to scripts
    sandbox: Sandbox | None = None  # our own way to run scripts, or None when the toolset has none
    # whether the owner gave the toolset a sandbox or its policy: then the agent's own executor does not come before it
    prefers_sandbox: bool = False
    code_executor: BaseCodeExecutor | None = None  # google-adk's way to run scripts, or None
    environment: BaseEnvironment | None = None  # google-adk's other way, or None
    skills_folder: Path | None = None  # where skills are put in the environment, or None for its default
    script_timeout: float | None = None  # in seconds, when the owner gave one
    google_arguments: bool = False  # whether arguments are spelled as google-adk does it
    # whether all skills of a session share a workspace (``session``) or each has its own (``skill``)
    workspace: str = "session"
    # where the files of its sessions are kept for other servers, or None for nowhere
    workspace_stores: WorkspaceStores | None = None
    # whether the model has a shell, in which each active skill has a folder of its own
    shell: ShellSettings | None = None
    trust_allowed_tools: bool = False  # whether what an active skill's ``allowed-tools`` names is not asked about
    save_output_artifacts: bool = False  # whether files that a foreign executor's script leaves become artifacts
    require_activation: bool = False  # whether reading and running need an active skill
    file_list: bool = True  # whether an activation says which files there are
    prefix: str = ""  # ``tool_name_prefix`` with its underscore, or empty
    lists: bool = True  # whether the model is told of the skills without searching
    # how a tool is called here, where not by its own name (``{"load_skill": "use_skill"}``)
    names: Mapping[str, str] = field(default_factory=dict)
    owner: object = None  # who the workspaces of the sessions belong to, for :meth:`SessionWorkspaces.use`
    # the toolsets that use this sandbox, environment and events, clones too; the last one closes them
    users: WeakSet[Any] = field(default_factory=WeakSet)
    told_without_proxy: bool = False  # whether the owner was told that nobody can be asked about hosts here
    _texts: SkillTexts = field(init=False)
    _last_texts: Recent[str, SkillText] = field(default_factory=lambda: Recent(_LAST_TEXTS))

    def __post_init__(self) -> None:
        self.permissions = self.permissions.with_prefix(self.prefix, trusting=self.trust_allowed_tools)
        rules_of_scripts = any(rule.kind == "scripts" for rule in self.permissions.rules)
        if self.shell is not None and self.shell.copies_skills and (rules_of_scripts or self.grants.for_scripts):
            what, give = ("rules", "Give rules for") if rules_of_scripts else ("grants", "Grant to")
            raise ConfigError(
                f"skill_writes='session' lets a skill change its scripts, so {what} for single scripts would not hold. "
                f"{give} whole skills, or leave skill_writes out."
            )
        if self.workspace_stores is not None:
            if self.shell is not None and self.shell.keep_in is not None:
                raise ConfigError(
                    "workspace_store keeps the sessions' files, and so does the shell's keep_in. Give one of them."
                )
            if self.environment is not None:
                raise ConfigError("workspace_store needs our sandbox: an environment keeps its files in its own way.")
        if self.permissions.hosts and self.settings.policy.network.mode == "host":
            logger.warning(
                "The rules for hosts do not hold: the policy's network is 'host', which nothing checks. Name the hosts "
                "in the policy or in grants instead."
            )
        files = self.limits.manifest_files if self.file_list else 0
        self._texts = SkillTexts(self.limits.skill_tokens, files, self.skill_path_for_model)

    def skill_path_for_model(self, name: str) -> str:
        """The path of a skill as the model's tools see it, which its instructions name and its placeholders become.

        Returns ``/skills/<name>`` where the toolset has a shell, which shows all active skills; else ``/skill``, where
        a script finds its own.
        """
        return str(SKILLS_DIR / skill_folder(name)) if self.shell is not None else str(SKILL_DIR)

    def tool_name(self, base: str) -> str:
        """The name a tool has for the model: renamed and prefixed."""
        return f"{self.prefix}{self.names.get(base, base)}"

    @property
    def adk_executor_timeout(self) -> float:
        """Seconds for a script in an executor or environment of others."""
        return DEFAULT_SCRIPT_TIMEOUT if self.script_timeout is None else self.script_timeout

    @property
    def takes_uploads(self) -> bool:
        """Whether files of the user are put into the session's workspace: where all its skills share it."""
        return self.workspace == "session"

    def trusted_tools(self, context: ReadonlyContext, only: str = "") -> tuple[str, ...]:
        """Entries of ``allowed-tools`` that need no question now: those of active skills, where the owner trusts them.

        ``only`` is the one that counts for a command with its grants: no other skill frees what has its keys (row 166).
        For ``decide_command(permissions, line, trusted)``. May block: a skill's head may have to be read.
        """
        if not self.trust_allowed_tools:
            return ()
        skills = [self.source.local(name) for name in ([only] if only else self.active.active(context))]
        entries = dict.fromkeys(tool for skill in skills if skill is not None for tool in skill.allowed_tools)
        if len(entries) > _MOST_TRUSTED:
            logger.warning("of %d entries of allowed-tools the first %d are trusted", len(entries), _MOST_TRUSTED)
        return tuple(entries)[:_MOST_TRUSTED]

    @property
    def empty(self) -> bool:
        """Whether there is nothing the model could use; then it is told of no tool (C27)."""
        return self.source.registry is None and len(self.source) == 0

    @property
    def searches_local(self) -> bool:
        """Whether the model can find by search what it is not told of all at once."""
        return len(self.source) > 0 and (not self.lists or not self.listing.complete)

    async def skill(self, context: ReadonlyContext, name: str) -> KnownSkill:
        """The skill a call names.

        Raises:
            SkillNotFound: No skill has that name, or it is hidden; ``suggestions`` has the nearest names.
            RegistryError: The registry failed.
        """
        try:
            skill = await self.source.get(name, context.invocation_id)
        except Exception as error:  # each registry has its own exceptions; the model gets one code for all
            cause = str(error) or type(error).__name__
            raise RegistryError(f"Failed to fetch skill '{name}' from registry: {cause}") from error
        if skill is None:
            asked = self.source.for_user(name)
            if asked is not None and name in self.active.active(context):
                skill = asked  # the user asked for it; from now on the model may use it
        if skill is None:
            raise SkillNotFound(f"Skill '{name}' not found.", self.source.nearest(name))
        return skill

    async def text(self, skill: KnownSkill, context: ReadonlyContext) -> SkillText:
        """The instructions of an active skill as they are now.

        Raises ``SkillsError`` when they cannot be read or filled in.
        """
        try:
            return await self._text(skill, context)
        except SkillsError:
            raise
        except Exception as error:  # an object in memory may raise anything, and so may what the state is taken from
            logger.exception("the instructions of skill %s cannot be put together", skill.name)
            raise CatalogError(
                f"The instructions of skill '{skill.name[:40]}' cannot be read or filled in from the session's state: "
                f"{str(error)[:60]}"
            ) from error

    async def _text(self, skill: KnownSkill, context: ReadonlyContext) -> SkillText:
        if skill.injects_state:
            instructions = await in_worker(skill.instructions)
            injected = with_skill_path(instructions, self.skill_path_for_model(skill.name))
            try:
                injected = await _with_state(injected, context, skill.name)
            except KeyError as error:
                # A name the state does not have (yet): the text as it is written says more than no text.
                logger.warning("the instructions of skill %s name %s, which the state lacks", skill.name, error)
            text = await in_worker(self._texts.text, skill, instructions, injected)
        else:
            text = await in_worker(self._as_written, skill)
        if not skill.injects_state:
            self._last_texts[skill.name] = text
        return text

    def _as_written(self, skill: KnownSkill) -> SkillText:
        instructions = skill.instructions()
        shown = with_skill_path(instructions, self.skill_path_for_model(skill.name))
        return self._texts.text(skill, instructions, shown)

    def last_text(self, name: str) -> SkillText | None:
        """The instructions as last read: a registry that is down for a moment ends no activation."""
        return self._last_texts.get(name) if self.source.local(name) is None and self.source.registry else None

    async def missing_tools(self, skill: KnownSkill, context: ReadonlyContext) -> list[str]:
        """The tools a skill asks for that the application does not have."""
        return await self.additional.missing(skill.additional_tools, context)


def make_runtime(
    given: SkillToolsSettings,
    *,
    settings: RunSettings,
    sandbox: Sandbox | None,
    tool_name_prefix: str | None,
    catalog: CatalogReader | None = None,
    objects: Sequence[google.adk.skills.Skill] = (),
    registry: google.adk.skills.SkillRegistry | None = None,
    loader: str = "load_skill",
    **own: Any,
) -> SkillRuntime:
    """The state of a toolset, from the settings that toolsets share.

    ``loader`` is the tool that activates skills; ``own`` are fields that only this kind of toolset sets. Raises
    ``ConfigError`` when a setting cannot be used.
    """
    from adk_skills_agent.packages import SkillEnvironments, dependencies_of

    limits = given.get("limits")
    if limits is None:
        limits = SkillLimits()
    elif not isinstance(limits, SkillLimits):
        raise ConfigError(f"limits must be SkillLimits(...), not {limits!r}.")
    workspace = given.get("workspace", "session")
    if workspace not in WORKSPACES:
        raise ConfigError(f"workspace must be 'session' or 'skill', not {workspace!r}.")
    trusting = given.get("trust_allowed_tools", False)
    if not isinstance(trusting, bool):  # a text such as "no" would trust
        raise ConfigError(f"trust_allowed_tools must be True or False, not {trusting!r}.")
    store, integrity = given.get("workspace_store"), given.get("integrity")
    stores = check = None
    if store is not None:
        from adk_skills_agent.adk.running.workspace_stores import WorkspaceStores

        stores = WorkspaceStores(store)
    if integrity is not None:
        from adk_skills_agent.sources.integrity import IntegrityCheck

        check = IntegrityCheck(integrity)
    packaging = dependencies_of(given.get("dependencies"), default="off" if sandbox is None else "ask")
    packages = SkillEnvironments(packaging)
    rules = permissions_of(given.get("permissions"))
    grants = Grants(given.get("env"), given.get("grants"), rules.grants)
    events = events_for(given.get("on_event", ()), given.get("audit_log"), grants.forms)
    source = SkillSource(
        catalog,
        objects,
        registry,
        user_catalog=given.get("user_skills"),
        hides=rules.hides,
        named_by=(grants.names, rules.names),
        apart=rules.keeps_apart,
        cache_turns=limits.cache_turns,
        integrity=check,
    )
    prefix = f"{tool_name_prefix}_" if tool_name_prefix else ""
    return SkillRuntime(
        source=source,
        listing=SkillListing(
            source,
            budget_tokens=given.get("budget_tokens"),
            model=given.get("model"),
            search_hint=f"{prefix}{SEARCH_TOOL}",
        ),
        active=ActiveSkills(lifecycle_of(given.get("lifecycle_config")), limits.active_tokens, f"{prefix}{loader}"),
        guard=RetryGuard(limits, events, f"{prefix}{loader}"),
        permissions=rules,
        events=events,
        additional=AdditionalTools(given.get("additional_tools")),
        limits=limits,
        settings=replace(settings, packages=packages if packages.on else None),
        grants=grants,
        sandbox=sandbox,
        require_activation=given.get("require_activation", False),
        workspace=workspace,
        workspace_stores=stores,
        shell=shell_of(given.get("shell")),
        trust_allowed_tools=trusting,
        prefix=prefix,
        **own,
    )


# What the session's state and artifacts put into the instructions of a skill that asks for it.

MAX_VALUES = 1_000
"""Names that one skill's instructions may have replaced."""
MAX_VALUE_CHARS = 1 << 20
"""Of what they become, together: a skill may name its script's largest artifact in each of its lines (row 240)."""
_NAMED = re.compile(r"\{[^{}]*+\}++")


async def _with_state(text: str, context: ReadonlyContext, skill: str) -> str:
    """The text as google-adk fills it in, one name at a time; beyond the bounds it stays as it is written.

    Raises whatever google-adk does.
    """
    told: list[str] = []
    room, end = MAX_VALUE_CHARS, 0
    for count, named in enumerate(_NAMED.finditer(text)):
        if count >= MAX_VALUES or room <= 0:
            logger.warning("the instructions of skill %s name more of the session's state than is put in", skill)
            break
        piece = text[end : named.end()]
        filled = await instructions_utils.inject_session_state(piece, context)
        told.append(filled[: len(piece) + room])
        room -= max(len(filled) - len(piece), 0)
        end = named.end()
    return "".join([*told, text[end:]])


# Who is told what happens with skills, from the owner's settings of a toolset.


def events_for(
    on_event: Callable[[Any], object] | Sequence[Callable[[Any], object]] = (),
    audit_log: str | os.PathLike[str] | AuditLog | None = None,
    secrets: SecretForms | None = None,
) -> Events:
    """The events of one toolset: OpenTelemetry always, the owner's listeners, the audit log where one is wanted.

    ``audit_log`` is a file, or a log with settings of its own, which several toolsets may share. Raises ``ConfigError``
    when a listener cannot be called, or the file cannot be written.
    """
    if not callable(on_event) and not isinstance(on_event, Sequence):
        raise ConfigError(f"on_event must be a function, or a list of them, not {type(on_event).__name__}.")
    given: tuple[Listener, ...] = (on_event,) if callable(on_event) else tuple(on_event)
    for listener in given:
        if not callable(listener):
            raise ConfigError(f"on_event takes functions, not {type(listener).__name__}.")
    log: tuple[Listener, ...] = ()
    if audit_log is not None:
        log = (audit_log if isinstance(audit_log, AuditLog) else AuditLog(audit_log),)
    return Events((Telemetry(), *given, *log), secrets)
