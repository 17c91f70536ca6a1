"""Names for what outlives one call (S0-67); without an invocation id, so that the next turn finds the same state."""

from __future__ import annotations


def execution_id(skill: str, session: str, agent: str) -> str:
    """The key of a skill's state in one session of one agent: ``skill:{s}:session:{id}:agent:{a}``."""
    return f"skill:{skill}:session:{session}:agent:{agent}"


def workspace_key(app: str, user: str, session: str) -> str:
    """The key of the workspace all scripts of one session share."""
    return f"app:{app}:user:{user}:session:{session}"
