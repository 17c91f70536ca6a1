"""The base of every toolset for skills: activation state, instructions in force, tools that skills bring, closing."""

from __future__ import annotations

import asyncio
import copy
import logging
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from google.adk.tools.base_toolset import BaseToolset

from adk_skills_agent.adk.activation.additional_tools import agent_tool_names, permitted_tools
from adk_skills_agent.adk.activation.instructions import put_in_force
from adk_skills_agent.adk.activation.mentions import activate_mentioned
from adk_skills_agent.adk.events.events import SkillDropped, origin_of
from adk_skills_agent.adk.running.call import share_of_session
from adk_skills_agent.adk.running.runner import ScriptReadiness, own_sandbox_runs
from adk_skills_agent.adk.running.uploads import SHARED_UPLOADS
from adk_skills_agent.adk.shell.commands import shell_instruction
from adk_skills_agent.adk.shell.jobs import JOBS
from adk_skills_agent.adk.tools.base import answer_undeclared
from adk_skills_agent.adk.tools.shell import shell_tools
from adk_skills_agent.errors import ResourceNotFound, ScriptNotFound, SkillsError
from adk_skills_agent.format.models import Diagnostic, Severity
from adk_skills_agent.sandbox import acting_for, in_worker
from adk_skills_agent.scripts.workspaces import SHARED_WORKSPACES

if TYPE_CHECKING:
    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.base_toolset import ToolPredicate
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.runtime import SkillRuntime
    from adk_skills_agent.adk.skills.known import KnownSkill
    from adk_skills_agent.adk.tools.base import ToolsetTool

logger = logging.getLogger(__name__)

_WITH_FILES = frozenset({"run_skill_script", "execute"})
"""The tools that work in the session's workspace: without one of them nobody could use a file in it."""


