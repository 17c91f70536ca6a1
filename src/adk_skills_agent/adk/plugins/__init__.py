"""Plugins for google-adk's ``App`` and ``Runner``."""

from adk_skills_agent.adk.plugins.code_execution_recovery import CodeExecutionRecoveryPlugin

__all__ = ["CodeExecutionRecoveryPlugin"]
