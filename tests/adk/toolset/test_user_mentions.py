"""``$skill-name`` and ``/skill-name`` in a user's message (C30), and the names to complete (C31)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.agent_tool import AgentTool
from google.genai import types
from talking import Talk
from toolset_agents import LOADS, agent_with, bodies, lazily

from adk_skills_agent.adk.activation import mentions
from adk_skills_agent.adk.activation.mentions import mentioned_skills

NAMES = {"one", "two", "csv-report", "snake_case", "été"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("$one please", ["one"]),
        ("/csv-report of sales.csv", ["csv-report"]),
        ("use $one, then $two.", ["one", "two"]),
        ("(see $snake_case)", ["snake_case"]),
        ("$one $one", ["one"]),
        ("$été", ["été"]),
        ("look in /one/two", []),
        ("a/one", []),
        ("it costs 5$one", []),
        ("$ONE and $HOME", []),
        ("$one-two", []),
        ("", []),
    ],
)
@pytest.mark.requirement("C30")
def test_names_are_found_where_a_user_means_them(text: str, names: list[str]) -> None:
    content = types.Content(role="user", parts=[types.Part(text=text)])
    assert mentioned_skills(content, NAMES.__contains__) == names


def test_a_message_without_text_names_nothing() -> None:
    assert mentioned_skills(None, NAMES.__contains__) == []
    assert mentioned_skills(types.Content(role="user"), NAMES.__contains__) == []


def test_a_message_of_many_words_is_not_looked_up_without_end() -> None:
    """Attack row 241."""
    looked_up: list[str] = []
    words = " ".join(f"$word{number} $twice" for number in range(3_000))
    content = types.Content(role="user", parts=[types.Part(text=words)])
    assert mentioned_skills(content, lambda name: bool(looked_up.append(name))) == []
    assert len(looked_up) == len(set(looked_up)) == 1_000


def test_row_365_only_the_beginning_and_the_end_of_a_message_are_searched() -> None:
    """Seen: 12 MB of one mention again and again stopped the event loop for 4 s at each request of the turn."""
    pasted = "x " * mentions.MAX_SEARCHED
    parts = [types.Part(text=f"$one {pasted} /two {pasted} /one-two"), types.Part(text=f"$two {pasted} $three")]
    content = types.Content(role="user", parts=parts)
    assert mentioned_skills(content, {"one", "two", "one-two", "three"}.__contains__) == ["one", "three"]

    assert mentions._unsearched([part.text or "" for part in parts]) > 2 * mentions.MAX_SEARCHED
    assert mentions._unsearched(["$one", "x" * mentions.MAX_SEARCHED]) == mentions._unsearched([]) == 0

    again = [" $a" * 1_000_000] * 3
    assert len(list(mentions._mentions(again))) <= 2 * mentions.MAX_SEARCHED // 3 + 2

    cut = "x" * (mentions.MAX_SEARCHED - 5) + " $one/two" + " x" * mentions.MAX_SEARCHED
    assert mentioned_skills(types.Content(role="user", parts=[types.Part(text=cut)]), {"one"}.__contains__) == []


@pytest.mark.behaviour(
    "better", "`$skill-name` in a message", google="nothing", ours="loads the skill before the model speaks"
)
@pytest.mark.requirement("C30")
async def test_a_named_skill_is_in_force_before_the_model_speaks_and_stays(five: Path, says: Any, talk: Any) -> None:
    server = says(LOADS)
    session = await talk(agent_with(server, lazily(five)))
    await session.say("please $two this")
    first = server.requests[0]
    assert bodies(first, "two") == {"two": 1}
    assert "The user asked for the skill two by name; it is loaded." in first.system_text
    assert (await session.state())["_adk_activated_skill_assistant"] == ["two"]
    await session.say("hello")
    assert bodies(server.requests[-1], "two") == {"two": 1}
    assert "by name" not in server.requests[-1].system_text


async def test_a_skill_that_the_model_unloads_is_not_activated_again_in_the_same_turn(
    five: Path, says: Any, talk: Any
) -> None:
    server = says(LOADS)
    session = await talk(agent_with(server, lazily(five)))
    await session.say("$one but unload one")
    assert [bodies(request, "one")["one"] for request in server.requests] == [1, 0]


async def test_the_activation_is_in_a_database_too(five: Path, says: Any, tmp_path: Path) -> None:
    server = says(LOADS)
    runner = Runner(
        app_name="tests",
        agent=agent_with(server, lazily(five)),
        session_service=SqliteSessionService(str(tmp_path / "sessions.db")),
    )
    session = await Talk.start(runner)
    await session.say("/one now")
    await session.say("hello")
    assert [bodies(request, "one")["one"] for request in server.requests] == [1, 1]
    await runner.close()


async def test_its_tools_are_in_the_same_request(make_skill: Callable[..., Path], says: Any, talk: Any) -> None:
    def blow() -> str:
        """Blow the horn."""
        return "tuut"

    folder = make_skill("one")
    file = folder / "SKILL.md"
    file.write_text(file.read_text().replace("---\n\n", "metadata:\n  adk_additional_tools: [blow]\n---\n\n", 1))
    for prefix in (None, "my"):
        server = says(LOADS)
        toolset = lazily(folder.parent, additional_tools=[blow], tool_name_prefix=prefix)
        session = await talk(agent_with(server, toolset))
        await session.say("$one please")
        await session.say("hello")
        name = "my_blow" if prefix else "blow"
        assert [request.tool_names.count(name) for request in server.requests] == [1, 1]


async def test_a_skill_that_needs_a_question_first_is_left_to_the_model(five: Path, says: Any, talk: Any) -> None:
    server = says(LOADS)
    session = await talk(agent_with(server, lazily(five, permissions={"skills": {"one": "ask"}})))
    await session.say("$one please")
    assert bodies(server.requests[0], "one") == {"one": 0}
    assert "The user asked for the skill one by name. Call load_skill with it." in server.requests[0].system_text
    assert (await session.state()).get("_adk_activated_skill_assistant") is None


@pytest.mark.requirement("C31")
def test_the_names_can_be_completed(five: Path) -> None:
    assert lazily(five).skill_names() == ["five", "four", "one", "three", "two"]
    assert lazily(five, permissions={"skills": {"o*": "deny"}}).skill_names() == ["five", "four", "three", "two"]


@pytest.mark.requirement("C25")
async def test_a_skill_that_opted_out_of_the_model_is_there_for_the_user(five: Path, says: Any, talk: Any) -> None:
    """C25: ``disable-model-invocation`` hides a skill from the model, not from the user who names it."""
    file = five / "one" / "SKILL.md"
    file.write_text(file.read_text().replace("---\n\n", "disable-model-invocation: true\n---\n\n", 1))
    server = says(LOADS)
    toolset = lazily(five)
    assert "one" in toolset.skill_names()
    session = await talk(agent_with(server, toolset))
    events = await session.say("load one")
    answer = next(r.response for e in events for r in e.get_function_responses())
    assert answer["error_code"] == "SKILL_NOT_FOUND"
    schema = server.requests[0].declaration("load_skill")["parameters_json_schema"]
    assert "one" not in schema["properties"]["skill_name"]["enum"]
    await session.say("$one please")
    await session.say("hello")
    assert bodies(server.requests[-1], "one") == {"one": 1}


@pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated:DeprecationWarning")
@pytest.mark.parametrize("way", ["tool", "task"])
async def test_row_243_another_agents_model_names_no_skill_that_only_a_user_may_ask_for(
    way: str, five: Path, says: Any, talk: Any
) -> None:
    """The model of an agent writes what its helper gets as a message of the user."""
    file = five / "one" / "SKILL.md"
    file.write_text(file.read_text().replace("---\n\n", "disable-model-invocation: true\n---\n\n", 1))
    server = says(
        """
        turns:
          - when: {user_contains: "ask for it"}
            call: {name: helper, args: {request: "please $one and $two"}}
          - {when: {last_tool: helper}, text: done}
          - {text: fine}
        """
    )
    helper = agent_with(server, lazily(five), name="helper", description="Helps.")
    root = agent_with(server, AgentTool(helper), name="root")
    if way == "task":
        helper = agent_with(server, lazily(five), name="helper", description="Helps.", mode="task")
        root = LlmAgent(name="root", model=server.model(), sub_agents=[helper])
    await (await talk(root)).say("ask for it")
    given = next(request for request in server.requests if "please $one" in json.dumps(request.body))
    assert bodies(given, "one", "two") == {"one": 0, "two": 1}
