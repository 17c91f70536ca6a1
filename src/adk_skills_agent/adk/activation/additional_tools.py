"""Tools of the application that are offered only while a skill asks for them (``adk_additional_tools``, S0-25)."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import logging
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import google.adk.tools
from google.adk.agents import LlmAgent
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.function_tool import FunctionTool

from adk_skills_agent.adk.guard import say_final_text
from adk_skills_agent.adk.permissions import permit
from adk_skills_agent.adk.rules import Verdict
from adk_skills_agent.adk.tools.base import failure
from adk_skills_agent.errors import ConfigError, SkillsError

if TYPE_CHECKING:
    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.runtime import SkillRuntime
    from adk_skills_agent.adk.skills.known import KnownSkill


logger = logging.getLogger(__name__)


class AdditionalTools:
    """The ``additional_tools=`` of a toolset, as tools by name and toolsets.

    Raises ``ConfigError`` when an item is no tool.
    """

    def __init__(self, given: Sequence[Any] | None = None) -> None:
        self.tools: dict[str, BaseTool] = {}
        self.toolsets: list[BaseToolset] = []
        self._given = tuple(given or ())
        self._nodes: list[Any] = []
        self._told: set[str] = set()
        for item in self._given:
            if isinstance(item, BaseToolset):
                self.toolsets.append(item)
            elif isinstance(item, BaseTool):
                self.tools[item.name] = item
            elif inspect.isroutine(item) or inspect.isclass(item) or (callable(item) and not _is_node(item)):
                tool = FunctionTool(item)
                self.tools[tool.name] = tool
            elif _is_node(item):
                self._nodes.append(item)
            else:
                raise ConfigError(
                    f"additional_tools takes functions, tools, toolsets and nodes, not {type(item).__name__}."
                )
        self._nodes_wrapped = not self._nodes

    @property
    def given(self) -> tuple[Any, ...]:
        """As it was passed, for a clone."""
        return self._given

    async def by_name(self, context: ReadonlyContext | None) -> dict[str, BaseTool]:
        """All of them; a toolset that fails is left out, with a line for the owner.

        Of two with one name the application's own tool is taken, else the one of the first toolset: an MCP server lists
        what it likes, and must not get the calls of another's tool (row 267).
        """
        if not self._nodes_wrapped:
            # They become tools the way an agent's own do: through an agent, which is google-adk's public way.
            agent = LlmAgent(name="additional_tools", tools=self._nodes)
            for tool in await agent.canonical_tools():
                self.tools.setdefault(tool.name, tool)
            self._nodes_wrapped = True
        found = dict(self.tools)
        listed = await asyncio.gather(
            *(toolset.get_tools_with_prefix(context) for toolset in self.toolsets), return_exceptions=True
        )
        for toolset, tools in zip(self.toolsets, listed, strict=True):
            if isinstance(tools, Exception):
                logger.warning("the tools of %s are not available to skills: %s", type(toolset).__name__, tools)
            elif isinstance(tools, BaseException):
                raise tools
            else:
                for tool in tools:
                    if (
                        found.setdefault(tool.name, tool) is not tool
                        and tool.name not in self._told
                        and len(self._told) < 100
                    ):
                        self._told.add(tool.name)
                        logger.warning(
                            "the tool %r of %s is not available to skills: another tool has that name",
                            tool.name[:100],
                            type(toolset).__name__,
                        )
        return found

    async def resolve(
        self, wanted: Iterable[str], taken: Collection[str], context: ReadonlyContext | None
    ) -> list[BaseTool]:
        """The tools of these names, in this order, so that the declarations of earlier turns keep their place.

        The toolset's own tools (``taken``) win.
        """
        names = list(dict.fromkeys(wanted))
        if not names:
            return []
        known = await self.by_name(context)
        for name in names:
            if name in taken:
                logger.error("Tool name collision: tool '%s' already exists.", name)
        found = [known.get(name) or built_in_tool(name) for name in names if name not in taken]
        return [tool for tool in found if tool is not None]

    async def missing(self, wanted: Iterable[str], context: ReadonlyContext | None) -> list[str]:
        """The names that nothing here has."""
        names = list(dict.fromkeys(wanted))
        known = await self.by_name(context) if names else {}
        return [name for name in names if name not in known and built_in_tool(name) is None]

    async def close(self) -> None:
        """Close the toolsets."""
        for toolset in self.toolsets:
            await toolset.close()


@functools.cache
def built_in_tool(name: str) -> BaseTool | None:
    """One of google-adk's own tools by its name, such as ``load_memory`` or ``google_search``; None when it has none.

    What the application gave under that name comes first. Classes that need settings of the application are no tools.
    """
    if not name.islower() or name not in google.adk.tools.__all__:
        return None
    try:
        item = getattr(google.adk.tools, name)
    except ImportError as error:
        logger.warning("google-adk's tool '%s' is not available to skills: %s", name, error)
        return None
    if isinstance(item, BaseTool):
        return item
    return FunctionTool(item) if inspect.isfunction(item) else None


def _is_node(item: Any) -> bool:
    """Whether it is a workflow node; google-adk has no public name for their base class."""
    return any(base.__name__ == "BaseNode" for base in type(item).__mro__)


def agent_tool_names(context: ReadonlyContext | None) -> frozenset[str]:
    """The names of the functions and tools that the asking agent has in ``tools``; its toolsets' are not known."""
    # As with agent_executor(): the public way makes a copy of a whole model, and doubles know only this attribute.
    agent = getattr(getattr(context, "_invocation_context", None), "agent", None)
    tools = getattr(agent, "tools", None)
    names = (getattr(one, "name", None) or getattr(one, "__name__", None) for one in tools or () if _is_tool(one))
    return frozenset(name for name in names if isinstance(name, str))


