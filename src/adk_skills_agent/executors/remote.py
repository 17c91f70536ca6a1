"""google-adk's executors and environments on other machines, seen as a sandbox of this package (S0-82 to S0-84).

``SkillToolset(sandbox=remote_sandbox(E2BEnvironment()))`` runs a skill's scripts there with the contract's meaning of
deadline, output, exit code and files. What google-adk's class itself promises or forgets does not matter: the program
that supervises the run is sent along with it (:mod:`adk_skills_agent.sandbox.remote`).
"""

from __future__ import annotations

import inspect
import logging
import math
import os
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, cast

from google.adk.code_executors import BaseCodeExecutor
from google.adk.environment import BaseEnvironment

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.executors.code_input import CodeExecutionInput
from adk_skills_agent.executors.invocation import current_invocation
from adk_skills_agent.executors.own_thread import TooLate, in_thread
from adk_skills_agent.sandbox.remote import RemoteAnswer, RemoteSandbox

logger = logging.getLogger(__name__)

_CONFIG_MAP_BYTES = 1_000_000
"""GkeCodeExecutor puts the code into a ConfigMap; the API server takes 1 MiB with everything around it."""
_WAIT_SECONDS = 5.0
"""For an executor to notice its own time limit."""

_LOCAL = {
    "UnsafeLocalCodeExecutor": "runs code on this machine, without isolation. Use LocalSandboxCodeExecutor",
    "LocalEnvironment": "runs commands on this machine, without isolation. Use SandboxEnvironment",
    "ContainerCodeExecutor": "shares one container of this machine's engine. Use sandbox='container'",
    "SandboxedCodeExecutor": "runs code in a sandbox already. Use that sandbox",
    "SandboxEnvironment": "runs commands in a sandbox already. Use that sandbox",
}


def remote_sandbox(target: BaseEnvironment | BaseCodeExecutor, *, most_services_seconds: float = 60.0) -> RemoteSandbox:
    """A sandbox over one of google-adk's classes for other machines.

    Args:
        target: Any ``BaseEnvironment`` (E2B, Daytona, OpenSandbox and others) or a ``BaseCodeExecutor`` that runs code
            elsewhere (``AgentEngineSandboxCodeExecutor``, ``GkeCodeExecutor``, ``CloudRunSandboxCodeExecutor``,
            ``VertexAiCodeExecutor``). It stays the caller's; closing the sandbox closes it.
        most_services_seconds: How long the service may take on top of the run's own time.

    Raises:
        ConfigError: ``target`` cannot be handed anything, or runs on this very machine.
    """
    check_remote(target)
    adapter: _Shell | _Python = _Shell(target) if isinstance(target, BaseEnvironment) else _Python(target)
    return RemoteSandbox(adapter, most_services_seconds=most_services_seconds)


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
    if seconds is None:
        return executor
    return executor.model_copy(update={"timeout_seconds": max(1, math.ceil(seconds))})


class _Shell:
    """An environment as a :class:`~adk_skills_agent.sandbox.remote.RemoteShell`."""

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
        return RemoteAnswer(found.exit_code, found.stdout, found.stderr or "", timed_out=bool(found.timed_out))

    async def read(self, path: str) -> bytes:
        return await self._environment.read_file(_path(path))

    async def write(self, path: str, content: bytes) -> None:
        await self._environment.write_file(_path(path), content)

    async def close(self) -> None:
        await self._environment.close()


class _Python:
    """An executor as a :class:`~adk_skills_agent.sandbox.remote.RemotePython`."""

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
        executor = with_timeout(self._executor, seconds)
        context = current_invocation() or self._nobody
        wait = None if seconds is None else seconds + _WAIT_SECONDS
        try:
            found = await in_thread(
                lambda: executor.execute_code(cast(Any, context), CodeExecutionInput(code=code)), wait
            )
        except TooLate:
            raise TimeoutError from None
        if not isinstance(getattr(found, "stdout", None), str):
            raise TypeError(f"it answered with a {type(found).__name__} instead of a result")
        return RemoteAnswer(getattr(found, "exit_code", None), found.stdout, str(found.stderr or ""))

    async def close(self) -> None:
        close = getattr(self._executor, "close", None)
        if callable(close):
            await in_thread(close, _WAIT_SECONDS)


def _path(path: str) -> Path:
    """As google-adk does it: the environment may be of another system than this one."""
    return cast(Path, PurePosixPath(path))
