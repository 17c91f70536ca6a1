"""How long a skill stays active, and how the catalogue reaches the model; google-adk's own classes are taken too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.installation import install_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import google.adk.skills
    from google.adk.code_executors import BaseCodeExecutor
    from google.adk.environment import BaseEnvironment
    from google.adk.tools.base_toolset import ToolPredicate

    from adk_skills_agent.adk.events.audit_log import AuditLog
    from adk_skills_agent.adk.permissions import Permissions
    from adk_skills_agent.adk.shell.commands import ShellSettings
    from adk_skills_agent.catalog import CatalogReader
    from adk_skills_agent.packages import Dependencies, DependencyMode
    from adk_skills_agent.sandbox import EnvValue, PresetName, Sandbox, SandboxPolicy
    from adk_skills_agent.scripts import GrantsByName
    from adk_skills_agent.sources.integrity import Integrity


class SkillLifecycleMode(Enum):
    """How long a skill stays active once loaded; the values are google-adk's."""

    PERSISTENT = "persistent"
    """For the rest of the session, unless it is unloaded."""
    BOUNDED = "bounded"
    """As PERSISTENT, but at most ``max_active_skills`` of them: loading one more releases the least recently loaded."""
    EPHEMERAL = "ephemeral"
    """Until the turn ends that loaded it; in ``run_live`` too, where a turn ends when the model has finished it."""


class SkillDiscoveryMode(Enum):
    """How the model learns which skills there are; LAZY and EAGER are google-adk's."""

    LAZY = "lazy"
    """The model calls ``list_skills``."""
    EAGER = "eager"
    """The catalogue is in the system instruction, within a token budget; skills without room are found by search."""
    SEARCH = "search"
    """No list: the model calls ``search_skills``. For thousands of skills."""


DiscoveryName: TypeAlias = Literal["lazy", "eager", "search"]
WORKSPACES = ("session", "skill")
"""Whose files a script finds in its working directory: those of all skills of its session, or of its skill alone."""


@dataclass(frozen=True)
class SkillLifecycleConfig:
    """How long a toolset's skills stay active; the fields are google-adk's.

    Attributes:
        enabled: False leaves every skill active for the whole session, whatever the rest says.
        default_mode: For any skill not in ``skill_overrides``.
        max_active_skills: How many BOUNDED skills may be active at once, for each agent.
        skill_overrides: Mode by skill name.
        revalidate_skills: Accepted for google-adk's sake. Instructions in force are always those of now: a changed
            skill is stated once, anew, with or without it.
    """

    enabled: bool = True
    default_mode: SkillLifecycleMode = SkillLifecycleMode.PERSISTENT
    max_active_skills: int = 5
    skill_overrides: Mapping[str, SkillLifecycleMode] = field(default_factory=lambda: MappingProxyType({}))
    revalidate_skills: bool = False

    def __post_init__(self) -> None:
        if self.max_active_skills < 1:
            raise ValueError(f"`max_active_skills` must be at least 1, got {self.max_active_skills}.")

    def mode_of(self, name: str) -> SkillLifecycleMode:
        """The mode of one skill."""
        if not self.enabled:
            return SkillLifecycleMode.PERSISTENT
        return self.skill_overrides.get(name, self.default_mode)


def lifecycle_of(config: Any) -> SkillLifecycleConfig:
    """Our configuration from ours, google-adk's or None; a copy, so that editing the caller's changes nothing.

    Raises ``ConfigError`` when it is neither.
    """
    if config is None:
        return SkillLifecycleConfig()
    try:
        return SkillLifecycleConfig(
            enabled=bool(config.enabled),
            default_mode=SkillLifecycleMode(_value(config.default_mode)),
            max_active_skills=int(config.max_active_skills),
            skill_overrides={
                name: SkillLifecycleMode(_value(mode)) for name, mode in dict(config.skill_overrides).items()
            },
            revalidate_skills=bool(config.revalidate_skills),
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f"lifecycle_config must be a SkillLifecycleConfig, not {config!r}: {error}.") from error


def discovery_of(mode: Any) -> SkillDiscoveryMode:
    """Our mode from ours, google-adk's, or its word. Raises ``ConfigError`` when it is not one of these."""
    try:
        word = _value(mode)
        return SkillDiscoveryMode(word.lower() if isinstance(word, str) else word)
    except ValueError as error:
        raise ConfigError(f"discovery_mode must be 'lazy', 'eager' or 'search', not {mode!r}.") from error


def _value(mode: Any) -> Any:
    return getattr(mode, "value", mode)


# The numbers an owner may change: how much of the context skills take, and how often a model may miss.


