"""What a stream of a run passes before anybody gets it: secrets go first, then host paths."""

from __future__ import annotations

from collections.abc import Mapping

from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.local.environment import secrets_in
from adk_skills_agent.sandbox.local.view import PathView, ViewStream
from adk_skills_agent.sandbox.secret_forms import SecretForms, forms_of
from adk_skills_agent.sandbox.secrets import EnvValue, Redactor, Secret


class OutputFilter:
    """The stages of one stream, for data that arrives in pieces.

    Args:
        view: Whose host paths are replaced.
        secrets: What is replaced before; None for nothing.
    """

    __slots__ = ("_paths", "_redactor")

    def __init__(self, view: PathView, secrets: SecretForms | None) -> None:
        self._redactor = Redactor(secrets) if secrets is not None else None
        self._paths: ViewStream = view.stream()

    def feed(self, chunk: bytes) -> bytes:
        """What can be passed on now."""
        return self._paths.feed(chunk if self._redactor is None else self._redactor.feed(chunk))

    def close(self) -> bytes:
        """What was held back."""
        rest = b"" if self._redactor is None else self._paths.feed(self._redactor.close())
        return rest + self._paths.close()


def secrets_of_run(request: ExecutionRequest, policy: SandboxPolicy) -> SecretForms | None:
    """What must not come out of a run; see :func:`secrets_among`."""
    return secrets_among(request.env, request.redact, policy)


def secrets_among(
    env: Mapping[str, EnvValue], redact: tuple[tuple[str, Secret], ...], policy: SandboxPolicy
) -> SecretForms | None:
    """What must not come out: what a run is given, and what it may find; None when that is nothing.

    Args:
        env: Variables of this run.
        redact: Names and values of more.
        policy: Whose variables it gets, too.

    Raises:
        ConfigError: An inherited variable that looks secret cannot be one.
    """
    if not (env or redact or policy.env or policy.inherit_env):
        return None
    found = {secret: name for name, secret in reversed((*secrets_in(policy, env), *redact))}
    return forms_of(tuple((name, secret) for secret, name in reversed(found.items())))
