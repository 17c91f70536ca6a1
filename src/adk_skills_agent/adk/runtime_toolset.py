"""What every toolset for skills does: activation state, instructions in force, tools that skills bring, closing."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from google.adk.tools.base_toolset import BaseToolset

from adk_skills_agent.adk.events import SkillDropped, origin_of
from adk_skills_agent.adk.explicit_activation import activate_mentioned
from adk_skills_agent.adk.instructions_in_force import put_in_force
from adk_skills_agent.adk.script_readiness import ScriptReadiness
from adk_skills_agent.scripts.workspaces import SHARED_WORKSPACES

if TYPE_CHECKING:
    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.base_toolset import ToolPredicate
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.additional_tools import AdditionalTools
    from adk_skills_agent.adk.skill_runtime import SkillRuntime
    from adk_skills_agent.adk.tools.toolset_tool import ToolsetTool


class RuntimeToolset(BaseToolset):
    """The part of a toolset that does not depend on how its tools are called.

    Args:
        runtime: What its tools share.
        additional: Tools that skills may ask for.
        owns_sandbox: Whether ``close`` releases the sandbox.
        tool_filter: As for every google-adk toolset.
        tool_name_prefix: As for every google-adk toolset.
    """

    def __init__(
        self,
        runtime: SkillRuntime,
        additional: AdditionalTools,
        *,
        owns_sandbox: bool,
        tool_filter: ToolPredicate | list[str] | None,
        tool_name_prefix: str | None,
    ) -> None:
        super().__init__(tool_filter=tool_filter, tool_name_prefix=tool_name_prefix)
        # google-adk keeps a toolset's tools for an invocation unless this is off; a skill loaded in the middle of one
        # brings tools, so they are asked for anew. It has no public name.
        self._use_invocation_cache = False
        self.runtime = runtime
        self.additional = additional
        self._owns_sandbox = owns_sandbox
        sandbox = runtime.sandbox
        self._scripts_ready = ScriptReadiness(sandbox, runtime.settings.policy) if sandbox is not None else None

    def __deepcopy__(self, memo: dict[int, object]) -> RuntimeToolset:
        """A copy of an agent shares its skills: they hold no state of the agent."""
        return self

    @abstractmethod
    def core_tools(self, readonly_context: ReadonlyContext | None) -> Sequence[ToolsetTool]:
        """The toolset's own tools, in the order in which they are declared."""

    @abstractmethod
    async def introduce(self, tool_context: ToolContext, llm_request: LlmRequest, offered: set[str]) -> list[str]:
        """What the system instruction says of skills before those that are active.

        Args:
            tool_context: Of the request's preparation.
            llm_request: The request.
            offered: Own names of the tools that this request declares.
        """

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """The tools that can work now: none without skills (C27), those that active skills bring at the end."""
        runtime = self.runtime
        await runtime.source.refresh_if_due()
        if runtime.empty:
            return []
        tools: list[BaseTool] = list(self.core_tools(readonly_context))
        if self._scripts_ready is not None and runtime.code_executor is None and runtime.environment is None:
            script_tool = runtime.names.get("run_skill_script", "run_skill_script")
            if not await self._scripts_ready():
                tools = [tool for tool in tools if tool.name != script_tool]
        if readonly_context is not None:
            wanted: list[str] = []
            for name in runtime.active.active(readonly_context):
                skill = await runtime.source.get(name, readonly_context.invocation_id)
                wanted += skill.additional_tools if skill is not None else ()
            tools += await self.additional.resolve(wanted, [tool.name for tool in tools], readonly_context)
        return [tool for tool in tools if self._is_tool_selected(tool, readonly_context)]

    async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:
        """Say which skills there are and put the active ones in force."""
        runtime = self.runtime
        await runtime.source.refresh_if_due()
        environment = runtime.environment
        if environment is not None and not environment.is_initialized:
            await environment.initialize()
        if runtime.empty:
            return
        offered = {
            tool.base_name
            for tool in self.core_tools(tool_context)
            if self._is_tool_selected(tool, tool_context) and tool.offered(tool_context)
        }
        told = await self.introduce(tool_context, llm_request, offered)
        asked = await activate_mentioned(runtime, tool_context)
        if told or asked:
            llm_request.append_instructions([*told, *([asked] if asked else [])])
        await put_in_force(runtime, tool_context, llm_request)

    def skill_names(self) -> list[str]:
        """The names a user can complete after ``$`` or ``/`` (C31)."""
        return sorted(self.runtime.source.names())

    def list_active_skills(self, ctx: ReadonlyContext) -> list[str]:
        """The skills that are active for the agent of a context, least recently loaded first."""
        return self.runtime.active.active(ctx)

    async def load_skill(self, ctx: ToolContext, skill_name: str) -> bool:
        """Activate a skill without the model; its instructions are in the next request.

        Args:
            ctx: Of a tool call or callback, whose state is committed.
            skill_name: The skill.

        Returns:
            False when it was active already.

        Raises:
            ValueError: There is no such skill.
            Exception: Whatever the registry raises.
        """
        runtime = self.runtime
        if skill_name in runtime.active.active(ctx):
            runtime.active.activate(ctx, skill_name)
            return False
        skill = await runtime.source.get(skill_name, ctx.invocation_id)
        if skill is None:
            raise ValueError(f"Skill '{skill_name}' not found.")
        text = await runtime.text(skill, ctx)
        return not runtime.active.activate(ctx, skill.name, tokens=text.tokens, digest=text.digest).already

    def unload_skill(self, ctx: ToolContext, skill_name: str) -> bool:
        """Release a skill without the model.

        Returns:
            Whether it was active.
        """
        was_active = self.runtime.active.deactivate(ctx, skill_name)
        if was_active:
            self.runtime.events.emit(SkillDropped(origin=origin_of(ctx), skill=skill_name, reason="unloaded"))
        return was_active

    async def close(self) -> None:
        """Delete the sessions' workspaces, flush the events and release what is not the caller's."""
        runtime = self.runtime
        await asyncio.to_thread(SHARED_WORKSPACES.close, runtime.owner)
        await asyncio.to_thread(runtime.source.close)
        if runtime.shared:
            return
        environment = runtime.environment
        if environment is not None and environment.is_initialized:
            await environment.close()
        await self.additional.close()
        if self._owns_sandbox and runtime.sandbox is not None:
            await runtime.sandbox.close()
        await runtime.events.close()
        await super().close()
