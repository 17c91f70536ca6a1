"""Rows A1 to A5 and 13 of GOOGLE_ADK.md: the same conversation with google-adk's toolset and with ours."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from google.adk.apps import App
from google.adk.apps.app import EventsCompactionConfig
from google.adk.code_executors.unsafe_local_code_executor import UnsafeLocalCodeExecutor
from google.adk.runners import InMemoryRunner
from google.adk.skills import load_skill_from_dir, models
from google.adk.tools import skill_toolset as theirs
from toolset_agents import LOADS, agent_with, bodies, lazily

from adk_skills_agent import SkillToolset
from adk_skills_agent.testing.request import ModelRequest

HI = "turns: [{text: hi}]"
STATE = "_adk_activated_skill_assistant"
MANY = 500


def google(folder: Path, **more: Any) -> theirs.SkillToolset:
    return theirs.SkillToolset([load_skill_from_dir(path) for path in sorted(folder.iterdir())], **more)


def tokens(request: ModelRequest) -> int:
    """Characters by four of what the toolset adds to a request."""
    declared = sum(len(json.dumps(one, separators=(",", ":"))) for one in request.declarations)
    return (len(request.system_text) + declared) // 4


def answers(events: list[Any]) -> list[dict[str, Any]]:
    return [response.response for event in events for response in event.get_function_responses()]


@pytest.mark.behaviour(
    "better", "No skills at all", google="its tools are offered all the same", ours="no tool, no text"
)
async def test_row_a1_without_skills_nothing_is_offered(tmp_path: Path, says: Any, talk: Any) -> None:
    server = says(HI)
    for toolset in (theirs.SkillToolset([]), lazily(tmp_path)):
        await (await talk(agent_with(server, toolset))).say("hello")
    google_request, our_request = server.requests
    assert "load_skill" in google_request.tool_names
    assert our_request.tool_names == []
    assert "skill" not in our_request.system_text


@pytest.mark.behaviour(
    "better", "`skill_name` of a call", google="any text", ours="one of the skills' names, while they fit"
)
async def test_row_a1_a_skills_name_is_one_of_a_list(five: Path, says: Any, talk: Any) -> None:
    server = says(HI)
    for toolset in (google(five), lazily(five)):
        await (await talk(agent_with(server, toolset))).say("hello")
    schemas = [request.declaration("load_skill")["parameters_json_schema"] for request in server.requests]
    offered = [schema["properties"]["skill_name"].get("enum") for schema in schemas]
    assert offered == [None, ["five", "four", "one", "three", "two"]]


@pytest.mark.behaviour(
    "better",
    "Which files a loaded skill has",
    google="not said, so that models guess",
    ours="a list, scripts with their usage",
    readme=7,
)
async def test_row_a2_loading_says_which_files_there_are(five: Path, says: Any, talk: Any) -> None:
    server = says(LOADS)
    found = []
    for toolset in (google(five), lazily(five)):
        events = await (await talk(agent_with(server, toolset))).say("load one")
        found.append(answers(events)[0])
    assert "guide.md" not in json.dumps(found[0])
    assert found[1]["files"] == ["references/guide.md", "scripts/go.py: Says one."]


@pytest.mark.behaviour(
    "better", "A skill that is loaded twice", google="is in every request twice", ours="is in every request once"
)
@pytest.mark.requirement("C38")
async def test_row_a3_loaded_twice_is_in_the_request_once(five: Path, says: Any, talk: Any) -> None:
    """C38."""
    server = says(LOADS)
    counts = []
    for toolset in (google(five), lazily(five)):
        session = await talk(agent_with(server, toolset))
        for text in ("load one", "load one", "hello"):
            await session.say(text)
        counts.append(bodies(server.requests[-1], "one")["one"])
    assert counts == [2, 1]


@pytest.mark.behaviour(
    "better",
    "Instructions of an active skill after compaction",
    google="in no request, while the state calls it active",
    ours="in every request once",
    readme=8,
)
@pytest.mark.requirement("C37")
async def test_row_a4_compaction_takes_no_instructions_away(five: Path, says: Any, talk: Any) -> None:
    """C37."""
    summary = 'turns:\n  - {when: {user_contains: "conversation history"}, text: a summary}'
    server = says(LOADS.replace("turns:", summary, 1))
    counts = []
    for toolset in (google(five), lazily(five)):
        compaction = EventsCompactionConfig(compaction_interval=2, overlap_size=0)
        app = App(name="tests", root_agent=agent_with(server, toolset), events_compaction_config=compaction)
        session = await talk(InMemoryRunner(app=app))
        for text in ("load one", "a", "b", "c", "d"):
            await session.say(text)
        last = [request for request in server.requests if request.declarations][-1]
        counts.append(bodies(last, "one")["one"])
        assert (await session.state())[STATE] == ["one"]
    assert counts == [0, 1]


@pytest.mark.behaviour(
    "optional",
    "Files and scripts of a skill that was not loaded",
    google="always within reach",
    ours="within reach; `require_activation=True` keeps them back",
)
async def test_row_a5_files_can_wait_for_the_skill(five: Path, says: Any, talk: Any) -> None:
    server = says(
        """