def _is_tool(item: Any) -> bool:
    return isinstance(item, BaseTool) or inspect.isroutine(item)


# Tools that skills bring (``adk_additional_tools``), under the owner's rules: left out, asked for, or as they are.


def permitted_tools(runtime: SkillRuntime, tools: Iterable[BaseTool], active: Sequence[KnownSkill]) -> list[BaseTool]:
    """The tools an agent may have for its active skills.

    A tool that several skills bring is as free as the freest of them makes it, except that ``deny`` always wins.
    """
    offered = []
    for tool in tools:
        bringing = [skill for skill in active if tool.name in skill.additional_tools]
        verdicts = [(runtime.permissions.decide(skill, "tool", tool.name).verdict, skill) for skill in bringing]
        if any(verdict is Verdict.DENY for verdict, _ in verdicts):
            continue
        asking = [skill for verdict, skill in verdicts if verdict is Verdict.ASK]
        if any(verdict is Verdict.ALLOW for verdict, _ in verdicts):
            offered.append(tool)
        elif asking and not _is_called_here(tool):
            logger.warning("the tool %s needs an approval, which cannot be asked for: left out", tool.name)
        elif asking:
            offered.append(_asking_first(runtime, tool, asking[0]))
    return offered


def _is_called_here(tool: BaseTool) -> bool:
    """Whether google-adk calls its ``run_async``, so that somebody can be asked.

    Not of a streaming tool, which it starts itself in run_live, nor of one without a declaration: what that does is
    done at the model's provider (``url_context``) or in every request (``preload_memory``).
    """
    # google-adk has no public way to ask a tool for its declaration.
    return not inspect.isasyncgenfunction(getattr(tool, "func", None)) and tool._get_declaration() is not None


def _asking_first(runtime: SkillRuntime, tool: BaseTool, skill: KnownSkill) -> BaseTool:
    """A copy of the tool that needs the user's word; its class, declaration and settings stay."""
    name, run = tool.name, tool.run_async

    async def run_async(*, args: dict[str, Any], tool_context: ToolContext) -> Any:
        try:
            refusal = await permit(runtime, tool_context, skill, "tool", name)
        except SkillsError as error:
            return failure(error)
        if refusal is None:
            return await run(args=args, tool_context=tool_context)
        await say_final_text(tool_context, refusal)
        return refusal

    asking = copy.copy(tool)
    asking.run_async = run_async  # type: ignore[method-assign]  # of this copy alone, as google-adk does for prefixes
    return asking
