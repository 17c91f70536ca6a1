"""Traces: the same from events and from google-adk's evaluation, and unharmed by JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from traces import traces

from adk_skills_agent.evals.trace import (
    OutputFile,
    ToolCall,
    Trace,
    Turn,
    Usage,
    from_events,
    from_invocations,
    plain,
)
from adk_skills_agent.testing import GeminiServer, Rule, RuleModel, When, call, say
from adk_skills_agent.testing import Usage as Tokens
from adk_skills_agent.testing.conversation import Answer, Call

MODEL = RuleModel(
    [
        Rule(
            Answer(
                "I look.",
                (Call("load_skill", {"skill_name": "writer"}), Call("load_skill", {"skill_name": "absent"})),
                usage=Tokens(100, 10, 40),
                thought="Which one?",
            ),
            When(user_contains=("write",)),
        ),
        Rule(
            call("run_skill_script", skill_name="writer", file_path="scripts/write.py"),
            When(last_tool=("load_skill",) * 2),
        ),
        Rule(Answer("Written.", usage=Tokens(200, 20), thought="Done?"), When(user_contains=("write",))),
    ],
    otherwise=say("Bye."),
)


@settings(max_examples=50)
@given(traces)
def test_json_gives_back_every_trace(trace: Trace) -> None:
    assert Trace.from_json(json.loads(json.dumps(trace.to_json()))) == trace


@pytest.mark.parametrize("data", [{}, {"turns": [{"calls": [{}]}]}, {"turns": [3]}, {"turns": [{"calls": 3}]}])
def test_what_is_no_trace_is_refused_with_a_sentence(data: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="This is not a trace"):
        Trace.from_json(data)


async def test_events_and_google_adks_invocations_give_the_same_trace(make_skill: Callable[..., Path]) -> None:
    from google.adk.agents import LlmAgent
    from google.adk.evaluation.evaluation_generator import EvaluationGenerator
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    from adk_skills_agent import SandboxPolicy, SkillToolset

    skill = make_skill("writer", files={"scripts/write.py": "open('out.txt', 'w').write('seven')\nprint('ok')\n"})
    async with GeminiServer(MODEL) as server:
        toolset = SkillToolset.from_dirs([skill.parent], policy=SandboxPolicy(min_isolation="process"))
        runner = InMemoryRunner(agent=LlmAgent(name="a", model=server.model(), tools=[toolset]))
        session = await runner.session_service.create_session(app_name=runner.app_name, user_id="me")
        for text in ("Please write.", "Thanks."):
            message = types.Content(role="user", parts=[types.Part(text=text)])
            async for _ in runner.run_async(user_id="me", session_id=session.id, new_message=message):
                pass
        ended = await runner.session_service.get_session(app_name=runner.app_name, user_id="me", session_id=session.id)
        await runner.close()
    assert ended is not None
    trace = from_events(ended.events)
    assert trace == from_invocations(EvaluationGenerator.convert_events_to_eval_invocations(ended.events))
    first, second = trace.turns
    assert (first.user_text, first.final_text, second.user_text, second.final_text) == (
        "Please write.",
        "Written.",
        "Thanks.",
        "Bye.",
    )
    assert [one.name for one in first.calls] == ["load_skill", "load_skill", "run_skill_script"]
    assert [one.failed for one in first.calls] == [False, True, False]
    assert trace.skills_loaded == ("writer",)
    assert trace.output_files == {"out.txt": OutputFile(5)}
    assert first.usage is not None
    assert first.usage.cached == 40
    assert first.usage.total >= first.usage.prompt + first.usage.output > 330
    assert all(one.response is not None for one in first.calls)
    named = {event.invocation_id: 1.5 for event in ended.events}
    assert from_events(ended.events, seconds=named).seconds == 3.0
    assert Trace.from_json(json.loads(json.dumps(trace.to_json()))) == trace


async def test_a_turn_that_ended_with_an_error_says_so() -> None:
    from google.adk.events.event import Event
    from google.genai import types

    def event(author: str, **fields: object) -> Event:
        return Event(invocation_id="1", author=author, **fields)  # type: ignore[arg-type]

    said = types.Content(role="model", parts=[types.Part(text="Here.")])
    failed = [event("user", content=types.Content(parts=[types.Part(text="Go")])), event("a", error_code="SAFETY")]
    assert from_events(failed).turns == (Turn("Go", error="SAFETY"),)
    assert from_events([*failed, event("a", content=said)]).turns == (Turn("Go", final_text="Here."),)
    assert from_events([*failed, event("a", content=said, partial=True)]).turns[0].error == "SAFETY"


def test_answers_find_their_calls_without_ids() -> None:
    from google.adk.evaluation.eval_case import IntermediateData, Invocation
    from google.genai import types

    content = types.Content(parts=[types.Part(text="Go")])
    data = IntermediateData(
        tool_uses=[types.FunctionCall(name=name, args={"n": n}) for n, name in enumerate(["a", "b", "a"])],
        tool_responses=[types.FunctionResponse(name=name, response={"is": n}) for n, name in enumerate(["b", "a"])],
    )
    (turn,) = from_invocations([Invocation(user_content=content, intermediate_data=data)]).turns
    assert [one.response for one in turn.calls] == [{"is": 1}, {"is": 0}, None]
    assert turn.usage is None


@pytest.mark.parametrize(
    ("call_", "loaded"),
    [
        (ToolCall("load_skill", {"skill_name": "a"}), ("a",)),
        (ToolCall("use_skill", {"name": "a"}, {"status": "active"}), ("a",)),
        (ToolCall("docs_load_skill", {"skill_name": "a"}), ("a",)),
        (ToolCall("preload_skills", {"skill_name": "a"}), ()),
        (ToolCall("load_skill", {"skill_name": "a"}, {"error": "no", "error_code": "SKILL_NOT_FOUND"}), ()),
        (ToolCall("load_skill", {"skill_name": 3}), ()),
        (ToolCall("load_skill_resource", {"skill_name": "a", "file_path": "x"}), ()),
    ],
)
def test_a_skill_is_loaded_by_a_call_that_worked(call_: ToolCall, loaded: tuple[str, ...]) -> None:
    assert Trace((Turn(calls=(call_,)),)).skills_loaded == loaded


def test_a_skill_the_user_named_comes_first_and_counts_once() -> None:
    calls = tuple(ToolCall("load_skill", {"skill_name": name}) for name in ("b", "a", "b"))
    assert Trace((Turn(calls=calls),), activated=("a",)).skills_loaded == ("a", "b")


def test_usage_and_seconds_are_unknown_until_a_turn_knows_them() -> None:
    assert (Trace((Turn(),)).usage, Trace((Turn(),)).seconds) == (None, None)
    known = Trace((Turn(usage=Usage(1, 2, 3, 1), seconds=0.5), Turn(), Turn(usage=Usage(1, 1, 2, 0), seconds=1.0)))
    assert (known.usage, known.seconds) == (Usage(2, 3, 5, 1), 1.5)


def test_values_that_json_cannot_say_become_text() -> None:
    odd = {1: float("nan"), "b": b"\xff", "p": Path("/x"), "s": {1}, "t": (1, 2.5)}
    assert plain(odd) == {"1": "nan", "b": "/w==", "p": "/x", "s": [1], "t": [1, 2.5]}
    json.dumps(plain(odd), allow_nan=False)


def test_a_file_too_large_to_keep_has_only_its_size() -> None:
    assert OutputFile.of(b"x" * 9, keep_bytes=8) == OutputFile(9, None)
    assert OutputFile.of(b"x" * 8, keep_bytes=8).content == b"x" * 8
