"""Our metrics inside google-adk's evaluation: its registry, its service, its traps (EVALUATION.md, section 2)."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.evaluation.base_eval_service import EvaluateConfig, EvaluateRequest, InferenceConfig, InferenceRequest
from google.adk.evaluation.eval_case import EvalCase, Invocation
from google.adk.evaluation.eval_config import EvalConfig, get_eval_metrics_from_config
from google.adk.evaluation.eval_metrics import BaseCriterion, EvalMetric
from google.adk.evaluation.evaluator import EvalStatus, EvaluationResult
from google.adk.evaluation.in_memory_eval_sets_manager import InMemoryEvalSetsManager
from google.adk.evaluation.local_eval_service import LocalEvalService
from google.adk.evaluation.metric_evaluator_registry import (
    DEFAULT_METRIC_EVALUATOR_REGISTRY,
    MetricEvaluatorRegistry,
    register_custom_metrics_from_config,
)

from adk_skills_agent.evals import metrics
from adk_skills_agent.evals.adk_evaluators import EVALUATORS, register_skill_metrics
from adk_skills_agent.evals.metrics.table import METRICS
from adk_skills_agent.testing import GeminiServer, Refusal, Rule, RuleModel, When, call, judge_rule, say

pytestmark = pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated")  # google-adk's own use
NAMES = [evaluator.metric_name for evaluator in EVALUATORS]


def look_up(what: str) -> dict[str, str]:
    """Look something up."""
    return {"found": what}


MODEL = RuleModel(
    [
        judge_rule(lambda what, conversation: "yes" in what),
        Rule(call("look_up", what="a"), When(user_contains=("find",))),
        Rule(say("Found: a"), When(user_contains=("find",))),
        Rule(say('{"is_valid": true}'), When(system_contains=("simulat",))),
    ],
    otherwise=say("Bye."),
)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[GeminiServer]:
    with GeminiServer(MODEL) as running:
        for name, value in running.environment().items():
            monkeypatch.setenv(name, value)
        yield running


def invocation(text: str, *calls: str, says: str = "", rubrics: list[str] | None = None) -> dict[str, Any]:
    return {
        "user_content": {"role": "user", "parts": [{"text": text}]},
        "final_response": {"role": "model", "parts": [{"text": says}]} if says else None,
        "intermediate_data": {"tool_uses": [{"name": name, "args": {"what": "a"}} for name in calls]},
        "rubrics": [rubric(text) for text in rubrics] if rubrics else None,
    }


def rubric(text: str, kind: str | None = None) -> dict[str, Any]:
    return {"rubric_id": text, "rubric_content": {"text_property": text}, "type": kind}


def case(name: str, *conversation: dict[str, Any], **fields: Any) -> EvalCase:
    return EvalCase.model_validate({"eval_id": name, "conversation": list(conversation) or None, **fields})


async def evaluate(
    server: GeminiServer, cases: list[EvalCase], criteria: dict[str, Any], *, functions: bool, times: int = 1
) -> dict[str, Any]:
    """google-adk's own service on a real agent; results by case."""
    custom = {name: {"code_config": {"name": f"adk_skills_agent.evals.metrics.{name}"}} for name in criteria}
    config = EvalConfig.model_validate({"criteria": criteria, "custom_metrics": custom if functions else None})
    # A fork is what AgentEvaluator gives its metrics, too.
    registry = DEFAULT_METRIC_EVALUATOR_REGISTRY.fork()
    manager = InMemoryEvalSetsManager()
    manager.create_eval_set("app", "set")
    for one in cases:
        manager.add_eval_case("app", "set", one)
    agent = LlmAgent(name="a", model=server.model(), tools=[look_up])
    service = LocalEvalService(
        agent, manager, metric_evaluator_registry=register_custom_metrics_from_config(config, registry)
    )
    request = InferenceRequest(app_name="app", eval_set_id="set", inference_config=InferenceConfig(parallelism=4))
    inferences = [one async for one in service.perform_inference(request)]
    found = {}
    for _ in range(times):
        scored = EvaluateRequest(
            inference_results=copy.deepcopy(inferences),  # google-adk adds the rubrics to what it is given
            evaluate_config=EvaluateConfig(eval_metrics=get_eval_metrics_from_config(config)),
        )
        found = {result.eval_id: result async for result in service.evaluate(scored)}
    return found


def overall(result: Any, name: str) -> Any:
    return next(one for one in result.overall_eval_metric_results if one.metric_name == name)


def per_turn(result: Any, name: str) -> list[Any]:
    return [
        next(one for one in turn.eval_metric_results if one.metric_name == name)
        for turn in result.eval_metric_result_per_invocation
    ]


@pytest.mark.parametrize("functions", [True, False], ids=["functions", "classes"])
async def test_every_turn_has_a_result_and_one_without_expectation_is_left_out(
    server: GeminiServer, functions: bool
) -> None:
    cases = [
        case("both", invocation("Please find it", "look_up", "other", says="Found"), invocation("Bye", says="see you")),
        case("nothing", invocation("Hello"), invocation("Bye")),
    ]
    criteria = {"tool_invocation_score": 0.5, "tool_args_score": {"threshold": 1.0, "keyArgs": ["what"]}}
    criteria |= {"reference_match_score": 1.0, "skill_trigger_score": 1.0, "skill_discovery_score": 1.0}
    found = await evaluate(server, cases, criteria, functions=functions)
    both, nothing = found["both"], found["nothing"]
    assert overall(both, "tool_invocation_score").score == 0.5
    assert overall(both, "tool_invocation_score").eval_status is EvalStatus.PASSED
    assert [one.score for one in per_turn(both, "tool_invocation_score")] == [0.5, None]
    assert overall(both, "tool_args_score").score == 0.5
    assert overall(both, "tool_args_score").eval_status is EvalStatus.FAILED
    assert [one.score for one in per_turn(both, "reference_match_score")] == [1.0, 0.0]
    assert [one.score for one in per_turn(nothing, "tool_invocation_score")] == [1.0, 1.0]
    assert overall(nothing, "reference_match_score").eval_status is EvalStatus.NOT_EVALUATED
    assert [one.score for one in per_turn(nothing, "skill_trigger_score")] == [None, 1.0]
    assert [one.eval_status for one in per_turn(nothing, "skill_discovery_score")] == [
        EvalStatus.NOT_EVALUATED,
        EvalStatus.FAILED,
    ]


