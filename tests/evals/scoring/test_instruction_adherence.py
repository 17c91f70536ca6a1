"""``instruction_adherence_score`` with the real judge and a scripted model behind it (S0-148, S0-149)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from traces import trace, turn

from adk_skills_agent.errors import JudgeUnavailable
from adk_skills_agent.evals.judge import Judge, Rubric
from adk_skills_agent.evals.judge_model import JudgeModel
from adk_skills_agent.evals.metrics import instruction_adherence
from adk_skills_agent.testing import GeminiServer, Refusal, Rule, RuleModel, judge_rule

SEVEN = Rubric("seven", "It says seven.")
LOADS = Rubric("loads", "The agent loads the skill.")


def holds(what: str, conversation: str) -> bool:
    return ("load_skill(" if "loads" in what else "seven") in conversation


@pytest.fixture
def server() -> Iterator[GeminiServer]:
    with GeminiServer(RuleModel([judge_rule(holds)])) as running:
        yield running
        assert not running.mismatches


@pytest.mark.requirement("S0-148")
async def test_the_value_is_the_share_of_rubrics_that_hold(server: GeminiServer) -> None:
    judge = Judge(JudgeModel(server.model(), samples=3))
    found = await instruction_adherence.score(trace(turn("load_skill", says="six")), [[SEVEN, LOADS]], judge)
    assert (found.value, found.passed, found.detail) == (0.5, False, "Does not hold: seven.")
    assert [(r.id, r.met, r.agreement, r.samples) for r in found.per_turn[0].rubrics] == [
        ("seven", False, 1.0, 3),
        ("loads", True, 1.0, 3),
    ]
    assert found.judge_usage is not None
    assert found.judge_usage.total > 0
    assert len(server.requests) == 3


@pytest.mark.requirement("S0-148")
async def test_no_rubrics_are_one_and_nobody_is_asked(server: GeminiServer) -> None:
    for rubrics in ([], [[], []]):
        found = await instruction_adherence.score(trace(turn(), turn()), rubrics, Judge(JudgeModel(server.model())))
        assert (found.value, found.passed, found.judge_usage) == (1.0, True, None)
    assert not server.requests


async def test_a_turn_is_judged_with_those_before_it_and_not_those_after_it(server: GeminiServer) -> None:
    made = trace(turn("load_skill", says="six"), turn(says="seven"))
    found = await instruction_adherence.score(
        made, [[SEVEN], [SEVEN, LOADS]], Judge(JudgeModel(server.model(), samples=1))
    )
    assert [t.value for t in found.per_turn] == [0.0, 1.0]
    assert (found.value, found.passed) == (0.5, False)


async def test_a_turn_that_never_came_holds_nothing(server: GeminiServer) -> None:
    found = await instruction_adherence.score(
        trace(turn(says="seven")), [[SEVEN], [SEVEN]], Judge(JudgeModel(server.model()))
    )
    assert (found.value, [t.value for t in found.per_turn]) == (0.5, [1.0, 0.0])


async def test_the_judge_knows_what_it_was_told_besides_the_turns(server: GeminiServer) -> None:
    judge = Judge(JudgeModel(server.model(), samples=1))
    made = trace(turn(says="six"))
    assert (await instruction_adherence.score(made, [[SEVEN]], judge)).value == 0.0
    told = judge.about("File left by the agent: a.txt: seven")
    assert (await instruction_adherence.score(made, [[SEVEN]], told)).value == 1.0


@pytest.mark.requirement("S0-148")
async def test_an_outage_is_an_error_and_no_score() -> None:
    busy = RuleModel([Rule(Refusal(503, "UNAVAILABLE", "Busy."))])
    with GeminiServer(busy) as server:
        judge = Judge(JudgeModel(server.model(), samples=2, waits=()))
        with pytest.raises(JudgeUnavailable, match="Busy"):
            await instruction_adherence.score(trace(turn(), turn()), [[SEVEN], [SEVEN]], judge)
