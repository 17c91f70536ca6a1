"""Giving an agent skills in one line (S4-11, S4-12)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal, Unpack

from adk_skills_agent.adk.options import SharedSettings, check_model_name
from adk_skills_agent.adk.skill_tools import SkillTools, short_named_runtime
from adk_skills_agent.adk.tools.find_skills import SearchSkillsTool
from adk_skills_agent.adk.tools.load_skill import UseSkillTool
from adk_skills_agent.adk.tools.load_skill_resource import ReadReferenceTool
from adk_skills_agent.adk.tools.run_skill_script import RunScriptTool
from adk_skills_agent.catalog import CatalogReader, SkillsRegistry
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox import policy_of, sandbox_of
from adk_skills_agent.scripts import Interpreters, RunSettings

if TYPE_CHECKING:
    from pathlib import Path

    from google.adk.agents import LlmAgent

    from adk_skills_agent.catalog.registry import Missing
    from adk_skills_agent.format import SkillMetadata
    from adk_skills_agent.packages import Dependencies, DependencyMode
    from adk_skills_agent.sandbox import EnvValue, PresetName, Sandbox, SandboxPolicy
    from adk_skills_agent.scripts import GrantsByName


def with_skills(
    agent: LlmAgent,
    skills: Iterable[str | Path] | CatalogReader,
    *,
    policy: SandboxPolicy | PresetName | None = None,
    sandbox: Sandbox | str | None = None,
    interpreters: Mapping[str, Sequence[str]] | None = None,
    env: Mapping[str, EnvValue] | None = None,
    grants: GrantsByName | None = None,
    allow: Sequence[str] = (),
    deny: Sequence[str] = (),
    predicate: Callable[[SkillMetadata], bool] | None = None,
    budget_tokens: int | None = None,
    missing: Missing = "error",
    relative_to: str | Path | None = None,
    **more: Unpack[SharedSettings],
) -> LlmAgent:
    """Return a copy of ``agent`` that can find, load and use skills; the original does not change.

    Args:
        agent: Any google-adk LLM agent.
        skills: Folders to search, or a registry (agents may share one), or a view of one.
        policy: Limits of the scripts it runs: a policy, or the name of a preset (``trusted``, ``default``, ``strict``).
        sandbox: Where they run; None takes this machine.
        interpreters: More kinds of scripts, such as ``{".js": ["node"]}``.
        env: Variables granted to every script; a :class:`Secret` reaches the scripts and nobody else.
        grants: What one skill (``"weather"``) or one script (``"weather/scripts/forecast.py"``) may use: a mapping of
            variables, or a :class:`~adk_skills_agent.Grant` with hosts, variables and programs.
        allow: Only skills whose names match one of these patterns (``"db-*"``); empty allows all.
        deny: No skill whose name matches one of these patterns.
        predicate: Only skills it is true for. What is filtered is hidden from the model entirely (C26).
        budget_tokens: Most tokens of the catalogue in each request; None takes 2 % of the model's context.
        missing: ``"warn"`` goes on without a folder that does not exist; its skills are found when it appears.
        relative_to: Where relative folders start: give ``__file__`` for the folder of your own file. The working
            directory when None.
        more: ``dependencies``, ``integrity``, ``permissions``, ``on_event``, ``audit_log``, ``limits``,
            ``require_activation``, ``workspace``, ``workspace_store``, ``shell``, ``trust_allowed_tools``,
            ``additional_tools`` and ``lifecycle_config``, as
            :class:`~adk_skills_agent.adk.skill_toolset.SkillToolset` has them.

    Raises:
        ConfigError: A folder does not exist, google-adk knows no such model as the agent's, or a setting cannot be
            used.
    """
    if isinstance(agent, str | PurePath) or (isinstance(agent, Sequence) and not hasattr(agent, "tools")):
        raise ConfigError("with_skills takes the agent first, then the folders: with_skills(agent, ['skills']).")
    if isinstance(skills, str):
        raise ConfigError(f"with_skills takes a list of folders; write [{skills!r}].")
    if not isinstance(skills, CatalogReader):
        skills = SkillsRegistry.of_folders(skills, missing=missing, relative_to=relative_to)
    view = skills.view(allow, deny, predicate)
    model = (
        check_model_name(agent.model, f"The model of agent {agent.name!r}")
        if isinstance(agent.model, str)
        else getattr(agent.model, "model", None)
    )
    tools = SkillTools(
        view,
        user_skills=skills.view(allow, deny, predicate, include_disabled=True),
        sandbox=sandbox,
        settings=_settings(policy, interpreters),
        prefers_sandbox=policy is not None,
        env=env,
        grants=grants,
        budget_tokens=budget_tokens,
        model=model,
        **more,
    )
    return agent.clone(update={"tools": [*agent.tools, tools]})


def create_use_skill_tool(
    skills: CatalogReader, *, budget_tokens: int | None = None, model: str | None = None
) -> UseSkillTool:
    """The tool that activates a skill; the catalogue is in its description."""
    return UseSkillTool(short_named_runtime(skills.view(), budget_tokens=budget_tokens, model=model), alone=True)


def create_run_script_tool(
    skills: CatalogReader,
    *,
    policy: SandboxPolicy | PresetName | None = None,
    sandbox: Sandbox | str | None = None,
    interpreters: Mapping[str, Sequence[str]] | None = None,
    env: Mapping[str, EnvValue] | None = None,
    grants: GrantsByName | None = None,
    workspace: Literal["session", "skill"] = "session",
    dependencies: Dependencies | DependencyMode | None = None,
) -> RunScriptTool:
    """The tool that runs a skill's scripts."""
    return RunScriptTool(
        short_named_runtime(
            skills.view(),
            sandbox=sandbox_of(sandbox),
            prefers_sandbox=sandbox is not None or policy is not None,
            settings=_settings(policy, interpreters),
            dependencies=dependencies,
            env=env,
            grants=grants,
            workspace=workspace,
        )
    )


def create_read_reference_tool(skills: CatalogReader) -> ReadReferenceTool:
    """The tool that reads a skill's files."""
    return ReadReferenceTool(short_named_runtime(skills.view()))


def create_search_skills_tool(
    skills: CatalogReader, *, budget_tokens: int | None = None, model: str | None = None
) -> SearchSkillsTool:
    """The tool that finds skills for which the catalogue has no room; give it the budget of the ``use_skill`` tool."""
    return SearchSkillsTool(short_named_runtime(skills.view(), budget_tokens=budget_tokens, model=model))


def _settings(policy: SandboxPolicy | str | None, interpreters: Mapping[str, Sequence[str]] | None) -> RunSettings:
    return RunSettings(policy_of(policy), Interpreters(interpreters))
