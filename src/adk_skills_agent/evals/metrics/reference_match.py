"""Does the answer hold what the reference says? (S0-141)"""

from __future__ import annotations

from adk_skills_agent.errors import some_of
from adk_skills_agent.evals.metrics.score import Score, TurnScore, not_evaluated, of_turns, paired
from adk_skills_agent.evals.trace import Trace

_SHOWN = 5  # missing lines in a detail


def score(actual: Trace, expected: Trace | None, *, threshold: float = 1.0) -> Score:
    """1 for each turn whose final text holds every line of the reference, 0 for the others.

    Upper and lower case and the amount of white space do not count; empty lines of the reference are ignored. Without
    any reference it is not evaluated.
    """
    if expected is None or not any(_lines(turn.final_text) for turn in expected.turns):
        return not_evaluated(actual, "The case has no reference to compare with.")
    turns = []
    for happened, wanted in paired(actual, expected):
        lines = _lines(wanted.final_text)
        text = _folded(happened.final_text)
        missing = [line for line in lines if _folded(line) not in text]
        detail = f"Not in the answer: {some_of(missing, _SHOWN, repr)}." if missing else ""
        turns.append(TurnScore(float(not missing), detail) if lines else TurnScore(None))
    return of_turns(turns, threshold)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())
