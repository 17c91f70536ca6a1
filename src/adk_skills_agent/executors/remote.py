"""google-adk's executors and environments on other machines, seen as a sandbox of this package (S0-82 to S0-84).

``SkillToolset(sandbox=remote_sandbox(E2BEnvironment()))`` runs a skill's scripts there with the contract's meaning of
deadline, output, exit code and files. What google-adk's class itself promises or forgets does not matter: the program
that supervises the run is sent along with it (:mod:`adk_skills_agent.sandbox.remote.remote`).
"""

from __future__ import annotations

import base64
import inspect
import logging
import math
import os
import time
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from google.adk.code_executors import BaseCodeExecutor
from google.adk.code_executors import code_execution_utils as google
from google.adk.environment import BaseEnvironment
from pydantic import ConfigDict, Field, InstanceOf

from adk_skills_agent.errors import ConfigError, SandboxError
from adk_skills_agent.executors.code_values import (
    CodeExecutionInput,
    CodeExecutionResult,
    SkillWrapper,
    call_timeout,
    code_result,
    current_invocation,
    file_content,
    input_files,
    recognise,
    working_folder,
)
from adk_skills_agent.executors.threads import (
    BackgroundCall,
    BoundToTask,
    TooLate,
    bound_to_task,
    in_thread,
)
from adk_skills_agent.sandbox import (
    MAX_RUNNING,
    MAY_GO_ON,
    RemoteAnswer,
    RemoteSandbox,
    SandboxPolicy,
    foreign_result,
)
from adk_skills_agent.scripts.outcome import MODEL_STREAM_CHARS

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.adk.agents.invocation_context import InvocationContext


logger = logging.getLogger(__name__)

_CONFIG_MAP_BYTES = 1_000_000
"""GkeCodeExecutor puts the code into a ConfigMap; the API server takes 1 MiB with everything around it."""
_ANSWER_SECONDS = 5.0
"""For an executor to notice its own time limit."""

_LOCAL = {
    "UnsafeLocalCodeExecutor": "runs code on this machine, without isolation. Use LocalSandboxCodeExecutor",
    "LocalEnvironment": "runs commands on this machine, without isolation. Use SandboxEnvironment",
    "ContainerCodeExecutor": "shares one container of this machine's engine. Use sandbox='container'",
    "SandboxedCodeExecutor": "runs code in a sandbox already. Use that sandbox",
    "SandboxEnvironment": "runs commands in a sandbox already. Use that sandbox",
}


def remote_sandbox(
    target: BaseEnvironment | BaseCodeExecutor | Callable[[], BaseEnvironment],
    *,
    most_services_seconds: float = 60.0,
    most_runs: int = MAX_RUNNING,
) -> RemoteSandbox:
    """A sandbox over one of google-adk's classes for other machines.

    Args:
        target: Any ``BaseEnvironment`` (E2B, Daytona, OpenSandbox and others) or a ``BaseCodeExecutor`` that runs code
            elsewhere (``AgentEngineSandboxCodeExecutor``, ``GkeCodeExecutor``, ``CloudRunSandboxCodeExecutor``,
            ``VertexAiCodeExecutor``). It stays the caller's; closing the sandbox closes it. Or a class of environments,
            or a function that makes a new one: each run then has a machine of its own, which is closed after the run,
            so that no script meets what another one has or left.
        most_services_seconds: How long the service may take on top of the run's own time.
        most_runs: Runs, and so machines, at the same time: not more than the service's account allows. Further runs
            wait for their turn, fair to users and sessions.

    Raises:
        ConfigError: ``target`` cannot be handed anything, runs on this very machine, or makes no environment.
    """
    if not isinstance(target, (BaseEnvironment, BaseCodeExecutor)) and callable(target):
        make = target

        def another() -> _Shell:
            return _Shell(_made(make))

        return RemoteSandbox(
            another(), another=another, most_services_seconds=most_services_seconds, most_runs=most_runs
        )
    check_remote(target)
    adapter: _Shell | _Python = _Shell(target) if isinstance(target, BaseEnvironment) else _Python(target)
    return RemoteSandbox(adapter, most_services_seconds=most_services_seconds, most_runs=most_runs)


def _made(make: Callable[[], BaseEnvironment]) -> BaseEnvironment:
    """A new environment, not yet started."""
    made: object = make()
    if not isinstance(made, BaseEnvironment):
        raise ConfigError(
            f"remote_sandbox() got a function that returns a {type(made).__name__}. For a machine for each run it has "
            "to return a new environment of google-adk's (E2BEnvironment, DaytonaEnvironment and others)."
        )
    check_remote(made)
    if made.is_initialized:
        raise ConfigError(
            f"remote_sandbox() got a function that returns a {type(made).__name__} in use. It has to return a new one "
            "each time; give the environment itself if all runs may share it."
        )
    return made


