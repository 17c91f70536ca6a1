"""The runtime for Agent Skills on Google's Agent Development Kit.

Everything public is here; each name is imported on first use, so ``import adk_skills_agent`` costs nothing and does
not import google-adk.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing has it, without the time to import it before the command line hears Ctrl-C

if TYPE_CHECKING:
    from adk_skills_agent.adk import (
        ShellSettings,
        ShellToolset,
        SkillDiscoveryMode,
        SkillLifecycleConfig,
        SkillLifecycleMode,
        SkillLimits,
        SkillTools,
        SkillToolset,
        create_read_reference_tool,
        create_run_script_tool,
        create_search_skills_tool,
        create_use_skill_tool,
        with_skills,
    )
    from adk_skills_agent.adk.conversations import Answer, run
    from adk_skills_agent.adk.events.audit_log import AuditLog
    from adk_skills_agent.adk.events.events import (
        ApprovalDecided,
        ApprovalRequested,
        CommandFinished,
        CommandStarted,
        FileReceived,
        GuardTripped,
        HostRefused,
        ResourceRead,
        ScriptFinished,
        ScriptOutput,
        ScriptStarted,
        SkillActivated,
        SkillDiscovered,
        SkillDropped,
        SkillEvent,
        WorkspaceStored,
    )
    from adk_skills_agent.adk.permissions import Permissions
    from adk_skills_agent.adk.plugins import (
        CodeExecutionRecoveryPlugin,
        ModelErrorsPlugin,
        ToolCallsPlugin,
        UnfinishedCallsPlugin,
    )
    from adk_skills_agent.adk.skills.registry_source import RegistrySource
    from adk_skills_agent.catalog import RegistryConfig, Skill, SkillsRegistry, SkillsView
    from adk_skills_agent.catalog.skill_source import SkillSource
    from adk_skills_agent.errors import (
        ConfigError,
        ErrorCode,
        SandboxError,
        SandboxUnavailable,
        SkillNotFound,
        SkillsError,
    )
    from adk_skills_agent.format import (
        Diagnostic,
        Severity,
        SkillMetadata,
        ValidationResult,
        create_skill_template,
        read_properties,
        to_available_skills_xml,
        to_prompt,
        validate_skill,
    )
    from adk_skills_agent.packages import Dependencies, Needs, SkillEnvironments, read_needs
    from adk_skills_agent.sandbox import (
        EndEvent,
        ExecutionRequest,
        ExecutionResult,
        InputFile,
        IsolationReport,
        Network,
        OutputEvent,
        ReadOnlyMount,
        ResourceSample,
        Sandbox,
        SandboxPolicy,
        Secret,
        load_policy,
        local_sandbox,
    )
    from adk_skills_agent.scripts.grants import Grant
    from adk_skills_agent.scripts.workspace_store import WorkspaceStore
    from adk_skills_agent.sources import FolderSource, FsspecSource, OriginSource

__version__ = "0.1.0"

_NAMES = {
    "adk": (
        "SkillDiscoveryMode SkillLifecycleConfig SkillLifecycleMode ShellSettings ShellToolset SkillLimits "
        "SkillTools SkillToolset create_read_reference_tool create_run_script_tool create_search_skills_tool "
        "create_use_skill_tool with_skills"
    ),
    "adk.conversations": "Answer run",
    "adk.events.audit_log": "AuditLog",
    "adk.events.events": (
        "ApprovalDecided ApprovalRequested CommandFinished CommandStarted FileReceived GuardTripped HostRefused "
        "ResourceRead ScriptFinished ScriptOutput ScriptStarted SkillActivated SkillDiscovered SkillDropped "
        "SkillEvent WorkspaceStored"
    ),
    "adk.permissions": "Permissions",
    "adk.skills.registry_source": "RegistrySource",
    "adk.plugins": "CodeExecutionRecoveryPlugin ModelErrorsPlugin ToolCallsPlugin UnfinishedCallsPlugin",
    "catalog": "RegistryConfig Skill SkillsRegistry SkillsView",
    "catalog.skill_source": "SkillSource",
    "sources": "FolderSource FsspecSource OriginSource",
    "errors": "ConfigError ErrorCode SandboxError SandboxUnavailable SkillNotFound SkillsError",
    "format": (
        "Diagnostic Severity SkillMetadata ValidationResult create_skill_template read_properties "
        "to_available_skills_xml to_prompt validate_skill"
    ),
    "packages": "Dependencies Needs SkillEnvironments read_needs",
    "sandbox": (
        "EndEvent ExecutionRequest ExecutionResult InputFile IsolationReport Network OutputEvent ReadOnlyMount "
        "ResourceSample Sandbox SandboxPolicy Secret load_policy local_sandbox"
    ),
    "scripts.grants": "Grant",
    "scripts.workspace_store": "WorkspaceStore",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "Answer",
    "ApprovalDecided",
    "ApprovalRequested",
    "AuditLog",
    "CodeExecutionRecoveryPlugin",
    "CommandFinished",
    "CommandStarted",
    "ConfigError",
    "Dependencies",
    "Diagnostic",
    "EndEvent",
    "ErrorCode",
    "ExecutionRequest",
    "ExecutionResult",
    "FileReceived",
    "FolderSource",
    "FsspecSource",
    "Grant",
    "GuardTripped",
    "HostRefused",
    "InputFile",
    "IsolationReport",
    "ModelErrorsPlugin",
    "Needs",
    "Network",
    "OriginSource",
    "OutputEvent",
    "Permissions",
    "ReadOnlyMount",
    "RegistryConfig",
    "RegistrySource",
    "ResourceRead",
    "ResourceSample",
    "Sandbox",
    "SandboxError",
    "SandboxPolicy",
    "SandboxUnavailable",
    "ScriptFinished",
    "ScriptOutput",
    "ScriptStarted",
    "Secret",
    "Severity",
    "ShellSettings",
    "ShellToolset",
    "Skill",
    "SkillActivated",
    "SkillDiscovered",
    "SkillDiscoveryMode",
    "SkillDropped",
    "SkillEnvironments",
    "SkillEvent",
    "SkillLifecycleConfig",
    "SkillLifecycleMode",
    "SkillLimits",
    "SkillMetadata",
    "SkillNotFound",
    "SkillSource",
    "SkillTools",
    "SkillToolset",
    "SkillsError",
    "SkillsRegistry",
    "SkillsView",
    "ToolCallsPlugin",
    "UnfinishedCallsPlugin",
    "ValidationResult",
    "WorkspaceStore",
    "WorkspaceStored",
    "create_read_reference_tool",
    "create_run_script_tool",
    "create_search_skills_tool",
    "create_skill_template",
    "create_use_skill_tool",
    "load_policy",
    "local_sandbox",
    "read_needs",
    "read_properties",
    "run",
    "to_available_skills_xml",
    "to_prompt",
    "validate_skill",
    "with_skills",
]


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
