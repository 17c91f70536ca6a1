"""``SkillTools``: the toolset behind ``with_skills``; the same machinery as ``SkillToolset`` under shorter names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

from adk_skills_agent.adk.options import SkillToolsSettings
from adk_skills_agent.adk.runtime import SkillRuntime, make_runtime
from adk_skills_agent.adk.runtime_toolset import RuntimeToolset
from adk_skills_agent.adk.tools.find_skills import SearchSkillsTool
from adk_skills_agent.adk.tools.load_skill import UnloadSkillTool, UseSkillTool
from adk_skills_agent.adk.tools.load_skill_resource import ReadReferenceTool
from adk_skills_agent.adk.tools.run_skill_script import RunScriptTool
from adk_skills_agent.sandbox import Sandbox, sandbox_of
from adk_skills_agent.scripts import RunSettings

if TYPE_CHECKING:
    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools.base_toolset import ToolPredicate
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.activation.listing import SkillListing
    from adk_skills_agent.adk.tools.base import ToolsetTool
    from adk_skills_agent.catalog import CatalogReader

NAMES = {"load_skill": "use_skill", "load_skill_resource": "read_reference", "run_skill_script": "run_script"}
"""The names of the tools here."""


def short_named_runtime(
    skills: CatalogReader,
    *,
    sandbox: Sandbox | None = None,
    prefers_sandbox: bool = False,
    settings: RunSettings | None = None,
    tool_name_prefix: str | None = None,
    owner: object = None,
    **more: Unpack[SkillToolsSettings],
) -> SkillRuntime:
    """The state shared by the tools of ``with_skills``; the arguments are those of :class:`SkillTools`."""
    return make_runtime(
        more,
        catalog=skills,
        settings=settings or RunSettings(),
        sandbox=sandbox,
        prefers_sandbox=prefers_sandbox,
        tool_name_prefix=tool_name_prefix,
        loader=NAMES["load_skill"],
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
            tool_name_prefix=tool_name_prefix,
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
