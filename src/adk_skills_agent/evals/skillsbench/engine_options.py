"""What container mode gives builds and commands of this machine's way to the network, and where its base images are."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from urllib.parse import unquote, urlsplit

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox import MIN_SECRET_CHARS, Secret, SecretForms

_MAX_CERTIFICATES_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Settings of container mode."""

    # Image of a Dockerfile's FROM to the one that is taken instead, e.g. of a mirror.
    base_images: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    # folder for the bases that are made of Debian's and Ubuntu's packages, as local mode makes them; None takes them
    # from the engine and its registries
    packages: Path | None = None
    build_network: str | None = None  # The engine's network for builds, e.g. ``host``; None leaves it to the engine.
    # Of every build. The proxies among them are also given to commands that have a network.
    build_arguments: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    # a bundle that builds and commands with a network trust; None leaves it to the image
    certificates: str | None = None

    @property
    def changes_bases(self) -> bool:
        """Whether a Dockerfile is rewritten for them; else the engine gets it as it is."""
        return bool(self.base_images) or self.packages is not None or self.certificates is not None

    @property
    def kept_arguments(self) -> dict[str, str]:
        """Build arguments an image may depend on: all but the proxies."""
        return {name: value for name, value in self.build_arguments.items() if name not in PROXIES}

    def environment(self, image: Mapping[str, str]) -> dict[str, str]:
        """Variables of a command with a network; what the image sets itself stays."""
        trust = dict.fromkeys(TRUST_VARIABLES, TRUSTED) if self.certificates is not None else {}
        given = {**trust, **proxies_of(self.build_arguments)}
        return {name: value for name, value in given.items() if name not in image}

    def without_secrets(self, text: str) -> str:
        """The text without the user and password of a proxy, however they are written in it."""
        return without_secrets(text, self.build_arguments)


def read_engine_options(
    *,
    base_images: Sequence[str] = (),
    packages: Path | None = None,
    build_network: str | None = None,
    build_arguments: Sequence[str] = (),
    certificates: Path | None = None,
) -> EngineOptions:
    """Options as they are written on the command line. Raises ``ConfigError`` when one is wrong."""
    bases = {}
    for pair in base_images:
        name, equals, image = pair.rpartition("=")
        if not (equals and name and image):
            raise ConfigError(
                f"--base-image {pair!r} is not NAME=IMAGE, as in ubuntu:24.04=mirror.example/ubuntu:24.04."
            )
        bases[name] = image
    arguments = {}
    for pair in build_arguments:
        name, equals, value = pair.partition("=")
        if not name.isidentifier():
            raise ConfigError(
                "A --build-arg is neither NAME=VALUE nor the NAME of a variable."
            )  # a value may be secret
        if not equals and name not in os.environ:
            raise ConfigError(f"--build-arg {name} names a variable that is not set; set it, or write {name}=VALUE.")
        arguments[name] = value if equals else os.environ[name]
    return EngineOptions(
        MappingProxyType(bases),
        packages,
        build_network,
        MappingProxyType(arguments),
        _bundle(certificates) if certificates is not None else None,
    )


def _bundle(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_CERTIFICATES_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"--ca-certificates {path} cannot be read: {error.strerror}.") from error
    if b"-----BEGIN CERTIFICATE-----" not in content:
        raise ConfigError(f"--ca-certificates {path} has no certificate in PEM (-----BEGIN CERTIFICATE-----).")
    if len(content) > _MAX_CERTIFICATES_BYTES:
        raise ConfigError(f"--ca-certificates {path} is larger than {_MAX_CERTIFICATES_BYTES:,} bytes.")
    return content.decode("utf-8", "replace")  # only comments can be anything but ASCII


_NAMES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")
PROXIES = frozenset((*_NAMES, *(name.upper() for name in _NAMES)))
"""Also the build arguments that engines give to every RUN and keep in no image."""
TRUSTED = "/run/adk-skills/ca-certificates.crt"
"""Where the certificates are in an environment."""
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