def check_remote(target: object) -> None:
    """Refuse what is not another machine.

    Raises:
        ConfigError: With the reason.
    """
    if not isinstance(target, (BaseEnvironment, BaseCodeExecutor)):
        raise ConfigError(
            f"A remote sandbox needs one of google-adk's executors or environments, not a {type(target).__name__}."
        )
    names = {kind.__name__ for kind in type(target).__mro__}
    if "BuiltInCodeExecutor" in names:
        raise ConfigError(
            "BuiltInCodeExecutor is a tool of the model's own service: the model runs code there by itself, and "
            "nothing can be handed to it. Give scripts a sandbox or another executor."
        )
    for name, why in _LOCAL.items():
        if name in names:
            raise ConfigError(f"{type(target).__name__} is no remote service: it {why} instead.")
    if getattr(target, "executor_type", None) == "sandbox" and "GkeCodeExecutor" in names:
        _check_sandbox_client()


def _check_sandbox_client() -> None:
    try:
        from k8s_agent_sandbox.sandbox_client import SandboxClient
    except ImportError:
        return
    if "template_name" not in inspect.signature(SandboxClient.__init__).parameters:
        raise ConfigError(
            "GkeCodeExecutor(executor_type='sandbox') calls an older k8s-agent-sandbox than the one that is installed "
            "and cannot work. Use sandbox='kubernetes', or executor_type='job'."
        )


def with_timeout(executor: BaseCodeExecutor, seconds: float | None) -> BaseCodeExecutor:
    """The same executor with this time limit of its own: whole seconds, and never less than asked for.

    google-adk's executors read the field ``timeout_seconds`` and know no limit for one call.
    """
    if seconds is None or executor.timeout_seconds == max(1, math.ceil(seconds)):
        return executor
    return executor.model_copy(update={"timeout_seconds": max(1, math.ceil(seconds))})


def within_time(executor: BaseCodeExecutor, seconds: float | None) -> Callable[[Any, Any], Any]:
    """``execute_code`` of an executor of others with this time limit: :func:`with_timeout`, and nothing is forgotten.

    What the executor keeps in itself while it executes, such as the service's name for it, is there the next time.
    """
    limited = with_timeout(executor, seconds)
    if limited is executor:
        return executor.execute_code
    before = [dict(kept) for kept in _attributes(limited)]

    def execute(invocation_context: Any, code_input: Any) -> Any:
        try:
            return limited.execute_code(invocation_context, code_input)
        finally:
            for kept, own, first in zip(_attributes(limited), _attributes(executor), before, strict=True):
                own.update({name: value for name, value in kept.items() if value is not first.get(name, first)})

    return execute


def _attributes(executor: BaseCodeExecutor) -> tuple[dict[str, Any], dict[str, Any]]:
    return executor.__dict__, executor.__pydantic_private__ or {}


class _Shell:
    """An environment as a :class:`~adk_skills_agent.sandbox.remote.remote.RemoteShell`."""

    def __init__(self, environment: BaseEnvironment) -> None:
        self.name = type(environment).__name__
        self._environment = environment

    async def open(self) -> str:
        if not self._environment.is_initialized:
            await self._environment.initialize()
        return PurePosixPath(self._environment.working_dir.as_posix()).as_posix()

    async def run(self, command: str, seconds: float | None) -> RemoteAnswer:
        found = await self._environment.execute(command, timeout=seconds)
        if not isinstance(getattr(found, "stdout", None), str):
            raise TypeError(f"it answered with a {type(found).__name__} instead of a result")
        return RemoteAnswer(
            getattr(found, "exit_code", None),
            found.stdout,
            getattr(found, "stderr", None) or "",
            timed_out=bool(getattr(found, "timed_out", False)),
        )

    async def read(self, path: str, most: int) -> bytes:
        del most  # google-adk's environments give a whole file, as their service does
        return await self._environment.read_file(_path(path))

    async def write(self, path: str, content: bytes) -> None:
        await self._environment.write_file(_path(path), content)

    async def close(self) -> None:
        await self._environment.close()


class _Python:
    """An executor as a :class:`~adk_skills_agent.sandbox.remote.remote.RemotePython`."""

    def __init__(self, executor: BaseCodeExecutor) -> None:
        self.name = type(executor).__name__
        self._executor = executor
        kinds = {kind.__name__ for kind in type(executor).__mro__}
        self.most_code_bytes = _CONFIG_MAP_BYTES if "GkeCodeExecutor" in kinds else None
        # Without a turn of an agent there is no session; what an executor keeps in one is kept here instead.
        self._nobody = SimpleNamespace(
            invocation_id=f"adk-skills-{os.urandom(4).hex()}",
            session=SimpleNamespace(id="adk-skills", app_name="adk-skills", user_id="adk-skills", state={}),
            agent=None,
        )

    async def run_code(self, code: str, seconds: float | None) -> RemoteAnswer:
        execute = within_time(self._executor, seconds)
        context = current_invocation() or self._nobody
        wait = None if seconds is None else seconds + _ANSWER_SECONDS
        try:
            found = await in_thread(lambda: execute(cast(Any, context), CodeExecutionInput(code=code)), wait)
        except TooLate:
            raise TimeoutError from None
        if not isinstance(getattr(found, "stdout", None), str):
            raise TypeError(f"it answered with a {type(found).__name__} instead of a result")
        return RemoteAnswer(getattr(found, "exit_code", None), found.stdout, str(getattr(found, "stderr", None) or ""))

    async def close(self) -> None:
        close = getattr(self._executor, "close", None)
        if callable(close):
            await in_thread(close, _ANSWER_SECONDS)


