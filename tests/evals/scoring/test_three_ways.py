"""The same cases score the same, and as predicted, in ``adk eval``, in ``AgentEvaluator`` and in ``adk-skills eval``.

Issue 6, "How good": a scripted model with known behaviour gives exactly the known scores.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from three_ways import CRITERIA, EVAL_SET, EXPECTED, MODEL, write_agent, write_eval_set

from adk_skills_agent.testing import GeminiServer

pytestmark = pytest.mark.slow
Numbers = dict[str, dict[str, float | None]]
ADK = Path(sys.executable).parent / "adk"


def of_results(results: list[dict[str, Any]]) -> Numbers:
    return {
        case["eval_id"]: {
            metric["metric_name"]: metric["score"]
            for metric in case["overall_eval_metric_results"]
            if metric["metric_name"] in CRITERIA
        }
        for case in results
    }


def adk_eval(folder: Path, cases: Path, config: Path, server: GeminiServer) -> tuple[int, Numbers, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    done = subprocess.run(
        [ADK, "eval", folder, cases, "--config_file_path", config, "--print_detailed_results"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**kept, **server.environment(), "PYTHONWARNINGS": "ignore"},
        cwd=folder.parent,
    )
    found = sorted((folder / ".adk" / "eval_history").glob("*.evalset_result.json"))
    assert found, done.stdout[-3000:] + done.stderr[-3000:]
    saved = json.loads(found[-1].read_text())
    return done.returncode, of_results(saved["eval_case_results"]), done.stdout + done.stderr


@pytest.mark.parametrize("register", [False, True], ids=["functions", "classes"])
def test_adk_eval_gives_the_predicted_scores(tmp_path: Path, make_skill: Callable[..., Path], register: bool) -> None:
    folder = write_agent(tmp_path, make_skill, register=register)
    cases, config = write_eval_set(tmp_path, register=register)
    with GeminiServer(MODEL) as server:
        code, numbers, said = adk_eval(folder, cases, config, server)
        assert not server.mismatches
    assert numbers == EXPECTED
    assert code == 1  # "two-turns", "wrong-skill" and "no-skill" fail a metric each
    assert "Tests passed: 1" in said
    assert "Tests failed: 3" in said


@pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated")  # google-adk's evaluation uses it
async def test_agent_evaluator_gives_the_predicted_scores(
    tmp_path: Path, make_skill: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from google.adk.evaluation.agent_evaluator import AgentEvaluator
    from google.adk.evaluation.local_eval_set_results_manager import LocalEvalSetResultsManager

    write_agent(tmp_path, make_skill, register=False)
    cases, _ = write_eval_set(tmp_path, register=False)
    monkeypatch.syspath_prepend(str(tmp_path / "agents"))
    with GeminiServer(MODEL) as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        try:
            with pytest.raises(AssertionError, match="Following are all the test failures") as failed:
                await AgentEvaluator.evaluate(
                    "helper",
                    str(cases),
                    num_runs=1,
                    app_name="helper",
                    eval_set_results_manager=LocalEvalSetResultsManager(agents_dir=str(tmp_path / "agents")),
                )
        finally:
            for module in [name for name in sys.modules if name.split(".")[0] == "helper"]:
                del sys.modules[module]
            importlib.invalidate_caches()
        assert not server.mismatches
    found = list((tmp_path / "agents" / "helper" / ".adk" / "eval_history").glob("*.evalset_result.json"))
    results = [case for file in found for case in json.loads(file.read_text())["eval_case_results"]]
    assert of_results(results) == EXPECTED
    # What AgentEvaluator averages itself, over the turns, is the same number: it is in its sentences.
    assert "reference_match_score for helper Failed. Expected 1.0, but got 0.5." in str(failed.value)
    assert str(failed.value).count("skill_discovery_score for helper Failed. Expected 1.0, but got 0.0.") == 2


def test_adk_skills_eval_gives_the_predicted_scores(tmp_path: Path, make_skill: Callable[..., Path]) -> None:
    folder = write_agent(tmp_path, make_skill, register=False)
    cases, _ = write_eval_set(tmp_path, register=False)
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    options = ["--agent", "helper.agent:root_agent", "--arm", "with_skill", "--runs", "1", "--judge-samples", "3"]
    with GeminiServer(MODEL) as server:
        done = subprocess.run(
            [ADK.parent / "adk-skills", "eval", cases, "-d", folder / "skills", *options, "--out", tmp_path / "out"],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
            env={**kept, **server.environment(), "PYTHONWARNINGS": "ignore"},
            cwd=folder.parent,
        )
        assert not server.mismatches, done.stderr
    assert done.returncode == 1, done.stdout + done.stderr  # the same cases fail as in adk eval
    rows = [json.loads(line) for line in (tmp_path / "out" / "trials.jsonl").read_text().splitlines()]
    numbers = {row["case"]: {one["metric"]: one["value"] for one in row["scores"]} for row in rows}
    assert numbers == EXPECTED
    assert {row["case"]: row["passed"] for row in rows} == {
        "one-turn": True,
        "two-turns": False,
        "wrong-skill": False,
        "no-skill": False,
    }


async def test_our_own_scoring_gives_the_predicted_scores(
    tmp_path: Path, make_skill: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from google.adk.agents import LlmAgent
    from google.adk.evaluation.eval_case import EvalCase as GoogleCase
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    from adk_skills_agent import SandboxPolicy, SkillToolset
    from adk_skills_agent.evals.judge import Judge, Rubric
    from adk_skills_agent.evals.judge_model import JudgeModel
    from adk_skills_agent.evals.metrics.registry import read_options, score
    from adk_skills_agent.evals.metrics.score import Expectation
    from adk_skills_agent.evals.trace import from_events, from_invocations

    folder = write_agent(tmp_path, make_skill, register=False)
    numbers: Numbers = {}
    async with GeminiServer(MODEL) as server:
        toolset = SkillToolset.from_dirs([folder / "skills"], policy=SandboxPolicy(min_isolation="process"))
        agent = LlmAgent(name="helper", model=server.model(), instruction="Help the user.", tools=[toolset])
        runner = InMemoryRunner(agent=agent, app_name="helper")
        judge = Judge(JudgeModel(server.model(), samples=3))
        for case in map(GoogleCase.model_validate, EVAL_SET["eval_cases"]):
            assert case.conversation is not None
            session = await runner.session_service.create_session(app_name="helper", user_id="user")
            for invocation in case.conversation:
                text = (invocation.user_content.parts or [])[0].text
                message = types.Content(role="user", parts=[types.Part(text=text)])
                async for _ in runner.run_async(user_id="user", session_id=session.id, new_message=message):
                    pass
            ended = await runner.session_service.get_session(app_name="helper", user_id="user", session_id=session.id)
            assert ended is not None
            expected = from_invocations(case.conversation)
            rubrics = tuple(Rubric(r.rubric_id, r.rubric_content.text_property or "") for r in case.rubrics or ())
            expectation = Expectation(
                expected, expected.skills_loaded, rubrics=(rubrics,) * len(case.conversation) if rubrics else ()
            )
            trace = from_events(ended.events)
            numbers[case.eval_id] = {
                name: (await score(name, trace, expectation, read_options(name, criterion), judge)).value
                for name, criterion in CRITERIA.items()
            }
        await runner.close()
        assert not server.mismatches
    assert numbers == EXPECTED
