"""Pods of agent-sandbox (https://github.com/kubernetes-sigs/agent-sandbox) as a sandbox; needs ``[kubernetes]``."""

from __future__ import annotations

from adk_skills_agent.sandbox.kubernetes.sandbox import KubernetesSandbox

__all__ = ["KubernetesSandbox"]
