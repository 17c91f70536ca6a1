"""A judge that says of each rubric whether it holds: several samples, a majority, every failure an error of the run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from adk_skills_agent.evals.judge_model import Inquiry, JudgeModel
from adk_skills_agent.evals.judge_prompt import VERSION, content, question
from adk_skills_agent.evals.rubrics import Rubric, check_ids
from adk_skills_agent.evals.trace import Turn, Usage


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge says of one rubric.

    Attributes:
        rubric_id: The rubric's.
        met: Whether most samples said yes; as many of each is no.
        rationale: Of the first sample that said so.
        agreement: The share of samples that said so, 0.5 to 1.
        votes: What each sample said.
    """

    rubric_id: str
    met: bool
    rationale: str
    agreement: float
    votes: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The judge's answer: one verdict for each rubric asked, in their order.

    Attributes:
        verdicts: The verdicts.
        usage: Tokens it took; what came from the cache took none.
        cached: How many samples came from the cache.
    """

    verdicts: tuple[Verdict, ...]
    usage: Usage = field(default_factory=Usage)
    cached: int = 0


class Judge:
    """Asks a model about rubrics.

    Args:
        model: Who is asked, and how often.

    Attributes:
        model: The same.
        spent: Tokens of every answer so far, also of those that were no use.
        given: Every verdict so far: the turn's number, the rubric, the verdict.
    """

    def __init__(self, model: JudgeModel) -> None:
        self.model = model
        self.spent = Usage()
        self.given: list[tuple[int, Rubric, Verdict]] = []
        self._context = ""

    def about(self, context: str) -> Judge:
        """The same judge with counters of its own, which is told more about one conversation.

        Args:
            context: Such as the files it left; untrusted, like all of it.
        """
        other = copy.copy(self)
        other.spent, other.given, other._context = Usage(), [], context
        return other

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    async def judge(self, turns: Sequence[Turn], rubrics: Sequence[Rubric], *, context: str = "") -> Verdicts:
        """Ask about the last of ``turns``.

        Args:
            turns: The conversation up to the turn that is judged; at least one.
            rubrics: What is asked; each gets exactly one verdict.
            context: More about the conversation, such as the files it left; untrusted, like all of it.

        Raises:
            ConfigError: Two rubrics share an id.
            JudgeUnavailable: The model cannot be reached, or did not give a verdict for every rubric.
        """
        check_ids(rubrics)
        if not rubrics:
            return Verdicts(())
        context = "\n\n".join(filter(None, [self._context, context]))
        told = [VERSION, content(turns, context), [asdict(rubric) for rubric in rubrics]]
        replies = await self.model.ask(
            [
                Inquiry([*told, sample], lambda: question(turns, rubrics, context=context), _has_all(rubrics))
                for sample in range(self.model.samples)
            ],
            self._spend,
        )
        verdicts = tuple(_majority(rubric, [reply.value[rubric.id] for reply in replies]) for rubric in rubrics)
        self.given += [(len(turns), rubric, verdict) for rubric, verdict in zip(rubrics, verdicts, strict=True)]
        usage = sum((reply.usage for reply in replies), Usage())
        return Verdicts(verdicts, usage, sum(reply.cached for reply in replies))

    def _spend(self, usage: Usage) -> None:
        self.spent += usage


def _has_all(rubrics: Sequence[Rubric]) -> Callable[[Any], bool]:
    def whole(votes: Any) -> bool:
        said = [votes.get(rubric.id) for rubric in rubrics] if isinstance(votes, dict) else [None]
        return all(isinstance(vote, list | tuple) and len(vote) == 2 for vote in said)

    return whole


def _majority(rubric: Rubric, votes: Sequence[tuple[bool, str]]) -> Verdict:
    said = tuple(met is True for met, _ in votes)
    met = sum(said) * 2 > len(said)
    rationale = next(str(text) for vote, text in votes if (vote is True) is met)
    return Verdict(rubric.id, met, rationale, sum(vote is met for vote in said) / len(said), said)
