"""Steering and recovery through the real Runner and the real google-genai client (S3, issue 4 item 8)."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from google.adk.agents import LlmAgent, RunConfig
from google.adk.agents.run_config import StreamingMode
from google.adk.apps import App
from google.adk.code_executors import BaseCodeExecutor, BuiltInCodeExecutor
from google.adk.code_executors.code_execution_utils import CodeExecutionInput, CodeExecutionResult
from google.adk.events import Event
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import InMemoryRunner
from google.genai import types
from pydantic import Field

from adk_skills_agent.adk.plugins import RECOVERED_FROM, CodeExecutionRecoveryPlugin
from adk_skills_agent.executors import LocalSandboxCodeExecutor
from adk_skills_agent.sandbox.contract import SandboxPolicy
from adk_skills_agent.testing import GeminiServer

Rehearse = Callable[..., GeminiServer]
NO_TOOL = "You have no code_execution tool"


def sandboxed(**settings: Any) -> LocalSandboxCodeExecutor:
    return LocalSandboxCodeExecutor(policy=SandboxPolicy(min_isolation="process"), **settings)


def look_up(key: str) -> dict[str, str]:
    """Look something up."""
    return {"value": key * 2}


async def ask(
    agent: LlmAgent,
    question: str = "run it",
    *,
    plugins: Sequence[BasePlugin] | None = None,
    streaming: bool = False,
) -> list[Event]:
    app = App(name="tests", root_agent=agent, plugins=[CodeExecutionRecoveryPlugin()] if plugins is None else plugins)
    runner = InMemoryRunner(app=app)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(runner.close)
        session = await runner.session_service.create_session(app_name="tests", user_id="user")
        config = RunConfig(streaming_mode=StreamingMode.SSE if streaming else StreamingMode.NONE)
        return [
            event
            async for event in runner.run_async(
                user_id="user",
                session_id=session.id,
                new_message=types.UserContent(question),
                run_config=config,
            )
        ]


def agent_with(server: GeminiServer, executor: BaseCodeExecutor | None, **settings: Any) -> LlmAgent:
    return LlmAgent(name="coder", model=server.model(vertexai=True), code_executor=executor, **settings)


def code_of(events: list[Event]) -> list[str]:
    return [
        part.executable_code.code or ""
        for event in events
        if not event.partial
        for part in (event.content.parts if event.content else None) or []
        if part.executable_code
    ]


def results_of(events: list[Event]) -> str:
    return "".join(
        part.code_execution_result.output or ""
        for event in events
        for part in (event.content.parts if event.content else None) or []
        if part.code_execution_result
    )


REJECTED_THEN_DONE = """
name: rejected
turns:
  - finish_reason: {reason}
    finish_message: "{message}"
    thought: {thought}
  - text: It is 42.
"""


def rejected(
    reason: str = "UNEXPECTED_TOOL_CALL", message: str = "Unexpected tool call: print(6 * 7)", thought: str = '""'
) -> str:
    return REJECTED_THEN_DONE.format(reason=reason, message=message, thought=thought)


@pytest.mark.behaviour(
    "optional",
    "`CodeExecutionRecoveryPlugin`: native code calls of Gemini 2.x",
    google="the turn ends with an error",
    ours="the code is run",
    readme=21,
)
@pytest.mark.parametrize("reason", ["UNEXPECTED_TOOL_CALL", "MALFORMED_FUNCTION_CALL"])
@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.requirement("S3-5", "S3-7")
async def test_a_rejected_native_call_is_run_after_all(
    rehearse: Rehearse, reason: str, streaming: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server = rehearse(
        rejected(
            reason,
            f"{reason.split('_')[0].capitalize()} tool call: print(6 * 7)".replace(
                "Malformed tool", "Malformed function"
            ),
        )
    )
    with caplog.at_level(logging.INFO, "adk_skills_agent"):
        events = await ask(agent_with(server, sandboxed()), streaming=streaming)
    assert code_of(events) == ["print(6 * 7)"]
    assert "42" in results_of(events)
    assert not any(event.error_code for event in events)
    assert "recovered 12 characters of code" in caplog.text
    said = str(server.requests[1].body)
    assert "print(6 * 7)" in said  # the next request has the code and its result, as fenced text
    assert "executableCode" not in said


@pytest.mark.requirement("S3-4")
async def test_code_of_several_lines_arrives_whole(rehearse: Rehearse) -> None:
    server = rehearse(
        rejected(message=r"Unexpected tool call: total = 0\nfor n in range(7):\n    total += 6\nprint(total)")
    )
    events = await ask(agent_with(server, sandboxed()))
    assert "42" in results_of(events)


async def test_the_signature_of_a_thought_is_kept(rehearse: Rehearse) -> None:
    """Streamed, google-adk keeps both the thought and the error's message."""
    server = rehearse(rejected(thought="First I multiply."))
    events = await ask(agent_with(server, sandboxed()), streaming=True)
    assert "42" in results_of(events)
    sent = [part for content in server.requests[1].body["contents"] for part in content["parts"]]
    assert any(part.get("thoughtSignature") for part in sent)


