"""Our metrics as the functions an eval config names, on what google-adk records (EVALUATION.md, section 2)."""

from __future__ import annotations

import copy
import statistics
import subprocess
import sys
from typing import Any

import pytest
from google.adk.evaluation.eval_case import IntermediateData, Invocation
from google.adk.evaluation.evaluator import EvalStatus, EvaluationResult
from google.genai import types
from google_cases import invocation, metric
from hypothesis import given, settings
from hypothesis import strategies as st
from traces import turns

from adk_skills_agent.evals import metrics
from adk_skills_agent.evals.metrics.registry import METRICS, read_options, score_trace
from adk_skills_agent.evals.metrics.score import Expectation
from adk_skills_agent.evals.trace import Trace, Turn, from_invocations


def invocations(*written: dict[str, Any]) -> list[Invocation]:
    return [Invocation.model_validate(one) for one in written]


@pytest.mark.parametrize("name", [name for name in METRICS if name != "instruction_adherence_score"])
def test_a_simulated_user_gives_no_verdict_where_nothing_can_be_compared(name: str) -> None:
    actual = invocations(invocation("a"), invocation("b"))
    function = getattr(metrics, name)
    result: EvaluationResult = function(metric(name), actual, None, None)
    if name == "skill_discovery_score":  # needs no expectation
        assert result.overall_eval_status is EvalStatus.FAILED
    else:
        assert result.overall_eval_status is EvalStatus.NOT_EVALUATED
        assert result.overall_score is None
    assert len(result.per_invocation_results) == 2


def test_a_simulated_user_can_be_scored_on_what_the_config_names() -> None:
    actual = invocations(invocation("a"))
    data = {"tool_uses": [{"name": "load_skill", "args": {"skill_name": "csv"}, "id": "1"}]}
    answer = {"name": "load_skill", "id": "1", "response": {"output_files": [{"name": "a.csv", "size": 3}]}}
    actual += invocations({**invocation("b"), "intermediate_data": {**data, "tool_responses": [answer]}})
    for name, options in (("skill_trigger_score", {"skills": ["csv"]}), ("output_files_score", {"files": ["*.csv"]})):
        result = getattr(metrics, name)(metric(name, **options), actual, None)
        assert (result.overall_score, result.overall_eval_status) == (1.0, EvalStatus.PASSED)


def test_a_metric_without_criterion_takes_its_own_threshold() -> None:
    actual = invocations(invocation("a", "x"))
    expected = invocations(invocation("a", "x", "y"))
    result = metrics.tool_invocation_score(metric("tool_invocation_score", None), actual, expected)
    assert (result.overall_score, result.overall_eval_status) == (0.5, EvalStatus.FAILED)


def test_the_reason_and_the_figures_are_in_the_result() -> None:
    actual = invocations(invocation("a", "x"), invocation("b", "load_skill"))
    expected = invocations(invocation("a", "x", "y"), invocation("b", "load_skill"))
    result = metrics.tool_invocation_score(metric("x"), actual, expected)
    first, second = result.per_invocation_results
    assert [(r.rubric_id, r.rationale, r.score) for r in first.rubric_scores or ()] == [("why", "Not called: y.", 0.5)]
    assert second.rubric_scores is None
    assert result.overall_rubric_scores is None
    result = metrics.skill_trigger_score(metric("x", skills=["csv"]), actual, expected)
    assert [(r.rubric_id, r.score) for r in result.overall_rubric_scores or ()] == [("precision", 0.0), ("recall", 0.0)]


def test_the_results_are_of_the_invocations_given() -> None:
    actual, expected = invocations(invocation("a", "x")), invocations(invocation("a", "x"))
    before = copy.deepcopy((actual, expected))
    (result,) = metrics.tool_invocation_score(metric("x"), actual, expected).per_invocation_results
    assert (result.actual_invocation, result.expected_invocation) == (actual[0], expected[0])
    assert (actual, expected) == before


@pytest.mark.requirement("S0-142")
def test_the_dotted_paths_of_a_config_lead_to_our_functions() -> None:
    assert set(metrics.__all__) == set(METRICS)
    for name in metrics.__all__:
        assert getattr(metrics, name).__module__ == "adk_skills_agent.evals.adk_metrics"
    with pytest.raises(AttributeError, match="no attribute 'other_score'"):
        _ = metrics.other_score


def test_scoring_needs_no_google_adk() -> None:
    code = (
        "import sys; from adk_skills_agent.evals.metrics import confusion, registry; print('google.adk' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"


def as_invocations(drawn: Trace) -> list[Invocation]:
    return [
        Invocation(
            user_content=types.Content(role="user", parts=[types.Part(text=turn.user_text)]),
            final_response=types.Content(role="model", parts=[types.Part(text=turn.final_text)]),
            intermediate_data=IntermediateData(
                tool_uses=[types.FunctionCall(name=one.name, args=dict(one.args)) for one in turn.calls]
            ),
        )
        for turn in drawn.turns
    ]


@settings(max_examples=20)
@given(st.lists(st.tuples(turns, turns), min_size=1, max_size=4), st.floats(0, 1))
def test_for_any_conversation_google_adk_gets_our_number_and_its_own_mean_of_the_turns_is_the_same(
    pairs: list[tuple[Turn, Turn]], threshold: float
) -> None:
    actual, expected = Trace(tuple(one for one, _ in pairs)), Trace(tuple(one for _, one in pairs))
    actual = from_invocations(as_invocations(actual))  # without answers, as hand-written data
    expected = from_invocations(as_invocations(expected))
    expectation = Expectation(expected, expected.skills_loaded)
    for name in METRICS:
        if name == "instruction_adherence_score":
            continue
        ours = score_trace(name, actual, expectation, read_options(name, threshold))
        theirs = getattr(metrics, name)(metric(name, threshold), as_invocations(actual), as_invocations(expected))
        assert theirs.overall_score == ours.value
        assert (
            theirs.overall_eval_status
            is {
                True: EvalStatus.PASSED,
                False: EvalStatus.FAILED,
                None: EvalStatus.NOT_EVALUATED,
            }[ours.passed]
        )
        assert len(theirs.per_invocation_results) == len(pairs)
        scored = [one.score for one in theirs.per_invocation_results if one.score is not None]
        assert (statistics.mean(scored) if scored else None) == theirs.overall_score  # as AgentEvaluator does
        for one in theirs.per_invocation_results:  # which tells from these whether a low score is a good one
            if one.score is not None:
                assert (one.score >= threshold) is (one.eval_status is EvalStatus.PASSED)