class RuntimeToolset(BaseToolset):
    """The part of a toolset that does not depend on how its tools are called.

    With ``owns_sandbox``, ``close`` releases the sandbox.
    """

    def __init__(
        self,
        runtime: SkillRuntime,
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
        self._owns_sandbox = owns_sandbox
        sandbox = runtime.sandbox
        self._scripts_ready = (
            ScriptReadiness(sandbox, runtime.settings.policy, runtime.tool_name("run_skill_script"))
            if sandbox is not None
            else None
        )
        self._shell_tools = shell_tools(runtime)
        self._told_problems: frozenset[Diagnostic] = frozenset()
        self._told_at = -1
        self._tell_of_problems()

    def __deepcopy__(self, memo: dict[int, object]) -> RuntimeToolset:
        """A copy of an agent shares its skills: they hold no state of the agent."""
        return self

    @abstractmethod
    def core_tools(self, readonly_context: ReadonlyContext | None) -> Sequence[ToolsetTool]:
        """The toolset's own tools, in the order in which they are declared."""

    @abstractmethod
    async def introduce(self, llm_request: LlmRequest, tool_context: ToolContext, offered: set[str]) -> list[str]:
        """The part of the system instruction about skills that comes before the active ones."""

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """The tools that can work now: none without skills (C27), those that active skills bring at the end."""
        runtime = self.runtime
        runtime.users.add(self)
        await runtime.source.refresh_if_due()
        if runtime.empty and not self._shell_tools:
            return []
        if runtime.source.version != self._told_at:
            await asyncio.to_thread(self._tell_of_problems)
        tools: list[BaseTool] = list(await self._working_tools(readonly_context))
        if readonly_context is not None:
            names = runtime.active.active(readonly_context)
            tools += await self._brought_by(names, [tool.name for tool in tools], readonly_context)
            unload = self.unload_tool()
            if unload is not None:
                tools.append(unload)  # at the end: what comes and goes there leaves the others' place alone
        return [tool for tool in tools if self._is_tool_selected(tool, readonly_context)]

    async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:
        """Say which skills there are and put the active ones in force."""
        with acting_for(share_of_session(tool_context)):
            await self._prepare(tool_context, llm_request)

    async def _prepare(self, tool_context: ToolContext, llm_request: LlmRequest) -> None:
        runtime = self.runtime
        runtime.users.add(self)
        await runtime.source.refresh_if_due()
        environment = runtime.environment
        if environment is not None and not getattr(environment, "is_initialized", True):
            await environment.initialize()
        if runtime.empty:
            # All skills are gone, in the middle of a session maybe: what was active is released, and said once.
            working = await self._working_tools(tool_context)
            self._answer_for_undeclared(working, tool_context, llm_request)
            if self._shell_tools and own_sandbox_runs(runtime, tool_context):
                uploads = await SHARED_UPLOADS.bring(runtime, tool_context, llm_request)
                if uploads:
                    llm_request.append_instructions([uploads])
            self._introduce_shell(working, tool_context, llm_request)
            await put_in_force(runtime, tool_context, llm_request)
            return
        working = await self._working_tools(tool_context)
        selected = [tool for tool in working if self._is_tool_selected(tool, tool_context)]
        offered = {tool.base_name for tool in selected if tool.offered(tool_context)}
        self._answer_for_undeclared(working, tool_context, llm_request)
        told = await self.introduce(llm_request, tool_context, offered)
        if runtime.takes_uploads and not _WITH_FILES.isdisjoint(offered) and own_sandbox_runs(runtime, tool_context):
            uploads = await SHARED_UPLOADS.bring(runtime, tool_context, llm_request)
            if uploads:
                told.append(uploads)
        asked = await activate_mentioned(runtime, tool_context)
        if asked.text:
            told.append(asked.text)
        if told:
            llm_request.append_instructions(told)
        self._introduce_shell(selected, tool_context, llm_request)
        if asked.activated:
            llm_request.append_tools(await self._brought_now(asked.activated, tool_context))
        unload = self.unload_tool()
        unloadable = (
            unload is not None and self._is_tool_selected(unload, tool_context) and unload.offered(tool_context)
        )
        await put_in_force(runtime, tool_context, llm_request, unloadable=unloadable)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The problems, for the owner: unused grants and rules, then everything repaired, refused or not found.

        One line on the log at WARNING counts the errors and warnings among them when the toolset is made, and again
        when the skills change and there are new ones. May block: it looks for the scripts that grants and rules name.
        """
        return (*self._unknown_names(), *self.runtime.source.diagnostics)

    def _tell_of_problems(self) -> None:
        """Log one line that counts what the owner was not told of yet. May block."""
        self._told_at = self.runtime.source.version
        worth = [one for one in self.diagnostics if one.severity is not Severity.INFO]
        new = [one for one in worth if one not in self._told_problems]
        self._told_problems = frozenset(worth)
        if not new:
            return
        counts = Counter(one.severity.value for one in worth)
        found = " and ".join(f"{count} {word}{'s' if count != 1 else ''}" for word, count in sorted(counts.items()))
        more = "" if len(worth) == 1 else f" {type(self).__name__}.diagnostics lists them all."
        first = new[0]
        place = f"{first.file}: " if first.file and first.file not in first.message else ""
        logger.warning("Skills: %s. %s%s%s", found, place, first.message, more)

    def _unknown_names(self) -> list[Diagnostic]:
        """Which of the owner's grants and rules are for skills or scripts that there are not."""
        runtime = self.runtime
        if runtime.source.registry is not None:
            return []  # which skills a registry has is not known
        if runtime.grants.empty and not runtime.permissions.rules and not runtime.permissions.hosts:
            return []  # nothing to compare thousands of names with
        names = runtime.source.all_names()

        def like(name: str, path: str) -> Sequence[str] | None:
            skill = runtime.source.owned(name)
            if skill is None:
                return None
            try:
                skill.find(path, ("scripts",))
            except (ScriptNotFound, ResourceNotFound) as error:
                return error.suggestions
            except SkillsError:
                return ()
            return None

        return [
            *(Diagnostic("unknown-grant", Severity.WARNING, one) for one in runtime.grants.unknown(names, like)),
            *(Diagnostic("unknown-rule", Severity.WARNING, one) for one in runtime.permissions.unknown(names, like)),
        ]

    def _answer_for_undeclared(
        self, working: Sequence[ToolsetTool], tool_context: ToolContext, llm_request: LlmRequest
    ) -> None:
        """Answer a call of a tool that cannot work here, without declaring it: see :class:`ToolsetTool`."""
        for tool in (*self.core_tools(tool_context), *self._shell_tools):
            if tool not in working and self._is_tool_selected(tool, tool_context):
                named = copy.copy(tool)
                named.name = self.runtime.tool_name(tool.base_name)
                answer_undeclared(llm_request, named.name, named)

    async def _working_tools(self, context: ReadonlyContext | None) -> list[ToolsetTool]:
        """The toolset's own tools without the one for scripts where nothing may run."""
        runtime = self.runtime
        tools = [] if runtime.empty else list(self.core_tools(context))
        tools += self._shell_tools
        ours = self._scripts_ready is not None and runtime.code_executor is None and runtime.environment is None
        if ours and self._scripts_ready is not None and not await self._scripts_ready():
            unable = {"run_skill_script", *(tool.base_name for tool in self._shell_tools)}
            tools = [tool for tool in tools if tool.base_name not in unable]
        return tools

    def _introduce_shell(
        self, working: Sequence[ToolsetTool], tool_context: ToolContext, llm_request: LlmRequest
    ) -> None:
        """Say how the shell is used, where the request declares it."""
        runtime = self.runtime
        names = {
            tool.base_name
            for tool in working
            if tool in self._shell_tools and self._is_tool_selected(tool, tool_context) and tool.offered(tool_context)
        }
        if "execute" not in names:
            return
        environment = runtime.environment if runtime.code_executor is None else None
        text = shell_instruction(
            runtime.tool_name,
            keeps_tmp=getattr(runtime.sandbox, "keeps_tmp", False),
            jobs="job_output" in names,
            in_environment="" if environment is None else str(environment.working_dir),
        )
        llm_request.append_instructions([text])

    async def _brought_by(self, names: Sequence[str], taken: Sequence[str], context: ReadonlyContext) -> list[BaseTool]:
        """The tools that active skills bring, as far as the owner's rules let them."""
        active: list[KnownSkill] = []
        for name in names:
            try:
                found = await self.runtime.skill(context, name)
                if found.additional_tools:
                    await in_worker(found.pinned)  # what its changed file brings is nobody's (row 496)
                active.append(found)
            except SkillsError as error:
                logger.warning("the tools of the active skill %s are not available: %s", name, error.message)
        of_agent = agent_tool_names(context)
        wanted = []
        for skill in active:
            for tool in skill.additional_tools:
                if f"{self.runtime.prefix}{tool}" not in of_agent:
                    wanted.append(tool)
                else:  # google-adk would take the last one, so a skill could replace a tool of the agent (row 268)
                    logger.info("the skill %s brings the tool %s, which the agent has itself", skill.name, tool)
        return permitted_tools(self.runtime, await self.runtime.additional.resolve(wanted, taken, context), active)

    async def _brought_now(self, activated: Sequence[str], tool_context: ToolContext) -> list[BaseTool]:
        """The tools that skills bring which became active after this request's tools were resolved."""
        names = self.runtime.active.active(tool_context)
        core = [tool.base_name for tool in self.core_tools(tool_context)]
        before = await self._brought_by([name for name in names if name not in activated], core, tool_context)
        known = {tool.name for tool in before}
        brought = await self._brought_by(activated, core, tool_context)
        wanted = {f"{self.runtime.prefix}{tool.name}" for tool in brought if tool.name not in known}
        return [tool for tool in await self.get_tools_with_prefix(tool_context) if tool.name in wanted]

    @abstractmethod
    def unload_tool(self) -> ToolsetTool | None:
        """The tool that releases a skill, if the toolset has one."""

    def skill_names(self) -> list[str]:
        """The names a user can complete after ``$`` or ``/`` (C31)."""
        return self.runtime.source.names_for_user()

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
        """Release a skill without the model. Returns whether it was active."""
        was_active = self.runtime.active.deactivate(ctx, skill_name)
        if was_active:
            self.runtime.events.emit(SkillDropped(origin=origin_of(ctx), skill=skill_name, reason="unloaded"))
        return was_active

    async def close(self) -> None:
        """Delete the sessions' workspaces, flush the events and release what is not the caller's."""
        runtime = self.runtime
        if self._shell_tools:
            await asyncio.to_thread(JOBS.close, runtime.owner)
        await asyncio.to_thread(SHARED_WORKSPACES.close, runtime.owner)
        await asyncio.to_thread(runtime.source.close)
        runtime.users.discard(self)
        if runtime.users:
            return  # the last one that was used closes what a toolset and its clones share
        environment = runtime.environment
        if environment is not None and getattr(environment, "is_initialized", hasattr(environment, "close")):
            await environment.close()
        await self.runtime.additional.close()
        if self._owns_sandbox and runtime.sandbox is not None:
            await runtime.sandbox.close()
        await runtime.events.close()
        await super().close()
