"""Metrics over traces: one file each, with a ``score`` function; ``registry.py`` has them by name.

The names google-adk's eval config points at (``adk_skills_agent.evals.metrics.tool_invocation_score``) are found here,
too; they are made in ``adk_metrics.py``, which imports google-adk, on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adk_skills_agent.evals.adk_metrics import (
        instruction_adherence_score,
        output_files_score,
        reference_match_score,
        skill_discovery_score,
        skill_trigger_score,
        tool_args_score,
        tool_invocation_score,
    )

__all__ = [
    "instruction_adherence_score",
    "output_files_score",
    "reference_match_score",
    "skill_discovery_score",
    "skill_trigger_score",
    "tool_args_score",
    "tool_invocation_score",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from adk_skills_agent.evals import adk_metrics

    return getattr(adk_metrics, name)
