"""google-adk's ``ContainerCodeExecutor`` with limits, a fresh container for each execution, and a memory on demand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from pydantic import Field, InstanceOf

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.executors.sandboxed_code import SandboxedCodeExecutor
from adk_skills_agent.executors.threads import BackgroundCall
from adk_skills_agent.sandbox import ContainerOptions, ContainerSandbox, Network, SandboxPolicy


class ContainerCodeExecutor(SandboxedCodeExecutor):
    """Runs Python code in containers of Docker or Podman (S0-77 to S0-81, S0-99 to S0-104, S0-109 to S0-114).

    Each execution gets a fresh container, from a few that wait; with ``stateful=True`` each session has one. Nothing is
    asked of an engine before the first execution. Arguments of google-adk's class of that name mean the same here.

    Attributes:
        image: Name of the image; None takes a pinned Python, or what ``docker_path`` builds.
        docker_path: Folder with a Dockerfile; the image is built at the first execution.
        base_url: Where the engine listens; None looks at ``DOCKER_HOST``, ``CONTAINER_HOST`` and the usual sockets.
        network_enabled: Give the code the engine's ordinary network. Only for code you trust.
        options: How containers are made.
        default_timeout_seconds: Seconds of wall time when neither the call nor ``timeout_seconds`` says otherwise;
            google-adk's 300.
        max_memory_mb: Memory of the whole container, in MiB, files in memory included; None means no limit.
        stateful: See :class:`SandboxedCodeExecutor`.
    """

    _can_be_stateful: ClassVar[bool] = True

    stateful: bool = Field(default=False, frozen=True)
    image: str | None = None
    docker_path: str | None = None
    base_url: str | None = None
    network_enabled: bool = False
    options: InstanceOf[ContainerOptions] | None = Field(default=None, exclude=True)
    default_timeout_seconds: float | None = Field(default=300, ge=0, allow_inf_nan=False)
    max_memory_mb: int | None = Field(default=512, ge=16)

    def __init__(
        self, base_url: str | None = None, image: str | None = None, docker_path: str | None = None, **data: Any
    ) -> None:
        given = {"base_url": base_url, "image": image, "docker_path": docker_path}
        data.update((name, value) for name, value in given.items() if value is not None)
        box = data.get("sandbox")
        if box is None:
            data["sandbox"] = ContainerSandbox(
                image, docker_path=docker_path, base_url=base_url, options=data.get("options")
            )
        elif not isinstance(box, ContainerSandbox) or any(given.values()) or data.get("options") is not None:
            raise ConfigError(
                "sandbox= of a ContainerCodeExecutor is a ContainerSandbox, which has its own image, docker_path, "
                "base_url and options: give them to it."
            )
        super().__init__(**data)

    @property
    def healthy(self) -> bool:
        """Whether every container that had to be removed was (S0-79)."""
        return self._box.healthy

    def reinitialize(self) -> None:
        """Begin anew after a failure: remove what is left, look for the engine again, run something (S0-81).

        Raises ``CleanupFailed`` when a container still cannot be removed, or ``SandboxError`` when the engine or the
        image cannot be used.
        """
        if self._state is not None:
            self._state.close()
        BackgroundCall(self._box.reinitialize).result()

    def close(self) -> None:
        """End all sessions and remove every container and volume of this executor; the next execution starts anew.

        Raises ``CleanupFailed`` when something is left behind; says what and why.
        """
        super().close()
        BackgroundCall(self._box.close).result()

    def __enter__(self) -> ContainerCodeExecutor:
        """For ``with``; as google-adk's."""
        return self

    def __exit__(self, *_: object) -> None:
        """See :meth:`close`."""
        self.close()

    def effective_policy(self, timeout_seconds: float | None = None) -> SandboxPolicy:
        """See :meth:`SandboxedCodeExecutor.effective_policy`."""
        policy = super().effective_policy(timeout_seconds)
        return replace(policy, network=Network.host()) if self.network_enabled else policy

    def _default_seconds(self, policy: SandboxPolicy) -> float | None:
        return self._own("default_timeout_seconds", policy.wall_seconds)

    @property
    def _box(self) -> ContainerSandbox:
        box = self.sandbox
        assert isinstance(box, ContainerSandbox)  # noqa: S101  # __init__ sees to it
        return box
