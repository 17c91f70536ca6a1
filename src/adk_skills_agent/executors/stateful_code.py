"""Code with a memory: the sessions of a stateful executor, a Python state for each execution id (S0-109 to S0-114)."""

from __future__ import annotations

import contextlib
import weakref
from dataclasses import replace
from typing import Any

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.executors.background import BackgroundCall
from adk_skills_agent.executors.caller import calling_task
from adk_skills_agent.executors.code_result import CodeExecutionResult
from adk_skills_agent.sandbox.contract import ExecutionResult, Status
from adk_skills_agent.sandbox.session_channel import SessionHost
from adk_skills_agent.sandbox.session_request import SessionRequest
from adk_skills_agent.sandbox.sessions import SessionHealth, SessionLimits, Sessions
from adk_skills_agent.scripts.execution_id import user_key

_DEFAULT_ID = "default"


def session_key(invocation_context: Any, execution_id: str | None) -> str:
    """Whose Python state a call gets: of this app, user and session, and in it of this execution id (S0-110).

    google-adk's own id for code of an agent is its session's; without any, all code of a session shares one state.
    """
    session = getattr(invocation_context, "session", None)
    names = (getattr(invocation_context, "app_name", None), getattr(invocation_context, "user_id", None))
    app, user = (name if isinstance(name, str) else "" for name in names)
    own = getattr(session, "id", None)
    state = execution_id if execution_id is not None else own if isinstance(own, str) else _DEFAULT_ID
    return f"{user_key(app, user)}:{state}"


class StatefulCode:
    """Runs code in sessions that live in the executors' own thread.

    Args:
        host: Starts their boxes.
        limits: How long they are kept.
    """

    def __init__(self, host: SessionHost, limits: SessionLimits | None) -> None:
        self._sessions = sessions = Sessions(host, limits)
        weakref.finalize(self, _close_later, sessions).atexit = False  # at exit every run ends by itself

    def execute(self, key: str, request: SessionRequest) -> ExecutionResult:
        """Run code and wait for it; see :meth:`Sessions.execute`."""
        call = BackgroundCall(lambda: self._sessions.execute(key, request))
        caller = calling_task()
        with caller.watch(call.cancel) if caller is not None else contextlib.nullcontext():
            return call.result()

    def reset(self, key: str | None) -> None:
        """End a state, or all; the next execution begins anew."""
        BackgroundCall(lambda: self._sessions.reset_state(key)).result()

    def health(self) -> tuple[SessionHealth, ...]:
        """Every state there is or was."""
        return self._sessions.health()

    def close(self) -> None:
        """End all; new ones may be started afterwards."""
        BackgroundCall(self._sessions.close).result()


def _close_later(sessions: Sessions) -> None:
    with contextlib.suppress(RuntimeError, SandboxError):  # no thread any more: the interpreter ends
        BackgroundCall(sessions.close)


def with_sentences(result: CodeExecutionResult, execution: ExecutionResult) -> CodeExecutionResult:
    """The same with what a model has to know of its state: that it is lost, or that a failure changed nothing.

    google-adk shows the model ``stdout`` of a success and ``stderr`` of a failure.
    """
    sentences = [note for note in execution.notes if note not in result.stderr]
    if not sentences:
        return result
    if execution.status is Status.OK:
        first = sentences[:1] if execution.session_reset else []
        last = sentences[len(first) :]
        text = result.stdout if result.stdout.endswith("\n") or not result.stdout else f"{result.stdout}\n"
        return replace(result, stdout="".join([*(f"[{s}]\n" for s in first), text, *(f"[{s}]\n" for s in last)]))
    return replace(result, stderr="\n".join([result.stderr.rstrip("\n"), *sentences]))
