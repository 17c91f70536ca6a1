"""Asking the user through google-adk's tool confirmation, and what is hidden or refused (S4-21, C26)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from approval_chat import LOAD, PENDING, PUBLISH, REFUSED, SAFE, agent_with, calls
from google.adk.agents import LlmAgent
from google.adk.skills import models

from adk_skills_agent import SkillsRegistry, with_skills
from adk_skills_agent.adk.skill_toolset import SkillToolset
from adk_skills_agent.adk.skills.source import DiskSkill
from adk_skills_agent.catalog import RegistryConfig


@pytest.mark.behaviour(
    "optional",
    "`permissions=`: asking before a skill, script or tool is used",
    google="no way to ask",
    ours="google-adk's tool confirmation; the turn resumes",
    readme=20,
)
@pytest.mark.requirement("S4-21")
async def test_an_asked_skill_pauses_the_turn_and_is_loaded_when_the_user_says_yes(
    skills: Path, rehearse: Any, chat: Any
) -> None:
    server = rehearse(calls(LOAD, "Loaded.", LOAD, "Again."))
    toolset = SkillToolset.from_dirs([skills], permissions={"skills": {"rep*": "ask"}})
    talk = await chat(agent_with(server, toolset))
    await talk.say("Write a report")
    assert talk.results == [{"error": PENDING, "error_code": "APPROVAL_REQUIRED"}]
    assert len(server.requests) == 1  # the model is not asked while the user thinks
    version = DiskSkill(toolset.runtime.source.catalog.load_skill("reporter")).version()
    assert talk.question == {
        "hint": (
            f"Load the skill 'reporter'? (the rule 'skills: rep*: ask' says so; version {version[:12]}) If you "
            "approve, its files may be read and its scripts may run in the sandbox. Your yes holds for this session, "
            "until a byte of the skill changes."
        ),
        "confirmed": False,
        "payload": {
            "skill_approval": {
                "skill": "reporter",
                "action": "activate",
                "target": "",
                "version": version,
                "approves": ["skill"],
            },
            "remember": "session",
        },
    }
    await talk.answer(True)
    assert "# Reporter" in talk.results[-1]["instructions"]
    assert talk.text == "Loaded."
    assert "# Reporter" in server.requests[1].system_text
    assert (await talk.state())["_adk_activated_skill_assistant"] == ["reporter"]
    await talk.say("And again")
    assert len(talk.questions) == 1  # approved for the session
    assert talk.results[-1]["status"] == "active"
    server.assert_finished()


@pytest.mark.requirement("S4-21")
async def test_a_refusal_is_told_to_the_model_and_the_same_call_is_not_asked_again_in_that_turn(
    skills: Path, rehearse: Any, chat: Any
) -> None:
    server = rehearse(calls(LOAD, LOAD, "I go on without it.", LOAD))
    toolset = SkillToolset.from_dirs([skills], permissions={"skills": {"reporter": "ask"}})
    talk = await chat(agent_with(server, toolset))
    await talk.say("Write a report")
    await talk.answer(False)
    assert talk.results[1:] == [{"error": REFUSED, "error_code": "PERMISSION_DENIED"}] * 2
    assert len(talk.questions) == 1
    assert talk.text == "I go on without it."
    assert "# Reporter" not in server.requests[-1].system_text
    await talk.say("I changed my mind, use it")
    assert len(talk.questions) == 2
    server.assert_finished()


@pytest.mark.behaviour(
    "optional", "Denied skills", google="cannot be denied", ours="hidden from lists, searches and names"
)
async def test_a_denied_skill_does_not_exist_for_the_model(skills: Path, rehearse: Any, chat: Any) -> None:
    server = rehearse(
        calls(
            ("list_skills", {}),
            LOAD,
            ("load_skill_resource", {"skill_name": "reporter", "file_path": "references/guide.md"}),
            "Done.",
        )
    )
    toolset = SkillToolset.from_dirs([skills], permissions={"skills": {"reporter": "deny"}})
    talk = await chat(agent_with(server, toolset))
    await talk.say("Write a report, $reporter")
    assert toolset.runtime.source.names() == ["other"]
    assert [hit.name for hit in await toolset.runtime.source.search("report", 5)] == []
    for request in server.requests[:1]:
        assert "reporter" not in json.dumps([request.declaration(name) for name in request.tool_names])
        assert "reporter" not in request.system_text
    listed, loaded, read = talk.results
    assert "reporter" not in json.dumps(listed)
    assert loaded["error_code"] == "SKILL_NOT_FOUND"
    assert read["error_code"].startswith("SKILL_NOT_FOUND")  # the guard has counted the first
    assert "suggestions" not in loaded or "reporter" not in loaded["suggestions"]
    assert not talk.questions
    server.assert_finished()


async def test_a_denied_skill_is_no_part_of_the_skill_it_lies_in(
    skills: Path, make_skill: Callable[..., Path], rehearse: Any, chat: Any
) -> None:
    make_skill("secret", files={"plan.md": "the plan"}, root=skills / "reporter")
    plan = ("load_skill_resource", {"skill_name": "reporter", "file_path": "secret/plan.md"})
    for rules, expected in (({}, "the plan"), ({"skills": {"secret": "deny"}}, None)):
        server = rehearse(calls(LOAD, plan, "Done."))
        talk = await chat(agent_with(server, SkillToolset.from_dirs([skills], permissions=rules)))
        await talk.say("Write a report")
        loaded, read = talk.results
        assert ("secret/plan.md" in loaded["files"]) is (expected is not None)
        assert read.get("content") == expected


async def test_a_user_who_names_a_skill_that_asks_is_asked(skills: Path, rehearse: Any, chat: Any) -> None:
    server = rehearse(calls(LOAD, "Loaded."))
    toolset = SkillToolset.from_dirs([skills], permissions={"skills": {"reporter": "ask"}})
    talk = await chat(agent_with(server, toolset))
    await talk.say("Write it with $reporter")
    assert "# Reporter" not in server.requests[0].system_text
    assert "Call load_skill with it" in server.requests[0].system_text
    assert len(talk.questions) == 1


async def test_a_skill_object_in_memory_asks_too(rehearse: Any, chat: Any) -> None:
    skill = models.Skill(
        frontmatter=models.Frontmatter(name="reporter", description="Writes."), instructions="# Reporter"
    )
    server = rehearse(calls(LOAD, "Loaded."))
    talk = await chat(agent_with(server, SkillToolset([skill], permissions={"default": "ask"})))
    await talk.say("Write a report")
    await talk.answer(True)
    assert talk.results[-1]["instructions"] == "# Reporter"
    assert "# Reporter" in server.requests[-1].system_text


@pytest.mark.requirement("S4-21")
async def test_a_script_asks_once_for_its_version_and_another_script_does_not(
    skills: Path, rehearse: Any, chat: Any
) -> None:
    server = rehearse(calls(LOAD, SAFE, PUBLISH, PUBLISH, "Done."))
    toolset = SkillToolset.from_dirs([skills], permissions={"scripts": {"reporter/publish.py": "ask"}})
    talk = await chat(agent_with(server, toolset))
    await talk.say("Publish it")
    assert talk.results[1]["stdout"] == "safe\n"
    assert talk.question["payload"]["skill_approval"]["approves"] == ["script:scripts/publish.py"]
    assert talk.question["hint"].startswith("Run 'scripts/publish.py' of the skill 'reporter'? (the rule 'scripts: ")
    await talk.answer(True)
    assert [result.get("stdout") for result in talk.results[3:]] == ["published\n"] * 2
    assert len(talk.questions) == 1
    server.assert_finished()


async def test_a_denied_script_is_refused_without_a_question(skills: Path, rehearse: Any, chat: Any) -> None:
    server = rehearse(calls(PUBLISH, "It is not allowed."))
    toolset = SkillToolset.from_dirs([skills], permissions={"scripts": {"*/publish.py": "deny"}})
    talk = await chat(agent_with(server, toolset))
    await talk.say("Publish it")
    assert talk.results[0]["error_code"] == "PERMISSION_DENIED"
    assert talk.results[0]["error"] == (
        "Run 'scripts/publish.py' of the skill 'reporter' is not allowed here. Do not try again; go on without it and "
        "tell the user."
    )
    assert not talk.questions
    server.assert_finished()


@pytest.mark.behaviour(
    "better", "Skills that lie in the project", google="used like all others", ours="ask the first time"
)
async def test_a_skill_of_the_project_asks_the_first_time_and_then_its_scripts_run(
    make_skill: Callable[..., Path], tmp_path: Path, rehearse: Any, chat: Any
) -> None:
    project = tmp_path / "project"
    make_skill("deploy", body="Deploy.", files={"scripts/go.py": "print('gone')"}, root=project / ".agents" / "skills")
    (project / ".git").mkdir()
    registry = SkillsRegistry(RegistryConfig(trust=True))
    registry.discover_scopes(project)
    go = ("run_skill_script", {"skill_name": "deploy", "file_path": "scripts/go.py"})
    server = rehearse(calls(go, go, "Deployed."))
    talk = await chat(agent_with(server, SkillToolset(registry)))
    await talk.say("Deploy")
    assert "it came with the project" in talk.question["hint"]
    await talk.answer(True)
    assert [result.get("stdout") for result in talk.results] == [None, "gone\n", "gone\n"]
    assert len(talk.questions) == 1
    server.assert_finished()


async def test_the_short_tools_of_with_skills_ask_too(skills: Path, rehearse: Any, chat: Any) -> None:
    server = rehearse(
        calls(
            ("use_skill", {"name": "reporter"}),
            ("run_script", {"skill": "reporter", "script": "publish.py"}),
            ("run_script", {"skill": "reporter", "script": "safe.py"}),
            "Done.",
        )
    )
    rules = {"skills": {"reporter": "ask"}, "scripts": {"safe.py": "deny"}}
    agent = LlmAgent(name="assistant", model=server.model(), instruction="Help.")
    talk = await chat(with_skills(agent, [skills], permissions=rules))
    await talk.say("Write a report")
    assert len(talk.questions) == 1
    await talk.answer(True)
    assert talk.results[2]["stdout"] == "published\n"
    assert talk.results[3]["error_code"] == "PERMISSION_DENIED"
    assert len(talk.questions) == 1
    server.assert_finished()


async def test_row_194_the_question_says_that_a_skill_gets_the_sessions_values(
    skills: Path, rehearse: Any, chat: Any
) -> None:
    """Seen: after a yes to "its files may be read" a skill got {user:token} and another session's artifact."""
    file = skills / "reporter" / "SKILL.md"
    text = file.read_text().replace("description:", "metadata:\n  adk_inject_state: true\ndescription:", 1)
    file.write_text(text)
    toolset = SkillToolset.from_dirs([skills], permissions={"skills": {"reporter": "ask"}})
    talk = await chat(agent_with(rehearse(calls(LOAD, "Loaded.")), toolset))
    await talk.say("Write a report")
    assert "Values of this session, and your files, are put into its instructions" in talk.question["hint"]
    await talk.answer(True)
