"""An executor of google-adk's on another machine, with the bounds this package's own executors have (S0-82 to S0-84).

The code goes there as it is, so what the service offers (libraries, state, images) stays. What google-adk's classes
lack is added here: a time limit for every one of them and for each call, bounded output, one meaning of success.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from google.adk.code_executors import BaseCodeExecutor
from google.adk.code_executors import code_execution_utils as google
from pydantic import ConfigDict, Field, InstanceOf

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.executors.background import BackgroundCall
from adk_skills_agent.executors.caller import BoundToTask, bound_to_task, calling_task
from adk_skills_agent.executors.code_input import call_timeout, file_content
from adk_skills_agent.executors.code_result import CodeExecutionResult, code_result
from adk_skills_agent.executors.own_thread import TooLate, in_thread
from adk_skills_agent.executors.remote import check_remote, with_timeout
from adk_skills_agent.executors.skill_wrapper import SkillWrapper, recognise
from adk_skills_agent.sandbox.contract import ExecutionResult, OutputFile, SandboxPolicy, Status
from adk_skills_agent.sandbox.local.output import Capture
from adk_skills_agent.sandbox.local.output_names import distinct, readable, safe_name
from adk_skills_agent.sandbox.remote import MAY_GO_ON, report_of
from adk_skills_agent.scripts.outcome import MODEL_STREAM_CHARS

if TYPE_CHECKING:
    from google.adk.agents.invocation_context import InvocationContext

logger = logging.getLogger(__name__)

DEFAULT_SECONDS = 300
"""google-adk's own default, where it has one."""
_WAIT_SECONDS = 2.0
"""For an executor to notice its own time limit before it is given up on."""
_MARKER_OUTPUT_BYTES = 48 << 20


