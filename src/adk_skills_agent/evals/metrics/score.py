"""What a metric says: one number a conversation, one a turn, and why.

Every metric is built alike, so that google-adk, which averages the turns itself (``AgentEvaluator``), and we get the
same number: the score of a conversation is the mean of its turns that have something to score. A turn without an
expectation beside turns with one is left out, so that it cannot hide a failure; a conversation without any scores 1.0
(S0-146 to S0-148). What only the whole conversation can show is scored once, at its last turn.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

from adk_skills_agent.evals.cases import EvalCase, ExpectedFile
from adk_skills_agent.evals.judge import Rubric
from adk_skills_agent.evals.trace import Trace, Turn, Usage

_NO_FIGURES: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class RubricScore:
    """What the judge said of one rubric."""

    id: str
    met: bool
    rationale: str = ""
    agreement: float = 1.0  # the share of samples that said the same, 0.5 to 1
    samples: int = 1

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TurnScore:
    """The score of one turn."""

    value: float | None  # from 0 to 1; None when the turn has nothing to score
    detail: str = ""  # what was missing, as a sentence; empty when nothing was
    rubrics: tuple[RubricScore, ...] = ()
    judge_usage: Usage | None = None  # tokens that it took; None when no judge was asked

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {"value": self.value, "detail": self.detail, "rubrics": [rubric.to_json() for rubric in self.rubrics]}


@dataclass(frozen=True, slots=True)
class Score:
    """The score of one conversation."""

    value: float | None  # from 0 to 1; None when the metric has nothing to say: there is nothing to compare with
    passed: bool | None  # whether the value reaches the threshold; None when there is no value
    per_turn: tuple[TurnScore, ...] = ()
    # further numbers by name, such as ``precision``
    figures: Mapping[str, float] = field(default_factory=lambda: _NO_FIGURES)

    @property
    def detail(self) -> str:
        """What was missing, turn by turn; empty when nothing was."""
        said = [(number, turn.detail) for number, turn in enumerate(self.per_turn, 1) if turn.detail]
        alone = len(self.per_turn) == 1
        return " ".join(detail if alone else f"Turn {number}: {detail}" for number, detail in said)

    @property
    def judge_usage(self) -> Usage | None:
        """Tokens that the judge took; None when none was asked."""
        known = [turn.judge_usage for turn in self.per_turn if turn.judge_usage is not None]
        return sum(known, Usage()) if known else None

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "value": self.value,
            "passed": self.passed,
            "detail": self.detail,
            "per_turn": [turn.to_json() for turn in self.per_turn],
            "figures": dict(self.figures),
        }


def of_turns(turns: Sequence[TurnScore], threshold: float) -> Score:
    """The score of a conversation from its turns: their mean; 1.0, in every turn, when none has anything to score."""
    values = [turn.value for turn in turns if turn.value is not None]
    if not values:
        turns, values = [TurnScore(1.0, "Nothing was expected.") for _ in turns], [1.0]
    value = statistics.mean(values)
    return Score(value, value >= threshold, tuple(turns))


def of_conversation(
    actual: Trace, value: float, threshold: float, detail: str = "", figures: Mapping[str, float] = _NO_FIGURES
) -> Score:
    """A score that only the conversation as a whole has; it stands at the last turn."""
    turns = [TurnScore(None)] * (len(actual.turns) - 1) + [TurnScore(value, detail)]
    return Score(value, value >= threshold, tuple(turns), figures)


def not_evaluated(actual: Trace, why: str) -> Score:
    """No score, because there is nothing to compare with."""
    turns = [TurnScore(None)] * (len(actual.turns) - 1) + [TurnScore(None, why)]
    return Score(None, None, tuple(turns))


def paired(actual: Trace, expected: Trace) -> list[tuple[Turn, Turn]]:
    """Each turn with what was expected of it; a conversation that broke off did nothing in the turns that follow."""
    length = max(len(actual.turns), len(expected.turns))
    nothing = Turn()
    return [
        (
            actual.turns[n] if n < len(actual.turns) else nothing,
            expected.turns[n] if n < len(expected.turns) else nothing,
        )
        for n in range(length)
    ]


# What a case expects, in the form the metrics compare with.


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a case expects."""

    # the calls and the reference of each turn; None when nothing is known of the turns (a simulated user)
    trace: Trace | None = None
    skills: tuple[str, ...] | None = None  # the skills to be loaded, perhaps none; None when the case does not say
    watched: tuple[str, ...] = ()  # the only skills that count for triggering; empty: every skill
    files: tuple[ExpectedFile, ...] = ()
    rubrics: tuple[tuple[Rubric, ...], ...] = ()

    @classmethod
    def of(cls, case: EvalCase, turns: int = 1) -> Expectation:
        """What a case of ours expects.

        Which skills are to be loaded, its expected calls say; a case without any is about its ``skills``, and about no
        skill when it has none. Of a trigger query only its own skills count. ``turns`` is how many turns a simulated
        user made of it; each is asked the case's rubrics.
        """
        if case.scenario is not None:
            rubrics = (case.turns[0].rubrics,) * max(turns, 1)
            return cls(None, case.skills or None, (), case.expected_files, rubrics)
        expected = case.expected
        rubrics = tuple(turn.rubrics for turn in case.turns)
        if case.should_trigger is None:
            return cls(expected, expected.skills_loaded or case.skills, (), case.expected_files, rubrics)
        wanted = case.skills if case.should_trigger else ()
        return cls(expected, wanted, case.skills, case.expected_files, rubrics)
