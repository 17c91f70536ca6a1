"""What the user, or the agent that asked, gets when the guard ends a turn: below every kind of root, and live."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from google.adk.agents import BaseAgent, LlmAgent, LoopAgent, ParallelAgent, SequentialAgent
from google.adk.runners import InMemoryRunner
from google.adk.tools.agent_tool import AgentTool
from google_skills import answers, call, in_turn, skill, texts
from live_gemini import LiveGemini, calls
from test_run_live import stream

from adk_skills_agent import SkillToolset
from adk_skills_agent.adk.guard import LIVE_REFUSALS

WRONG = call("load_skill_resource", skill_name="one", file_path="references/x.md")


class Custom(BaseAgent):
    """An application's own root."""

    async def _run_async_impl(self, ctx: Any) -> AsyncGenerator[Any, None]:
        for agent in self.sub_agents:
            async for event in agent.run_async(ctx):
                yield event


def looping(server: Any, name: str = "worker") -> LlmAgent:
    return LlmAgent(name=name, description="Works.", model=server.model(), tools=[SkillToolset([skill("one")])])


ROOTS = [
    pytest.param(lambda agent: SequentialAgent(name="root", sub_agents=[agent]), id="sequential"),
    pytest.param(lambda agent: LoopAgent(name="root", sub_agents=[agent], max_iterations=1), id="loop"),
    pytest.param(lambda agent: ParallelAgent(name="root", sub_agents=[agent]), id="parallel"),
    pytest.param(lambda agent: Custom(name="root", sub_agents=[agent]), id="own"),
]
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*Agent is deprecated.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The `session.send` method is deprecated:DeprecationWarning"),
]


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.behaviour(
    "better",
    "The end of a loop below a root that is no `LlmAgent`",
    google="none",
    ours="the model's last words, without another call",
)
async def test_below_any_root_the_user_gets_last_words(
    rehearse: Any, talk: Any, root: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = rehearse(in_turn(*[WRONG] * 3, texts=("I could not read it.",)))
    events = await (await talk(root(looping(server)))).say("go")
    assert texts(events) == ["I could not read it."]
    assert len(server.requests) == 4
    config = server.requests[-1].body["toolConfig"]["functionCallingConfig"]
    assert config == {"mode": "NONE"}
    assert "toolConfig" not in server.requests[-2].body
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("root", ROOTS)
async def test_a_model_that_calls_on_is_ended_below_any_root(rehearse: Any, talk: Any, root: Any) -> None:
    server = rehearse(in_turn(*[WRONG] * 9))
    got = answers(await (await talk(root(looping(server)))).say("go"))
    assert len(got) == 4


@pytest.mark.parametrize("root", ROOTS)
async def test_parallel_refusals_leave_one_turn_for_last_words(rehearse: Any, talk: Any, root: Any) -> None:
    server = rehearse(in_turn(WRONG, WRONG, [WRONG, WRONG], texts=("I could not read it.",)))
    assert texts(await (await talk(root(looping(server)))).say("go")) == ["I could not read it."]


@pytest.mark.parametrize("root", [pytest.param(lambda agent: agent, id="LlmAgent"), *ROOTS])
async def test_an_agent_that_uses_it_as_a_tool_gets_last_words(rehearse: Any, talk: Any, root: Any) -> None:
    inner = rehearse(in_turn(*[WRONG] * 3, texts=("I could not read it.",)))
    worker = root(looping(inner))
    worker.description = "Works."
    outer = rehearse(in_turn(call(worker.name, request="go")))
    boss = LlmAgent(name="boss", model=outer.model(), tools=[AgentTool(worker)])
    (got,) = answers(await (await talk(boss)).say("go"))
    assert got["result"] == "I could not read it."


@pytest.mark.behaviour("better", "A loop in `run_live`", google="goes on", ours="the stream is closed after 5 refusals")
async def test_a_live_model_that_does_not_heed_refusals_ends_its_stream() -> None:
    def script(heard: str) -> dict[str, Any]:
        return calls("load_skill_resource", skill_name="one", file_path="references/no.md")

    async with LiveGemini(script) as server:
        runner = InMemoryRunner(agent=looping(server, "assistant"), app_name="tests")
        session = await runner.session_service.create_session(app_name="tests", user_id="u")
        got = answers(await stream(runner, session, "go"))
        assert len(got) == 2 + LIVE_REFUSALS
        await runner.close()


async def test_below_an_llm_agent_the_words_are_said_before_the_refusal_which_has_them_too(
    rehearse: Any, talk: Any
) -> None:
    """Not last: google-adk stores a tool's answer when the tool has returned, ends the turn, and calls nobody then.

    Whoever shows a final response shows both events; whoever keeps only the last finds the words in its answer.
    """
    server = rehearse(in_turn(*[WRONG] * 3))
    events = await (await talk(looping(server))).say("go")
    final = [event for event in events if event.is_final_response()]
    assert len(final) == 2
    (words,) = texts(final)
    assert texts(final[:1]) == [words]
    assert final[0].author == final[1].author == "worker"
    assert answers(final[1:])[0]["final_text"] == words
    assert len(server.requests) == 3  # and no request more
