"""What the guard counts, where, and for how long (S2-1 to S2-13)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent, SequentialAgent

from adk_skills_agent.adk.options import SkillLimits
from adk_skills_agent.adk.skill_toolset import SkillToolset
from adk_skills_agent.testing import GeminiServer

GOOD = {"skill_name": "worker", "file_path": "scripts/good.py"}


def script(path: str) -> tuple[str, dict[str, Any]]:
    return "run_skill_script", {"skill_name": "worker", "file_path": path}


def resource(path: str) -> tuple[str, dict[str, Any]]:
    return "load_skill_resource", {"skill_name": "worker", "file_path": path}


def calls(*turns: tuple[str, dict[str, Any]] | list[tuple[str, dict[str, Any]]]) -> str:
    lines = []
    for turn in turns:
        made = [{"name": name, "args": args} for name, args in (turn if isinstance(turn, list) else [turn])]
        lines.append(f"  - call: {json.dumps(made)}")
    return "\n".join(["turns:", *lines, "  - text: done"])


@pytest.fixture
def worker(make_skill: Callable[..., Path]) -> Path:
    return make_skill("worker", files={"scripts/good.py": "print('good')", "references/guide.md": "the guide"}).parent


def agent_with(server: GeminiServer, folder: Path, **more: Any) -> LlmAgent:
    toolset = SkillToolset.from_dirs([folder], policy="trusted", **more)
    return LlmAgent(name="assistant", model=server.model(), instruction="Help.", tools=[toolset])


def codes(answered: Any) -> list[str | None]:
    return [result.get("error_code") for _, result in answered.results]


@pytest.mark.behaviour(
    "better", "A wrong script path", google="an error", ours="the nearest paths and the list of scripts as well"
)
@pytest.mark.requirement("S2-4", "S2-7")
async def test_the_first_miss_is_mild_and_a_success_after_it_works(worker: Path, rehearse: Any, ask: Any) -> None:
    """S2-4, S2-7."""
    server = rehearse(calls(script("god.py"), script("good.py")))
    answered = await ask(agent_with(server, worker), "go")
    server.assert_finished()
    first, second = (result for _, result in answered.results)
    assert first["error"] == "Script 'god.py' not found in skill 'worker'."
    assert first["suggestions"] == ["scripts/good.py"]
    assert second["stdout"] == "good\n"
    assert answered.text == "done"


@pytest.mark.behaviour(
    "same", "The second wrong path in a turn", ours="`SCRIPT_NOT_FOUND_FATAL`, `RESOURCE_NOT_FOUND_FATAL`"
)
@pytest.mark.requirement("S2-5", "S2-10")
async def test_a_fatal_answer_says_what_to_do_and_has_the_number_of_the_failure(
    worker: Path, rehearse: Any, ask: Any
) -> None:
    """S2-5, S2-10: the count does not depend on the path."""
    server = rehearse(calls(script("a.py"), script("b.py")))
    answered = await ask(agent_with(server, worker), "go")
    server.assert_finished()
    fatal = answered.results[1][1]
    assert fatal["error_code"] == "SCRIPT_NOT_FOUND_FATAL"
    assert "failure #2" in fatal["error"]
    assert "Do not retry" in fatal["error"]
    assert "stop" in fatal["error"]
    assert len(fatal["error"]) <= 200
    assert answered.text == "done"  # the model may still report it by itself


@pytest.mark.requirement("S2-6")
async def test_scripts_and_resources_are_counted_apart(worker: Path, rehearse: Any, ask: Any) -> None:
    """S2-6."""
    made = [script("a.py"), resource("references/x.md"), script("good.py"), resource("references/guide.md")]
    server = rehearse(calls(*made))
    answered = await ask(agent_with(server, worker), "go")
    server.assert_finished()
    assert codes(answered) == ["SCRIPT_NOT_FOUND", "RESOURCE_NOT_FOUND", None, None]


@pytest.mark.requirement("S2-1", "S2-2", "S2-3")
async def test_the_next_question_starts_anew_and_nothing_of_it_is_stored(worker: Path, rehearse: Any, ask: Any) -> None:
    """S2-1 to S2-3: google-adk's keys, for one invocation, never in the stored session."""
    turn = calls(script("a.py"), script("b.py"))
    text = "\n".join([turn, *turn.splitlines()[1:]])
    server = rehearse(text)
    agent = agent_with(server, worker)
    answered = await ask(agent, "go")
    again = await ask(agent, "go on", session_of=answered)
    server.assert_finished()
    assert codes(answered) == codes(again) == ["SCRIPT_NOT_FOUND", "SCRIPT_NOT_FOUND_FATAL"]
    session = await answered.runner.session_service.get_session(
        app_name="tests", user_id="user", session_id=answered.session_id
    )
    assert not any("not_found" in key or "fatal" in key for key in session.state)
    assert not any("not_found" in key for event in session.events for key in event.actions.state_delta)


