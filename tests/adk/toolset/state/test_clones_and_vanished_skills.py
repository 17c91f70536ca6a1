"""Clones share what a toolset has; skills that vanish are released; what comes and goes is declared last."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from google.adk.environment import LocalEnvironment
from google.adk.tools.base_toolset import BaseToolset
from google_skills import answers, call, in_turn, skill
from toolset_agents import agent_with, bodies, lazily

from adk_skills_agent import SkillToolset

RUN = call("run_skill_script", skill_name="two", file_path="scripts/go.py")


class Counting(BaseToolset):
    """Counts how often it is closed."""

    closed = 0

    async def get_tools(self, readonly_context: Any = None) -> list[Any]:
        return []

    async def close(self) -> None:
        self.closed += 1


async def test_a_clone_used_alone_closes_what_it_shares(rehearse: Any, talk: Any, tmp_path: Path) -> None:
    environment, brought, log = LocalEnvironment(), Counting(), tmp_path / "log.jsonl"
    toolset = SkillToolset([skill("one")], environment=environment, additional_tools=[brought], audit_log=log)
    clone = toolset.clone_with_updated_skills([skill("two")])
    session = await talk(agent_with(rehearse(in_turn(RUN)), clone))
    assert answers(await session.say("go"))[0]["stdout"] == "hi\n"
    assert environment.is_initialized
    await clone.close()
    assert not environment.is_initialized
    assert brought.closed == 1
    assert log.read_text().count("ScriptFinished") == 1


async def test_what_is_in_use_elsewhere_stays_open(rehearse: Any, talk: Any) -> None:
    environment = LocalEnvironment()
    toolset = SkillToolset([skill("one"), skill("two")], environment=environment)
    clone = toolset.clone_with_updated_skills([skill("two")])
    for used in (toolset, clone):
        await (await talk(agent_with(rehearse(in_turn(RUN)), used))).say("go")
    await toolset.close()
    assert environment.is_initialized
    await clone.close()
    assert not environment.is_initialized


async def test_the_folder_of_the_skills_is_public_as_with_google_adk(tmp_path: Path) -> None:
    environment = LocalEnvironment(working_dir=tmp_path)
    assert SkillToolset([skill("one")]).skills_folder is None
    assert SkillToolset([skill("one")], environment=environment, skills_folder="/s").skills_folder == Path("/s")
    assert SkillToolset([skill("one")], environment=environment).skills_folder == tmp_path / "skills"


@pytest.mark.behaviour(
    "better", "All skills vanish from disk", google="skills are objects", ours="released, and said once"
)
async def test_when_all_skills_vanish_the_active_ones_are_released(five: Path, rehearse: Any, talk: Any) -> None:
    load = call("load_skill", skill_name="one")
    server = rehearse(in_turn(load, texts=("ok",)) + in_turn(*[load] * 9).removeprefix("turns:\n"))
    toolset = lazily(five)
    session = await talk(agent_with(server, toolset))
    await session.say("load")
    shutil.rmtree(five)
    assert toolset.runtime.source.catalog is not None
    toolset.runtime.source.catalog.refresh()
    got = answers(await session.say("go on"))
    assert "one is not active any more" in server.requests[2].system_text
    assert "not active any more" not in server.requests[3].system_text
    assert bodies(server.requests[-1], "one") == {"one": 0}
    assert [answer["error_code"] for answer in got] == [
        "SKILL_NOT_FOUND",
        "SKILL_NOT_FOUND_FATAL",
        "SKILL_NOT_FOUND_FATAL",
    ]
    state = await session.state()
    assert state["_adk_activated_skill_assistant"] == []


async def test_the_tool_that_comes_with_an_active_skill_is_declared_last(rehearse: Any, talk: Any) -> None:
    def brought() -> str:
        """Comes with the skill."""
        return "x"

    one = skill("one", metadata={"adk_additional_tools": ["brought"]})
    server = rehearse(in_turn(call("load_skill", skill_name="one")))
    await (await talk(agent_with(server, SkillToolset([one], additional_tools=[brought])))).say("go")
    before, after = (
        [tool["name"] for tool in request.body["tools"][0]["functionDeclarations"]] for request in server.requests
    )
    assert after == [*before, "brought", "unload_skill"]
