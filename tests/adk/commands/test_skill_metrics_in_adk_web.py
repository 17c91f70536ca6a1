"""``adk web`` lists our metrics and scores with them (S0-142). Slow: google-adk's eval extra."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from adk_commands import serving

from adk_skills_agent.testing import GeminiServer, Rule, RuleModel, call, say

pytestmark = pytest.mark.slow

AGENT = """
from pathlib import Path
import adk_skills_agent.evals.adk_evaluators
from google.adk.agents import LlmAgent
from adk_skills_agent import SkillToolset

root_agent = LlmAgent(
    name="helper", model="gemini-2.5-flash", tools=[SkillToolset.from_dirs([Path(__file__).parent / "skills"])]
)
"""
MODEL = RuleModel([Rule(call("load_skill", skill_name="writer"))], otherwise=say("Written."))
EVAL_SET = {
    "eval_set_id": "writing",
    "eval_cases": [
        {
            "eval_id": "one",
            "conversation": [
                {
                    "user_content": {"role": "user", "parts": [{"text": "Write."}]},
                    "final_response": {"role": "model", "parts": [{"text": "written"}]},
                    "intermediate_data": {
                        "tool_uses": [
                            {"name": "load_skill", "args": {"skill_name": "writer"}},
                            {"name": "run_skill_script", "args": {"skill_name": "writer"}},
                        ]
                    },
                }
            ],
            "session_input": {"app_name": "helper", "user_id": "user", "state": {}},
        }
    ],
}


@pytest.mark.requirement("S0-142")
def test_the_web_server_lists_our_metrics_and_scores_with_them(tmp_path: Path, make_skill: Callable[..., Path]) -> None:
    folder = tmp_path / "agents" / "helper"
    make_skill("writer", root=folder / "skills")
    (folder / "agent.py").write_text(AGENT)
    (folder / "__init__.py").write_text("from . import agent\n")
    (folder / "writing.evalset.json").write_text(json.dumps(EVAL_SET))
    wanted = {"tool_invocation_score": 1.0, "tool_args_score": 0.5, "reference_match_score": 1.0}
    chosen = [{"metricName": name, "criterion": {"threshold": value}} for name, value in wanted.items()]
    with GeminiServer(MODEL) as server, serving(server, "web", folder.parent) as served:
        asked = {"evalCaseIds": ["one"], "evalMetrics": chosen}
        answer = served.call("/dev/apps/helper/eval-sets/writing/run", asked)
        (result,) = answer["runEvalResults"]
        found = {one["metricName"]: one["score"] for one in result["overallEvalMetricResults"] if "score" in one}
        listed = {one["metricName"] for one in served.call("/dev/apps/helper/metrics-info")["metricsInfo"]}
        assert not server.mismatches
    assert {name: found[name] for name in wanted} == {
        "tool_invocation_score": 0.5,
        "tool_args_score": 0.5,
        "reference_match_score": 1.0,
    }
    assert {*wanted, "skill_trigger_score", "instruction_adherence_score"} <= listed
