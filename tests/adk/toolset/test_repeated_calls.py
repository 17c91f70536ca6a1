"""Every tool's calls that get the same answer again and again end the turn; what a working model does, does not."""

from __future__ import annotations

from typing import Any

import pytest
from google_skills import Answering, answers, call, in_turn, skill, texts
from toolset_agents import agent_with

from adk_skills_agent import SkillToolset

LOAD, UNLOAD = call("load_skill", skill_name="one"), call("unload_skill", skill_name="one")
READ = call("load_skill_resource", skill_name="one", file_path="references/guide.md")
NO_PROGRESS = "I made no progress with this task, so I stopped here."
DID_NOT_ANSWER = "The place where skills come from did not answer, so I stopped here."
DOWN = Answering(skills={"far": ConnectionError("down")}, found=ConnectionError("down"))


@pytest.mark.parametrize(
    ("calls", "registry", "most"),
    [
        ([call("load_skill", skill_name="far")], DOWN, 4),
        ([call("load_skill")], None, 4),
        ([call("search_skills", query="x")], DOWN, 4),
        ([call("search_skills", query="x")], Answering(), 4),
        ([call("search_skills", query="x")], Answering(found=(skill("three").frontmatter,)), 8),
        ([UNLOAD], None, 4),
        ([call("list_skills", offset=-1)], None, 4),
        ([LOAD, UNLOAD], None, 14),
        ([READ], None, 8),
    ],
    ids=[
        "a registry that is down",
        "no argument",
        "a search that is down",
        "a search without results",
        "a search with results",
        "releasing what is not active",
        "a bad page",
        "loading and releasing",
        "reading the same file",
    ],
)
@pytest.mark.behaviour("better", "The same call with the same answer", google="for ever", ours="ends the turn")
async def test_the_same_call_with_the_same_answer_ends_the_turn(
    rehearse: Any, talk: Any, calls: list[Any], registry: Any, most: int
) -> None:
    server = rehearse(in_turn(*calls * (24 // len(calls))))
    toolset = SkillToolset([skill("one"), skill("two")], registry=registry)
    events = await (await talk(agent_with(server, toolset))).say("go")
    assert len(answers(events)) == most
    code, said = ("REGISTRY_ERROR_FATAL", DID_NOT_ANSWER) if registry is DOWN else ("REPEATED_CALL_FATAL", NO_PROGRESS)
    assert answers(events)[-1]["error_code"] == code
    assert texts(events) == [said]


@pytest.mark.parametrize("tool", ["load_skill", "search_skills", "load_skill_resource", "run_skill_script", "in turns"])
@pytest.mark.behaviour(
    "better", "A registry that is down, asked for another skill each time", google="for ever", ours="ends the turn"
)
async def test_a_registry_that_is_down_ends_the_turn_whatever_it_is_asked(rehearse: Any, talk: Any, tool: str) -> None:
    def asked(number: int) -> Any:
        name = f"far-{number}"
        ways = {
            "load_skill": call("load_skill", skill_name=name),
            "search_skills": call("search_skills", query=name),
            "load_skill_resource": call("load_skill_resource", skill_name=name, file_path="references/a.md"),
            "run_skill_script": call("run_skill_script", skill_name=name, file_path="scripts/a.py"),
        }
        return ways[tool] if tool in ways else list(ways.values())[number % len(ways)]

    server = rehearse(in_turn(*[asked(number) for number in range(12)]))
    names = {f"far-{number}": ConnectionError("down") for number in range(12)}
    down = Answering(skills=names, found=ConnectionError("down"))
    toolset = SkillToolset([skill("one")], registry=down, policy="trusted")
    events = await (await talk(agent_with(server, toolset))).say("go")
    codes = [answer["error_code"] for answer in answers(events)]
    assert codes == ["REGISTRY_ERROR"] * 2 + ["REGISTRY_ERROR_FATAL"] * 2
    assert texts(events) == [DID_NOT_ANSWER]


async def test_local_skills_can_be_used_while_the_registry_is_down(rehearse: Any, talk: Any) -> None:
    server = rehearse(
        in_turn(
            *[call("load_skill", skill_name="far")] * 3,
            READ,
            call("load_skill_resource", skill_name="far", file_path="references/a.md"),
        )
    )
    toolset = SkillToolset([skill("one")], registry=DOWN)
    *_, read, far = answers(await (await talk(agent_with(server, toolset))).say("go"))
    assert read["content"] == "guide"
    assert far["error_code"] == "REGISTRY_ERROR_FATAL"
    assert "final_text" in far


async def test_what_is_done_a_few_times_is_not_counted(rehearse: Any, talk: Any) -> None:
    """A file read in each round of a task, and another skill's in between."""
    other = call("load_skill_resource", skill_name="two", file_path="references/guide.md")
    server = rehearse(in_turn(*[LOAD, READ, other, UNLOAD] * 5))
    toolset = SkillToolset([skill("one"), skill("two")])
    got = answers(await (await talk(agent_with(server, toolset))).say("go"))
    assert len(got) == 20
    assert not any("error" in answer for answer in got)


async def test_the_next_question_starts_anew(rehearse: Any, talk: Any) -> None:
    server = rehearse(in_turn(*[READ] * 10))
    session = await talk(agent_with(server, SkillToolset([skill("one")])))
    await session.say("go")
    (got,) = answers(await session.say("go on"))
    assert got["content"] == "guide"


async def test_google_adk_names_only_what_was_declared(rehearse: Any, talk: Any) -> None:
    server = rehearse(in_turn(call("nonsense"), UNLOAD))
    events = await (await talk(agent_with(server, SkillToolset([skill("one")])))).say("go")
    told, released = answers(events)
    declared = [one["name"] for one in server.requests[0].body["tools"][0]["functionDeclarations"]]
    assert "run_skill_script" not in declared
    assert "run_skill_script" not in told["error"]
    assert "unload_skill" not in told["error"]
    assert "load_skill_resource" in told["error"]
    assert released["error_code"] == "SKILL_NOT_ACTIVE"
