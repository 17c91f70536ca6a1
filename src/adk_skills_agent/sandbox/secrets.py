"""Values a script may have and nobody else may see: the type that carries them, and the filter that takes them out.

The filter guards against accidents and simple tricks: a traceback that prints a URL with the key in it, a debug dump, a
base64 header. A script that was granted a secret and wants to betray it can always disguise it in a way no filter
knows; against that only the grant itself helps (per skill, per script) and ``network="none"``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NoReturn

from adk_skills_agent.errors import ConfigError

if TYPE_CHECKING:
    from adk_skills_agent.sandbox.secret_forms import SecretForms

MIN_SECRET_CHARS = 6
"""A shorter value would occur in ordinary output by chance: taking it out there would damage the output and tell the
value at the same time."""
MAX_SECRET_BYTES = 32 << 10
"""Larger than any key, token or service account file; what is larger belongs into an input file."""

SecretNames = Iterable[tuple[str, "Secret"]]


class Secret:
    """A value that is granted to a script and shown to nobody: not by ``repr``, ``str``, ``format`` or ``pickle``.

    Args:
        value: The text; at least 6 characters, so that it can be recognised in output, and at most 32 KiB.

    Raises:
        ConfigError: The value cannot be recognised or cannot be in an environment. The sentence never contains it.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        if not isinstance(value, str) or "\0" in value:
            raise ConfigError("A Secret must be a string without NUL bytes: no environment can hold anything else.")
        try:
            size = len(value.encode("utf-8"))
        except UnicodeEncodeError:
            raise ConfigError("A Secret must be valid text; this one holds a lone surrogate.") from None
        if len("".join(value.split())) < MIN_SECRET_CHARS:
            raise ConfigError(
                f"A Secret needs at least {MIN_SECRET_CHARS} characters: a shorter one occurs in output by chance and "
                "cannot be kept out. Check that the value is set; grant what is no secret as a plain string."
            )
        if size > MAX_SECRET_BYTES:
            raise ConfigError(
                f"A Secret can have at most {MAX_SECRET_BYTES:,} bytes. Give the script a larger one as an input file."
            )
        self._value = value

    @classmethod
    def from_env(cls, name: str) -> Secret:
        """The value of a variable of the agent's own environment.

        Raises:
            ConfigError: It is not set, or cannot be a Secret.
        """
        value = os.environ.get(name)
        if not value:
            raise ConfigError(f"The secret {name!r} is not set in the environment of this process.")
        try:
            return cls(value)
        except ConfigError as error:
            raise ConfigError(f"The variable {name!r} cannot be a secret. {error.message}") from None

    def reveal(self) -> str:
        """The value itself."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(...)"

    def __str__(self) -> str:
        return "[secret]"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return self._value == other._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, _memo: object) -> Secret:
        return self

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("A Secret cannot be pickled; create it in the process that needs it.")


EnvValue = str | Secret
"""What an environment grant maps a name to."""


def revealed(value: EnvValue) -> str:
    """The text a process gets."""
    return value.reveal() if isinstance(value, Secret) else value


def secrets_of(*grants: Mapping[str, EnvValue]) -> tuple[tuple[str, Secret], ...]:
    """The secrets among granted variables, with their names; each value once."""
    found: dict[Secret, str] = {}
    for grant in grants:
        for name, value in grant.items():
            if isinstance(value, Secret):
                found.setdefault(value, name)
    return tuple((name, secret) for secret, name in found.items())


class Redactor:
    """Replaces secrets in a stream that arrives in pieces by ``[secret NAME]``, whichever way it is cut.

    What is held back between two pieces is only what may be the beginning of a secret.

    Args:
        secrets: Names and values, or the forms made of them, which several streams may share.
    """

    __slots__ = ("_forms", "_held")

    def __init__(self, secrets: SecretForms | Mapping[str, Secret] | SecretNames) -> None:
        from adk_skills_agent.sandbox.secret_forms import SecretForms

        if not isinstance(secrets, SecretForms):
            secrets = SecretForms(secrets.items() if isinstance(secrets, Mapping) else secrets)
        self._forms = secrets
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """What can be passed on now."""
        data = self._held + chunk if self._held else chunk
        ready, self._held = self._forms.redact_start(data)
        return ready

    def close(self) -> bytes:
        """What was held back."""
        data, self._held = self._held, b""
        return self._forms.redact(data)
