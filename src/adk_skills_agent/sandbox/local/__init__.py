"""Scripts on this machine: which level runs them, and how."""

from __future__ import annotations

import sys

from adk_skills_agent.errors import SandboxUnavailable
from adk_skills_agent.platforms import system_support
from adk_skills_agent.sandbox.contract import Sandbox

__all__ = ["local_sandbox"]


def local_sandbox() -> Sandbox:
    """The sandbox of this machine: each run gets the strongest level that works here and satisfies its policy.

    A run for which nothing at or above its policy's ``min_isolation`` works is refused with the reasons.

    Raises:
        SandboxUnavailable: Nothing can run on this system (Windows).
    """
    if sys.platform == "win32":
        raise SandboxUnavailable(
            f"Scripts cannot be run on Windows itself. {system_support().instead}",
            ("Windows has no sessions, signals and resource limits of the kind the local levels need.",),
        )
    from adk_skills_agent.sandbox.local.sandbox import LocalSandbox

    return LocalSandbox()
