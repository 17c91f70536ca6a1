"""What a sandbox of containers says about itself to people."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ContainerDescription:
    """What a sandbox of containers found, for people: ``adk-skills doctor --container``.

    Attributes:
        engine: Name and version.
        url: Where it listens.
        runtime: The OCI runtime its containers get.
        runtimes: All it knows.
        rootless: It runs as a plain user.
        cgroups: ``1``, ``2``, or empty when it does not tell.
        image: The id of the image.
        python: Version of the image's Python; empty when none was started.
        weakened: Hardening that is switched off, a sentence each.
    """

    engine: str
    url: str
    runtime: str
    runtimes: tuple[str, ...]
    rootless: bool
    cgroups: str
    image: str
    python: str
    weakened: tuple[str, ...]
