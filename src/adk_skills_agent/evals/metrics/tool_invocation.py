"""Were the expected tools called? Names only (S0-141, S0-145, S0-146)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

from adk_skills_agent.evals.metrics.score import Score, TurnScore, not_evaluated, of_turns, paired
from adk_skills_agent.evals.trace import Trace


class Mode(StrEnum):
    """How names are compared; calls that nobody expected never count.

    ``multiset``: a tool expected twice must be called twice, in any order. ``ordered``: in this order, too; what counts
    is the longest common subsequence. ``set``: each tool at least once.
    """

    MULTISET = "multiset"
    ORDERED = "ordered"
    SET = "set"


def score(actual: Trace, expected: Trace | None, *, mode: Mode | str = Mode.MULTISET, threshold: float = 1.0) -> Score:
    """The share of expected calls that were made, by name, turn by turn.

    Raises ``ValueError`` when a criterion is wrong.
    """
    mode = Mode(mode)
    if expected is None:
        return not_evaluated(actual, "The case has no expected calls to compare with.")
    turns = []
    for happened, wanted in paired(actual, expected):
        turns.append(_turn([call.name for call in happened.calls], [call.name for call in wanted.calls], mode))
    return of_turns(turns, threshold)


def _turn(actual: Sequence[str], expected: Sequence[str], mode: Mode) -> TurnScore:
    if not expected:
        return TurnScore(None)
    if mode is Mode.SET:
        expected = list(dict.fromkeys(expected))
    missing = list((Counter(expected) - Counter(actual)).elements())
    if mode is Mode.ORDERED:
        common = _longest_common(actual, expected)
        detail = f"Not called: {', '.join(missing)}." if missing else "Called in another order."
        return TurnScore(common / len(expected), "" if common == len(expected) else detail)
    detail = f"Not called: {', '.join(missing)}." if missing else ""
    return TurnScore((len(expected) - len(missing)) / len(expected), detail)


def _longest_common(left: Sequence[str], right: Sequence[str]) -> int:
    """The length of the longest common subsequence."""
    row = [0] * (len(right) + 1)
    for one in left:
        before = row
        row = [0]
        for number, other in enumerate(right):
            row.append(before[number] + 1 if one == other else max(before[number + 1], row[number]))
    return row[-1]
