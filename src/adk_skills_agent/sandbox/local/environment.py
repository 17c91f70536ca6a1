"""The environment of a run: a small fixed base plus what was granted; never the host's (attack row 34)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox.contract import SandboxPolicy
from adk_skills_agent.sandbox.env_names import check_env_name, check_search_path, looks_secret
from adk_skills_agent.sandbox.secrets import MIN_SECRET_CHARS, EnvValue, Secret, revealed, secrets_of

RUN_ID_VARIABLE = "ADK_SKILLS_RUN_ID"
"""Set to a random value in every run; a process that left the run's session is recognised by it."""

_SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin")


def build_environment(
    policy: SandboxPolicy,
    granted: Mapping[str, EnvValue],
    *,
    workspace: str,
    tmp: str,
    run_id: str,
    host: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The variables of one run.

    Args:
        policy: Its ``inherit_env`` and ``env`` come after the base, in this order.
        granted: Variables of this run; they win.
        workspace: Host path of the workspace, the run's HOME.
        tmp: Host path of its folder for temporary files.
        run_id: See :data:`RUN_ID_VARIABLE`; nothing can override it.
        host: The host's environment; None takes ``os.environ``. Read only for names in ``inherit_env``.

    Raises:
        ConfigError: ``inherit_env`` names something that looks secret while ``allow_secrets`` is off.
        ValueError: A granted name or value cannot be in an environment.
    """
    host = os.environ if host is None else host
    environment = {
        "PATH": search_path(policy.python),
        "HOME": workspace,
        "TMPDIR": tmp,
        "LANG": "C.UTF-8",
        "PYTHONUTF8": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        # HOME is the workspace: a file put there must not become start-up code of every Python (row 51).
        "PYTHONNOUSERSITE": "1",
        # What a script printed before its deadline must not be lost in its own buffer.
        "PYTHONUNBUFFERED": "1",
    }
    for name in policy.inherit_env:
        if looks_secret(name) and not policy.allow_secrets:
            raise ConfigError(
                f"inherit_env would pass {name!r} to scripts, which looks like a secret. Remove it, grant the value in "
                "env, or set allow_secrets=True."
            )
        if name in host:
            environment[name] = host[name]
    environment.update((name, revealed(value)) for name, value in policy.env.items())
    for name, value in granted.items():
        text = revealed(value)
        if not isinstance(text, str) or "\0" in text:
            raise ValueError(f"The value of environment variable {name!r} must be a string without NUL, or a Secret.")
        try:
            check_env_name(name)
            if name == "PATH":
                check_search_path(text)
        except ConfigError as error:
            raise ValueError(error.message) from None
        environment[name] = text
    environment[RUN_ID_VARIABLE] = run_id
    return environment


def search_path(python: str | None) -> str:
    """PATH: the folder of the interpreter, so that ``python3`` in a shell script is that one, then the system's."""
    interpreter = python if python is not None else sys.executable
    folder = os.path.dirname(interpreter) if interpreter and os.path.isabs(interpreter) else ""  # noqa: PTH120, PTH117
    return ":".join(dict.fromkeys([folder, *_SYSTEM_PATH] if folder and ":" not in folder else _SYSTEM_PATH))


def secrets_in(
    policy: SandboxPolicy, granted: Mapping[str, EnvValue], host: Mapping[str, str] | None = None
) -> tuple[tuple[str, Secret], ...]:
    """The secrets a run gets: granted as a :class:`Secret`, or inherited under a name that looks secret.

    Args:
        policy: See :func:`build_environment`.
        granted: Variables of this run.
        host: The host's environment; None takes ``os.environ``.
    """
    host = os.environ if host is None else host
    inherited: dict[str, EnvValue] = {}
    for name in policy.inherit_env:
        value = host.get(name, "")
        # What is too short to be told from ordinary text cannot be kept out of it.
        if looks_secret(name) and len("".join(value.split())) >= MIN_SECRET_CHARS:
            inherited[name] = Secret(value)
    return secrets_of(granted, policy.env, inherited)
