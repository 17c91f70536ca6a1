"""One blind comparison: the same two outputs in both orders, several times, and what follows from the answers."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from adk_skills_agent.evals.blind.prompt import CRITERIA, FIRST, SECOND, TIE, VERSION, blind_question, whole
from adk_skills_agent.evals.judge_model import Inquiry, JudgeModel
from adk_skills_agent.evals.trace import Usage

A, B, NEITHER = "A", "B", "TIE"
ORDERS = ("AB", "BA")
"""Judges prefer a place; each sample is asked in both orders, and only who wins in both has won."""
_PLACE = re.compile(r"\boutput ([12])\b", re.IGNORECASE)
_NO_SCORES: Mapping[str, Mapping[str, float]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Vote:
    """What one answer says.

    Attributes:
        sample: Which repetition, from 1.
        order: Which output stood first: ``AB`` or ``BA``.
        winner: ``A``, ``B`` or ``TIE``.
        reasons: The judge's; they call the outputs ``output A`` and ``output B``.
        scores: By output and criterion, 1 to 5.
    """

    sample: int
    order: str
    winner: str
    reasons: str
    scores: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class BlindVerdict:
    """What all answers say together.

    Attributes:
        winner: ``A``, ``B`` or ``TIE``: what most samples say; a sample says what both of its orders say, else a tie.
        agreement: The share of samples that say so, 0 to 1.
        flips: Samples whose two orders named different winners: the judge preferred a place.
        reasons: Of the first vote for the winner.
        scores: Mean by output and criterion, 1 to 5; empty when nobody was asked.
        votes: Every answer.
    """

    winner: str
    agreement: float
    flips: int = 0
    reasons: str = ""
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: _NO_SCORES)
    votes: tuple[Vote, ...] = ()


def identity(task: str, first: str, second: str) -> list[Any]:
    """What tells a comparison from others, whoever is asked."""
    return ["blind", VERSION, task, first, second]


async def compare_blind(
    model: JudgeModel, task: str, a: str, b: str, spend: Callable[[Usage], object] = lambda _: None
) -> BlindVerdict:
    """Ask which of two outputs is better, ``model.samples`` times in each order.

    Args:
        model: Who is asked.
        task: What both agents were asked.
        a: What one of them gave back.
        b: What the other one gave back.
        spend: Told the tokens of every answer, also of those that were no use.

    Raises:
        JudgeUnavailable: The model cannot be reached, or gave no winner or not every score.
    """
    asked = [(sample, order) for sample in range(1, model.samples + 1) for order in ORDERS]

    def inquiry(sample: int, order: str) -> Inquiry:
        first, second = (a, b) if order == "AB" else (b, a)
        return Inquiry([*identity(task, first, second), sample], lambda: blind_question(task, first, second), whole)

    replies = await model.ask([inquiry(*one) for one in asked], spend)
    return verdict_of(
        [_vote(sample, order, reply.value) for (sample, order), reply in zip(asked, replies, strict=True)]
    )


def verdict_of(votes: Sequence[Vote]) -> BlindVerdict:
    """What follows from these votes; there is one for each sample and order."""
    by_sample: dict[int, list[str]] = {}
    for vote in votes:
        by_sample.setdefault(vote.sample, []).append(vote.winner)
    said = [of[0] if len(set(of)) == 1 else NEITHER for of in by_sample.values()]
    winner = next((side for side in (A, B) if said.count(side) * 2 > len(said)), NEITHER)
    reasons = next((vote.reasons for vote in votes if vote.winner == winner), votes[0].reasons)
    scores = {
        side: {name: statistics.fmean(vote.scores[side][name] for vote in votes) for name in CRITERIA}
        for side in (A, B)
    }
    flips = sum({A, B} <= set(of) for of in by_sample.values())
    return BlindVerdict(winner, said.count(winner) / len(said), flips, reasons, scores, tuple(votes))


def _vote(sample: int, order: str, value: Mapping[str, Any]) -> Vote:
    side = {FIRST: order[0], SECOND: order[1], TIE: NEITHER}
    reasons = _PLACE.sub(lambda match: f"output {side[match[1]]}", str(value.get("reasons") or ""))
    scores = {side[output]: dict(value["scores"][output]) for output in (FIRST, SECOND)}
    return Vote(sample, order, side[value["winner"]], reasons, scores)
