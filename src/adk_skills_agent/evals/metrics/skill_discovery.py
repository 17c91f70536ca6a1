"""Did the agent look for a skill, and take one? (S0-141)"""

from __future__ import annotations

from adk_skills_agent.evals.metrics.score import Score, of_conversation
from adk_skills_agent.evals.trace import LOADING_TOOLS, Trace

LISTING_TOOLS = ("list_skills", "search_skills")
"""The tools with which an agent finds out which skills there are; a toolset may put a prefix before them."""


def score(actual: Trace, *, listing: bool = True, threshold: float = 1.0) -> Score:
    """1 when the agent listed or searched the skills and loaded one of them, else 0.

    ``listing`` is False for an agent that has the skills' names in its instructions and need not ask for them.
    """
    missing = []
    if listing and not any(call.is_a(tool) for call in actual.calls for tool in LISTING_TOOLS):
        missing.append(f"neither {' nor '.join(LISTING_TOOLS)} was called")
    if not actual.skills_loaded:
        tried = [call for call in actual.calls if any(call.is_a(tool) for tool in LOADING_TOOLS)]
        missing.append("no skill could be loaded" if tried else "no skill was loaded")
    detail = f"{' and '.join(missing)}.".capitalize() if missing else ""
    return of_conversation(actual, float(not missing), threshold, detail)
