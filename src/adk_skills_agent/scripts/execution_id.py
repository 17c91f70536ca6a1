"""Names for what outlives one call (S0-67); without an invocation id, so that the next turn finds the same state."""

from __future__ import annotations


def execution_id(skill: str, session: str, agent: str) -> str:
    """The key of a skill's state in one session of one agent: ``skill:{s}:session:{id}:agent:{a}``."""
    return f"skill:{skill}:session:{session}:agent:{agent}"


def workspace_key(app: str, user: str, session: str) -> str:
    """The key of the workspace all scripts of one session share."""
    return f"{user_key(app, user)}:session:{session}"


def user_key(app: str, user: str) -> str:
    """What the key of everything that is one user's begins with: ``app:{a}:user:{u}``.

    Ids may be the client's choice: with colons in them as they are, bob's session ``x:y`` would be bob:x's ``y``.
    """
    return f"app:{_escaped(app)}:user:{_escaped(user)}"


def _escaped(name: str) -> str:
    return name.replace("%", "%25").replace(":", "%3A")
