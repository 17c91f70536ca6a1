"""Checking what a model passes to a tool."""

from __future__ import annotations

from typing import Any

from adk_skills_agent.errors import InvalidArguments


def whole_number(args: dict[str, Any], name: str, default: int = 0) -> int:
    """An optional whole number from 0 on.

    Raises:
        InvalidArguments: It is none.
    """
    value = args.get(name)
    if value is None:
        return default
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # JSON numbers may arrive as 20.0
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 53:
        raise InvalidArguments(f"'{name}' must be a whole number from 0 on, got {str(value)!r}.")
    return value
