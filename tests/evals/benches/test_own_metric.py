"""measure/benchmarks.md, "A case with a metric of its own": its seven steps, carried out on a copy of the bench."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import google.adk
import pytest
import yaml
from google.adk.evaluation.eval_case import EvalCase, Invocation
from google.adk.evaluation.eval_config import EvalConfig
from google.adk.evaluation.eval_metrics import BaseCriterion, EvalMetric
from google.adk.evaluation.evaluator import EvalStatus, EvaluationResult

from adk_skills_agent.evals.metrics.registry import read_options
from adk_skills_agent.evals.preparation import Request, prepare
from adk_skills_agent.testing import GeminiServer, load_rules

REPOSITORY = Path(__file__).resolve().parents[3]
PAGE = (REPOSITORY / "docs" / "how-to" / "measure" / "benchmarks.md").read_text()
SECTION = PAGE[PAGE.index("## A case with a metric of its own") : PAGE.index("## What you see")]
pytestmark = pytest.mark.requirement("S0-144")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)


CASE, CONFIG, TEMPLATES = (json.loads(text) for text in blocks("json"))
(METRIC,), (RULES,) = blocks("python"), blocks("yaml")
CHECK, RUN = blocks("shell")


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """A copy of the bench after the steps 2, 3, 4 and 6."""
    folder = tmp_path / "benchmarks" / "bigquery"
    shutil.copytree(REPOSITORY / "benchmarks" / "bigquery", folder)
    (folder / "query_words.py").write_text(METRIC)
    cases, config = folder / "evals" / "bigquery.evalset.json", folder / "evals" / "test_config.json"
    content = json.loads(cases.read_text())
    content["eval_cases"].append(CASE)
    cases.write_text(json.dumps(content))
    content = json.loads(config.read_text())
    for part, added in CONFIG.items():
        content[part] |= added
    config.write_text(json.dumps(content))
    rules, added = yaml.safe_load((folder / "model.yaml").read_text()), yaml.safe_load(RULES)
    for part in ("rules", "judge"):
        rules[part] = [*added[part], *rules[part]]
    (folder / "model.yaml").write_text(yaml.safe_dump(rules, sort_keys=False))
    return folder


def score(bench: Path, *queries: str) -> EvaluationResult:
    """What google-adk gets from the function for an agent that made these queries."""
    spec = importlib.util.spec_from_file_location("query_words", bench / "query_words.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    expected = EvalCase.model_validate(CASE).conversation
    assert expected is not None
    calls = [{"name": "execute_sql", "args": {"project_id": "p", "query": query}} for query in queries]
    user = {"role": "user", "parts": [{"text": "Group them."}]}
    actual = Invocation.model_validate({"user_content": user, "intermediate_data": {"tool_uses": calls}})
    metric = EvalMetric(metric_name="query_words_score", criterion=BaseCriterion(threshold=1.0))
    result: EvaluationResult = module.query_words_score(metric, [actual], expected)
    nothing = module.query_words_score(metric, [actual], None)
    assert (nothing.overall_score, nothing.overall_eval_status) == (None, EvalStatus.NOT_EVALUATED)
    return result


def queries_of_the_rules() -> list[str]:
    calls = [rule["call"] for rule in yaml.safe_load(RULES)["rules"] if "call" in rule]
    return [call["args"]["query"] for call in calls if call["name"] == "execute_sql"]


def test_the_section_has_seven_steps_and_every_file_to_touch() -> None:
    assert re.findall(r"^\*\*(\d)\. ", SECTION, re.MULTILINE) == list("1234567")
    files = re.findall(r"^\| `([\w/.-]+)` \|", SECTION.partition("### Files to touch")[2], re.MULTILINE)
    assert len(files) >= 6
    assert not [name for name in files if not (REPOSITORY / name).exists()]


def test_the_metric_has_the_predicted_scores(bench: Path) -> None:
    train, predict = queries_of_the_rules()
    for queries, value, status in (
        ([train, predict], 1.0, EvalStatus.PASSED),
        ([train.replace("= 3", "= 4"), predict], 5 / 6, EvalStatus.FAILED),
        ([], 0.0, EvalStatus.FAILED),
    ):
        result = score(bench, *queries)
        assert (result.overall_score, result.overall_eval_status) == (value, status)
        assert [(turn.score, turn.eval_status) for turn in result.per_invocation_results] == [(value, status)]


def test_the_case_can_be_run_and_the_metric_is_left_to_adk_eval(bench: Path) -> None:
    prepared = prepare(Request((bench,), runs=1))
    assert prepared.skipped == ()
    assert prepared.cases[-1].id == "cluster_data"
    (note,) = prepared.notes
    assert "criteria.query_words_score is not one of ours: adk eval measures it" in str(note)
    config = EvalConfig.model_validate_json((bench / "evals" / "test_config.json").read_text())
    assert set(config.criteria) == set(config.custom_metrics or {})


def test_the_templates_name_tools_and_arguments_of_google_adk() -> None:
    """Read, not imported: that needs BigQuery's client."""
    source = Path(next(iter(google.adk.__path__)), "integrations", "bigquery", "query_tool.py").read_text()
    tools = {
        node.name: {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef)
    }
    compared: dict[str, Any] = TEMPLATES["key_args"]
    for name, arguments in re.findall(r"`(forecast|detect_anomalies|analyze_contribution)\(([^`]+)\)`", SECTION):
        written = set(re.findall(r"(\w+)=", arguments))
        assert written <= tools[name]
        assert written == set(compared[name])
    assert set(compared) == {"forecast", "detect_anomalies", "analyze_contribution", "*"}
    assert read_options("tool_args_score", TEMPLATES).threshold == 1.0
    assert all(f"| `{name}` |" in SECTION for name in (*list(compared)[:3], "cluster_data"))


@pytest.mark.slow
def test_the_commands_of_the_steps_measure_the_case_by_all_metrics(bench: Path, tmp_path: Path) -> None:
    pytest.importorskip("rouge_score", reason="google-adk's eval extra, which make test-slow installs")
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with GeminiServer(load_rules(bench / "model.yaml")) as server:
        env = {**os.environ, **server.environment(), "PATH": programs, "BQ_EVAL_BACKEND": "embedded"}
        for script in (CHECK, RUN):
            done = subprocess.run(
                ["bash", "-euc", script], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=500,
                env=env | {"PYTHONWARNINGS": "ignore"},
            )  # fmt: skip
            assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "Tests passed: 1" in done.stdout
    rows = [json.loads(line) for line in (tmp_path / "cluster-run" / "trials.jsonl").read_text().splitlines()]
    (row,) = [row for row in rows if row["arm"] == "with_skill"]
    assert {one["metric"]: one["value"] for one in row["scores"]} == dict.fromkeys(
        ("tool_invocation_score", "tool_args_score", "instruction_adherence_score"), 1.0
    )
    (saved,) = (bench / ".adk" / "eval_history").glob("*.evalset_result.json")
    (case,) = json.loads(saved.read_text())["eval_case_results"]
    scores = {one["metric_name"]: one["score"] for one in case["overall_eval_metric_results"]}
    assert scores["query_words_score"] == 1.0
    assert scores["instruction_adherence_score"] == 1.0
