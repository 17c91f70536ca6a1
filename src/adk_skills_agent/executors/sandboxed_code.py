"""The base of both executors: sends code to a sandbox and returns the result in google-adk's form."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import tempfile
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from google.adk.code_executors import BaseCodeExecutor
from google.adk.code_executors import code_execution_utils as google
from pydantic import ConfigDict, Field, InstanceOf, PrivateAttr, SkipValidation, field_validator

from adk_skills_agent.errors import ConfigError, SandboxError, TooManyRuns
from adk_skills_agent.executors.code_values import (
    CodeExecutionResult,
    SkillWrapper,
    call_timeout,
    code_result,
    current_invocation,
    input_files,
    names_of,
    on_behalf_of,
    recognise,
    share_of_invocation,
    working_folder,
)
from adk_skills_agent.executors.threads import BackgroundCall, BoundToTask, bound_to_task
from adk_skills_agent.sandbox import (
    EnvValue,
    ExecutionRequest,
    ExecutionResult,
    Sandbox,
    SandboxPolicy,
    SessionHealth,
    SessionHost,
    SessionLimits,
    SessionRequest,
    Sessions,
    Status,
    check_env,
    check_env_name,
    check_policy,
    local_sandbox,
    looks_secret,
    policy_of,
    python_program_text,
    sandbox_of,
    temporary_prefix,
)
from adk_skills_agent.scripts.outcome import MODEL_STREAM_CHARS
from adk_skills_agent.scripts.plan import user_key

if TYPE_CHECKING:
    from google.adk.agents.invocation_context import InvocationContext


logger = logging.getLogger(__name__)

_Value = TypeVar("_Value")

_DEFAULTS = SandboxPolicy()
_MARKER_OUTPUT_BYTES = 48 << 20
"""Kept when a skill's files come back on stdout: google-adk's bound of 16 MiB in base64, as the last quarter or first
three of it."""


class SandboxedCodeExecutor(BaseCodeExecutor):
    """Runs Python code in a sandbox, for google-adk's ``LlmAgent`` and ``SkillToolset``.

    Thread-safe: any number of threads may call at once, also the thread of a running event loop. When the task that
    awaits ``asyncio.to_thread(executor.execute_code, ...)`` is cancelled, the code is killed.

    Attributes:
        timeout_seconds: Seconds of wall time of one execution; None leaves it to the class's default. A
            ``CodeExecutionInput`` with ``timeout_seconds`` comes first (S0-71 to S0-73).
    """

    model_config = ConfigDict(ignored_types=(BoundToTask,), arbitrary_types_allowed=True, extra="forbid")

    # Keep variables, imports and files from one execution to the next, in a state of its own for each ``execution_id``
    # of a user's session (S0-109, S0-110). An execution that fails changes nothing of it.
    stateful: bool = Field(default=False, frozen=True, exclude=True)
    # how long such a state is kept, and how many; None takes the defaults
    session_limits: InstanceOf[SessionLimits] | None = Field(default=None, exclude=True)
    max_memory_mb: int | None = Field(default=256, ge=1)  # memory of one execution, in MiB; None means no limit
    # Most characters of each stream a result holds; the whole text becomes an output file. None keeps what the policy's
    # ``output_bytes`` keeps.
    max_output_chars: int | None = Field(default=MODEL_STREAM_CHARS, ge=0)
    # Take away dangerous builtins and modules (S0-98). Friction against accidents, no boundary: Python code can walk
    # around it. google-adk's own wrapper of skill scripts does not run with it.
    restrict_builtins: bool = False
    # names of host variables the code may see; names that look secret are refused
    allowed_env_vars: list[str] = Field(default_factory=list)
    # variables given to the code; a :class:`~adk_skills_agent.Secret` is kept out of what comes back
    env: SkipValidation[Mapping[str, EnvValue]] = Field(default_factory=dict, exclude=True, repr=False)
    # called with ``("stdout" | "stderr", chunk)`` as output arrives, in the executors' own thread
    on_output: SkipValidation[Callable[[str, bytes], None]] | None = Field(default=None, exclude=True, repr=False)
    # Further limits, or the name of a preset (``trusted``, ``default``, ``strict``). They hold where the executor's own
    # fields were not given.
    policy: InstanceOf[SandboxPolicy] | None = Field(default=None, exclude=True)
    # Where code runs: ``"local"``, ``"container"``, ``"kubernetes"``, ``"ray"``, ``"auto"`` or an object. None takes
    # this machine.
    sandbox: InstanceOf[Sandbox] | None = Field(default=None, exclude=True)

    _can_be_stateful: ClassVar[bool] = False
    _state: StatefulCode | None = PrivateAttr(default=None)

    def __init__(self, **data: Any) -> None:
        if data.get("stateful") and not self._can_be_stateful:
            raise ValueError(f"Cannot set `stateful=True` in {type(self).__name__}.")
        super().__init__(**data)
        if self.stateful:
            self._state = StatefulCode(self._session_host(), self.session_limits)
        check_env(self.env, type(self).__name__)
        self._check_inherited()
        check_policy(self.effective_policy())

    def _check_inherited(self) -> None:
        allowed = self.policy is not None and self.policy.allow_secrets
        for name in self.allowed_env_vars:
            try:
                check_env_name(name)
            except ConfigError as error:
                raise ConfigError(f"allowed_env_vars: {error.message}") from None
            if looks_secret(name) and not allowed:
                raise ConfigError(
                    f"allowed_env_vars would pass {name!r} to the code, which looks like a secret. Remove it, grant "
                    "the value in env, or use a policy with allow_secrets=True."
                )

    @field_validator("policy", mode="before")
    @classmethod
    def _named_policy(cls, value: object) -> object:
        return policy_of(value) if isinstance(value, str) else value

    @field_validator("sandbox", mode="before")
    @classmethod
    def _named_sandbox(cls, value: object) -> object:
        return sandbox_of(value) if isinstance(value, str) else value

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """A copy shares what is the owner's: policy, sandbox, variables, callback, sessions."""
        memo = {} if memo is None else memo
        own = (self.policy, self.sandbox, self.env, self.on_output, self._state)
        memo.update((id(shared), shared) for shared in own)
        return super().__deepcopy__(memo)

    def effective_policy(self, timeout_seconds: float | None = None) -> SandboxPolicy:
        """The limits of one execution: the call's, then this executor's, then the policy's, then the defaults."""
        policy = _DEFAULTS if self.policy is None else self.policy
        seconds = self._own("timeout_seconds", timeout_seconds) if timeout_seconds is None else timeout_seconds
        memory = policy.memory_bytes
        if self._is_own("max_memory_mb"):
            memory = None if self.max_memory_mb is None else self.max_memory_mb << 20
        return replace(
            policy,
            wall_seconds=self._default_seconds(policy) if seconds is None else seconds,
            memory_bytes=memory,
            inherit_env=(*policy.inherit_env, *self.allowed_env_vars),
        )

    @abstractmethod
    def _default_seconds(self, policy: SandboxPolicy) -> float | None:
        """The deadline where neither the call nor ``timeout_seconds`` has one."""

    def _is_own(self, field: str) -> bool:
        """Whether this executor's field counts, and not what the policy says."""
        return self.policy is None or field in self.model_fields_set

    def _own(self, field: str, otherwise: _Value) -> _Value:
        value: _Value = getattr(self, field)
        return value if self._is_own(field) else otherwise

    @bound_to_task
    def execute_code(
        self,
        invocation_context: InvocationContext,
        code_execution_input: google.CodeExecutionInput,
    ) -> CodeExecutionResult:
        """Run the code as ``__main__`` of a fresh interpreter, or of its session's, and wait for it.

        Whatever the code does is a result: ``stderr`` is empty exactly when it succeeded, and says why when not. Raises
        ``SandboxUnavailable`` when no isolation level that works here meets the policy, ``SandboxError`` when the
        sandbox itself failed, ``ConfigError`` when the policy has impossible values, ``ValueError`` when an input file
        or the working directory is outside the workspace, and ``CancelledError`` when the task that called was
        cancelled.
        """
        wrapper = recognise(code_execution_input.code, invocation_context)
        # google-adk gives the scripts of its own skills no id: each is a program by itself, not a step of a session.
        state = self._state
        if state is None or (wrapper is not None and code_execution_input.execution_id is None):
            with on_behalf_of(invocation_context):
                return self._execute(code_execution_input, wrapper)
        key = session_key(invocation_context, code_execution_input.execution_id)
        return self._execute_in_session(
            state, key, code_execution_input, wrapper, share_of_invocation(invocation_context)
        )

    def reset_state(self, invocation_context: InvocationContext | None = None, execution_id: str | None = None) -> None:
        """Forget a Python state: what runs in it is ended, the next execution begins anew and says so (S0-114).

        Args:
            invocation_context: Whose; None with no ``execution_id`` either resets all.
            execution_id: Which of its states; None takes the one of the session itself.
        """
        if self._state is None:
            return
        every = invocation_context is None and execution_id is None
        self._state.reset(None if every else session_key(invocation_context, execution_id))

    def session_health(self) -> tuple[SessionHealth, ...]:
        """The Python states of a stateful executor: those there are, and those there were and why they are gone."""
        return () if self._state is None else self._state.health()

    def close(self) -> None:
        """End the sessions of a stateful executor; the next execution starts one anew."""
        if self._state is not None:
            self._state.close()

    def _session_host(self) -> SessionHost:
        box = self.sandbox if self.sandbox is not None else _this_machine()
        host = box.session_host()
        if host is None:
            raise ConfigError(
                f"stateful=True needs a sandbox that can keep Python state; {box.name!r} cannot. Leave sandbox= out."
            )
        return host

    def _execute_in_session(
        self,
        state: StatefulCode,
        key: str,
        code_input: google.CodeExecutionInput,
        wrapper: SkillWrapper | None,
        share: tuple[str, ...],
    ) -> CodeExecutionResult:
        policy = check_policy(self._policy_for(code_input, wrapper))
        folder = working_folder(code_input)
        with _spill_folder() as spill:
            request = SessionRequest(
                code=code_input.code,
                policy=policy,
                env=self.env,
                input_files=input_files(code_input),
                cwd=str(folder) if folder.parts else None,
                restrict_builtins=self.restrict_builtins,
                share=share,
                on_output=self.on_output,
                spill_dir=None if wrapper is not None else spill,
            )
            try:
                execution = state.execute(key, request)
            except TooManyRuns as error:
                return CodeExecutionResult(stderr=error.message, exit_code=1)
            result = code_result(execution, policy, wrapper=wrapper, max_chars=self.max_output_chars)
        return with_sentences(result, execution)

    def _execute(self, code_input: google.CodeExecutionInput, wrapper: SkillWrapper | None) -> CodeExecutionResult:
        code = code_input.code
        try:
            source = code.encode()
        except UnicodeEncodeError as error:
            problem = f"SyntaxError: the code has a lone surrogate at character {error.start}; it is not valid text."
            return CodeExecutionResult(stderr=problem, exit_code=1)
        policy = check_policy(self._policy_for(code_input, wrapper))
        box = self.sandbox if self.sandbox is not None else _this_machine()
        with _spill_folder() as spill:
            request = ExecutionRequest(
                argv=self._argv(code_input, wrapper, policy),
                policy=policy,
                env=self.env,
                stdin=source,
                input_files=input_files(code_input),
                on_output=self.on_output,
                spill_dir=None if wrapper is not None else spill,
                label="code",
                share=share_of_invocation(current_invocation()),
            )
            try:
                result = BackgroundCall(lambda: box.run(request)).result()
            except TooManyRuns as error:  # the model's to know, and no failure of the agent
                return CodeExecutionResult(stderr=error.message, exit_code=1)
            logger.debug("Code ended: %s, exit code %s.", result.status.value, result.exit_code)
            return code_result(result, policy, wrapper=wrapper, max_chars=self.max_output_chars)

    def _policy_for(self, code_input: google.CodeExecutionInput, wrapper: SkillWrapper | None) -> SandboxPolicy:
        policy = self.effective_policy(call_timeout(code_input))
        if wrapper is not None and wrapper.marker is not None and policy.output_bytes < _MARKER_OUTPUT_BYTES:
            return replace(policy, output_bytes=_MARKER_OUTPUT_BYTES)
        return policy

    def _argv(
        self, code_input: google.CodeExecutionInput, wrapper: SkillWrapper | None, policy: SandboxPolicy
    ) -> tuple[str, ...]:
        shell = "-"
        if wrapper is not None and wrapper.shell:
            shell = "its limit" if policy.wall_seconds is None else f"{policy.wall_seconds:g}"
        python = policy.python if policy.python is not None else sys.executable
        restrict = "restrict" if self.restrict_builtins else "-"
        folder = str(working_folder(code_input))
        # One element that starts with a letter: nothing takes it for a path of the sandbox and translates it.
        imports = f"import:{':'.join(self._import_folders())}"
        return (python, "-I", "-c", _program(), folder, restrict, shell, imports)

    def _import_folders(self) -> tuple[str, ...]:
        return ()