class RemoteCodeExecutor(BaseCodeExecutor):
    """Runs Python code in another executor, within a time and with bounded output.

    Settings of google-adk that belong to the executor (``stateful``, ``optimize_data_file``, delimiters, retries) are
    the wrapped one's unless they are given.

    Attributes:
        executor: Where the code runs: ``AgentEngineSandboxCodeExecutor``, ``VertexAiCodeExecutor``,
            ``GkeCodeExecutor``, ``CloudRunSandboxCodeExecutor`` or another ``BaseCodeExecutor`` for another machine.
        timeout_seconds: Seconds of wall time of one execution; None takes the wrapped executor's, else 300. A
            ``CodeExecutionInput`` with ``timeout_seconds`` comes first.
        max_output_chars: Most characters of each stream a result holds; the whole text becomes an output file. None
            keeps what ``SandboxPolicy.output_bytes`` keeps.
    """

    model_config = ConfigDict(ignored_types=(BoundToTask,), arbitrary_types_allowed=True, extra="forbid")

    executor: InstanceOf[BaseCodeExecutor]
    max_output_chars: int | None = Field(default=MODEL_STREAM_CHARS, ge=0)

    def __init__(self, executor: BaseCodeExecutor | None = None, **data: Any) -> None:
        if executor is not None:
            data["executor"] = executor
        wrapped = data.get("executor")
        if wrapped is not None:
            check_remote(wrapped)
        if isinstance(wrapped, BaseCodeExecutor):
            for name in BaseCodeExecutor.model_fields:
                data.setdefault(name, getattr(wrapped, name))
        super().__init__(**data)

    @bound_to_task
    def execute_code(
        self, invocation_context: InvocationContext, code_execution_input: google.CodeExecutionInput
    ) -> CodeExecutionResult:
        """Run the code there and wait for it, but not longer than its time.

        Whatever the code does is a result: ``stderr`` is empty exactly when it succeeded, and says why when not. After
        the time limit the result says that the remote side may go on.

        Raises:
            SandboxError: The service itself failed.
            CancelledError: The task that called was cancelled.
        """
        seconds = call_timeout(code_execution_input)
        if seconds is None:
            seconds = self.timeout_seconds if self.timeout_seconds is not None else DEFAULT_SECONDS
        wrapper = recognise(code_execution_input.code)
        policy = SandboxPolicy(wall_seconds=float(seconds))
        if wrapper is not None and wrapper.marker is not None:
            policy = replace(policy, output_bytes=_MARKER_OUTPUT_BYTES)
        executor = with_timeout(self.executor, seconds)
        # The attribute is read here, in the caller's context: an executor may learn from it whose call this is.
        execute = executor.execute_code
        call = BackgroundCall(
            lambda: in_thread(lambda: execute(invocation_context, code_execution_input), seconds + _WAIT_SECONDS)
        )
        caller = calling_task()
        began = time.monotonic()
        try:
            with caller.watch(call.cancel) if caller is not None else contextlib.nullcontext():
                found = call.result()
        except TooLate:
            logger.warning("%s did not end in %g s. %s", type(self.executor).__name__, seconds, MAY_GO_ON)
            return self._result(None, policy, wrapper, time.monotonic() - began)
        except Exception as error:
            name = type(self.executor).__name__
            raise SandboxError(f"{name} failed ({type(error).__name__}: {str(error)[:200]}).") from error
        if found is None or not hasattr(found, "stdout"):
            raise SandboxError(
                f"{type(self.executor).__name__} answered with a {type(found).__name__} instead of a result."
            )
        return self._result(found, policy, wrapper, time.monotonic() - began)

    def _result(
        self, found: google.CodeExecutionResult | None, policy: SandboxPolicy, wrapper: SkillWrapper | None, took: float
    ) -> CodeExecutionResult:
        """Of what came back, or of nothing when it was given up on."""
        out, err = Capture(policy.output_bytes), Capture(policy.output_bytes)
        told = ("", "") if found is None else (str(found.stdout or ""), str(found.stderr or ""))
        for capture, text in zip((out, err), told, strict=True):
            capture.add(text.encode("utf-8", "replace"))
        code = getattr(found, "exit_code", None)
        # An executor that does not say how the code ended says something on stderr when it failed.
        failed = code != 0 if isinstance(code, int) else bool(told[1])
        overdue = found is None or (failed and took >= (policy.wall_seconds or 0))
        files, skipped = _files(found.output_files or () if found is not None else (), policy)
        result = ExecutionResult(
            status=Status.TIMEOUT if overdue else Status.ERROR if failed else Status.OK,
            exit_code=code if isinstance(code, int) else int(failed),
            isolation=report_of(type(self.executor).__name__, policy),
            timed_out=overdue,
            stdout=out.kept(),
            stderr=err.kept(),
            stdout_total=len(told[0].encode("utf-8", "replace")),
            stderr_total=len(told[1].encode("utf-8", "replace")),
            stdout_truncated=out.truncated,
            stderr_truncated=err.truncated,
            stdout_cut_at=out.cut_at,
            stderr_cut_at=err.cut_at,
            wall_ms=took * 1000,
            files=files,
            skipped_files=skipped,
            notes=(MAY_GO_ON,) if overdue else (),
        )
        return code_result(result, policy, wrapper=wrapper, max_chars=self.max_output_chars)


def _files(
    given: Iterable[google.File], policy: SandboxPolicy
) -> tuple[tuple[OutputFile, ...], tuple[tuple[str, str], ...]]:
    """Output files inside the policy's bounds, under names that are safe to store, and what was left out."""
    kept: list[OutputFile] = []
    skipped: list[tuple[str, str]] = []
    taken: set[str] = set()
    room = policy.max_total_file_bytes
    for file in given:
        name = safe_name(str(file.name).lstrip("/")) or ""
        content = file_content(file)
        if not name or ".." in name.split("/"):
            skipped.append((readable(str(file.name)), "its name cannot be used"))
        elif len(kept) >= policy.max_files:
            skipped.append((readable(name), f"more than max_files={policy.max_files} output files"))
        elif len(content) > min(policy.max_file_bytes, room):
            skipped.append(
                (readable(name), f"larger than max_file_bytes={policy.max_file_bytes:,} or than what is left")
            )
        else:
            room -= len(content)
            kind = str(file.mime_type or "application/octet-stream")
            kept.append(OutputFile(distinct(name, taken), content, kind))
    return tuple(kept), tuple(skipped)
