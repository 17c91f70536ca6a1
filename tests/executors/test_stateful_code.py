"""``stateful=True``: what google-adk's code gets, and whose state it gets it in (S0-109 to S0-116)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import level_table
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.executors import (
    CodeExecutionInput,
    CodeExecutionResult,
    File,
    LocalSandboxCodeExecutor,
    UnsafeLocalCodeExecutor,
)
from adk_skills_agent.executors.sandboxed_code import session_key
from adk_skills_agent.sandbox.contract import ExecutionRequest, ExecutionResult, IsolationReport, Sandbox
from adk_skills_agent.sandbox.sessions.session import SessionState
from adk_skills_agent.sandbox.sessions.sessions import SessionLimits


def context(session: str = "s", user: str = "u", app: str = "app") -> Any:
    return SimpleNamespace(session=SimpleNamespace(id=session), user_id=user, app_name=app)


@pytest.fixture
def executor() -> Iterator[LocalSandboxCodeExecutor]:
    level_table.require("namespaces")
    made = LocalSandboxCodeExecutor(stateful=True)
    yield made
    made.close()


def run(executor: LocalSandboxCodeExecutor, code: str, whose: Any = None, **settings: Any) -> CodeExecutionResult:
    return executor.execute_code(whose or context(), CodeExecutionInput(code=code, **settings))


@pytest.mark.requirement("S0-109", "S0-110")
def test_state_lasts_and_each_session_user_app_and_execution_id_has_its_own(executor: LocalSandboxCodeExecutor) -> None:
    assert run(executor, "x = 20").stderr == ""
    assert run(executor, "x + 22").stdout == "42\n"
    for other in (context(session="t"), context(user="v"), context(app="other")):
        assert run(executor, "'x' in globals()", other).stdout == "False\n"
    assert run(executor, "'x' in globals()", execution_id="skill:s:session:s:agent:a").stdout == "False\n"
    # google-adk's id for the code of an agent is its session's: that is the state without an id.
    assert run(executor, "x", execution_id="s").stdout == "20\n"


def test_a_colon_in_a_name_makes_no_two_states_one(executor: LocalSandboxCodeExecutor) -> None:
    run(executor, "x = 1", context(user="bob", session="x:y"))
    assert run(executor, "'x' in globals()", context(user="bob:x", session="y")).stdout == "False\n"
    assert run(executor, "'x' in globals()", context(user="bob%3Ax", session="y")).stdout == "False\n"
    keys = [session_key(context(app=a, user=u), "e") for a, u in (("a:user:b", "c"), ("a", "b:user:c"), ("a", "b"))]
    assert len(set(keys)) == 3


@pytest.mark.requirement("S0-110")
def test_without_any_context_there_is_one_state(executor: LocalSandboxCodeExecutor) -> None:
    executor.execute_code(None, CodeExecutionInput(code="y = 1"))  # type: ignore[arg-type]
    assert executor.execute_code(None, CodeExecutionInput(code="y")).stdout == "1\n"  # type: ignore[arg-type]
    assert session_key(None, None) == "app::user::default"


@pytest.mark.requirement("S0-112")
def test_the_model_is_told_that_a_failure_changed_nothing(executor: LocalSandboxCodeExecutor) -> None:
    failed = run(executor, "z = 1\nprint('got here')\n1 / 0")
    assert (failed.exit_code, failed.stdout) == (1, "got here\n")
    assert "ZeroDivisionError" in failed.stderr
    assert failed.stderr.endswith("variables, environment and working directory are as before it.")
    assert run(executor, "'z' in globals()").stdout == "False\n"


@pytest.mark.requirement("S0-113")
def test_the_model_is_told_when_its_state_is_lost_and_when_it_begins_anew(executor: LocalSandboxCodeExecutor) -> None:
    run(executor, "x = 1")
    broken = run(executor, "import os; os._exit(3)")
    assert broken.exit_code == 3
    assert "is lost: the code ended its process (exit code 3). Nothing was run again." in broken.stderr
    after = run(executor, "'x' in globals()")
    assert after.stderr == ""
    assert after.stdout.startswith("[This code ran in a new session: ")
    assert after.stdout.endswith("]\nFalse\n")
    assert after.execution is not None
    assert after.execution.session_reset


def test_a_timeout_keeps_the_state_and_says_so(executor: LocalSandboxCodeExecutor) -> None:
    run(executor, "x = 1")
    slow = run(executor, "import time\ntime.sleep(60)", timeout_seconds=0.2)
    assert slow.exit_code == -1
    assert "timed out after 0.2 s\nNothing that this code assigned was kept" in slow.stderr
    assert run(executor, "x").stdout == "1\n"


def test_files_of_a_session_last_and_only_new_ones_come_back(executor: LocalSandboxCodeExecutor) -> None:
    first = run(
        executor, "open('b.txt', 'w').write(open('a.txt').read())\nNone", input_files=[File(name="a.txt", content="hi")]
    )
    assert [(file.name, file.content) for file in first.output_files] == [("b.txt", b"hi")]
    second = run(executor, "open('b.txt').read()")
    assert (second.stdout, second.output_files) == ("'hi'\n", [])


@pytest.mark.requirement("S0-114")
def test_reset_forgets_one_state_or_all(executor: LocalSandboxCodeExecutor) -> None:
    for whose in (context(session="s"), context(session="t")):
        run(executor, "x = 1", whose)
    executor.reset_state(context(session="s"))
    assert "it was reset" in run(executor, "'x' in globals()", context(session="s")).stdout
    assert run(executor, "x", context(session="t")).stdout == "1\n"
    executor.reset_state()
    assert run(executor, "'x' in globals()", context(session="t")).stdout.endswith("False\n")
    states = {health.session_id: health.state for health in executor.session_health()}
    assert states == {"app:app:user:u:s": SessionState.NEW, "app:app:user:u:t": SessionState.READY}


def test_a_copy_of_the_executor_shares_the_state(executor: LocalSandboxCodeExecutor) -> None:
    run(executor, "x = 1")
    copy = executor.model_copy(deep=True)
    assert run(copy, "x").stdout == "1\n"


async def test_a_cancelled_turn_stops_the_code_and_keeps_the_state(executor: LocalSandboxCodeExecutor) -> None:
    await asyncio.to_thread(run, executor, "x = 1")

    async def slow() -> CodeExecutionResult:
        code_input = CodeExecutionInput(code="import time\ntime.sleep(60)", timeout_seconds=60)
        return await asyncio.to_thread(executor.execute_code, context(), code_input)

    turn = asyncio.create_task(slow())
    await asyncio.sleep(0.3)
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    result = await asyncio.to_thread(run, executor, "x")
    assert result.stdout == "1\n"


@pytest.mark.requirement("S0-115")
def test_nothing_is_kept_unless_it_was_asked_for() -> None:
    level_table.require("namespaces")
    executor = LocalSandboxCodeExecutor()
    assert executor.stateful is False
    run(executor, "x = 1")
    assert "NameError" in run(executor, "print(x)").stderr
    executor.reset_state()
    executor.close()
    assert executor.session_health() == ()


class NoSessions(Sandbox):
    name = "forgetful"

    async def run(self, request: ExecutionRequest) -> ExecutionResult:
        raise NotImplementedError

    async def probe(self) -> IsolationReport:
        raise NotImplementedError


def test_what_cannot_keep_state_says_so() -> None:
    with pytest.raises(ConfigError, match="'forgetful' cannot"):
        LocalSandboxCodeExecutor(stateful=True, sandbox=NoSessions())
    with pytest.raises(ValueError, match="stateful"):
        UnsafeLocalCodeExecutor(stateful=True)


def test_limits_of_sessions_are_the_owners() -> None:
    level_table.require("namespaces")
    executor = LocalSandboxCodeExecutor(stateful=True, session_limits=SessionLimits(executions=1))
    try:
        run(executor, "x = 1")
        assert "it had run 1 executions" in run(executor, "1").stdout
    finally:
        executor.close()