async def test_without_the_plugin_the_turn_ends_with_the_error(rehearse: Rehearse) -> None:
    server = rehearse(rejected())
    events = await ask(agent_with(server, sandboxed()), plugins=[])
    assert [event.error_code for event in events if event.error_code]
    assert len(server.requests) == 1


async def test_the_recovered_response_says_what_it_was_recovered_from(rehearse: Rehearse) -> None:
    """Agent callbacks and plugins that come later, such as tracing, see it."""
    seen: list[dict[str, Any] | None] = []

    class Recorder(CodeExecutionRecoveryPlugin):
        async def after_model_callback(self, **given: Any) -> Any:
            answer = await super().after_model_callback(**given)
            seen.append(answer and answer.custom_metadata)
            return answer

    server = rehearse(rejected())
    await ask(agent_with(server, sandboxed()), plugins=[Recorder()])
    assert seen == [{RECOVERED_FROM: "UNEXPECTED_TOOL_CALL"}, None]


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("UNEXPECTED_TOOL_CALL", "Unexpected tool call: Model tried to call an undeclared function: run_code"),
        ("MALFORMED_FUNCTION_CALL", "Malformed function call: print(default_api.look_up(key='a'))"),
        ("MALFORMED_FUNCTION_CALL", "Malformed function call: look_up(key='a')"),
        ("MALFORMED_FUNCTION_CALL", ""),
        ("SAFETY", "Unexpected tool call: print(1)"),
    ],
)
@pytest.mark.requirement("S3-6")
async def test_other_errors_are_untouched(rehearse: Rehearse, reason: str, message: str) -> None:
    server = rehearse(rejected(reason, message))
    events = await ask(agent_with(server, sandboxed(), tools=[look_up]))
    errors = [event for event in events if event.error_code]
    assert [event.error_code for event in errors] == [reason]
    assert [event.error_message or "" for event in errors] == [message]
    assert not code_of(events)


class Fenced(BaseCodeExecutor):
    """An executor with a fence of its own."""

    code_block_delimiters: list[tuple[str, str]] = Field(default_factory=lambda: [("<run>\n", "\n</run>")])

    def execute_code(self, invocation_context: Any, code_execution_input: CodeExecutionInput) -> CodeExecutionResult:
        return CodeExecutionResult(stdout=f"ran {code_execution_input.code}")


@pytest.mark.requirement("S3-2")
async def test_the_steering_is_in_every_request_once_with_the_executors_own_fence(rehearse: Rehearse) -> None:
    server = rehearse(
        """
name: fenced
turns:
  - text: "<run>\\nprint(1)\\n</run>"
  - text: done
"""
    )
    events = await ask(agent_with(server, Fenced(), instruction="Be brief."))
    assert len(server.requests) == 2
    for request in server.requests:
        assert request.system_text.count(NO_TOOL) == 1
        assert '<run>\nprint("hello")\n</run>' in request.system_text
    assert code_of(events) == ["print(1)"]


@pytest.mark.requirement("S3-2")
async def test_where_google_adk_steers_already_nothing_is_added(rehearse: Rehearse) -> None:
    server = rehearse("name: steered\nturns: [{text: done}]")
    await ask(agent_with(server, sandboxed(optimize_data_file=True)))
    assert server.requests[0].system_text.count("native executable_code") == 1
    assert NO_TOOL not in server.requests[0].system_text


