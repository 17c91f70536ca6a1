"""google-adk's list of active skills is also written by others: their edits win, our own lost updates do not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
from google.adk.agents import LlmAgent
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.state import State
from google.adk.tools import skill_toolset as google_adk
from google.adk.tools.agent_tool import AgentTool
from google_skills import call, in_turn, skill
from talking import user

from adk_skills_agent.adk.activation import active_skills
from adk_skills_agent.adk.activation.active_skills import MOST_ACTIVE, ActiveSkills, own_keys, skill_key, written_key
from adk_skills_agent.adk.options import SkillLifecycleConfig
from adk_skills_agent.adk.skill_toolset import SkillToolset

OURS, THEIRS = SkillToolset, google_adk.SkillToolset
KEY = "_adk_activated_skill_assistant"
LOAD, UNLOAD, TWO = (
    call("load_skill", skill_name="one"),
    call("unload_skill", skill_name="one"),
    call("load_skill", skill_name="two"),
)


def put(*names: Any) -> Any:
    def before(callback_context: Any) -> None:
        callback_context.state[KEY] = list(names)

    return before


Step = tuple[Any, dict[str, Any] | None, Any]


async def go_through(rehearse: Any, *steps: Step) -> list[tuple[Any, dict[str, int]]]:
    """For each step, the list in the state and how often each body is in the last system instruction."""
    turns = "turns:\n" + "".join(
        in_turn(*([wanted] if wanted else []), texts=("ok",)).removeprefix("turns:\n") for _, wanted, _ in steps
    )
    server = rehearse(turns)
    service = InMemorySessionService()
    session = await service.create_session(app_name="tests", user_id="u")
    seen = []
    with patch.dict(os.environ, {"ADK_ENABLE_SKILL_LIFECYCLE": "1"}):
        for toolset, _, before in steps:
            agent = LlmAgent(
                name="assistant",
                model=server.model(),
                tools=[toolset([skill("one"), skill("two")])],
                before_agent_callback=before,
            )
            runner = Runner(app_name="tests", agent=agent, session_service=service)
            async for _ in runner.run_async(user_id="u", session_id=session.id, new_message=user("go")):
                pass
            stored = await service.get_session(app_name="tests", user_id="u", session_id=session.id)
            assert stored is not None
            system = server.requests[-1].system_text
            seen.append((stored.state.get(KEY), {name: system.count(f"BODY-{name}") for name in ("one", "two")}))
    return seen


@pytest.mark.parametrize(
    ("steps", "active"),
    [
        ([(OURS, LOAD, None), (THEIRS, UNLOAD, None), (OURS, None, None)], []),
        ([(OURS, LOAD, None), (OURS, UNLOAD, None), (THEIRS, LOAD, None), (OURS, None, None)], ["one"]),
        ([(THEIRS, LOAD, None), (OURS, UNLOAD, None), (THEIRS, LOAD, None), (OURS, None, None)], ["one"]),
        ([(OURS, TWO, None), (OURS, None, put()), (OURS, None, None)], []),
        ([(OURS, LOAD, None), (OURS, UNLOAD, None), (OURS, None, put("one")), (OURS, None, None)], ["one"]),
        ([(OURS, LOAD, None), (OURS, None, put("two")), (OURS, UNLOAD, None), (OURS, None, None)], ["two"]),
        ([(OURS, LOAD, None), (OURS, None, put()), (OURS, TWO, None), (OURS, None, None)], ["two"]),
    ],
    ids=[
        "google-adk unloads",
        "google-adk loads again",
        "google-adk loads what we unloaded",
        "the application clears the list",
        "the application fills the list",
        "the application replaces the list",
        "a cleared list stays cleared when another skill is loaded",
    ],
)
@pytest.mark.behaviour("same", "Somebody else writes google-adk's list", ours="their edit wins over what we wrote")
async def test_an_edit_of_the_list_by_somebody_else_stays(rehearse: Any, steps: list[Step], active: list[str]) -> None:
    seen = await go_through(rehearse, *steps)
    assert seen[-1] == (active, {name: int(name in active) for name in ("one", "two")})


@pytest.mark.parametrize("junk", [[1, None, ["x"]], "one", 5, {"one": 1}])
async def test_a_malformed_list_does_not_end_the_run(rehearse: Any, junk: Any) -> None:
    def spoil(callback_context: Any) -> None:
        callback_context.state[KEY] = junk

    seen = await go_through(rehearse, (OURS, LOAD, spoil), (OURS, None, None))
    assert seen[-1] == (["one"], {"one": 1, "two": 0})


def test_a_concurrent_update_that_was_lost_is_told_from_an_edit() -> None:
    record = {"active": True, "order": 1, "tokens": 1, "digest": "", "tool": "load_skill"}
    state: dict[str, Any] = {skill_key("assistant", name): record for name in ("one", "two")}
    state |= {KEY: ["two"], written_key("assistant"): ["two"]}
    active = ActiveSkills(SkillLifecycleConfig(), None)

    class Context:
        agent_name, invocation_id, session = "assistant", "i", None

        def __init__(self) -> None:
            self.state = state

    assert active.active(Context()) == ["one", "two"]  # type: ignore[arg-type]
    state[KEY] = []
    assert active.active(Context()) == []  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated:DeprecationWarning")  # google-adk's own call
async def test_an_agent_that_is_a_tool_gets_no_activations_of_its_caller(rehearse: Any, talk: Any) -> None:
    """google-adk drops keys that begin with ``_adk`` there; activations of the caller are none of the tool's."""
    assert all(key.startswith("_adk") for key in own_keys("a"))
    seen: list[dict[str, Any]] = []
    inner = rehearse(in_turn())
    outer = rehearse(in_turn(LOAD, call("inner", request="go")))
    worker = LlmAgent(
        name="inner",
        description="Works.",
        model=inner.model(),
        before_agent_callback=lambda callback_context: seen.append(callback_context.state.to_dict()),
    )
    boss = LlmAgent(name="assistant", model=outer.model(), tools=[SkillToolset([skill("one")]), AgentTool(worker)])
    await (await talk(boss)).say("$one please")
    assert [key for state in seen for key in state if "skill" in key and not key.startswith("temp:")] == []
    assert seen


