"""What SQL may change, from the environment (S0-143)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from adk_skills_agent.errors import ConfigError

VARIABLE = "BQ_EVAL_WRITE_MODE"
MAX_ROWS = 50
"""Rows of a query that a model sees."""


class WriteMode(StrEnum):
    """Nothing, temporary tables of the session, or everything."""

    BLOCKED = "blocked"
    PROTECTED = "protected"
    ALLOWED = "allowed"


def write_mode(environment: Mapping[str, str]) -> WriteMode:
    """The mode the owner chose; nothing may be written unless said otherwise.

    Raises:
        ConfigError: There is no such mode.
    """
    said = environment.get(VARIABLE) or WriteMode.BLOCKED
    if said not in list(WriteMode):
        raise ConfigError(f"{VARIABLE} is {said!r}. Set it to {', '.join(WriteMode)}, or leave it away for blocked.")
    return WriteMode(said)
