"""``SkillTools``: the toolset behind ``with_skills``; the same machinery as ``SkillToolset`` under shorter names."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from adk_skills_agent.adk.activation.active_skills import ActiveSkills
from adk_skills_agent.adk.activation.additional_tools import AdditionalTools
from adk_skills_agent.adk.activation.listing import SEARCH_TOOL, SkillListing
from adk_skills_agent.adk.guard import RetryGuard
from adk_skills_agent.adk.options import (
    SkillLimits,
    SkillToolsSettings,
    integrity_of,
    lifecycle_of,
    limits_of,
    packages_of,
    workspace_of,
    workspace_stores_of,
)
from adk_skills_agent.adk.permissions import Permissions, permissions_of
from adk_skills_agent.adk.runtime import SkillRuntime, events_for
from adk_skills_agent.adk.runtime_toolset import RuntimeToolset
from adk_skills_agent.adk.shell.commands import ShellSettings, shell_of
from adk_skills_agent.adk.skills.source import SkillSource
from adk_skills_agent.adk.tools.find_skills import SearchSkillsTool
from adk_skills_agent.adk.tools.load_skill import UnloadSkillTool, UseSkillTool
from adk_skills_agent.adk.tools.load_skill_resource import ReadReferenceTool
from adk_skills_agent.adk.tools.run_skill_script import RunScriptTool
from adk_skills_agent.sandbox import Sandbox, sandbox_of
from adk_skills_agent.scripts import Grants, GrantsByName, RunSettings

if TYPE_CHECKING:
    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools.base_toolset import ToolPredicate
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.events.audit_log import AuditLog
    from adk_skills_agent.adk.tools.base import ToolsetTool
    from adk_skills_agent.catalog import CatalogReader
    from adk_skills_agent.packages import Dependencies
    from adk_skills_agent.sandbox import EnvValue
    from adk_skills_agent.sources.integrity import Integrity

NAMES = {"load_skill": "use_skill", "load_skill_resource": "read_reference", "run_skill_script": "run_script"}
"""The names of the tools here."""


def short_named_runtime(
    skills: CatalogReader,
    *,
    user_skills: CatalogReader | None = None,
    sandbox: Sandbox | None = None,
    prefers_sandbox: bool = False,
    settings: RunSettings | None = None,
    dependencies: Dependencies | str | None = None,
    integrity: Integrity | None = None,
    env: Mapping[str, EnvValue] | None = None,
    grants: GrantsByName | None = None,
    permissions: Permissions | Mapping[str, object] | str | Path | None = None,
    on_event: Callable[[Any], object] | Sequence[Callable[[Any], object]] = (),
    audit_log: Path | str | AuditLog | None = None,
    limits: SkillLimits | None = None,
    require_activation: bool = False,
    workspace: str = "session",
    workspace_store: Any = None,
    shell: bool | ShellSettings = False,
    trust_allowed_tools: bool = False,
    additional_tools: Sequence[Any] | None = None,
    lifecycle_config: Any = None,
    budget_tokens: int | None = None,
    model: str | None = None,
    prefix: str = "",
    owner: object = None,
) -> SkillRuntime:
    """The state shared by the tools of ``with_skills``; the arguments are those of :class:`SkillTools`."""
    limits = limits_of(limits)
    rules = permissions_of(permissions)
    granted = Grants(env, grants, rules.grants)
    events = events_for(on_event, audit_log, granted.forms)
    source = SkillSource(
        skills,
        user_catalog=user_skills,
        hides=rules.hides,
        cache_turns=limits.cache_turns,
        integrity=integrity_of(integrity),
    )
    listing = SkillListing(source, budget_tokens=budget_tokens, model=model, search_hint=f"{prefix}{SEARCH_TOOL}")
    return SkillRuntime(
        source=source,
        listing=listing,
        active=ActiveSkills(lifecycle_of(lifecycle_config), limits.active_tokens, f"{prefix}{NAMES['load_skill']}"),
        guard=RetryGuard(limits, events, f"{prefix}{NAMES['load_skill']}"),
        permissions=rules,
        events=events,
        additional=AdditionalTools(additional_tools),
        limits=limits,
        settings=dataclasses.replace(
            settings or RunSettings(), packages=packages_of(dependencies, asks=sandbox is not None)
        ),
        grants=granted,
        sandbox=sandbox,
        prefers_sandbox=prefers_sandbox,
        require_activation=require_activation,
        workspace=workspace_of(workspace),
        workspace_stores=workspace_stores_of(workspace_store),
        shell=shell_of(shell),
        trust_allowed_tools=trust_allowed_tools,
        prefix=prefix,
        names=NAMES,
        owner=owner,
    )


class SkillTools(RuntimeToolset):
    """``use_skill``, ``read_reference``, ``run_script`` and, when the catalogue is cut, ``search_skills``.

    Args:
        skills: The skills this agent may see.
        sandbox: Where scripts run: a name (``"auto"``, ``"local"``, ``"container"``, ``"kubernetes"``, ``"ray"``) or an
            object.
        settings: Limits and interpreters.
        prefers_sandbox: Whether it comes before the agent's own executor; a sandbox that is given does.
        tool_filter: As for every google-adk toolset.
        tool_name_prefix: As for every google-adk toolset.
        more: ``user_skills`` (those that a user may ask for by name), and ``dependencies``, ``integrity``, ``env``,
            ``grants``, ``permissions``, ``on_event``, ``audit_log``, ``limits``, ``require_activation``, ``workspace``,
            ``workspace_store``, ``shell``, ``trust_allowed_tools``, ``additional_tools``, ``lifecycle_config``,
            ``budget_tokens`` and ``model``, as ``SkillToolset`` has them.
    """

    def __init__(
        self,
        skills: CatalogReader,
        *,
        sandbox: Sandbox | str | None = None,
        settings: RunSettings | None = None,
        prefers_sandbox: bool = False,
        tool_filter: ToolPredicate | list[str] | None = None,
        tool_name_prefix: str | None = None,
        **more: Unpack[SkillToolsSettings],
    ) -> None:
        runtime = short_named_runtime(
            skills,
            sandbox=sandbox_of(sandbox),
            prefers_sandbox=prefers_sandbox or sandbox is not None,
            settings=settings,
            prefix=f"{tool_name_prefix}_" if tool_name_prefix else "",
            owner=self,
            **more,
        )
        super().__init__(
            runtime,
            owns_sandbox=not isinstance(sandbox, Sandbox),
            tool_filter=tool_filter,
            tool_name_prefix=tool_name_prefix,
        )
        self._tools = (
            UseSkillTool(runtime),
            ReadReferenceTool(runtime),
            RunScriptTool(runtime),
            SearchSkillsTool(runtime),
        )
        self._unload = UnloadSkillTool(runtime)

    @property
    def listing(self) -> SkillListing:
        """The catalogue that the model gets."""
        return self.runtime.listing

    def core_tools(self, readonly_context: ReadonlyContext | None) -> Sequence[ToolsetTool]:
        """All of them; the search declares itself only when the catalogue is cut, which may change at any time."""
        return self._tools

    def unload_tool(self) -> ToolsetTool:
        """``unload_skill``."""
        return self._unload

    async def introduce(self, llm_request: LlmRequest, tool_context: ToolContext, offered: set[str]) -> list[str]:
        """Nothing: the catalogue is in the description of ``use_skill`` (S4-4)."""
        return []
