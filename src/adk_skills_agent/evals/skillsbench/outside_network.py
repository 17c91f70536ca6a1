"""How a command that has a network gets through: proxies, and the certificates to trust. Passwords stay untold."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from adk_skills_agent.sandbox.secret_forms import SecretForms
from adk_skills_agent.sandbox.secrets import MIN_SECRET_CHARS, Secret

_NAMES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")
PROXIES = frozenset((*_NAMES, *(name.upper() for name in _NAMES)))
"""Also the build arguments that engines give to every RUN and keep in no image."""
TRUSTED = "/run/adk-skills/ca-certificates.crt"
"""Where the certificates are in a box."""
TRUST_VARIABLES = (
    *("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS"),
)
"""What pip, uv, curl, git, Node and Python's libraries look for them by."""


def proxies_of(variables: Mapping[str, str]) -> dict[str, str]:
    """The proxies among variables."""
    return {name: value for name, value in variables.items() if name in PROXIES}


def without_secrets(text: str, variables: Mapping[str, str]) -> str:
    """The text without the user and password of the proxies among variables, however they are written in it."""
    secrets = _secrets(proxies_of(variables))
    return SecretForms(secrets).text(text) if secrets else text


def _secrets(proxies: Mapping[str, str]) -> tuple[tuple[str, Secret], ...]:
    """What is before the ``@``, and the password in it."""
    found = {}
    for name, value in proxies.items():
        login, at, _ = urlsplit(value if "://" in value else f"//{value}").netloc.rpartition("@")
        password = login.partition(":")[2]
        for secret in (login, password, unquote(password)) if at else ():
            if len("".join(secret.split())) >= MIN_SECRET_CHARS:
                found[secret] = name
    return tuple((name, Secret(secret)) for secret, name in found.items())
