"""``sandbox="auto"``: this machine where it can do what is asked, else a container, else a refusal with all reasons.

Nothing weaker is taken silently: a run goes to a container only because this machine refused it, and the report says
why. Other machines (Kubernetes, remote services) are never taken by themselves: data would leave this one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from adk_skills_agent.errors import SandboxUnavailable
from adk_skills_agent.sandbox.contract import (
    ExecutionRequest,
    ExecutionResult,
    IsolationLevel,
    IsolationReport,
    Sandbox,
    SandboxPolicy,
)
from adk_skills_agent.sandbox.local import local_sandbox

if TYPE_CHECKING:
    from adk_skills_agent.sandbox.session_channel import SessionHost

_LEAST = IsolationLevel(SandboxPolicy().min_isolation)


class AutoSandbox(Sandbox):
    """Takes, for each run, the first that meets its policy: this machine, a container engine.

    A policy that allows less than the default level still gets the default level or more where any of the two has it.
    """

    name = "auto"

    def __init__(self) -> None:
        self._local: Sandbox | None = None
        self._no_local: SandboxUnavailable | None = None
        try:
            self._local = local_sandbox()
        except SandboxUnavailable as error:
            self._no_local = error
        self._container: Sandbox | None = None

    async def run(self, request: ExecutionRequest) -> ExecutionResult:
        """Run one command to its end; see :meth:`Sandbox.run`."""
        asked = _at_least_default(request)
        try:
            return await self._on_this_machine(asked)
        except SandboxUnavailable as error:
            refusal = error
        try:
            result = await self._in_a_container(request)
        except SandboxUnavailable as error:
            if asked is not request and self._local is not None:
                result = await self._local.run(request)
                return _with_reasons(result, (*_reasons("container", error),))
            raise _both(refusal, error) from error
        return _with_reasons(result, _reasons("local", refusal))

    async def probe(self) -> IsolationReport:
        """What holds for a run of the default policy here, or the strongest there is when nothing meets it.

        Raises:
            SandboxError: Neither works.
        """
        local = None
        if self._local is not None:
            local = await self._local.probe()
            if local.level.strength >= _LEAST.strength:
                return local
        try:
            found = await self._engine().probe()
        except SandboxUnavailable as error:
            if local is not None:
                return replace(local, reasons=(*local.reasons, *_reasons("container", error)))
            raise _both(self._no_local or error, error) from error
        why = ("local: it reaches only " + repr(local.level.value),) if local else _reasons("local", self._no_local)
        return replace(found, reasons=(*why, *found.reasons))

    def session_host(self) -> SessionHost | None:
        """This machine's, or where nothing can run on it the container engine's."""
        return self._local.session_host() if self._local is not None else self._engine().session_host()

    async def close(self) -> None:
        """Release what both hold. Safe to call twice."""
        for sandbox in (self._local, self._container):
            if sandbox is not None:
                await sandbox.close()

    async def _on_this_machine(self, request: ExecutionRequest) -> ExecutionResult:
        if self._local is None:
            raise self._no_local or SandboxUnavailable("Nothing can run on this system.")
        return await self._local.run(request)

    async def _in_a_container(self, request: ExecutionRequest) -> ExecutionResult:
        return await self._engine().run(request)

    def _engine(self) -> Sandbox:
        if self._container is None:
            from adk_skills_agent.sandbox.container import ContainerSandbox

            self._container = ContainerSandbox()
        return self._container


def _at_least_default(request: ExecutionRequest) -> ExecutionRequest:
    policy = request.policy
    if policy.isolation != "auto" or policy.min_isolation not in _WEAKER:
        return request
    return replace(request, policy=replace(policy, min_isolation=_LEAST.value))


_WEAKER = frozenset(level.value for level in IsolationLevel if level.strength < _LEAST.strength)


def _reasons(name: str, error: SandboxUnavailable | None) -> tuple[str, ...]:
    if error is None:
        return ()
    return tuple(f"{name}: {reason.removeprefix(f'{name}: ')}" for reason in error.reasons or (error.message,))


def _with_reasons(result: ExecutionResult, reasons: tuple[str, ...]) -> ExecutionResult:
    report = result.isolation
    return replace(result, isolation=replace(report, reasons=(*reasons, *report.reasons)))


def _both(local: SandboxUnavailable, container: SandboxUnavailable) -> SandboxUnavailable:
    if local is container:
        return local
    reasons = (*local.reasons, *_reasons("container", container))
    error = SandboxUnavailable(f"{local.message} No container either: {container.message}", reasons)
    for note in (*getattr(local, "__notes__", ()), *getattr(container, "__notes__", ())):
        error.add_note(note)
    return error
