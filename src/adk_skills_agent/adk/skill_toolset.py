"""``SkillToolset``: google-adk's toolset for skills, with the same arguments, tools, answers and state."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from adk_skills_agent.adk.activation.listing import toolset_instruction
from adk_skills_agent.adk.events.events import SkillDiscovered, origin_of
from adk_skills_agent.adk.options import (
    SkillDiscoveryMode,
    SkillLimits,
    SkillToolsetSettings,
    SkillToolsSettings,
    check_model_name,
    discovery_of,
)
from adk_skills_agent.adk.permissions import Permissions
from adk_skills_agent.adk.runtime import DEFAULT_SCRIPT_TIMEOUT, SkillRuntime, make_runtime
from adk_skills_agent.adk.runtime_toolset import RuntimeToolset
from adk_skills_agent.adk.shell.commands import ShellSettings, shell_of
from adk_skills_agent.adk.skills.google_objects import as_object, stand_in_for_theirs
from adk_skills_agent.adk.skills.source import SkillSource
from adk_skills_agent.adk.tools.find_skills import ListSkillsTool, SearchSkillsTool
from adk_skills_agent.adk.tools.load_skill import LoadSkillTool, UnloadSkillTool
from adk_skills_agent.adk.tools.load_skill_resource import LoadSkillResourceTool
from adk_skills_agent.adk.tools.run_skill_script import RunSkillScriptTool
from adk_skills_agent.adk.tools.shell import shell_tools
from adk_skills_agent.catalog import CatalogReader, SkillsRegistry
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox import Sandbox, policy_of, sandbox_of
from adk_skills_agent.scripts import GrantsByName, Interpreters, RunSettings

if TYPE_CHECKING:
    import google.adk.skills
    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.code_executors import BaseCodeExecutor
    from google.adk.environment import BaseEnvironment
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools.base_toolset import ToolPredicate
    from google.adk.tools.tool_configs import ToolArgsConfig
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.events.audit_log import AuditLog
    from adk_skills_agent.adk.options import DiscoveryName
    from adk_skills_agent.adk.tools.base import ToolsetTool
    from adk_skills_agent.catalog.registry import Missing
    from adk_skills_agent.packages import Dependencies, DependencyMode
    from adk_skills_agent.sandbox import EnvValue, PresetName, SandboxPolicy
    from adk_skills_agent.sources.integrity import Integrity


class SkillToolset(RuntimeToolset):
    """Discovers, loads and runs skills; a drop-in for ``google.adk.tools.skill_toolset.SkillToolset``.

    The arguments of google-adk's class come first and keep their meaning.

    Args:
        skills: google-adk's objects, or a catalog (:class:`~adk_skills_agent.SkillsRegistry`, or a view of one).
        registry: A google-adk registry, for skills that are fetched by name.
        code_executor: Runs the scripts; None takes the agent's own.
        environment: Runs the scripts instead.
        skills_folder: Absolute folder in the environment where skills are put.
        script_timeout: Seconds for a script, 300 as in google-adk. If it is not given, the time limit of ``policy`` or
            of an executor given here counts instead (a policy's default is 30 s); with None it always counts.
        save_output_artifacts: Whether files that a script leaves in an executor of another package become artifacts.
        additional_tools: Functions, tools, toolsets and nodes that skills ask for with ``adk_additional_tools``.
        tool_name_prefix: As for every google-adk toolset.
        tool_filter: As for every google-adk toolset.
        discovery_mode: LAZY, EAGER or SEARCH; google-adk's enum works too.
        lifecycle_config: How long skills stay active; google-adk's class works too.
        sandbox: Where scripts run when there is neither executor nor environment here: ``"local"``, ``"container"``,
            ``"kubernetes"``, ``"ray"``, ``"auto"`` or an object; the agent's own executor comes after it. None takes
            what ``ADK_SKILLS_SANDBOX`` says, else ``"auto"``.
        policy: Limits of those scripts: a policy, or the name of a preset. Scripts then run in the sandbox even if the
            agent has an executor.
        interpreters: More kinds of scripts, such as ``{".js": ["node"]}``.
        env: Variables granted to every script; a :class:`Secret` reaches the scripts and nobody else.
        grants: What one skill (``"weather"``) or one script (``"weather/scripts/forecast.py"``) may use: a mapping of
            variables, or a :class:`~adk_skills_agent.Grant` with hosts, variables and programs.
        permissions: Rules for what is allowed, asked or denied: an object, its arguments, or a file.
        on_event: A function, or several, that get each event.
        audit_log: A file that gets a line for each event.
        limits: Token budgets, how many mistakes a model may make, and so on.
        require_activation: Whether files and scripts need their skill to be loaded first.
        script_tool_name: ``execute_skill_script`` gives the tool its old name (S0-2).
        budget_tokens: Most tokens of the catalogue in a request; None takes 2 % of the model's context.
        model: The agent's model, for that default.
        argument_style: How an object of arguments becomes a command line: ``"unix"`` (``{"all": True, "top": 3}`` is
            ``--all --top 3``, false and null are left out, a list repeats its option) or ``"google-adk"``, which
            writes ``--all True --top 3`` (S0-40, S0-41).
        file_list: Whether an activation says which files there are; False answers with google-adk's keys only.
        workspace: ``"session"``: all skills of a session work in one folder and find each other's files there;
            ``"skill"``: each has a folder of its own in each session.
        workspace_store: A second place for the files of each session, so that its next request may reach another
            server: a folder, a URL such as ``s3://bucket/prefix``, a :class:`~adk_skills_agent.WorkspaceStore`, an
            artifact service of google-adk, or ``"artifacts"`` for that of the Runner. None keeps them on this server.
        shell: True, or settings, for ``execute``, ``read_file``, ``write_file`` and ``edit_file`` in the session's
            workspace, or in the environment.
        trust_allowed_tools: Whether what an active skill's ``allowed-tools`` names needs no question of its own: tools
            it brings, and commands as ``Bash(git:*)``. It never lifts what a rule denies.
        dependencies: What may be done for packages that skills need: ``"off"``, ``"locked"`` (only what
            ``adk-skills prepare`` made), ``"ask"`` (the user sees the exact list and is asked once) or ``"install"``;
            or a :class:`Dependencies`, which also names a preset, indexes and locks. None is ``"ask"`` where scripts
            run in our sandbox on this machine.
        integrity: What happens with a skill whose files are not those of the ``adk-skills.lock`` that names it:
            ``"require"`` refuses it, ``"warn"`` logs it. None compares nothing.

    Raises:
        ValueError: As google-adk: both executor and environment, a duplicate name, a relative ``skills_folder``.
        ConfigError: A setting of this package cannot be used.
    """

    def __init__(
        self,
        skills: Sequence[google.adk.skills.Skill] | CatalogReader | None = None,
        *,
        registry: google.adk.skills.SkillRegistry | None = None,
        code_executor: BaseCodeExecutor | None = None,
        environment: BaseEnvironment | None = None,
        skills_folder: Path | str | None = None,
        script_timeout: float | None = DEFAULT_SCRIPT_TIMEOUT,
        save_output_artifacts: bool = False,
        additional_tools: Sequence[Any] | None = None,
        tool_name_prefix: str | None = None,
        tool_filter: ToolPredicate | list[str] | None = None,
        discovery_mode: Enum | DiscoveryName = SkillDiscoveryMode.LAZY,
        lifecycle_config: Any = None,
        sandbox: Sandbox | str | None = None,
        policy: SandboxPolicy | PresetName | None = None,
        interpreters: Mapping[str, Sequence[str]] | None = None,
        env: Mapping[str, EnvValue] | None = None,
        grants: GrantsByName | None = None,
        permissions: Permissions | Mapping[str, object] | str | Path | None = None,
        on_event: Callable[[Any], object] | Sequence[Callable[[Any], object]] = (),
        audit_log: Path | str | AuditLog | None = None,
        limits: SkillLimits | None = None,
        require_activation: bool = False,
        script_tool_name: str = "run_skill_script",
        budget_tokens: int | None = None,
        model: str | None = None,
        file_list: bool = True,
        argument_style: Literal["unix", "google-adk"] = "unix",
        workspace: Literal["session", "skill"] = "session",
        workspace_store: Any = None,
        shell: bool | ShellSettings = False,
        trust_allowed_tools: bool = False,
        dependencies: Dependencies | DependencyMode | None = None,
        integrity: Integrity | None = None,
    ) -> None:
        _check(code_executor, environment, skills_folder, save_output_artifacts)
        _check_skills(skills)
        if environment is not None and workspace != "session":
            raise ConfigError("workspace='skill' needs our sandbox: all skills of an environment share its files.")
        settings_of_shell = shell_of(shell)
        if environment is not None and settings_of_shell is not None and settings_of_shell.copies_skills:
            raise ConfigError("skill_writes='session' needs our sandbox: an environment keeps skills in its own way.")
        self.discovery_mode = discovery_of(discovery_mode)
        catalog = skills if isinstance(skills, CatalogReader) else None
        # Our sandbox is the default only where google-adk's own way of giving skills was not used.
        wants_sandbox = catalog is not None or policy is not None or sandbox is not None or bool(shell)
        own_sandbox = isinstance(sandbox, str) or (
            sandbox is None and wants_sandbox and code_executor is None and environment is None
        )
        given = SkillToolsSettings(
            user_skills=catalog.view(include_disabled=True) if catalog is not None else None,
            env=env,
            grants=grants,
            permissions=permissions,
            on_event=on_event,
            audit_log=audit_log,
            limits=limits,
            require_activation=require_activation,
            budget_tokens=budget_tokens,
            model=check_model_name(model, "model"),
            workspace=workspace,
            workspace_store=workspace_store,
            shell=shell,
            trust_allowed_tools=trust_allowed_tools,
            additional_tools=additional_tools,
            lifecycle_config=lifecycle_config,
            dependencies=dependencies,
            integrity=integrity,
        )
        runtime = make_runtime(
            given,
            catalog=catalog.view() if catalog is not None else None,
            objects=() if isinstance(skills, CatalogReader) else skills or (),
            registry=registry,
            settings=RunSettings(
                policy_of(policy)
                if policy is not None or script_timeout is None
                else dataclasses.replace(policy_of(None), wall_seconds=script_timeout),
                Interpreters(interpreters),
            ),
            sandbox=sandbox_of(sandbox) if own_sandbox or sandbox is not None else None,
            prefers_sandbox=policy is not None or sandbox is not None,
            tool_name_prefix=tool_name_prefix,
            code_executor=code_executor,
            environment=environment,
            skills_folder=Path(skills_folder) if skills_folder is not None else None,
            script_timeout=None if script_timeout is DEFAULT_SCRIPT_TIMEOUT else script_timeout,
            google_arguments=_is_google_style(argument_style),
            save_output_artifacts=save_output_artifacts,
            file_list=file_list,
            lists=self.discovery_mode is not SkillDiscoveryMode.SEARCH,
            names={} if script_tool_name == "run_skill_script" else {"run_skill_script": script_tool_name},
            owner=self,
        )
        super().__init__(
            runtime,
            owns_sandbox=own_sandbox,
            tool_filter=tool_filter,
            tool_name_prefix=tool_name_prefix,
        )
        self._core = _core_tools(runtime)
        self._unload = UnloadSkillTool(runtime)
        self._warned_of_filter = False
        self._told_version = -1

    @classmethod
    def from_dirs(
        cls,
        dirs: Iterable[str | Path],
        *,
        missing: Missing = "error",
        relative_to: str | Path | None = None,
        **settings: Unpack[SkillToolsetSettings],
    ) -> Self:
        """A toolset of the skills in some folders. Files are read when they are needed; scripts run in the sandbox.

        Args:
            dirs: Folders of skills, folders of one skill, or SKILL.md files.
            missing: ``"warn"`` goes on without a folder that does not exist; its skills are found when it appears.
            relative_to: Where relative folders start: give ``__file__`` for the folder of your own file. The working
                directory when None.
            settings: As the constructor.

        Raises:
            ValueError: As the constructor.
            ConfigError: ``dirs`` is one string, a folder does not exist, or a setting cannot be used.
        """
        if isinstance(dirs, str):
            raise ConfigError(f"from_dirs takes a list of folders; write [{dirs!r}].")
        return cls(SkillsRegistry.of_folders(dirs, missing=missing, relative_to=relative_to), **settings)

    @classmethod
    def from_catalog(cls, catalog: CatalogReader, **settings: Unpack[SkillToolsetSettings]) -> Self:
        """A toolset of the skills of a catalog. Files are read when they are needed; scripts run in the sandbox.

        Args:
            catalog: A :class:`~adk_skills_agent.SkillsRegistry`, or a view of one; agents may share it.
            settings: As the constructor.

        Raises:
            ValueError: As the constructor.
            ConfigError: ``catalog`` is not a catalog, or a setting cannot be used.
        """
        if not isinstance(catalog, CatalogReader):
            raise ConfigError(
                f"from_catalog takes a SkillsRegistry or a view of one, not {type(catalog).__name__}; "
                "SkillToolset(skills) takes google-adk's objects, SkillToolset.from_dirs(folders) folders."
            )
        return cls(catalog, **settings)

    @classmethod
    def from_config(cls, config: ToolArgsConfig, config_abs_path: str) -> Self:
        """The toolset that a YAML agent of google-adk names: ``name: adk_skills_agent.SkillToolset`` and ``args``.

        Args:
            config: ``dirs``, and what else of the constructor can be written as plain values. Paths start at the file.
            config_abs_path: The YAML file.

        Raises:
            ConfigError: A key or a value cannot be used; with the file and the key.
        """
        from adk_skills_agent.adk.yaml_config import toolset_arguments

        return cls.from_dirs(**toolset_arguments(config.model_dump(), Path(config_abs_path)))

    @property
    def skills(self) -> list[google.adk.skills.Skill]:
        """The local skills as google-adk's objects; the files of those on disk are read when they are asked for."""
        return [as_object(skill) for skill in self.runtime.source.listed()]

    @property
    def skills_folder(self) -> Path | None:
        """The folder of skills in the environment, as google-adk reports it; None without an environment."""
        runtime = self.runtime
        if runtime.skills_folder is not None or runtime.environment is None:
            return runtime.skills_folder
        return Path(runtime.environment.working_dir) / "skills"

    def clone_with_updated_skills(self, skills: Sequence[google.adk.skills.Skill]) -> SkillToolset:
        """The same settings with other skills; what ``skills`` gave keeps its files when only its body changed."""
        old = self.runtime
        source = SkillSource(
            objects=skills,
            registry=old.source.registry,
            hides=old.permissions.hides,
            apart=old.permissions.keeps_apart,
            cache_turns=old.limits.cache_turns,
            integrity=old.source.integrity,
        )
        clone = copy.copy(self)
        clone.runtime = dataclasses.replace(old, source=source, listing=old.listing.for_skills(source), owner=clone)
        clone._core = _core_tools(clone.runtime)
        clone._unload = UnloadSkillTool(clone.runtime)
        clone._shell_tools = shell_tools(clone.runtime)
        clone._told_version = -1
        return clone

    def core_tools(self, readonly_context: ReadonlyContext | None) -> Sequence[ToolsetTool]:
        """In google-adk's order."""
        runtime = self.runtime
        left_out: set[str] = set()
        if self.discovery_mode is not SkillDiscoveryMode.LAZY:
            left_out.add("list_skills")
        if runtime.source.registry is None and not runtime.searches_local:
            left_out.add("search_skills")
        return [tool for tool in self._core if tool.base_name not in left_out]

    async def introduce(self, llm_request: LlmRequest, tool_context: ToolContext, offered: set[str]) -> list[str]:
        """How skills are used and, in EAGER mode, which there are."""
        runtime = self.runtime
        filtered = {
            tool.base_name
            for tool in (*self.core_tools(tool_context), self._unload)
            if not self._is_tool_selected(tool, tool_context)
        }
        told = [toolset_instruction(runtime.tool_name, offered, filtered)]
        if self._shows_catalogue("list_skills" in offered):
            told.append(runtime.listing.text.text)
            if self._told_version != runtime.source.version:
                self._told_version = runtime.source.version
                shown = runtime.listing.text.shown
                runtime.events.emit(SkillDiscovered.of(origin_of(tool_context), "catalogue", shown))
        search = f"`{runtime.tool_name('search_skills')}`"
        if "search_skills" in offered and self.discovery_mode is SkillDiscoveryMode.SEARCH:
            told.append(f"{search} finds skills; search before you do a task without one.")
        elif "search_skills" in offered and runtime.source.registry is not None:
            told.append(f"When no skill listed fits, {search} finds more in the registry.")
        return told

    def unload_tool(self) -> ToolsetTool:
        """As google-adk's."""
        return self._unload

    def _shows_catalogue(self, lists: bool) -> bool:
        if self.discovery_mode is not SkillDiscoveryMode.LAZY:
            return self.discovery_mode is SkillDiscoveryMode.EAGER
        if not lists and not self._warned_of_filter:
            self._warned_of_filter = True
            warnings.warn(
                "Filtering out `list_skills` puts the catalogue into the system instruction, as google-adk does; pass "
                "discovery_mode=SkillDiscoveryMode.EAGER instead.",
                FutureWarning,
                stacklevel=2,
            )
        return not lists


def _check_skills(skills: object) -> None:
    """Say what a folder in the place of google-adk's objects should have been."""
    given = [skills] if isinstance(skills, str | PurePath) else skills
    if isinstance(given, Sequence) and (paths := [str(one) for one in given if isinstance(one, str | PurePath)]):
        raise ConfigError(
            f"skills takes google-adk's Skill objects or a catalog. For folders: SkillToolset.from_dirs({paths!r})."
        )


def _core_tools(runtime: SkillRuntime) -> list[ToolsetTool]:
    return [
        ListSkillsTool(runtime),
        LoadSkillTool(runtime),
        LoadSkillResourceTool(runtime),
        RunSkillScriptTool(runtime),
        SearchSkillsTool(runtime),
    ]


def _is_google_style(style: str) -> bool:
    if style not in ("unix", "google-adk"):
        raise ConfigError(f"argument_style must be 'unix' or 'google-adk', not {style!r}.")
    return style == "google-adk"


def _check(
    code_executor: object, environment: object, skills_folder: Path | str | None, save_output_artifacts: bool
) -> None:
    """google-adk's own checks of its arguments, and whether they can be what they are called (a mock will do)."""
    _check_kind("code_executor", code_executor, "execute_code", "UnsafeLocalCodeExecutor()")
    _check_kind("environment", environment, "execute", "LocalEnvironment()")
    if code_executor and environment:
        raise ValueError("Cannot have both code_executor and environment")
    if environment and save_output_artifacts:
        raise ValueError("`save_output_artifacts` is only supported with code_executor, not environment.")
    if skills_folder is None:
        return
    if environment is None:
        raise ValueError("Cannot specify skills_folder without an environment")
    if not (PurePosixPath(skills_folder).is_absolute() or PureWindowsPath(skills_folder).is_absolute()):
        raise ValueError(f"`skills_folder` must be an absolute path: '{skills_folder}'")


def _check_kind(name: str, value: object, method: str, example: str) -> None:
    if value is None or (not isinstance(value, type) and callable(getattr(value, method, None))):
        return
    given = f"the class {value.__name__}; make an object of it" if isinstance(value, type) else type(value).__name__
    raise ConfigError(f"{name} must be an object that can {method!r}, such as {example}, not {given}.")


stand_in_for_theirs(
    (
        SkillToolset,
        ListSkillsTool,
        LoadSkillResourceTool,
        LoadSkillTool,
        RunSkillScriptTool,
        SearchSkillsTool,
        UnloadSkillTool,
    )
)