turns:
  - {when: {last_tool: load_skill_resource}, text: done}
  - {call: {name: load_skill_resource, args: {skill_name: one, file_path: references/guide.md}}}
"""
    )
    found = []
    for toolset in (google(five), lazily(five), lazily(five, require_activation=True)):
        events = await (await talk(agent_with(server, toolset))).say("go")
        found.append(answers(events)[0].get("error_code"))
    assert found == [None, None, "SKILL_NOT_ACTIVE"]


@pytest.mark.behaviour(
    "better", "Two requests at once on one session", google="an activation is lost", ours="both stay", readme=9
)
async def test_row_13_two_requests_at_once_lose_no_activation(five: Path, says: Any, talk: Any) -> None:
    server = says(LOADS)
    kept = []
    for toolset in (google(five), lazily(five)):
        called: list[str] = []
        both = asyncio.Event()

        async def wait_for_the_other(
            tool: Any, args: dict[str, Any], tool_context: Any, called: list[str] = called, both: asyncio.Event = both
        ) -> None:
            """Both calls are in the history before either is answered: an order that Gemini accepts."""
            called.append(args["skill_name"])
            if len(called) == 2:
                both.set()
            await asyncio.wait_for(both.wait(), 30)

        session = await talk(agent_with(server, toolset, before_tool_callback=wait_for_the_other))
        await asyncio.gather(session.say("load one"), session.say("load two"))
        kept.append(len((await session.state())[STATE]))
        await session.say("hello")
    assert kept[0] == 1
    assert bodies(server.requests[-1], "one", "two") == {"one": 1, "two": 1}


@pytest.mark.behaviour(
    "better", "A skill that is edited on disk", google="the old text, until there are new objects", ours="the new text"
)
async def test_an_edit_is_seen_at_the_next_request(five: Path, says: Any, talk: Any) -> None:
    server = says(LOADS)
    toolsets = (google(five), lazily(five))
    file = five / "one" / "SKILL.md"
    file.write_text(file.read_text().replace("BODY-OF-one-IN-FORCE", "ANOTHER-BODY"))
    for toolset in toolsets:
        await (await talk(agent_with(server, toolset))).say("load one")
    assert "ANOTHER-BODY" not in str(server.requests[1].body)
    assert str(server.requests[3].body).count("ANOTHER-BODY") == 1


@pytest.mark.behaviour(
    "better",
    "The catalogue of 500 skills in every request",
    google="35,000 tokens",
    ours="a quarter at most, and the rest is found by search",
    readme=6,
)
@pytest.mark.requirement("S4-17")
async def test_a_request_with_500_skills_costs_a_quarter_of_the_tokens(says: Any, talk: Any) -> None:
    """S4-17, table (v): descriptions of 200 characters, both EAGER; the LAZY instruction is not longer either."""
    words = "Works with tables, charts, letters and plans of every kind. "
    skills = [
        models.Skill(
            frontmatter=models.Frontmatter(name=f"skill-{n:03d}", description=(f"Number {n}. " + words * 4)[:200]),
            instructions="body",
            resources=models.Resources(scripts={"go.py": models.Script(src="")}),
        )
        for n in range(MANY)
    ]
    server = says(HI)
    executor = UnsafeLocalCodeExecutor()
    for mode in ("eager", "lazy"):
        for toolset in (
            theirs.SkillToolset(skills, code_executor=executor, discovery_mode=theirs.SkillDiscoveryMode(mode)),
            SkillToolset(skills, code_executor=executor, discovery_mode=mode),
        ):
            await (await talk(agent_with(server, toolset))).say("hello")
    google_eager, our_eager, google_lazy, our_lazy = server.requests
    assert tokens(google_eager) > 34_000
    assert tokens(our_eager) <= tokens(google_eager) / 4
    assert "search_skills" in our_eager.tool_names
    assert tokens(our_lazy) <= tokens(google_lazy)
    assert len(our_lazy.system_text) <= len(google_lazy.system_text)
