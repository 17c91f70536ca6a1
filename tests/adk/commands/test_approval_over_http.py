"""A question of ``adk api_server`` answered over HTTP after the server was started again; the log tells it (S4-21)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from adk_commands import Served, serving, texts

import preloaded
from adk_skills_agent.testing import GeminiServer

AGENT = """
import os
from pathlib import Path
from google.adk.agents import LlmAgent
from adk_skills_agent import SkillToolset

HERE = Path(__file__).parent
root_agent = LlmAgent(
    name="careful",
    model=os.environ.get("ADK_SKILLS_MODEL", "gemini-2.5-flash"),
    instruction="Help.",
    tools=[
        SkillToolset.from_dirs(
            [HERE / "skills"], permissions=HERE / "permissions.yaml", audit_log=HERE.parent.parent / "audit.jsonl"
        )
    ],
)
"""
CONVERSATION = """
turns:
  - call: {name: run_skill_script, args: {skill_name: deploy, file_path: scripts/go.py}}
  - when: {last_tool: run_skill_script, tool_result: {status: success}}
    text: Deployed.
"""


@pytest.fixture
def careful(tmp_path: Path, make_skill: Callable[..., Path]) -> Path:
    folder = tmp_path / "agents" / "careful"
    make_skill("deploy", files={"scripts/go.py": "print('gone')"}, root=folder / "skills")
    (folder / "__init__.py").write_text("from . import agent\n")
    (folder / "agent.py").write_text(AGENT)
    (folder / "permissions.yaml").write_text("scripts:\n  deploy/go.py: ask\n")
    return folder


def answer(served: Served, question: dict[str, Any], confirmed: bool) -> list[dict[str, Any]]:
    response = {"id": question["id"], "name": question["name"], "response": {"confirmed": confirmed}}
    events: list[dict[str, Any]] = served.call(
        "/run",
        {
            "appName": "careful",
            "userId": "user",
            "sessionId": "s1",
            "newMessage": {"role": "user", "parts": [{"functionResponse": response}]},
        },
    )
    return events


def test_a_question_outlives_the_server_and_its_answer_is_in_the_log(
    careful: Path, model: Callable[..., GeminiServer], tmp_path: Path
) -> None:
    server = model(CONVERSATION)
    with serving(server, "api_server", careful.parent) as served:
        events = served.ask("careful", "Deploy")
    parts = [part for event in events for part in event.get("content", {}).get("parts", [])]
    question = next(
        part["functionCall"] for part in parts if part.get("functionCall", {}).get("name", "").endswith("ation")
    )
    assert question["args"]["toolConfirmation"]["hint"].startswith("Run 'scripts/go.py' of the skill 'deploy'?")
    with serving(server, "api_server", careful.parent) as served:
        assert texts(answer(served, question, True))[-1] == "Deployed."
    server.assert_finished()
    log = tmp_path / "audit.jsonl"
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert [record["event"] for record in records] == [
        "ApprovalRequested",
        "ApprovalDecided",
        "ScriptStarted",
        "ScriptFinished",
    ]
    assert {(record["app"], record["user"], record["session"]) for record in records} == {("careful", "user", "s1")}
    program = preloaded.program("adk-skills")
    usage = subprocess.run([program, "usage", log, "--json"], capture_output=True, text=True, check=True)
    (skill,) = json.loads(usage.stdout)["skills"]
    assert (skill["skill"], skill["runs"], skill["approvals"]) == ("deploy", 1, {"requested": 1, "approved": 1})
