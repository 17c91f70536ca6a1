"""Did the agent follow the instructions? Rubrics in natural language, and a model that judges them (S0-148, S0-149)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.judge import Rubric
from adk_skills_agent.evals.metrics.score import RubricScore, Score, TurnScore, of_turns
from adk_skills_agent.evals.trace import Trace

if TYPE_CHECKING:
    from adk_skills_agent.evals.judge import Judge

THRESHOLD = 0.75


async def score(
    actual: Trace, rubrics: Sequence[Sequence[Rubric]], judge: Judge | None, *, threshold: float = THRESHOLD
) -> Score:
    """The share of rubrics that hold, turn by turn, as the judge says.

    The judge sees the conversation up to the turn it judges: what a skill was loaded for in the first turn still holds
    in the second. Without any rubric the score is 1.0 and the judge is not asked.

    Raises:
        ConfigError: There are rubrics and no judge.
        JudgeUnavailable: The judge could not be asked or did not answer; that is neither a pass nor a zero.
    """
    asked = [rubrics[n] if n < len(rubrics) else () for n in range(max(len(actual.turns), len(rubrics)))]
    tasks = [asyncio.ensure_future(_turn(actual, number, of_turn, judge)) for number, of_turn in enumerate(asked)]
    try:
        turns = await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    return of_turns(turns, threshold)


async def _turn(actual: Trace, number: int, rubrics: Sequence[Rubric], judge: Judge | None) -> TurnScore:
    if not rubrics:
        return TurnScore(None)
    if number >= len(actual.turns):
        return TurnScore(0.0, "The conversation broke off before this turn.")
    if judge is None:
        raise ConfigError("Rubrics need a judge model.")
    answer = await judge.judge(actual.turns[: number + 1], rubrics)
    said = tuple(RubricScore(v.rubric_id, v.met, v.rationale, v.agreement, len(v.votes)) for v in answer.verdicts)
    missed = [one.id for one in said if not one.met]
    value = (len(said) - len(missed)) / len(said)
    return TurnScore(value, f"Does not hold: {', '.join(missed)}." if missed else "", said, answer.usage)