@pytest.mark.requirement("S2-1", "S2-2", "S2-3")
async def test_the_count_stands_under_google_adks_key_of_the_invocation(worker: Path, rehearse: Any, ask: Any) -> None:
    seen: list[tuple[str, dict[str, Any]]] = []

    def look(tool: Any, args: Any, tool_context: Any, tool_response: Any) -> None:
        counts = {key: value for key, value in tool_context.state.to_dict().items() if "_script_not_found_" in key}
        seen.append((tool_context.invocation_id, counts))

    agent = agent_with(rehearse(calls(script("a.py"), script("b.py"))), worker)
    agent.after_tool_callback = look
    await ask(agent, "go")
    invocation = seen[0][0]
    key = f"temp:_adk_skill_script_not_found_count_{invocation}"
    assert seen == [(invocation, {key: 1}), (invocation, {key: 2})]


@pytest.mark.requirement("S2-8")
async def test_the_instruction_says_not_to_retry_and_not_to_guess(worker: Path, rehearse: Any, ask: Any) -> None:
    server = rehearse("turns: [{text: hi}]")
    await ask(agent_with(server, worker), "go")
    assert "returns an error, do not retry and do not guess another path: tell the user and stop." in (
        server.requests[0].system_text
    )


@pytest.mark.requirement("S2-12")
async def test_after_a_fatal_answer_nothing_is_done_and_the_turn_ends(worker: Path, rehearse: Any, ask: Any) -> None:
    """S2-12: even a call that would work."""
    ran: list[str] = []
    server = rehearse(calls(script("a.py"), script("b.py"), script("good.py")))
    agent = agent_with(server, worker, on_event=lambda event: ran.append(type(event).__name__))
    answered = await ask(agent, "go")
    assert len(server.requests) == 3
    assert "ScriptStarted" not in ran
    refusal = answered.results[2][1]
    assert refusal["error_code"] == "SCRIPT_NOT_FOUND_FATAL"
    assert refusal["final_text"] == answered.text
    assert answered.events[-1].is_final_response()


async def test_the_final_text_is_the_agents_own_in_the_next_turn(worker: Path, rehearse: Any, ask: Any) -> None:
    turns = calls(script("a.py"), script("b.py"), script("c.py"))
    server = rehearse(turns.replace("  - text: done", "  - text: unused\n  - text: hello again"))
    agent = agent_with(server, worker)
    answered = await ask(agent, "go")
    await ask(agent, "and now?", session_of=answered)
    last = server.requests[-1].body["contents"]
    assert {"role": "model", "parts": [{"text": answered.text}]} in last


async def test_calls_of_one_model_answer_are_counted_but_not_refused_for_their_siblings(
    worker: Path, rehearse: Any, ask: Any
) -> None:
    parallel = [script("a.py"), script("b.py"), script("good.py"), resource("references/guide.md")]
    server = rehearse(calls(parallel, script("good.py")))
    answered = await ask(agent_with(server, worker), "go")
    first = [result for _, result in answered.results[:4]]
    assert sorted(str(result.get("error_code")) for result in first[:2]) == [
        "SCRIPT_NOT_FOUND",
        "SCRIPT_NOT_FOUND_FATAL",
    ]
    assert first[2]["stdout"] == "good\n"
    assert first[3]["content"] == "the guide"
    assert codes(answered)[4] == "SCRIPT_NOT_FOUND_FATAL"  # the model had read that it must stop
    assert len(server.requests) == 2


