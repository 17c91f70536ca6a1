"""The table of metrics: options as a config writes them, what applies to a case, and what is said of mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from traces import trace, turn

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.cases import CaseTurn, EvalCase, ExpectedFile, Source
from adk_skills_agent.evals.judge import Rubric
from adk_skills_agent.evals.metrics.registry import (
    JUDGED,
    METRICS,
    Options,
    applicable,
    read_options,
    score,
    score_trace,
)
from adk_skills_agent.evals.metrics.score import Expectation
from adk_skills_agent.evals.metrics.tool_invocation import Mode
from adk_skills_agent.evals.trace import OutputFile, ToolCall, Trace

SOURCE = Source("cases.yaml", 1)
LOAD = ToolCall("load_skill", {"skill_name": "csv"})


def case(*turns: CaseTurn, **fields: Any) -> EvalCase:
    return EvalCase("one", turns or (CaseTurn("Hello"),), SOURCE, **fields)


@pytest.mark.parametrize(
    ("name", "criterion", "options"),
    [
        ("tool_invocation_score", None, Options(1.0)),
        ("tool_invocation_score", 0.5, Options(0.5)),
        ("tool_invocation_score", {"threshold": 1, "mode": "ordered"}, Options(1.0, {"mode": Mode.ORDERED})),
        ("tool_args_score", {"keyArgs": ["a"]}, Options(1.0, {"key_args": ("a",)})),
        (
            "tool_args_score",
            {"key_args": {"run": ["x"], "*": []}},
            Options(1.0, {"key_args": {"run": ("x",), "*": ()}}),
        ),
        ("skill_discovery_score", {"listing": False}, Options(1.0, {"listing": False})),
        ("skill_trigger_score", {"skills": []}, Options(1.0, {"skills": ()})),
        ("output_files_score", {"files": ["*.csv"]}, Options(1.0, {"files": (ExpectedFile("*.csv"),)})),
        (JUDGED, None, Options(0.75)),
        (
            JUDGED,
            {"judgeModelOptions": {"judgeModel": "m", "numSamples": 5}},
            Options(0.75, {"judge_model_options": {"judge_model": "m", "num_samples": 5}}),
        ),
        (
            "reference_match_score",
            {"threshold": 0.9, "includeIntermediateResponsesInFinal": False},
            Options(0.9),
        ),
    ],
)
def test_options_are_read_in_snake_and_camel_case(name: str, criterion: Any, options: Options) -> None:
    assert read_options(name, criterion) == options


@pytest.mark.parametrize(
    ("name", "criterion", "sentence"),
    [
        ("tool_score", None, r"There is no metric 'tool_score'. The metrics: tool_invocation_score, "),
        (
            "tool_invocation_score",
            {"modus": "set"},
            "tool_invocation_score has no option 'modus'. Its options: threshold, mode",
        ),
        ("tool_invocation_score", {"mode": "any"}, "'mode' must be one of multiset, ordered, set, got 'any'"),
        ("tool_invocation_score", 1.5, "'threshold' must be a number from 0 to 1, got 1.5"),
        ("tool_invocation_score", True, "'threshold' must be a number from 0 to 1, got True"),
        ("tool_invocation_score", "high", "'threshold' must be a number from 0 to 1, got 'high'"),
        ("tool_args_score", {"key_args": "skill_name"}, "'key_args' must be a list of names, got 'skill_name'"),
        (
            "tool_args_score",
            {"key_args": {"a": [1]}},
            r"'key_args' must be a list of arguments, or a mapping of a tool",
        ),
        ("skill_discovery_score", {"listing": "no"}, "'listing' must be true or false, got 'no'"),
        (JUDGED, {"judge_model_options": {"num_samples": 0}}, "num_samples .a whole number from 1"),
        (JUDGED, {"judge_model_options": {"model": "x"}}, "a mapping with judge_model"),
        (JUDGED, {"judge_model_options": "x"}, "a mapping with judge_model and num_samples, got 'x'"),
    ],
)
def test_a_mistake_is_named_with_metric_and_option(name: str, criterion: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read_options(name, criterion)


def test_what_applies_is_what_the_case_gives_something_to_compare_with() -> None:
    assert applicable(Expectation.of(case())) == ()
    assert applicable(Expectation()) == ()
    full = case(CaseTurn("a", (LOAD,), "seven", (Rubric("r", "It says seven."),)), expected_files=(ExpectedFile("x"),))
    assert applicable(Expectation.of(full)) == tuple(name for name in METRICS if name != "skill_discovery_score")
    assert applicable(Expectation.of(case(skills=("csv",), should_trigger=False))) == ("skill_trigger_score",)


def test_a_case_expects_the_skills_it_loads_else_those_it_is_about() -> None:
    assert Expectation.of(case(CaseTurn("a", (LOAD,)), skills=("sql",))).skills == ("csv",)
    assert Expectation.of(case(skills=("sql",))).skills == ("sql",)
    assert Expectation.of(case()).skills == ()
    asked = Expectation.of(case(skills=("sql",), should_trigger=True))
    assert (asked.skills, asked.watched) == (("sql",), ("sql",))
    refused = Expectation.of(case(skills=("sql",), should_trigger=False))
    assert (refused.skills, refused.watched) == ((), ("sql",))


def test_options_of_the_config_come_before_what_the_case_says() -> None:
    made = Trace((turn("x"), turn(("load_skill", {"skill_name": "sql"}))), {"a.txt": OutputFile(1)})
    expectation = Expectation(skills=("csv",), files=(ExpectedFile("b.txt"),))
    for name, criterion in (("skill_trigger_score", {"skills": ["sql"]}), ("output_files_score", {"files": ["a.*"]})):
        assert score_trace(name, made, expectation, read_options(name)).value == 0.0
        assert score_trace(name, made, expectation, read_options(name, criterion)).value == 1.0


async def test_every_metric_scores_by_its_name() -> None:
    made = Trace((turn("list_skills", ("load_skill", {"skill_name": "csv"}), says="seven"),), {"x": OutputFile(1)})
    wanted = case(CaseTurn("a", (LOAD,), "SEVEN"), expected_files=(ExpectedFile("x"),))
    for name in METRICS:
        found = await score(name, made, Expectation.of(wanted), read_options(name))
        assert (found.value, found.passed) == (1.0, True), name
        assert set(found.to_json()) == {"value", "passed", "detail", "per_turn", "figures"}


async def test_rubrics_without_a_judge_are_an_error_and_no_score() -> None:
    asked = Expectation(rubrics=((Rubric("r", "It says seven."),),))
    with pytest.raises(ConfigError, match="needs a judge model"):
        await score(JUDGED, trace(turn()), asked, read_options(JUDGED))
    with pytest.raises(ConfigError, match="needs a judge model"):
        score_trace(JUDGED, trace(turn()), asked, read_options(JUDGED))


def test_a_metric_has_a_file_of_its_own() -> None:
    folder = Path(__file__).resolve().parents[3] / "src" / "adk_skills_agent" / "evals" / "metrics"
    assert all((folder / f"{name.removesuffix('_score')}.py").is_file() for name in METRICS)
