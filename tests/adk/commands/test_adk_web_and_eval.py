"""``adk web`` in a browser, and ``adk eval`` (issue 4, "Real clients"). Slow: a browser and google-adk extras."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from adk_commands import FIBONACCI, adk, serving

from adk_skills_agent.testing import GeminiServer

pytestmark = pytest.mark.slow
Model = Callable[..., GeminiServer]

REPORT = """
name: report
turns:
  - when: {tools: [load_skill]}
    call: {name: load_skill, args: {skill_name: csv-report}}
  - when: {last_tool: load_skill}
    call:
      name: run_skill_script
      args: {skill_name: csv-report, file_path: scripts/report.py, args: {input: assets/sample.csv, group-by: region}}
  - when: {last_tool: run_skill_script, tool_result: {status: success}}
    text: The report is ready.
"""
PASS_ON = """
name: pass on
when: {system_contains: Pass data questions}
turns:
  - call: {name: transfer_to_agent, args: {agent_name: analyst}}
"""


def test_the_web_page_shows_the_run_and_its_artifacts(model: Model, agents: Path) -> None:
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    assert chromium is not None, "no chromium: apt-get install chromium (make test-slow does it as root)"
    server = model(PASS_ON, REPORT.replace("turns:", "when: {system_contains: You analyse data}\nturns:"))
    with serving(server, "web", agents) as served, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        try:
            page = browser.new_page()
            page.goto(f"{served.url}/dev-ui/?app=specialists")
            box = page.locator("textarea").first
            box.wait_for(timeout=90_000)
            box.fill("Report the sample by region.")
            box.press("Enter")
            page.get_by_text("The report is ready.").first.wait_for(timeout=90_000)
            shown = page.inner_text("body")
            assert "load_skill" in shown
            assert "run_skill_script" in shown
            page.get_by_text("No Thanks").first.click()
            page.get_by_text("Artifacts", exact=True).first.click()
            page.get_by_text(".md").first.wait_for(timeout=30_000)
        finally:
            browser.close()
    server.assert_finished()


def test_adk_eval_scores_the_trajectory_of_an_agent_with_skills(model: Model, agents: Path, tmp_path: Path) -> None:
    server = model(FIBONACCI)
    evals = tmp_path / "fibonacci.evalset.json"
    evals.write_text(json.dumps(EVAL_SET))
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"criteria": {"tool_trajectory_avg_score": 1.0, "response_match_score": 0.8}}))
    done = adk(
        server,
        "eval",
        agents / "skill_script_demo",
        evals,
        "--config_file_path",
        config,
        "--print_detailed_results",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "Tests passed: 1" in done.stdout
    assert "Tests failed: 0" in done.stdout


EVAL_SET = {
    "eval_set_id": "fibonacci",
    "name": "fibonacci",
    "eval_cases": [
        {
            "eval_id": "tenth",
            "conversation": [
                {
                    "invocation_id": "1",
                    "user_content": {
                        "role": "user",
                        "parts": [{"text": "What is the tenth Fibonacci number?"}],
                    },
                    "final_response": {"role": "model", "parts": [{"text": "The tenth is 34."}]},
                    "intermediate_data": {
                        "tool_uses": [
                            {"name": "load_skill", "args": {"skill_name": "python-helper"}},
                            {
                                "name": "run_skill_script",
                                "args": {
                                    "skill_name": "python-helper",
                                    "file_path": "scripts/fibonacci.py",
                                    "args": {"count": 10},
                                },
                            },
                        ],
                        "intermediate_responses": [],
                    },
                }
            ],
            "session_input": {"app_name": "skill_script_demo", "user_id": "user", "state": {}},
        }
    ],
}