@contextlib.contextmanager
def _spill_folder() -> Iterator[Path]:
    """The folder for the full text of long output; made by the sandbox when needed, and removed here."""
    place = f"{tempfile.gettempdir()}/{temporary_prefix('spill')}{os.urandom(8).hex()}"
    try:
        yield Path(place)
    finally:
        if os.path.lexists(place):
            shutil.rmtree(place, ignore_errors=True)


@lru_cache(maxsize=1)
def _program() -> str:
    return str(python_program_text())


@lru_cache(maxsize=1)
def _this_machine() -> Sandbox:
    """One sandbox for all executors without their own, so that they share what it keeps ready."""
    return local_sandbox()


# Code with a memory: the sessions of a stateful executor, a Python state for each execution id (S0-109 to S0-114).

_DEFAULT_ID = "default"


def session_key(invocation_context: Any, execution_id: str | None) -> str:
    """Whose Python state a call gets: of this app, user and session, and in it of this execution id (S0-110).

    google-adk's own id for code of an agent is its session's; without any, all code of a session shares one state.
    """
    app, user, own = names_of(invocation_context)
    state = execution_id if execution_id is not None else own if own is not None else _DEFAULT_ID
    return f"{user_key(app, user)}:{state}"


class StatefulCode:
    """Runs code in sessions that live in the executors' own thread."""

    def __init__(self, host: SessionHost, limits: SessionLimits | None) -> None:
        self._sessions = sessions = Sessions(host, limits)
        weakref.finalize(self, _close_later, sessions).atexit = False  # at exit every run ends by itself

    def execute(self, key: str, request: SessionRequest) -> ExecutionResult:
        """Run code and wait for it; see :meth:`Sessions.execute`."""
        return BackgroundCall(lambda: self._sessions.execute(key, request)).result()

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
