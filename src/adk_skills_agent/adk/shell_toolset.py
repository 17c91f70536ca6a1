"""``ShellToolset``: the shell and file tools alone, for an agent without skills."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adk_skills_agent.adk.options import SkillLimits, SkillToolsSettings
from adk_skills_agent.adk.runtime import make_runtime
from adk_skills_agent.adk.runtime_toolset import RuntimeToolset
from adk_skills_agent.adk.shell.commands import ShellSettings, shell_of
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox import Sandbox, policy_of, sandbox_of
from adk_skills_agent.scripts import RunSettings

if TYPE_CHECKING:
    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.environment import BaseEnvironment
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools.base_toolset import ToolPredicate
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.events.audit_log import AuditLog
    from adk_skills_agent.adk.tools.base import ToolsetTool
    from adk_skills_agent.sandbox import EnvValue, SandboxPolicy


class ShellToolset(RuntimeToolset):
    """``execute``, ``read_file``, ``write_file``, ``edit_file`` and background jobs in a workspace for each session.

    Args:
        shell: Its settings; True for the defaults.
        sandbox: Where commands run: a name (``"auto"``, ``"local"``, ``"container"``, ``"kubernetes"``, ``"ray"``) or
            an object.
        environment: A google-adk environment instead.
        policy: The limits of each command: a policy, or the name of a preset.
        workspace_store: As :class:`SkillToolset` has it.
        env: Variables given to every command; a :class:`Secret` reaches the commands and nobody else.
        on_event: Who is told what happens.
        audit_log: A file that gets a line for each event.
        limits: Misses and the like.
        tool_filter: As for every google-adk toolset.
        tool_name_prefix: As for every google-adk toolset.

    Raises:
        ConfigError: A setting cannot be used, or both ``sandbox`` and ``environment`` are given.
    """

    def __init__(
        self,
        shell: bool | ShellSettings = True,  # as SkillToolset has it
        *,
        sandbox: Sandbox | str | None = None,
        environment: BaseEnvironment | None = None,
        policy: SandboxPolicy | str | None = None,
        workspace_store: Any = None,
        env: Mapping[str, EnvValue] | None = None,
        on_event: Callable[[Any], object] | Sequence[Callable[[Any], object]] = (),
        audit_log: Path | str | AuditLog | None = None,
        limits: SkillLimits | None = None,
        tool_filter: ToolPredicate | list[str] | None = None,
        tool_name_prefix: str | None = None,
    ) -> None:
        if environment is not None and sandbox is not None:
            raise ConfigError("ShellToolset takes a sandbox or an environment, not both.")
        if shell_of(shell) is None:
            raise ConfigError("ShellToolset without a shell has no tools; leave the toolset out instead.")
        given = SkillToolsSettings(
            shell=shell,
            workspace_store=workspace_store,
            env=env,
            on_event=on_event,
            audit_log=audit_log,
            limits=limits,
            dependencies="off",
        )
        runtime = make_runtime(
            given,
            settings=RunSettings(policy_of(policy)),
            sandbox=sandbox_of(sandbox) if environment is None else None,
            prefers_sandbox=True,
            environment=environment,
            tool_name_prefix=tool_name_prefix,
            loader="",
            owner=self,
        )
        super().__init__(
            runtime,
            owns_sandbox=not isinstance(sandbox, Sandbox),
            tool_filter=tool_filter,
            tool_name_prefix=tool_name_prefix,
        )

    def core_tools(self, readonly_context: ReadonlyContext | None) -> Sequence[ToolsetTool]:
        """None: the shell's tools are every toolset's."""
        return ()

    def unload_tool(self) -> None:
        """None: there are no skills."""
        return

    async def introduce(self, llm_request: LlmRequest, tool_context: ToolContext, offered: set[str]) -> list[str]:
        """Nothing of skills."""
        return []
