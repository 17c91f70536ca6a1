"""The benches through ``adk-skills eval``, offline: every score is known beforehand (issue 6, item 6)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import preloaded
from adk_skills_agent.evals.preparation import Request, prepare
from adk_skills_agent.testing import GeminiServer, load_rules

REPOSITORY = Path(__file__).resolve().parents[3]
BENCHES = REPOSITORY / "benchmarks"
SAMPLE = REPOSITORY / "examples" / "agents" / "skill_script_demo" / "skills"
BIGQUERY_AGENT = "--agent=benchmarks.bigquery.agent:root_agent"
PROGRAMS = Path(sys.executable).parent
EIGHT = [
    "csv-aggregation",
    "json-transform",
    "html-extraction",
    "rest-client",
    "regex-replace",
    "function-scaffold",
    "statistical-calc",
    "log-parsing",
]
FILES = ["csv-file", "html-file", "log-file"]
KNOWN_WITHOUT = {"regex-replace", "function-scaffold"}
"""What benchmarks/skills/model.yaml knows without a skill."""


def environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return {**kept, "PYTHONWARNINGS": "ignore", "BQ_EVAL_BACKEND": "embedded"}


def adk_skills(
    out: Path, bench: str, *options: str, model: Path | None = None
) -> tuple[int, list[dict[str, Any]], str]:
    scripted = f"scripted:{model or BENCHES / bench / 'model.yaml'}"
    done = subprocess.run(
        [preloaded.program("adk-skills"), "eval", BENCHES / bench, *options, f"--model={scripted}",
         f"--judge={scripted}", "--runs=1", f"--out={out}"],
        capture_output=True, text=True, timeout=500, check=False, cwd=REPOSITORY, env=environment(),
    )  # fmt: skip
    rows = [json.loads(line) for line in (out / "trials.jsonl").read_text().splitlines()]
    assert not [row["error"] for row in rows if row["error"]], done.stderr
    return done.returncode, rows, done.stdout + done.stderr


def values(rows: list[dict[str, Any]], arm: str = "with_skill") -> dict[str, dict[str, float | None]]:
    return {
        row["case"]: {score["metric"]: score["value"] for score in row["scores"]} for row in rows if row["arm"] == arm
    }


def passed(rows: list[dict[str, Any]], arm: str) -> set[str]:
    return {row["case"] for row in rows if row["arm"] == arm and row["passed"]}


@pytest.mark.requirement("S0-140", "S0-145", "S0-152", "S0-154", "S0-155")
def test_every_case_of_the_benches_can_be_run_and_no_rubric_is_badly_written() -> None:
    """S0-152, S0-154, S0-155: what ``--dry-run`` checks."""
    skills = prepare(Request((BENCHES / "skills",), runs=1))
    assert [case.id for case in skills.cases][:11] == [*EIGHT, *FILES]
    assert sorted(case.should_trigger for case in skills.cases[11:]) == [False] * 4 + [True] * 8
    assert (skills.skipped, skills.notes, skills.judged) == ((), (), False)
    assert len({case.skills for case in skills.cases[:8]}) == 8

    bigquery = prepare(Request((BENCHES / "bigquery",), runs=1))
    assert (bigquery.skipped, bigquery.notes) == ((), ())
    assert [case.id for case in bigquery.cases] == [
        "skill_list_skills",
        "skill_load_sql_analyst",
        "skill_load_reference",
        "skill_query_with_reference",
        "skill_run_format_script",
    ]
    rubrics = [len(case.turns[0].rubrics) for case in bigquery.cases]
    assert (min(rubrics), sum(rubrics)) == (2, 12)
    assert all(not case.turns[0].reference for case in bigquery.cases)  # S0-145: text is not compared
    for trial in bigquery.trials:
        assert trial.criteria["instruction_adherence_score"]["threshold"] == 0.75
        if trial.arm.has_skill:
            assert (trial.criteria["tool_invocation_score"], trial.criteria["tool_args_score"]) == (1.0, 1.0)

    live = prepare(Request((BENCHES / "live",), (SAMPLE,), arms=("with_skill",), runs=1))
    assert (live.skipped, live.notes) == ((), ())
    assert (len(live.cases), sum(len(case.turns) for case in live.cases)) == (9, 15)


@pytest.mark.slow
@pytest.mark.requirement("S0-140")
def test_the_eight_skills_score_as_predicted_with_and_without_them(tmp_path: Path) -> None:
    code, rows, said = adk_skills(tmp_path / "out", "skills")
    assert code == 0, said
    assert "lift of with_skill over without_skill: +81.8%" in said  # 9 of 11 cases
    assert "precision 100.0%, recall 100.0%" in said
    assert passed(rows, "without_skill") == KNOWN_WITHOUT
    found = values(rows)
    assert len(rows) == 2 * 11 + 12
    for case in EIGHT:
        assert found[case] == dict.fromkeys(
            ("skill_discovery_score", "tool_invocation_score", "tool_args_score", "reference_match_score"), 1.0
        )
    files = {row["case"]: row["trace"]["output_files"] for row in rows if row["arm"] == "with_skill"}
    assert set(files["csv-file"]) == {"totals.csv"}
    assert set(files["function-scaffold"]) == {"slugify.py", "test_slugify.py"}


@pytest.mark.slow
def test_a_model_that_does_part_of_it_gets_exactly_that_part(tmp_path: Path) -> None:
    rules = {
        "rules": [
            # two of three calls, the reference left out: names 2 of 3; arguments 1 + 2 of 1 + 2 + 2
            rule("got this from the API", "load_skill", skill_name="rest-client"),
            rule("got this from the API", "run_skill_script", skill_name="rest-client", file_path="scripts/explain.py",
                 args={"text": "HTTP/1.1 429 Too Many Requests\nRetry-After: 30"}),
            {"when": {"user_contains": "got this from the API"}, "text": "The rate limit; wait 30 seconds."},
            # the skill alone, the rest from memory: names 1 of 2, arguments 1 of 3
            rule("Rewrite the dates", "load_skill", skill_name="regex-replace"),
            {"when": {"user_contains": "Rewrite the dates"}, "text": "2025-12-31 and 2026-02-01."},
            # another skill: no name of a file is right
            rule("How many entries", "load_skill", skill_name="csv-aggregation"),
            {"when": {"user_contains": "How many entries"}, "text": "3, cannot connect"},
        ],
        "otherwise": {"text": "I do not know."},
    }  # fmt: skip
    model = tmp_path / "partly.yaml"
    model.write_text(yaml.safe_dump(rules, sort_keys=False))
    code, rows, _ = adk_skills(tmp_path / "out", "skills", "--arm=with_skill", "--filter=r*", model=model)
    found = values(rows)
    assert found["rest-client"] == {
        "skill_discovery_score": 1.0,
        "tool_invocation_score": 2 / 3,
        "tool_args_score": 3 / 5,
        "reference_match_score": 1.0,
    }
    assert found["regex-replace"] == {
        "skill_discovery_score": 1.0,
        "tool_invocation_score": 1 / 2,
        "tool_args_score": 1 / 3,
        "reference_match_score": 1.0,
    }
    assert passed(rows, "with_skill") & {*EIGHT} == {"rest-client"}  # both arguments and names reach 0.5 there
    assert code == 1
    _, rows, _ = adk_skills(tmp_path / "other", "skills", "--arm=with_skill", "--filter=log-parsing", model=model)
    assert values(rows)["log-parsing"] == {
        "skill_discovery_score": 1.0,
        "tool_invocation_score": 1 / 2,
        "tool_args_score": 0.0,
        "reference_match_score": 1.0,
    }


def rule(user_contains: str, tool: str, **args: Any) -> dict[str, Any]:
    return {"when": {"user_contains": user_contains}, "call": {"name": tool, "args": args}}


@pytest.mark.slow
@pytest.mark.requirement("S0-145", "S0-148", "S0-152", "S0-153", "S0-156")
def test_bigquery_bench_runs_without_bigquery_with_all_three_metrics(tmp_path: Path) -> None:
    """Over the embedded tables, with a scripted judge."""
    code, rows, said = adk_skills(tmp_path / "out", "bigquery", BIGQUERY_AGENT)
    assert code == 0, said
    metrics = ("tool_invocation_score", "tool_args_score", "instruction_adherence_score")
    assert values(rows) == {row["case"]: dict.fromkeys(metrics, 1.0) for row in rows}
    assert len(values(rows)) == 5
    assert passed(rows, "without_skill") == set()
    verdicts = [verdict for row in rows if row["arm"] == "with_skill" for verdict in row["verdicts"]]
    assert (len(verdicts), {verdict["met"] for verdict in verdicts}) == (12, {True})
    query = next(row for row in rows if row["case"] == "skill_query_with_reference" and row["arm"] == "with_skill")
    (sql,) = [call for call in query["trace"]["turns"][0]["calls"] if call["name"] == "execute_sql"]
    assert [row["name"] for row in sql["response"]["rows"]] == ["James", "Mary", "John"]
    assert "nanobind" not in said


@pytest.mark.slow
@pytest.mark.requirement("S0-148", "S0-152")
def test_a_rubric_that_does_not_hold_costs_its_share(tmp_path: Path) -> None:
    """S0-148, S0-152: 2 of 3 rubrics are below 0.75, and all three thresholds must be met."""
    model = yaml.safe_load((BENCHES / "bigquery" / "model.yaml").read_text())
    model["judge"].insert(0, {"property_contains": "sums the column number", "conversation_contains": "never there"})
    flawed = tmp_path / "flawed.yaml"
    flawed.write_text(yaml.safe_dump(model, sort_keys=False))
    options = [BIGQUERY_AGENT, "--arm=with_skill", "--filter=skill_query*"]
    code, rows, _ = adk_skills(tmp_path / "out", "bigquery", *options, model=flawed)
    assert values(rows)["skill_query_with_reference"] == {
        "tool_invocation_score": 1.0,
        "tool_args_score": 1.0,
        "instruction_adherence_score": 2 / 3,
    }
    assert (code, passed(rows, "with_skill")) == (1, set())


@pytest.mark.slow
@pytest.mark.requirement("S0-122")
def test_the_live_scenarios_pass_with_a_model_of_rules(tmp_path: Path) -> None:
    """S0-122."""
    code, rows, said = adk_skills(tmp_path / "out", "live", f"--dir={SAMPLE}", "--arm=with_skill")
    assert code == 0, said
    assert len(passed(rows, "with_skill")) == 9
    assert sum(len(row["trace"]["turns"]) for row in rows) == 15


@pytest.mark.slow
def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    for name in ("benchmarks", "examples"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    page = (REPOSITORY / "docs" / "how-to" / "measure" / "benchmarks.md").read_text()
    blocks = re.findall(r"^```bash\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    env = environment() | {"PATH": f"{PROGRAMS}:{os.environ['PATH']}"}
    for block in blocks:
        done = subprocess.run(
            ["bash", "-euc", block], capture_output=True, text=True, timeout=500, check=False, cwd=tmp_path, env=env
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.requirement("S0-142")
def test_adk_eval_scores_the_eight_skills_the_same(tmp_path: Path) -> None:
    """S0-142."""
    agent = shutil.copytree(BENCHES / "skills", tmp_path / "agents" / "skills")
    with GeminiServer(load_rules(agent / "model.yaml")) as server:
        done = subprocess.run(
            [PROGRAMS / "adk", "eval", agent, agent / "evals" / "skills.evalset.json"],
            capture_output=True, text=True, timeout=500, check=False, cwd=tmp_path,
            env={**environment(), **server.environment()},
        )  # fmt: skip
    assert "Tests passed: 8" in done.stdout, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.returncode == 0
    (saved,) = (agent / ".adk" / "eval_history").glob("*.evalset_result.json")
    for case in json.loads(saved.read_text())["eval_case_results"]:
        ours = {
            metric["metric_name"]: metric["score"]
            for metric in case["overall_eval_metric_results"]
            if metric["metric_name"].endswith("_score")
        }
        assert set(ours.values()) == {1.0}, case["eval_id"]
        assert len(ours) == 4