async def test_parallel_refusals_end_the_turn_with_one_text(worker: Path, rehearse: Any, ask: Any) -> None:
    server = rehearse(calls(script("a.py"), script("b.py"), [script("c.py"), script("good.py")]))
    answered = await ask(agent_with(server, worker), "go")
    texts = [part.text for event in answered.events if event.content for part in event.content.parts or [] if part.text]
    assert texts == ["I could not find a script that I needed, so I stopped here."]


async def test_the_limits_are_the_owners(worker: Path, rehearse: Any, ask: Any) -> None:
    """``misses`` of ``SkillLimits``."""
    server = rehearse(calls(script("a.py"), script("b.py"), script("c.py"), script("good.py")))
    answered = await ask(agent_with(server, worker, limits=SkillLimits(misses=3)), "go")
    server.assert_finished()
    assert codes(answered) == ["SCRIPT_NOT_FOUND"] * 3 + [None]
    server = rehearse(calls(script("a.py"), script("b.py")))
    answered = await ask(agent_with(server, worker, limits=SkillLimits(misses=0)), "go")
    assert codes(answered) == ["SCRIPT_NOT_FOUND_FATAL"] * 2


async def test_a_run_that_fails_in_another_way_or_with_other_arguments_is_another_run(
    make_skill: Callable[..., Path], rehearse: Any, ask: Any
) -> None:
    source = (
        "import pathlib, sys\n"
        "path = pathlib.Path('count'); n = len(path.read_text()) + 1 if path.exists() else 1\n"
        "path.write_text('x' * n)\n"
        "raise {1: ValueError('one'), 2: KeyError('two'), 3: TypeError('three')}.get(n, OSError('four'))\n"
    )
    folder = make_skill("worker", files={"scripts/fail.py": source}).parent
    other = ("run_skill_script", {**GOOD, "file_path": "fail.py", "args": ["x"]})
    server = rehearse(calls(*[script("fail.py")] * 4, other))
    answered = await ask(agent_with(server, folder, limits=SkillLimits(identical_failures=1)), "go")
    server.assert_finished()
    assert codes(answered) == ["EXECUTION_ERROR"] * 5


async def test_two_sessions_at_once_do_not_share_a_count(worker: Path, rehearse: Any, ask: Any) -> None:
    server = rehearse(calls(script("a.py")))
    agent = agent_with(server, worker)
    first, second = await ask(agent, "one"), await ask(agent, "two")
    assert codes(first) == codes(second) == ["SCRIPT_NOT_FOUND"]


async def test_an_agent_is_not_refused_for_what_another_agent_missed(worker: Path, rehearse: Any, ask: Any) -> None:
    """google-adk counts for the whole invocation, and its codes stay; enforcement is for whoever missed."""
    first = agent_with(rehearse(calls(script("bad.py"), script("bad.py"))), worker)
    second = agent_with(rehearse(calls(script("bad.py"), script("good.py"))), worker)
    second.name = "second"
    with pytest.warns(DeprecationWarning, match="SequentialAgent"):
        both = SequentialAgent(name="both", sub_agents=[first, second])
    answered = await ask(both, "go")
    assert codes(answered) == ["SCRIPT_NOT_FOUND", *["SCRIPT_NOT_FOUND_FATAL"] * 2, None]
    assert answered.results[-1][1]["stdout"] == "good\n"


async def test_a_toolset_is_not_refused_for_what_another_one_missed(worker: Path, rehearse: Any, ask: Any) -> None:
    server = rehearse(
        calls(
            script("bad.py"),
            script("worse.py"),
            ("p_run_skill_script", {"skill_name": "worker", "file_path": "scripts/good.py"}),
        )
    )
    agent = agent_with(server, worker)
    agent.tools.append(SkillToolset.from_dirs([worker], policy="trusted", tool_name_prefix="p"))
    answered = await ask(agent, "go")
    assert answered.results[-1][1]["stdout"] == "good\n"
