"""Executors and an environment for google-adk's own classes, over this package's sandbox.

- :class:`LocalSandboxCodeExecutor`: for ``code_executor=`` of ``LlmAgent`` and of google-adk's ``SkillToolset``.
- :class:`ContainerCodeExecutor`: google-adk's executor of that name, a fresh container for each execution, with limits.
- :class:`UnsafeLocalCodeExecutor`: google-adk's executor of that name, with limits and a clean environment.
- :class:`RemoteCodeExecutor`: another executor of google-adk's, for another machine, with limits.
- :func:`remote_sandbox`: google-adk's executors and environments for other machines as a sandbox of this package.
- :class:`SandboxEnvironment`: for ``environment=`` of google-adk's ``SkillToolset`` and ``EnvironmentToolset``.
"""

from __future__ import annotations

from adk_skills_agent.executors.code_values import CodeExecutionInput, CodeExecutionResult, File
from adk_skills_agent.executors.container import ContainerCodeExecutor
from adk_skills_agent.executors.environment import SandboxEnvironment
from adk_skills_agent.executors.local import LocalSandboxCodeExecutor, UnsafeLocalCodeExecutor
from adk_skills_agent.executors.remote import RemoteCodeExecutor, remote_sandbox
from adk_skills_agent.sandbox import SessionLimits

__all__ = [
    "CodeExecutionInput",
    "CodeExecutionResult",
    "ContainerCodeExecutor",
    "File",
    "LocalSandboxCodeExecutor",
    "RemoteCodeExecutor",
    "SandboxEnvironment",
    "SessionLimits",
    "UnsafeLocalCodeExecutor",
    "remote_sandbox",
]
