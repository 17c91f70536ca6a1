"""An LlmAgent that writes code: google-adk's own code execution flow over our executor."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.runners import InMemoryRunner
from google.genai import types

from adk_skills_agent.executors import LocalSandboxCodeExecutor, UnsafeLocalCodeExecutor
from adk_skills_agent.testing import GeminiServer, parse_conversation


async def answer(executor: Any, *codes: str) -> tuple[list[types.Part], InMemoryRunner, str]:
    """The parts of all events when the model answers with ``codes``, one after the other, then with text."""
    blocks = [f"  - text: {json.dumps(f'```python{chr(10)}{code}{chr(10)}```')}" for code in codes]
    conversation = parse_conversation("\n".join(["turns:", *blocks, "  - text: done"]))
    with GeminiServer([conversation]) as server:
        agent = LlmAgent(name="coder", model=server.model(), code_executor=executor)
        runner = InMemoryRunner(agent=agent, app_name="tests")
        session = await runner.session_service.create_session(app_name="tests", user_id="user")
        message = types.Content(role="user", parts=[types.Part(text="compute")])
        events = runner.run_async(user_id="user", session_id=session.id, new_message=message)
        parts = [part async for event in events if event.content for part in event.content.parts or []]
        await runner.close()
        server.assert_finished()
    return parts, runner, session.id


def results(parts: list[types.Part]) -> list[tuple[Any, str]]:
    return [
        (part.code_execution_result.outcome, part.code_execution_result.output or "")
        for part in parts
        if part.code_execution_result
    ]


@pytest.mark.parametrize("kind", [LocalSandboxCodeExecutor, UnsafeLocalCodeExecutor])
async def test_the_model_gets_the_output_and_the_user_the_files(kind: Any) -> None:
    executor = kind(min_isolation="process") if kind is LocalSandboxCodeExecutor else kind()
    code = "import sys\nopen('plot.svg', 'w').write('<svg/>')\nprint(6 * 7)\nprint('warn', file=sys.stderr)"
    parts, runner, session_id = await answer(executor, code)
    ((outcome, output),) = results(parts)
    assert outcome == types.Outcome.OUTCOME_OK
    assert "42" in output
    assert "`plot.svg`" in output
    part = await runner.artifact_service.load_artifact(
        app_name="tests", user_id="user", session_id=session_id, filename="plot.svg"
    )
    assert part is not None
    assert part.inline_data is not None
    assert part.inline_data.data == b"<svg/>"


async def test_a_failure_is_told_and_the_model_may_try_again() -> None:
    executor = LocalSandboxCodeExecutor(min_isolation="process")
    parts, _, _ = await answer(executor, "1/0", "print('better')")
    (first, error), (second, output) = results(parts)
    assert (first, second) == (types.Outcome.OUTCOME_FAILED, types.Outcome.OUTCOME_OK)
    assert "ZeroDivisionError" in error
    assert "better" in output


async def test_a_timeout_is_a_failure_the_model_is_told_about() -> None:
    executor = LocalSandboxCodeExecutor(min_isolation="process", default_timeout_seconds=0.5)
    parts, _, _ = await answer(executor, "while True: pass")
    assert results(parts) == [(types.Outcome.OUTCOME_FAILED, "timed out after 0.5 s")]