@dataclass(frozen=True, slots=True)
class SkillLimits:
    """Bounds of one toolset. ``None`` means unlimited where it is allowed.

    Attributes:
        skill_tokens: Most tokens of one active skill's instructions in a request; the rest is read in pages.
        active_tokens: Most tokens of all active skills of an agent; beyond it the oldest are released.
        manifest_files: Most files listed when a skill is activated; 0 leaves the list out.
        misses: How many wrong paths (or names, or runs without an executor) of a kind one turn gets a mild answer for;
            the next one is fatal (S2).
        identical_failures: How often one turn may repeat a run that failed the same way.
        cache_turns: For how many turns skills fetched from a registry are kept (S2-13).
        list_skills: Most skills in one answer of ``list_skills``; more are paged.
        search_results: Most skills in one answer of ``search_skills``.
        error_chars: Longest cause that the ``error`` of a script quotes, in characters (S0-21); None for all of it.
    """

    skill_tokens: int | None = 5_000
    active_tokens: int | None = 25_000
    manifest_files: int = 60
    misses: int = 1
    identical_failures: int = 2
    cache_turns: int = 16
    list_skills: int = 200
    search_results: int = 10
    error_chars: int | None = 200

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is None and each.name in {"skill_tokens", "active_tokens", "error_chars"}:
                continue
            least = 0 if each.name in {"manifest_files", "misses", "identical_failures"} else 1
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"SkillLimits.{each.name} must be a whole number from {least} on, not {value!r}.")


def check_model_name(name: object, key: str) -> str | None:
    """A model's name as google-adk takes it, checked before the first request fails on it.

    None and the empty name (an agent that takes its parent's) are left alone; ``key`` names the argument. Raises
    ``ConfigError`` when it is no text, or google-adk finds no class for it.
    """
    if name is None or name == "":
        return None
    if not isinstance(name, str):
        raise ConfigError(f"{key} must be a model's name, such as 'gemini-2.5-flash', not {type(name).__name__}.")
    if name.startswith(_SURELY_KNOWN):
        return name
    from google.adk.models import LLMRegistry

    try:
        LLMRegistry.resolve(name)
    except (ValueError, ImportError) as error:
        hint = f"Install LiteLLM for it: {install_hint('litellm')}" if "/" in name else "Check its spelling."
        raise ConfigError(f"{key}: google-adk knows no model {name!r}. {hint}") from error
    return name


_SURELY_KNOWN = ("gemini-", "models/gemini-")
"""Prefixes of google-adk's own models; resolving those would import the client of the service."""


# The keywords of the ways to make a toolset, so that an editor completes them and a type checker finds a wrong one.
# What each of them means is said once, in the docstring of SkillToolset.


class SharedSettings(TypedDict, total=False):
    """Keywords that ``with_skills`` and every way to make a toolset have."""

    permissions: Permissions | Mapping[str, object] | str | Path | None
    on_event: Callable[[Any], object] | Sequence[Callable[[Any], object]]
    audit_log: Path | str | AuditLog | None
    limits: SkillLimits | None
    require_activation: bool
    workspace: Literal["session", "skill"]
    workspace_store: Any
    shell: bool | ShellSettings
    trust_allowed_tools: bool
    additional_tools: Sequence[Any] | None
    lifecycle_config: Any
    dependencies: Dependencies | DependencyMode | None
    integrity: Integrity | None


class SkillToolsSettings(SharedSettings, total=False):
    """Keywords of ``SkillTools`` besides those its constructor spells out."""

    user_skills: CatalogReader | None
    env: Mapping[str, EnvValue] | None
    grants: GrantsByName | None
    budget_tokens: int | None
    model: str | None


class SkillToolsetSettings(SharedSettings, total=False):
    """Keywords of ``SkillToolset``, its constructor's, for the class methods that make one."""

    registry: google.adk.skills.SkillRegistry | None
    code_executor: BaseCodeExecutor | None
    environment: BaseEnvironment | None
    skills_folder: Path | str | None
    script_timeout: float | None
    save_output_artifacts: bool
    tool_name_prefix: str | None
    tool_filter: ToolPredicate | list[str] | None
    discovery_mode: Enum | DiscoveryName
    sandbox: Sandbox | str | None
    policy: SandboxPolicy | PresetName | None
    interpreters: Mapping[str, Sequence[str]] | None
    env: Mapping[str, EnvValue] | None
    grants: GrantsByName | None
    script_tool_name: str
    budget_tokens: int | None
    model: str | None
    file_list: bool
    argument_style: Literal["unix", "google-adk"]
