"""Which sandbox runs scripts: named in a call, in code, by the environment, in a file, or ``auto`` (issue 5).

The first place that says anything decides: call, code, the variable ``ADK_SKILLS_SANDBOX``, a file, the default. A name
that cannot be had is refused with the reason; nothing weaker is ever taken instead.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox.contract import Sandbox

VARIABLE: Final = "ADK_SKILLS_SANDBOX"
FILE_VARIABLE: Final = "ADK_SKILLS_CONFIG"
NAMES: Final = ("auto", "local", "container", "kubernetes")
DEFAULT: Final = "auto"
_KEY = "sandbox"
_TABLE = ("tool", "adk-skills")
_NAME = f"[{'.'.join(_TABLE)}]"
_SETTINGS = frozenset({_KEY, "policy", "permissions"})  # what that table of a file may have


@dataclass(frozen=True, slots=True)
class SandboxChoice:
    """What was chosen and where.

    Attributes:
        sandbox: It.
        name: One of :data:`NAMES`, or what a sandbox that was given calls itself.
        source: Where it was said, as a sentence can have it: ``the environment variable ADK_SKILLS_SANDBOX``.
    """

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
    for value, source in ((call, "the call"), (code, "the code")):
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
    """One of :data:`NAMES`.

    Raises:
        ConfigError: It is none; the sentence has the nearest one.
    """
    if isinstance(value, str) and value in NAMES:
        return value
    close = difflib.get_close_matches(value, NAMES, n=1) if isinstance(value, str) else []
    hint = f"Did you mean {close[0]!r}?" if close else f"Use {', '.join(NAMES)}, or a Sandbox object."
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
        from adk_skills_agent.sandbox.kubernetes import KubernetesSandbox

        return KubernetesSandbox()
    from adk_skills_agent.sandbox.auto import AutoSandbox

    return AutoSandbox()


def _from_file(path: Path, *, required: bool) -> str | None:
    """The value of the key; None when the file has none, or is no TOML file and was named for something else too.

    A setting that is misspelt or in the wrong table is refused: ``auto`` instead of what it meant could be weaker.
    """
    if path.suffix.lower() != ".toml":
        if required:
            raise ConfigError(f"{path} ({FILE_VARIABLE}) must be a .toml file with the table {_NAME}.")
        return None
    from adk_skills_agent.sandbox.settings_file import read_toml

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
