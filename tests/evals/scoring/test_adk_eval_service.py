"""Our metrics inside google-adk's evaluation: its registry, its service, its traps (EVALUATION.md, section 2)."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("rouge_score", reason="google-adk's eval extra, which make test-slow installs")

from google.adk.agents import LlmAgent
from google.adk.evaluation.base_eval_service import EvaluateConfig, EvaluateRequest, InferenceConfig, InferenceRequest
from google.adk.evaluation.eval_case import EvalCase
from google.adk.evaluation.eval_config import EvalConfig, get_eval_metrics_from_config
from google.adk.evaluation.evaluator import EvalStatus
from google.adk.evaluation.in_memory_eval_sets_manager import InMemoryEvalSetsManager
from google.adk.evaluation.local_eval_service import LocalEvalService
from google.adk.evaluation.metric_evaluator_registry import (
    DEFAULT_METRIC_EVALUATOR_REGISTRY,
    MetricEvaluatorRegistry,
    register_custom_metrics_from_config,
)
from google_cases import case, invocation, metric, rubric

from adk_skills_agent.evals.adk_evaluators import EVALUATORS, register_skill_metrics
from adk_skills_agent.evals.metrics.registry import METRICS
from adk_skills_agent.testing import GeminiServer, Refusal, Rule, RuleModel, When, call, judge_rule, say

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated"),  # google-adk's own use
]
NAMES = [evaluator.metric_name for evaluator in EVALUATORS]


def look_up(what: str) -> dict[str, str]:
    """Look something up."""
    return {"found": what}


MODEL = RuleModel(
    [
        judge_rule(lambda what, conversation: "yes" in what),
        Rule(say("</finished>"), When(user_contains=("You are a Simulated User", "Found: a"))),
        Rule(say("Please find it."), When(user_contains=("You are a Simulated User", "Hello"))),
        Rule(call("look_up", what="a"), When(user_contains=("find",))),
        Rule(say("Found: a"), When(user_contains=("find",))),
    ],
    otherwise=say("Bye."),
)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[GeminiServer]:
    with GeminiServer(MODEL) as running:
        for name, value in running.environment().items():
            monkeypatch.setenv(name, value)
        yield running


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


async def test_a_simulated_users_conversation_is_scored_by_what_needs_no_expectation(server: GeminiServer) -> None:
    scenario = {"starting_prompt": "Hello", "conversation_plan": "Ask to find it."}
    cases = [case("simulated", conversation_scenario=scenario, rubrics=[rubric("yes")])]
    criteria: dict[str, Any] = dict.fromkeys(METRICS, 1.0)
    criteria["skill_trigger_score"] = {"threshold": 1.0, "skills": []}
    found = await evaluate(server, cases, criteria, functions=False)
    assert {name: overall(found["simulated"], name).score for name in METRICS} == {
        "tool_invocation_score": None,
        "tool_args_score": None,
        "skill_discovery_score": 0.0,
        "skill_trigger_score": 1.0,
        "reference_match_score": None,
        "output_files_score": None,
        "instruction_adherence_score": 1.0,
    }
    assert [one.score for one in per_turn(found["simulated"], "instruction_adherence_score")] == [1.0, 1.0]


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
