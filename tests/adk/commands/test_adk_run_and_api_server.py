"""``adk run`` and ``adk api_server`` drive the sample agents (S0-120 to S0-122; issue 4, item 9 and "Real clients")."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from adk_commands import FIBONACCI, INSTALLED, adk, serving, texts

from adk_skills_agent.testing import GeminiServer

Model = Callable[..., GeminiServer]

REPORT = """
name: report
when: {system_contains: You analyse data}
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
COORDINATOR = """
name: coordinator
when: {system_contains: Pass data questions}
turns:
  - when: {tools: [transfer_to_agent]}
    call: {name: transfer_to_agent, args: {agent_name: analyst}}
"""


@pytest.mark.requirement("S0-121")
def test_adk_run_answers_one_question_with_a_skill(model: Model, agents: Path) -> None:
    server = model(FIBONACCI)
    done = adk(
        server,
        "run",
        agents / "skill_script_demo",
        "What is the tenth Fibonacci number?",
        cwd=agents,
        program=INSTALLED,
    )
    assert done.returncode == 0, done.stderr
    assert "The tenth is 34." in done.stdout
    server.assert_finished()


def test_adk_run_passes_a_request_to_the_specialist_that_has_the_skill(model: Model, agents: Path) -> None:
    server = model(COORDINATOR, REPORT)
    done = adk(server, "run", agents / "specialists", "Report the sample by region.", cwd=agents)
    assert done.returncode == 0, done.stderr
    assert "The report is ready." in done.stdout
    offered = {tuple(request.tool_names) for request in server.requests if "Pass data" in request.system_text}
    assert offered == {("transfer_to_agent",)}  # the coordinator itself sees no skill
    for request in server.requests:
        assert "incident-postmortem" not in str(request.body)  # nor does the analyst see the writer's


@pytest.mark.requirement("C28")
def test_adk_run_follows_a_skill_that_the_agent_reads_as_a_file(model: Model, agents: Path) -> None:
    location = agents.parent / "skills" / "log-triage" / "SKILL.md"
    server = model(
        f"""
name: files
turns:
  - when: {{system_contains: "{location}", tools: [read_file]}}
    call: {{name: read_file, args: {{path: "{location}"}}}}
  - when: {{last_tool: read_file, tool_result_contains: log}}
    call: {{name: read_file, args: {{path: /etc/passwd}}}}
  - when: {{last_tool: read_file, tool_result: {{error: Only files of the skills can be read.}}}}
    text: I know what to do.
"""
    )
    done = adk(server, "run", agents / "filesystem_pattern", "Look at my log.", cwd=agents)
    assert done.returncode == 0, done.stderr
    assert "I know what to do." in done.stdout


@pytest.mark.behaviour("same", "`adk run`, `adk web`, `adk api_server`, `adk eval`", ours="work")
def test_the_api_server_keeps_session_state_and_artifacts(model: Model, agents: Path) -> None:
    server = model(REPORT)
    with serving(server, "api_server", agents) as served:
        (served_agents := served.call("/list-apps")).sort()
        assert served_agents == ["filesystem_pattern", "skill_script_demo", "specialists", "workbench"]
    server = model(COORDINATOR, REPORT)
    with serving(server, "api_server", agents) as served:
        events = served.ask("specialists", "Report the sample by region.")
        assert texts(events)[-1] == "The report is ready."
        session = served.call("/apps/specialists/users/user/sessions/s1")
        assert session["state"]["_adk_activated_skill_analyst"] == ["csv-report"]
        artifacts = served.call("/apps/specialists/users/user/sessions/s1/artifacts")
        assert any(name.endswith(".md") for name in artifacts)
        report = served.call(f"/apps/specialists/users/user/sessions/s1/artifacts/{artifacts[0]}")
        assert report
    server.assert_finished()


def test_a_session_goes_on_after_the_server_was_started_again(model: Model, agents: Path) -> None:
    """What is in force comes from the session's state: the second process never saw the skill being loaded."""
    server = model(
        FIBONACCI
        + """
  - when: {user_contains: again, system_contains: Do not compute these things yourself}
    text: Still 34.
"""
    )
    with serving(server, "api_server", agents) as served:
        served.ask("skill_script_demo", "What is the tenth Fibonacci number?")
    with serving(server, "api_server", agents) as served:
        assert texts(served.ask("skill_script_demo", "Say it again."))[-1] == "Still 34."
    assert server.requests[-1].system_text.count("Do not compute these things yourself") == 1