_PROLOGUE = """\
def _place(folder, files):
    import base64, os
    for path, content in files.items():
        if os.path.dirname(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(content))
    before = os.getcwd()
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)
    return before
_before = _place({folder!r}, {files!r})
try:
    exec(compile({code!r}, "<code>", "exec"), globals())
finally:
    __import__("os").chdir(_before)
"""


def _placed(code_input: google.CodeExecutionInput) -> google.CodeExecutionInput:
    """The same for a service that knows names of files only: the code itself puts them where they belong (S0-24).

    Raises ``ValueError`` when ``working_dir`` or a path leads out of the service's working directory.
    """
    folder, files = str(working_folder(code_input)), code_input.input_files or []
    paths = [getattr(file, "path", None) for file in files]
    if folder == "." and not any(path not in (None, file.name) for path, file in zip(paths, files, strict=True)):
        return code_input
    placed = {file.path: base64.b64encode(file.content).decode() for file in input_files(code_input)}
    for path in placed:
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise ValueError(f"The path {path!r} of an input file must be relative, and without '..'.")
    code = _PROLOGUE.format(folder=folder, files=placed, code=code_input.code)
    return replace(code_input, code=code, input_files=[])


def _path(path: str) -> Path:
    """As google-adk does it: the environment may be of another system than this one."""
    return cast(Path, PurePosixPath(path))


# An executor of google-adk's on another machine, with the bounds this package's own executors have (S0-82 to S0-84).
#
# The code goes there as it is, so what the service offers (libraries, state, images) stays. What google-adk's classes
# lack is added here: a time limit for every one of them and for each call, bounded output, one meaning of success.

DEFAULT_SECONDS = 300
"""google-adk's own default, where it has one."""
_LATE_SECONDS = 2.0
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
        the time limit the result says that the remote side may go on. Raises ``SandboxError`` when the service itself
        failed, or ``CancelledError`` when the task that called was cancelled.
        """
        seconds = call_timeout(code_execution_input)
        if seconds is None:
            seconds = self.timeout_seconds if self.timeout_seconds is not None else DEFAULT_SECONDS
        wrapper = recognise(code_execution_input.code, invocation_context)
        policy = SandboxPolicy(wall_seconds=float(seconds))
        if wrapper is not None and wrapper.marker is not None:
            policy = replace(policy, output_bytes=_MARKER_OUTPUT_BYTES)
        # The attribute is read here, in the caller's context: an executor may learn from it whose call this is.
        execute = within_time(self.executor, seconds)
        code_execution_input = _placed(code_execution_input)
        began = time.monotonic()
        call = BackgroundCall(
            lambda: in_thread(lambda: execute(invocation_context, code_execution_input), seconds + _LATE_SECONDS)
        )
        try:
            found = call.result()
        except TooLate:
            logger.warning("%s did not end in %g s. %s", type(self.executor).__name__, seconds, MAY_GO_ON)
            return self._result(None, policy, wrapper, time.monotonic() - began)
        except Exception as error:
            name = type(self.executor).__name__
            raise SandboxError(f"{name} failed ({type(error).__name__}: {error}).") from error
        if found is None or not hasattr(found, "stdout"):
            raise SandboxError(
                f"{type(self.executor).__name__} answered with a {type(found).__name__} instead of a result."
            )
        return self._result(found, policy, wrapper, time.monotonic() - began)

    def _result(
        self, found: google.CodeExecutionResult | None, policy: SandboxPolicy, wrapper: SkillWrapper | None, took: float
    ) -> CodeExecutionResult:
        """Of what came back, or of nothing when it was given up on."""
        told = ("", "") if found is None else (str(found.stdout or ""), str(getattr(found, "stderr", None) or ""))
        code = getattr(found, "exit_code", None)
        files = getattr(found, "output_files", None) or ()
        result = foreign_result(
            type(self.executor).__name__,
            policy,
            *(text.encode("utf-8", "replace") for text in told),
            exit_code=code if isinstance(code, int) else None,
            files=((str(file.name), file_content(file), file.mime_type) for file in files),
            seconds=took,
            given_up=found is None,
        )
        return code_result(result, policy, wrapper=wrapper, max_chars=self.max_output_chars)