@pytest.mark.requirement("S3-3", "S3-7")
async def test_the_built_in_executor_is_left_alone(rehearse: Rehearse) -> None:
    server = rehearse(rejected())
    agent = LlmAgent(name="coder", model=server.model(vertexai=True), code_executor=BuiltInCodeExecutor())
    events = await ask(agent)
    assert NO_TOOL not in server.requests[0].system_text
    assert [event.error_message for event in events if event.error_code] == ["Unexpected tool call: print(6 * 7)"]


class AlwaysFails(BaseCodeExecutor):
    """Every run of it fails; it counts them."""

    runs: list[str] = Field(default_factory=list)

    def execute_code(self, invocation_context: Any, code_execution_input: CodeExecutionInput) -> CodeExecutionResult:
        self.runs.append(code_execution_input.code)
        return CodeExecutionResult(stderr="no")


def endless(*codes: str) -> str:
    turns = "\n".join(
        f'  - finish_reason: UNEXPECTED_TOOL_CALL\n    finish_message: "Unexpected tool call: {code}"' for code in codes
    )
    return f"name: endless\nturns:\n{turns}"


@pytest.mark.requirement("S3-10")
async def test_failing_recovered_runs_count_against_error_retry_attempts(rehearse: Rehearse) -> None:
    """S3-10: after so many failures google-adk runs nothing more, and the error stays what it was."""
    server = rehearse(endless(*(f"print({n})" for n in range(9))))
    executor = AlwaysFails(error_retry_attempts=2)
    events = await ask(agent_with(server, executor))
    assert executor.runs == ["print(0)", "print(1)"]
    assert len(server.requests) == 3
    assert [event.error_message for event in events if event.error_code] == ["Unexpected tool call: print(2)"]


async def test_a_model_that_repeats_itself_is_stopped_although_its_code_succeeds(rehearse: Rehearse) -> None:
    server = rehearse(endless(*["print(1)"] * 9))
    events = await ask(agent_with(server, sandboxed(error_retry_attempts=2)))
    assert len(server.requests) == 3
    assert events[-1].error_message == "Unexpected tool call: print(1)"


PLAIN = """
name: plain
turns:
  - call: {name: look_up, args: {key: a}}
  - text: It is aa.
"""


@pytest.mark.requirement("S3-8")
async def test_an_agent_without_an_executor_sends_the_same_bytes_with_and_without_the_plugin(
    rehearse: Rehearse,
) -> None:
    bodies = []
    for plugins in ([], [CodeExecutionRecoveryPlugin()]):
        server = rehearse(PLAIN)
        await ask(agent_with(server, None, tools=[look_up], instruction="Look it up."), plugins=plugins)
        bodies.append([without_ids(request.body) for request in server.requests])
    assert len(bodies[0]) == 2
    assert bodies[0] == bodies[1]


@pytest.mark.requirement("S3-8")
async def test_only_the_steering_differs_when_nothing_is_rejected(rehearse: Rehearse) -> None:
    bodies = []
    for plugins in ([], [CodeExecutionRecoveryPlugin()]):
        server = rehearse(PLAIN)
        await ask(agent_with(server, sandboxed(), tools=[look_up], instruction="Look it up."), plugins=plugins)
        bodies.append([without_ids(request.body) for request in server.requests])
    for body in bodies[1]:
        (part,) = body["systemInstruction"]["parts"]
        part["text"] = part["text"].partition(f"\n\n{NO_TOOL}")[0]
    assert bodies[0] == bodies[1]


def without_ids(value: Any) -> Any:
    """google-adk numbers tool calls at random."""
    if isinstance(value, dict):
        return {key: without_ids(item) for key, item in value.items() if key != "id"}
    return [without_ids(item) for item in value] if isinstance(value, list) else value


async def test_nothing_is_kept_after_the_run(rehearse: Rehearse) -> None:
    server = rehearse(rejected())
    plugin = CodeExecutionRecoveryPlugin()
    await ask(agent_with(server, sandboxed()), plugins=[plugin])
    assert not vars(plugin)["_kept"]
