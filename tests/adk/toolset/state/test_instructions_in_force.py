"""An active skill's body is in every request exactly once; counted in the bytes the server received (issue item 2)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.apps import App
from google.adk.apps.app import EventsCompactionConfig
from google.adk.runners import InMemoryRunner, Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from talking import Talk
from toolset_agents import LOADS, agent_with, bodies, lazily

from adk_skills_agent.adk.options import SkillLimits

FIVE = ("one", "two", "three", "four", "five")


async def test_a_loaded_skill_is_in_every_later_request_once(five: Path, says: Any, talk: Any) -> None:
    server = says(LOADS)
    session = await talk(agent_with(server, lazily(five)))
    await session.say("load one")
    await session.say("hello")
    await session.say("hello again")
    counts = [bodies(request, "one", "two") for request in server.requests]
    assert counts == [{"one": 0, "two": 0}] + [{"one": 1, "two": 0}] * 3
    assert all("BODY-OF-one-IN-FORCE" in request.system_text for request in server.requests[1:])
    assert (await session.state())["_adk_activated_skill_assistant"] == ["one"]


@pytest.mark.requirement("C38")
async def test_loading_twice_is_still_once(five: Path, says: Any, talk: Any) -> None:
    """C38, GOOGLE_ADK row A3."""
    server = says(LOADS)
    session = await talk(agent_with(server, lazily(five)))
    first = await session.say("load one")
    second = await session.say("load one")
    await session.say("hello")
    assert [bodies(request, "one")["one"] for request in server.requests] == [0, 1, 1, 1, 1]
    answers = [r.response for e in (*first, *second) for r in e.get_function_responses()]
    assert "BODY-OF-one-IN-FORCE" in answers[0]["instructions"]
    assert answers[1]["status"] == "active"


async def test_an_unloaded_skill_is_in_no_request_and_its_event_is_unchanged(five: Path, says: Any, talk: Any) -> None:
    server = says(LOADS)
    session = await talk(agent_with(server, lazily(five)))
    events = await session.say("load one")
    await session.say("unload one")
    await session.say("hello")
    assert [bodies(request, "one")["one"] for request in server.requests] == [0, 1, 1, 0, 0]
    loaded = next(r for e in events for r in e.get_function_responses())
    assert "BODY-OF-one-IN-FORCE" in loaded.response["instructions"]  # the history is not changed
    stored = await session.runner.session_service.get_session(
        app_name="tests", user_id="u", session_id=session.session_id
    )
    answers = [r.response for e in stored.events for r in e.get_function_responses() if r.name == "load_skill"]
    assert "BODY-OF-one-IN-FORCE" in answers[0]["instructions"]


@pytest.mark.requirement("C37")
async def test_after_compaction_every_active_body_is_there_exactly_once(five: Path, says: Any, talk: Any) -> None:
    """C37, GOOGLE_ADK row A4: 30 turns, 5 skills, compacted again and again."""
    server = says(
        LOADS.replace("turns:", 'turns:\n  - {when: {user_contains: "conversation history"}, text: a summary}', 1)
    )
    agent = agent_with(server, lazily(five))
    app = App(
        name="tests",
        root_agent=agent,
        events_compaction_config=EventsCompactionConfig(compaction_interval=3, overlap_size=1),
    )
    session = await talk(InMemoryRunner(app=app))
    loads = {2: "one", 5: "two", 9: "three", 14: "four", 20: "five"}
    active: set[str] = set()
    summaries = 0
    for turn in range(30):
        before = len(server.requests)
        name = loads.get(turn)
        await session.say(f"load {name}" if name else f"question {turn}")
        requests = server.requests[before:]
        if name:
            assert bodies(requests[0], *FIVE) == {one: int(one in active) for one in FIVE}
            active.add(name)
            requests = requests[1:]
        for request in requests:
            if not request.declarations:
                summaries += 1  # the summariser's own request has neither tools nor our instruction
                continue
            assert bodies(request, *FIVE) == {one: int(one in active) for one in FIVE}
    assert summaries >= 5
    last = [request for request in server.requests if request.declarations][-1]
    assert "question 10" not in str(last.body)  # it was compacted away
    assert not server.mismatches


async def test_a_truncated_history_loses_no_instructions(five: Path, says: Any, talk: Any) -> None:
    server = says(LOADS)
    session = await talk(agent_with(server, lazily(five), include_contents="none"))
    await session.say("load one")
    await session.say("hello")
    assert "load_skill" not in str(server.requests[-1].contents)
    assert bodies(server.requests[-1], "one") == {"one": 1}


async def test_a_new_process_resumes_with_the_same_instructions(five: Path, says: Any, tmp_path: Path) -> None:
    database = str(tmp_path / "sessions.db")
    server = says(LOADS)
    first = Runner(
        app_name="tests", agent=agent_with(server, lazily(five)), session_service=SqliteSessionService(database)
    )
    session = await Talk.start(first)
    await session.say("load one")
    await first.close()
    second = Runner(
        app_name="tests", agent=agent_with(server, lazily(five)), session_service=SqliteSessionService(database)
    )
    resumed = Talk(second, session.session_id)
    await resumed.say("hello")
    await resumed.say("unload one")
    await resumed.say("hello")
    assert [bodies(request, "one")["one"] for request in server.requests] == [0, 1, 1, 1, 0, 0]
    await second.close()


async def test_a_rewind_takes_the_activation_back(five: Path, says: Any, talk: Any) -> None:
    server = says(LOADS)
    session = await talk(agent_with(server, lazily(five)))
    await session.say("load one")
    events = await session.say("load two")
    await session.runner.rewind_async(
        user_id="u", session_id=session.session_id, rewind_before_invocation_id=events[0].invocation_id
    )
    await session.say("hello")
    assert bodies(server.requests[-1], "one", "two") == {"one": 1, "two": 0}


async def test_an_edited_skill_is_stated_once_anew(five: Path, says: Any, talk: Any) -> None:
    server = says(LOADS)
    session = await talk(agent_with(server, lazily(five)))
    await session.say("load one")
    file = five / "one" / "SKILL.md"
    file.write_text(file.read_text().replace("BODY-OF-one-IN-FORCE", "ANOTHER-BODY"))
    await session.say("hello")
    whole = str(server.requests[-1].body)
    assert whole.count("ANOTHER-BODY") == 1
    assert "BODY-OF-one-IN-FORCE" not in whole
    assert '<skill_content name="one" changed="true">' in server.requests[-1].system_text


async def test_a_skill_that_is_gone_is_not_active_any_more(five: Path, says: Any, talk: Any) -> None:
    """State never says active when the text is not in the request."""
    server = says(LOADS)
    session = await talk(agent_with(server, lazily(five)))
    await session.say("load one and two")
    (five / "one" / "SKILL.md").unlink()
    await session.say("hello")
    assert bodies(server.requests[-1], "one", "two") == {"one": 0, "two": 1}
    assert "The skill one is not active any more" in server.requests[-1].system_text
    assert (await session.state())["_adk_activated_skill_assistant"] == ["two"]
    await session.say("hello")
    assert "not active any more" not in server.requests[-1].system_text


@pytest.mark.behaviour(
    "better",
    "Many loaded skills",
    google="no bound on what they take",
    ours="25,000 tokens; the oldest make room and the model is told",
)
async def test_what_has_no_room_is_dropped_oldest_first_and_the_model_is_told(five: Path, says: Any, talk: Any) -> None:
    server = says(LOADS)
    session = await talk(agent_with(server, lazily(five, limits=SkillLimits(active_tokens=150))))
    await session.say("load one")
    await session.say("load two")
    events = await session.say("load three")
    answer = next(r.response for e in events for r in e.get_function_responses())
    assert answer["dropped_skills"] == ["one"]
    assert bodies(server.requests[-1], "one", "two", "three") == {"one": 0, "two": 1, "three": 1}
    assert (await session.state())["_adk_activated_skill_assistant"] == ["two", "three"]
    told = server.requests[-1].last_function_responses[0].response
    assert told["dropped_skills"] == ["one"]


async def test_a_long_body_is_cut_and_says_how_to_read_on(
    make_skill: Callable[..., Path], says: Any, talk: Any
) -> None:
    folder = make_skill("one", body="# one\n\n" + "a line of text\n" * 3000)
    server = says(LOADS)
    session = await talk(agent_with(server, lazily(folder.parent)))
    await session.say("load one")
    system = server.requests[-1].system_text
    assert 1000 < system.count("a line of text") < 1500  # 5,000 tokens of 11,250
    assert "Read on with load_skill_resource, file SKILL.md." in system


async def test_two_requests_at_once_on_one_session_lose_no_activation(five: Path, says: Any, talk: Any) -> None:
    """GOOGLE_ADK row 13: google-adk's list keeps only the last."""
    server = says(LOADS)
    session = await talk(agent_with(server, lazily(five)))
    await asyncio.gather(session.say("load one"), session.say("load two"))
    await session.say("hello")
    assert bodies(server.requests[-1], "one", "two") == {"one": 1, "two": 1}
    # google-adk's list, which others read, has lost one until the next request gives it back.
    assert sorted((await session.state())["_adk_activated_skill_assistant"]) == ["one", "two"]


async def test_two_loads_in_one_turn_are_both_active(five: Path, says: Any, talk: Any) -> None:
    server = says(LOADS)
    session = await talk(agent_with(server, lazily(five)))
    await session.say("load one and two")
    assert bodies(server.requests[-1], "one", "two") == {"one": 1, "two": 1}
    assert sorted((await session.state())["_adk_activated_skill_assistant"]) == ["one", "two"]


async def test_another_agent_of_the_session_does_not_see_the_body(five: Path, says: Any, talk: Any) -> None:
    server = says(
        LOADS.replace("turns:", 'turns:\n  - {when: {system_contains: "I am the second"}, text: second}', 1).replace(
            "{when: {last_tool: load_skill}, text: loaded}",
            "{when: {last_tool: load_skill}, call: {name: transfer_to_agent, args: {agent_name: second}}}",
        )
    )
    second = agent_with(server, lazily(five), name="second")
    second.instruction = "I am the second."
    first = agent_with(server, lazily(five), sub_agents=[second])
    session = await talk(first)
    await session.say("load one")
    assert "I am the second." in server.requests[-1].system_text
    assert bodies(server.requests[-1], "one") == {"one": 0}
    assert "[assistant] loaded the skill one" in str(server.requests[-1].contents)
