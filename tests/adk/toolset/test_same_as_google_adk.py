"""What a caller of google-adk's toolset finds unchanged (S0-4, S0-12, S0-15 to S0-19), and rows A7 and 19."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.code_executors import UnsafeLocalCodeExecutor
from google.adk.code_executors.code_execution_utils import CodeExecutionResult
from google.adk.skills import load_skill_from_dir
from google.adk.tools import skill_toolset as theirs
from script_skill import Recording
from toolset_agents import LOADS, agent_with, bodies, lazily

from adk_skills_agent import SkillToolset

NAMES = ("one", "two")
CALL_BOTH = """
turns:
  - when: {user_contains: "load"}
    call: [{name: load_skill, args: {skill_name: one}}, {name: load_skill, args: {skill_name: two}}]
  - when: {user_contains: "drop"}
    call: [{name: unload_skill, args: {skill_name: one}}, {name: unload_skill, args: {skill_name: two}}]
  - {when: {last_tool: [load_skill, load_skill]}, text: loaded}
  - {when: {last_tool: [unload_skill, unload_skill]}, text: dropped}
  - {text: fine}
"""


def google(folder: Path, **more: Any) -> theirs.SkillToolset:
    return theirs.SkillToolset([load_skill_from_dir(path) for path in sorted(folder.iterdir())], **more)


@pytest.mark.behaviour("same", "Constructor arguments", ours="all of google-adk's, by the same names")
@pytest.mark.requirement("S0-12")
def test_every_argument_of_the_constructor_is_taken_in_the_same_way() -> None:
    """S0-12: the executor is an argument by name only."""
    wanted = inspect.signature(theirs.SkillToolset.__init__).parameters
    ours = inspect.signature(SkillToolset.__init__).parameters
    assert {name: parameter.kind for name, parameter in wanted.items()} == {name: ours[name].kind for name in wanted}
    assert all(parameter.default is not parameter.empty for name, parameter in ours.items() if name not in wanted)
    for toolset in (theirs.SkillToolset, SkillToolset):
        with pytest.raises(TypeError):
            toolset([], UnsafeLocalCodeExecutor())


@pytest.mark.behaviour("same", "Tools and their arguments", ours="the same names; further arguments are optional")
@pytest.mark.requirement("S0-4", "S0-157")
async def test_the_tools_take_the_same_arguments(five: Path, says: Any, talk: Any) -> None:
    """S0-4, S0-157."""
    server = says("turns: [{text: hi}]")
    executor = UnsafeLocalCodeExecutor()
    for toolset in (google(five, code_executor=executor), lazily(five, code_executor=executor)):
        await (await talk(agent_with(server, toolset))).say("hello")
    wanted, ours = server.requests
    assert wanted.tool_names == ours.tool_names
    for name in wanted.tool_names:
        schemas = [request.declaration(name).get("parameters_json_schema") or {} for request in (wanted, ours)]
        properties = [schema.get("properties", {}) for schema in schemas]
        assert set(properties[0]) <= set(properties[1]), name
        assert schemas[0].get("required", []) == schemas[1].get("required", []), name


@pytest.mark.requirement("S0-15", "S0-16", "S0-17", "S0-158")
async def test_the_instruction_names_the_tools_and_the_catalogue_is_the_specifications_xml(
    five: Path, says: Any, talk: Any
) -> None:
    """S0-15 to S0-17, S0-158: at most 100 tokens a skill."""
    server = says("turns: [{text: hi}]")
    await (await talk(agent_with(server, lazily(five, discovery_mode="eager")))).say("hello")
    text = server.requests[0].system_text
    assert "`load_skill`" in text
    assert "`run_skill_script`" in text
    block = text[text.index("<available_skills>") : text.index("</available_skills>")]
    assert block.count("<name>") == block.count("<description>") == 5
    assert len(block) // 4 <= 5 * 100


@pytest.mark.requirement("C32", "C33")
async def test_a_block_in_force_has_the_body_where_it_lies_and_what_it_needs(
    make_skill: Callable[..., Path], says: Any, talk: Any
) -> None:
    """C32, C33: the body without its frontmatter; compatibility stays."""
    folder = make_skill("one", description="Does it.\ncompatibility: Needs a loom.", body="# One\n\nWeave.\n")
    server = says(LOADS)
    session = await talk(agent_with(server, lazily(folder.parent)))
    await session.say("load one")
    text = server.requests[-1].system_text
    block = text[text.index("<skill_content") : text.index("</skill_content>")]
    assert block == (
        '<skill_content name="one">\n# One\n\nWeave.\n\nCompatibility: Needs a loom.\nSkill directory: /skill\n'
        "Relative paths in this skill are relative to the skill directory.\n"
    )


@pytest.mark.requirement("C36")
async def test_reading_a_file_asks_nobody(five: Path, says: Any, talk: Any) -> None:
    """C36: also where every script is asked for."""
    server = says(
        """
turns:
  - {when: {last_tool: load_skill_resource}, text: done}
  - {call: {name: load_skill_resource, args: {skill_name: one, file_path: guide.md}}}
"""
    )
    session = await talk(agent_with(server, lazily(five, permissions={"scripts": {"*": "ask"}})))
    events = await session.say("go")
    answers = [response.response for event in events for response in event.get_function_responses()]
    assert [answer["content"] for answer in answers] == ["guide of one"]


@pytest.mark.requirement("S0-19")
async def test_an_executor_of_others_runs_beside_the_event_loop(five: Path, says: Any, talk: Any) -> None:
    """S0-19, row 19: neither on the loop's thread nor on one of the pool that everybody shares."""
    server = says(
        """
turns:
  - {when: {last_tool: run_skill_script}, text: done}
  - {call: {name: run_skill_script, args: {skill_name: one, file_path: go.py}}}
"""
    )
    pool = {await asyncio.to_thread(threading.get_ident) for _ in range(3)}
    threads: list[int] = []

    def does(_: Any) -> CodeExecutionResult:
        threads.append(threading.get_ident())
        return CodeExecutionResult(stdout="ran")

    session = await talk(agent_with(server, lazily(five, code_executor=Recording(does=does))))
    await session.say("go")
    assert len(threads) == 1
    assert threads[0] not in pool | {threading.get_ident()}


async def test_two_skills_unloaded_in_one_answer_are_both_gone(five: Path, says: Any, talk: Any) -> None:
    """Row A7: google-adk's own documentation names a race here."""
    server = says(CALL_BOTH)
    session = await talk(agent_with(server, lazily(five)))
    await session.say("load")
    assert bodies(server.requests[-1], *NAMES) == {"one": 1, "two": 1}
    await session.say("drop")
    await session.say("hello")
    assert bodies(server.requests[-1], *NAMES) == {"one": 0, "two": 0}
    assert "BODY" not in server.requests[-1].system_text
    assert json.dumps((await session.state()).get("_adk_activated_skill_assistant", [])) == "[]"
