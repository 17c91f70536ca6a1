"""All skill tools of one agent, behind google-adk's toolset interface."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from google.adk.tools.base_toolset import BaseToolset

from adk_skills_agent.adk.listing import SEARCH_TOOL, SkillListing
from adk_skills_agent.adk.tools.read_reference import ReadReferenceTool
from adk_skills_agent.adk.tools.run_script import RunScriptTool
from adk_skills_agent.adk.tools.search_skills import ListedSearchTool
from adk_skills_agent.adk.tools.use_skill import UseSkillTool
from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import IsolationLevel, Sandbox
from adk_skills_agent.sandbox.local import local_sandbox
from adk_skills_agent.scripts import Grants, RunSettings
from adk_skills_agent.scripts.workspaces import SHARED_WORKSPACES

if TYPE_CHECKING:
    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.base_toolset import ToolPredicate

    from adk_skills_agent.catalog import SkillsView
    from adk_skills_agent.sandbox.secrets import EnvValue

logger = logging.getLogger(__name__)


class SkillTools(BaseToolset):
    """``use_skill``, ``read_reference``, ``run_script`` and, when the catalogue is cut, ``search_skills``.

    Args:
        skills: The skills this agent may see.
        sandbox: Where scripts run; None takes this machine.
        settings: Limits and interpreters.
        env: Variables granted to every script of this agent; a :class:`Secret` is shown to nobody else.
        grants: Variables granted to one skill (``"weather"``) or one script (``"weather/scripts/forecast.py"``).
        budget_tokens: Most tokens of the catalogue; None takes 2 % of the model's context.
        model: The agent's model, for the default budget.
        tool_filter: As for every google-adk toolset.
        tool_name_prefix: As for every google-adk toolset.
    """

    def __init__(
        self,
        skills: SkillsView,
        *,
        sandbox: Sandbox | None = None,
        settings: RunSettings | None = None,
        env: Mapping[str, EnvValue] | None = None,
        grants: Mapping[str, Mapping[str, EnvValue]] | None = None,
        budget_tokens: int | None = None,
        model: str | None = None,
        tool_filter: ToolPredicate | list[str] | None = None,
        tool_name_prefix: str | None = None,
    ) -> None:
        super().__init__(tool_filter=tool_filter, tool_name_prefix=tool_name_prefix)
        prefix = f"{tool_name_prefix}_" if tool_name_prefix else ""
        self.listing = SkillListing(
            skills, budget_tokens=budget_tokens, model=model, search_hint=f"{prefix}{SEARCH_TOOL}"
        )
        self._settings = settings or RunSettings()
        self._owns_sandbox = sandbox is None
        self._sandbox = local_sandbox() if sandbox is None else sandbox
        self._warned = False
        self._grants = Grants(env, grants)
        self._grants_checked = False
        self._use = UseSkillTool(self.listing)
        self._read = ReadReferenceTool(self.listing)
        self._search = ListedSearchTool(self.listing)
        self._run = RunScriptTool(self.listing, self._sandbox, settings=self._settings, owner=self, grants=self._grants)

    def __deepcopy__(self, memo: dict[int, object]) -> SkillTools:
        """A copy of an agent shares its skills: they hold no state of the agent."""
        return self

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """The tools that can work now: none without skills (C27), no ``run_script`` where nothing may run (S0-14)."""
        await self.listing.skills.refresh_if_due()
        if self.listing.empty:
            return []
        if not self._grants_checked:
            self._grants_checked = True
            for sentence in self._grants.unknown(item.name for item in self.listing.skills.list_metadata()):
                logger.warning("%s", sentence)
        tools: list[BaseTool] = [self._use, self._read]
        if await self._scripts_can_run():
            tools.append(self._run)
        tools.append(self._search)  # declares itself only when the catalogue is cut, which may change between requests
        return [tool for tool in tools if self._is_tool_selected(tool, readonly_context)]

    async def close(self) -> None:
        """Delete the sessions' workspaces and release the sandbox, unless it is the caller's."""
        await asyncio.to_thread(SHARED_WORKSPACES.close, self)
        if self._owns_sandbox:
            await self._sandbox.close()

    async def _scripts_can_run(self) -> bool:
        wanted = IsolationLevel(self._settings.policy.min_isolation)
        try:
            report = await self._sandbox.probe()
        except SandboxError as error:  # the other tools still work; the next request asks again
            self._warn("run_script is not offered: %s", error.message)
            return False
        if report.level.strength >= wanted.strength:
            return True
        self._warn(
            "run_script is not offered: this machine isolates scripts at level '%s', the policy asks for '%s'. %s",
            report.level.value,
            wanted.value,
            " ".join(report.reasons),
        )
        return False

    def _warn(self, message: str, *values: str) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(message, *values)
