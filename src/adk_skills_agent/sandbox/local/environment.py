"""The environment of a run: a small fixed base plus what was granted; never the host's (attack row 34)."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox.contract import SandboxPolicy
from adk_skills_agent.sandbox.policy import check_env_name

RUN_ID_VARIABLE = "ADK_SKILLS_RUN_ID"
"""Set to a random value in every run; a process that left the run's session is recognised by it."""

_SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
_SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH(?!OR)|COOKIE|PRIVATE|DSN|DATABASE_URL|CONNECTION_STRING"
)


def build_environment(
    policy: SandboxPolicy,
    granted: Mapping[str, str],
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
    environment.update(policy.env)
    for name, value in granted.items():
        try:
            check_env_name(name)
        except ConfigError as error:
            raise ValueError(error.message) from None
        if not isinstance(value, str) or "\0" in value:
            raise ValueError(f"The value of environment variable {name!r} must be a string without NUL.")
        environment[name] = value
    environment[RUN_ID_VARIABLE] = run_id
    return environment


def search_path(python: str | None) -> str:
    """PATH: the folder of the interpreter, so that ``python3`` in a shell script is that one, then the system's."""
    interpreter = python if python is not None else sys.executable
    folder = os.path.dirname(interpreter) if interpreter and os.path.isabs(interpreter) else ""  # noqa: PTH120, PTH117
    return ":".join(dict.fromkeys([folder, *_SYSTEM_PATH] if folder and ":" not in folder else _SYSTEM_PATH))


def looks_secret(name: str) -> bool:
    """Whether a variable's name suggests that its value is a secret."""
    return _SECRET_NAME.search(name.upper()) is not None
