"""Scripts on this machine: which level runs them, and how."""

from __future__ import annotations

from adk_skills_agent.sandbox.contract import Sandbox
from adk_skills_agent.sandbox.local.process import ProcessSandbox

__all__ = ["ProcessSandbox", "local_sandbox"]


def local_sandbox() -> Sandbox:
    """The sandbox of this machine: each run gets the strongest level that works here and satisfies its policy.

    Only the process level exists in this version, so a run is refused unless its policy says
    ``min_isolation="process"``.
    """
    return ProcessSandbox()
