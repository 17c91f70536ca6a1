"""The agent that is served: its skills are beside this file, its sessions' files in the store all replicas share."""

from __future__ import annotations

import os
from pathlib import Path

from google.adk.agents import LlmAgent
from google.adk.apps import App

from adk_skills_agent import SandboxPolicy, Secret, SkillToolset, UnfinishedCallsPlugin, WorkspaceStore
from adk_skills_agent.sandbox import sandbox_of

_KEY = "WORKSPACE_KEY"

policy = SandboxPolicy(
    wall_seconds=float(os.environ.get("SCRIPT_SECONDS", "60")),
    min_isolation=os.environ.get("MIN_ISOLATION", "landlock"),
)
store = WorkspaceStore(
    os.environ.get("WORKSPACE_STORE", "./workspaces"),
    key=Secret.from_env(_KEY) if os.environ.get(_KEY) else None,
    lease_seconds=float(os.environ.get("LEASE_SECONDS", "15")),
)
sandbox = sandbox_of(None)  # this machine's, or what ADK_SKILLS_SANDBOX says; /readyz asks the same one
skills = SkillToolset.from_dirs(
    [Path(__file__).parent / "skills"], sandbox=sandbox, policy=policy, workspace_store=store
)
root_agent = LlmAgent(
    name="desk",
    model=os.environ.get("MODEL", "gemini-2.5-flash"),
    instruction="You help at a desk. Use your skills; say what you did in one sentence.",
    tools=[skills],
)
app = App(name="desk", root_agent=root_agent, plugins=[UnfinishedCallsPlugin()])