async def test_any_number_of_names_in_the_state_costs_one_look_for_each(rehearse: Any, monkeypatch: Any) -> None:
    """Attack row 236: a client gives its session a state with activations of skills that nobody has."""
    looks: list[int] = []
    records = ActiveSkills.records

    def counted(self: ActiveSkills, context: Any) -> Any:
        looks.append(len(found := records(self, context)))
        return found

    monkeypatch.setattr(ActiveSkills, "records", counted)
    server = rehearse("turns: [{text: ok}]")
    service = InMemorySessionService()
    made = {skill_key("assistant", f"none-{number}"): {"active": True, "tool": "load_skill"} for number in range(400)}
    session = await service.create_session(app_name="tests", user_id="u", state=made)
    agent = LlmAgent(name="assistant", model=server.model(), tools=[OURS([skill("one")])])
    runner = Runner(app_name="tests", agent=agent, session_service=service)
    async for _ in runner.run_async(user_id="u", session_id=session.id, new_message=user("go")):
        pass
    assert len(looks) < 50
    assert max(looks) <= 256


@pytest.mark.parametrize("what", ["records", "list", "meta"])
async def test_row_360_of_any_number_of_names_in_the_state_few_are_read_and_none_is_copied(
    rehearse: Any, monkeypatch: Any, what: str
) -> None:
    """Seen: 400,000 names (18 MB) stopped the agent for 30 s at the first message, and 3 s at each further one."""
    count = 3_000
    record = {"active": True, "tool": "load_skill"}
    made: dict[str, Any] = {
        "records": {skill_key("assistant", f"none-{number}"): record for number in range(count)},
        "list": {KEY: [f"none-{number}" for number in range(count)]},
        "meta": {"_adk_skill_meta_assistant": {f"none-{number}": record for number in range(count)}},
    }[what]
    made_of: list[str] = []
    from_state = active_skills._from_state
    monkeypatch.setattr(active_skills, "_from_state", lambda *a: made_of.append(a[0]) or from_state(*a))
    copied: list[str] = []
    get = State.get
    monkeypatch.setattr(State, "get", lambda self, key, default=None: copied.append(key) or get(self, key, default))
    service = InMemorySessionService()
    session = await service.create_session(app_name="tests", user_id="u", state=made)
    agent = LlmAgent(
        name="assistant", model=rehearse(in_turn(LOAD)).model(), tools=[OURS([skill("one"), skill("two")])]
    )
    runner = Runner(app_name="tests", agent=agent, session_service=service)
    async for _ in runner.run_async(user_id="u", session_id=session.id, new_message=user("go")):
        pass
    assert len(set(made_of)) <= 4 * MOST_ACTIVE + 1
    assert not {KEY, "_adk_skill_meta_assistant"}.intersection(copied)
    after = await service.get_session(app_name="tests", user_id="u", session_id=session.id)
    assert after is not None
    changed = [key for key, value in after.state.items() if key.startswith("_adk_skills:") and made.get(key) != value]
    assert skill_key("assistant", "one") in changed  # what is loaded counts all the same
    assert len(changed) <= 4 * MOST_ACTIVE + 1
    assert "one" in after.state[KEY]


async def test_row_435_a_state_of_very_many_keys_is_neither_copied_nor_gone_through(
    rehearse: Any, monkeypatch: Any
) -> None:
    """Seen: 500,000 keys of any name stopped the agent for 13 s at one answer of the model."""
    looks: list[str] = []

    class Counted(dict[str, Any]):
        def __iter__(self) -> Iterator[str]:
            looks.append("iter")
            return super().__iter__()

    service = InMemorySessionService()
    made = {f"k{number}": 1 for number in range(10_001)}
    session = await service.create_session(app_name="tests", user_id="u", state=made)
    agent = LlmAgent(
        name="assistant", model=rehearse(in_turn(LOAD, LOAD)).model(), tools=[OURS([skill("one"), skill("two")])]
    )
    to_dict = State.to_dict
    monkeypatch.setattr(State, "to_dict", lambda self: looks.append("to_dict") or to_dict(self))
    runner = Runner(app_name="tests", agent=agent, session_service=service)
    async for _ in runner.run_async(user_id="u", session_id=session.id, new_message=user("go")):
        pass
    assert looks == []
    after = await service.get_session(app_name="tests", user_id="u", session_id=session.id)
    assert after is not None
    assert after.state[KEY] == ["one"]
    state = State(Counted({**made, **after.state}), {})
    assert [found.name for found in active_skills._stored(state, "assistant")] == ["one"]
    assert looks == []
