"""Our metrics as the functions an eval config names, on what google-adk records (EVALUATION.md, section 2)."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import pytest
from google.adk.evaluation.eval_case import Invocation
from google.adk.evaluation.evaluator import EvalStatus, EvaluationResult
from google_cases import invocation, metric

from adk_skills_agent.evals import metrics
from adk_skills_agent.evals.metrics.table import METRICS


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


def test_the_dotted_paths_of_a_config_lead_to_our_functions() -> None:
    assert set(metrics.__all__) == set(METRICS)
    for name in metrics.__all__:
        assert getattr(metrics, name).__module__ == "adk_skills_agent.evals.adk_metrics"
    with pytest.raises(AttributeError, match="no attribute 'other_score'"):
        _ = metrics.other_score


def test_scoring_needs_no_google_adk() -> None:
    code = "import sys; from adk_skills_agent.evals.metrics import table, confusion; print('google.adk' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"
