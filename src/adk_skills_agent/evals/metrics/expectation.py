"""What a case expects, in the form the metrics compare with."""

from __future__ import annotations

from dataclasses import dataclass

from adk_skills_agent.evals.cases import EvalCase, ExpectedFile
from adk_skills_agent.evals.rubrics import Rubric
from adk_skills_agent.evals.trace import Trace


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a case expects.

    Attributes:
        trace: The calls and the reference of each turn; None when nothing is known of the turns (a simulated user).
        skills: The skills to be loaded, perhaps none; None when the case does not say.
        watched: The only skills that count for triggering; empty: every skill.
        files: The files to be left behind.
        rubrics: What the judge is asked, by turn.
    """

    trace: Trace | None = None
    skills: tuple[str, ...] | None = None
    watched: tuple[str, ...] = ()
    files: tuple[ExpectedFile, ...] = ()
    rubrics: tuple[tuple[Rubric, ...], ...] = ()

    @classmethod
    def of(cls, case: EvalCase, turns: int = 1) -> Expectation:
        """What a case of ours expects.

        Which skills are to be loaded, its expected calls say; a case without any is about its ``skills``, and about no
        skill when it has none. Of a trigger query only its own skills count.

        Args:
            case: The case.
            turns: How many turns a simulated user made of it, each of which the case's rubrics are asked of; a case
                that says every message itself knows.
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
