"""The parts that several tool declarations share."""

from __future__ import annotations

from collections.abc import Sequence


def skill_name_schema(names: Sequence[str] | None) -> dict[str, object]:
    """The JSON schema of a skill's name: an enum of the valid ones (C29), or any string when they are too many."""
    schema: dict[str, object] = {"type": "string", "description": "The skill's name, exactly as listed."}
    if names:
        schema["enum"] = list(names)
    return schema