@pytest.mark.parametrize("functions", [True, False], ids=["functions", "classes"])
async def test_rubrics_of_case_and_turn_are_judged_and_those_of_other_kinds_are_not(
    server: GeminiServer, functions: bool
) -> None:
    cases = [
        case(
            "judged",
            invocation("Please find it", rubrics=["no, of the turn"]),
            invocation("Bye"),
            rubrics=[rubric("yes, of the case", "INSTRUCTION_ADHERENCE"), rubric("not ours", "TOOL_USE_QUALITY")],
        ),
        case("without", invocation("Hello")),
    ]
    options = {"threshold": 0.75, "judgeModelOptions": {"judgeModel": "gemini-2.5-flash", "numSamples": 1}}
    found = await evaluate(server, cases, {"instruction_adherence_score": options}, functions=functions, times=2)
    judged = overall(found["judged"], "instruction_adherence_score")
    assert (judged.score, judged.eval_status) == (0.75, EvalStatus.PASSED)
    turns = per_turn(found["judged"], "instruction_adherence_score")
    assert [one.score for one in turns] == [0.5, 1.0]
    assert [[(r.rubric_id, r.score) for r in one.details.rubric_scores] for one in turns] == [
        [("yes, of the case", 1.0), ("no, of the turn", 0.0)],
        [("yes, of the case", 1.0)],
    ]
    assert {r.rubric_id: r.score for r in judged.details.rubric_scores} == {
        "yes, of the case": 1.0,
        "no, of the turn": 0.0,
    }
    assert overall(found["without"], "instruction_adherence_score").score == 1.0


@pytest.mark.parametrize("functions", [True, False], ids=["functions", "classes"])
async def test_what_could_not_be_measured_fails_without_a_score(
    monkeypatch: pytest.MonkeyPatch, functions: bool, caplog: pytest.LogCaptureFixture
) -> None:
    broken = RuleModel([Rule(Refusal(400, "INVALID_ARGUMENT", "No such judge."), When(system_contains=("Verdict",)))])
    model = RuleModel([*broken.rules, *MODEL.rules], otherwise=say("Bye."))
    with GeminiServer(model) as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        cases = [case("one", invocation("Hello"), invocation("Bye"), rubrics=[rubric("yes")])]
        criteria: dict[str, Any] = {
            "instruction_adherence_score": 0.5,
            "tool_args_score": {"threshold": 1.0, "keys": []},
        }
        found = await evaluate(server, cases, criteria, functions=functions)
    for name in criteria:
        result = overall(found["one"], name)
        assert (result.score, result.eval_status) == (None, EvalStatus.FAILED), name
        assert [(one.score, one.eval_status) for one in per_turn(found["one"], name)] == [(None, EvalStatus.FAILED)] * 2
    assert found["one"].final_eval_status is EvalStatus.FAILED
    reason = per_turn(found["one"], "instruction_adherence_score")[0].details.rubric_scores[0].rationale
    assert "No such judge." in reason
    assert "tool_args_score has no option 'keys'" in caplog.text


def metric(name: str, threshold: float | None = 1.0, **options: Any) -> EvalMetric:
    criterion = None if threshold is None else BaseCriterion(threshold=threshold, **options)
    return EvalMetric(metric_name=name, criterion=criterion)


def invocations(*written: dict[str, Any]) -> list[Invocation]:
    return [Invocation.model_validate(one) for one in written]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "instruction_adherence_score"])
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


def test_the_results_are_of_the_invocations_given() -> None:
    actual, expected = invocations(invocation("a", "x")), invocations(invocation("a", "x"))
    before = copy.deepcopy((actual, expected))
    (result,) = metrics.tool_invocation_score(metric("x"), actual, expected).per_invocation_results
    assert (result.actual_invocation, result.expected_invocation) == (actual[0], expected[0])
    assert (actual, expected) == before


def test_one_import_registers_every_metric_where_google_adk_looks() -> None:
    known = {info.metric_name: info for info in DEFAULT_METRIC_EVALUATOR_REGISTRY.get_registered_metrics()}
    assert set(METRICS) == set(NAMES) <= set(known)
    for name, evaluator in zip(NAMES, EVALUATORS, strict=True):
        assert known[name].description == METRICS[name].about
        made = DEFAULT_METRIC_EVALUATOR_REGISTRY.get_evaluator(metric(name))
        assert type(made) is evaluator


def test_another_registry_can_be_given() -> None:
    mine = MetricEvaluatorRegistry()
    assert not set(NAMES) & {info.metric_name for info in mine.get_registered_metrics()}
    assert register_skill_metrics(mine) is mine
    assert set(NAMES) <= {info.metric_name for info in register_skill_metrics(mine).get_registered_metrics()}


def test_the_dotted_paths_of_a_config_lead_to_our_functions() -> None:
    assert set(metrics.__all__) == set(METRICS)
    for name in metrics.__all__:
        assert getattr(metrics, name).__module__ == "adk_skills_agent.evals.adk_metrics"
    with pytest.raises(AttributeError, match="no attribute 'other_score'"):
        _ = metrics.other_score
