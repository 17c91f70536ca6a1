"""Which sandbox runs scripts: named in a call, in code, by the environment, in a file, or ``auto`` (issue 5).

The first place that says anything decides: call, code, the variable ``ADK_SKILLS_SANDBOX``, a file, the default. A name
that cannot be had is refused with the reason; nothing weaker is ever taken instead.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from adk_skills_agent.errors import ConfigError, SandboxUnavailable
from adk_skills_agent.sandbox.contract import (
    ExecutionRequest,
    ExecutionResult,
    IsolationLevel,
    IsolationReport,
    Sandbox,
    SandboxPolicy,
)

if TYPE_CHECKING:
    from adk_skills_agent.sandbox.sessions.session import SessionHost


VARIABLE: Final = "ADK_SKILLS_SANDBOX"
FILE_VARIABLE: Final = "ADK_SKILLS_CONFIG"
SANDBOX_NAMES: Final = ("auto", "local", "container", "kubernetes", "ray")
DEFAULT: Final = "auto"
_CALLED_ELSEWHERE = {
    **dict.fromkeys(("docker", "podman", "gvisor"), "container"),
    **dict.fromkeys(("bubblewrap", "bwrap", "namespaces", "landlock", "process"), "local"),
    "k8s": "kubernetes",
}
_KEY = "sandbox"
_TABLE = ("tool", "adk-skills")
_NAME = f"[{'.'.join(_TABLE)}]"
_SETTINGS = frozenset({_KEY, "policy", "permissions"})  # what that table of a file may have


@dataclass(frozen=True, slots=True)
class SandboxChoice:
    """What was chosen and where, as a sentence can have it: ``the environment variable ADK_SKILLS_SANDBOX``."""

    sandbox: Sandbox
    name: str
    source: str


def choose_sandbox(
    call: Sandbox | str | None = None,
    code: Sandbox | str | None = None,
    *,
    file: Path | str | None = None,
    environ: Mapping[str, str] | None = None,
) -> SandboxChoice:
    """The sandbox of the first place that names one. Touches no engine and no cluster.

    Args:
        call: What this call, or a flag of the command line, says.
        code: What the program says.
        file: A ``.toml`` file whose table ``[tool.adk-skills]`` may have ``sandbox = "..."``; None takes the one that
            ``ADK_SKILLS_CONFIG`` names, if any, which must have the table. No other file is ever looked for: the
            ``pyproject.toml`` of the folder somebody stands in may have come with the very skills that would run.
        environ: None takes ``os.environ``.

    Raises:
        ConfigError: A name that does not exist, or a file that cannot be read; the sentence says where.
    """
    environ = os.environ if environ is None else environ
    for value, source in ((call, "the option --sandbox"), (code, "the argument sandbox=")):
        if value is not None:
            return _choice(value, source)
    if variable := environ.get(VARIABLE, "").strip():
        return _choice(variable, f"the environment variable {VARIABLE}")
    named = file if file is not None else environ.get(FILE_VARIABLE, "").strip() or None
    if named is not None and (found := _from_file(Path(named), required=file is None)) is not None:
        return _choice(found, f"the file {named}")
    return _choice(DEFAULT, "default")


def sandbox_of(value: Sandbox | str | None, *, environ: Mapping[str, str] | None = None) -> Sandbox:
    """The sandbox a program means with an argument ``sandbox=``; None leaves it to environment, file and default.

    Raises:
        ConfigError: See :func:`choose_sandbox`.
    """
    return choose_sandbox(code=value, environ=environ).sandbox


def check_name(value: object, source: str) -> str:
    """One of :data:`SANDBOX_NAMES`, else a ConfigError with the nearest name."""
    if isinstance(value, str) and value in SANDBOX_NAMES:
        return value
    close = difflib.get_close_matches(value, SANDBOX_NAMES, n=1) if isinstance(value, str) else []
    close = [_CALLED_ELSEWHERE[value]] if isinstance(value, str) and value in _CALLED_ELSEWHERE else close
    hint = f"Did you mean {close[0]!r}?" if close else f"Use {', '.join(SANDBOX_NAMES)}, or a Sandbox object."
    raise ConfigError(f"There is no sandbox {value!r} ({source}). {hint}")


def _choice(value: Sandbox | str, source: str) -> SandboxChoice:
    if isinstance(value, Sandbox):
        return SandboxChoice(value, value.name, source)
    name = check_name(value, source)
    return SandboxChoice(_made(name), name, source)


def _made(name: str) -> Sandbox:
    if name == "local":
        from adk_skills_agent.sandbox.local import local_sandbox

        return local_sandbox()
    if name == "container":
        from adk_skills_agent.sandbox.container import ContainerSandbox

        return ContainerSandbox()
    if name == "kubernetes":
        from adk_skills_agent.sandbox.remote.kubernetes import KubernetesSandbox

        return KubernetesSandbox()

    if name == "ray":
        from adk_skills_agent.sandbox.ray.sandbox import RaySandbox

        return RaySandbox()
    return AutoSandbox()


def _from_file(path: Path, *, required: bool) -> str | None:
    """The value of the key; None when the file has none, or is no TOML file and was named for something else too.

    A setting that is misspelt or in the wrong table is refused: ``auto`` instead of what it meant could be weaker.
    """
    if path.suffix.lower() != ".toml":
        if required:
            raise ConfigError(f"{path} ({FILE_VARIABLE}) must be a .toml file with the table {_NAME}.")
        return None
    from adk_skills_agent.settings import read_toml

    table: object = read_toml(path, "file")
    for part in _TABLE:
        table = table.get(part) if isinstance(table, Mapping) else None
    if not isinstance(table, Mapping):
        if required:
            raise ConfigError(f"{path} ({FILE_VARIABLE}) has no table {_NAME}. Add it, or unset the variable.")
        return None
    for key in table:
        if key not in _SETTINGS:
            close = difflib.get_close_matches(key.lower(), _SETTINGS, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"It has {', '.join(sorted(_SETTINGS))}."
            raise ConfigError(f"{path}: {_NAME} has no setting {key!r}. {hint}")
    if _KEY not in table and isinstance(policy := table.get("policy"), Mapping) and _KEY in policy:
        raise ConfigError(f"{path}: {_KEY!r} stands under [{'.'.join(_TABLE)}.policy]. Move it up, under {_NAME}.")
    value = table.get(_KEY)
    return None if value is None else check_name(value, f"the file {path}")


# ``sandbox="auto"``: this machine where it can do what is asked, else a container, else a refusal with all reasons.
#
# Nothing weaker is taken silently: a run goes to a container only because this machine refused it, and the report
# says why. Other machines (Kubernetes, remote services) are never taken by themselves: data would leave this one.

_LEAST = IsolationLevel(SandboxPolicy().min_isolation)


class AutoSandbox(Sandbox):
    """Takes, for each run, the first that meets its policy: this machine, a container engine.

    A policy that allows less than the default level still gets the default level or more where any of the two has it.
    """

    name = "auto"
    filters_secrets = True

    def __init__(self) -> None:
        self._local: Sandbox | None = None
        self._no_local: SandboxUnavailable | None = None
        try:
            self._local = _made("local")
        except SandboxUnavailable as error:
            self._no_local = error
        self.runs_here = self._local is not None
        self._container: Sandbox | None = None

    async def run(self, request: ExecutionRequest) -> ExecutionResult:
        """Run one command to its end; see :meth:`Sandbox.run`."""
        asked = _at_least_default(request)
        try:
            if self._local is not None:
                return await self._local.run(asked)
            raise self._no_local or SandboxUnavailable("Nothing can run on this system.")
        except SandboxUnavailable as error:
            refusal = error
        try:
            result = await self._engine().run(request)
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

    def _engine(self) -> Sandbox:
        if self._container is None:
            self._container = _made("container")
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
