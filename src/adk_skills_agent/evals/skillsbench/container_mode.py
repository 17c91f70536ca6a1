"""Container mode: tasks in a Docker or Podman engine, over the Docker SDK."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from adk_skills_agent.errors import SandboxError, SandboxUnavailable
from adk_skills_agent.evals.skillsbench.box import BuiltImage, TaskBox
from adk_skills_agent.evals.skillsbench.container_bases import BaseImages
from adk_skills_agent.evals.skillsbench.container_box import open_container_box
from adk_skills_agent.evals.skillsbench.container_image import build_image
from adk_skills_agent.evals.skillsbench.engine_options import EngineOptions
from adk_skills_agent.evals.skillsbench.task import Task
from adk_skills_agent.evals.skillsbench.task_sandbox import TaskSandbox
from adk_skills_agent.sandbox.container.engine import Engine, connect_now, engine_urls

_ANSWER_SECONDS = 600.0
_NETWORKS = ("bridge", "podman")
"""What Docker and Podman call the network every container may have."""
LABEL = "adk-skills.skillsbench.task"


class ContainerMode(TaskSandbox):
    """Use :func:`open_container_mode`."""

    name = "container"

    def __init__(self, engine: Engine, network: str | None, options: EngineOptions) -> None:
        self._engine = engine
        self._client = client = engine.ask_now(lambda client: client, "answer")
        self._network = network
        self._options = options
        self._bases = BaseImages(client, options)

    def problem(self, task: Task) -> str | None:
        """The engine finds out; only the task's own reasons count before."""
        return " ".join(task.unsupported) or None

    async def build(self, task: Task, *, with_skills: bool, rebuild: bool, say: Callable[[str], None]) -> BuiltImage:
        """Build with the engine; the image of the same files is taken when it is there."""
        return await build_image(
            self._client, task, self._bases, self._options, with_skills=with_skills, rebuild=rebuild, say=say
        )

    async def open(self, task: Task, image: BuiltImage) -> TaskBox:
        """A container of its own."""
        return await open_container_box(
            self._client, task, image, label=LABEL, network=self._network, options=self._options
        )

    async def prune(self) -> str:
        """Remove images without a name and what builds left; named images and other people's containers stay."""
        import docker.errors
        import requests

        try:
            done = await asyncio.to_thread(self._client.images.prune, filters={"dangling": True})
            freed = int(done.get("SpaceReclaimed") or 0)
            with contextlib.suppress(docker.errors.APIError):  # Podman has no such cache
                built = await asyncio.to_thread(self._client.api.prune_builds)
                freed += int(built.get("SpaceReclaimed") or 0)
        except (docker.errors.DockerException, requests.RequestException) as error:
            raise SandboxError(f"The engine could not prune: {error}") from error
        return f"the engine freed {freed:,} bytes"

    def notes(self) -> tuple[str, ...]:
        """Whether containers can have a network."""
        return (
            ()
            if self._network
            else ("The engine has neither network 'bridge' nor 'podman': no phase of a task has a network.",)
        )

    def without_secrets(self, text: str) -> str:
        """Without the logins of the proxies that were given as build arguments."""
        return self._options.without_secrets(text)

    async def close(self) -> None:
        """Close the connections."""
        self._bases.close()
        await asyncio.to_thread(self._engine.close)


def open_container_mode(options: EngineOptions | None = None) -> ContainerMode:
    """Container mode with the engine that ``DOCKER_HOST`` names, or the usual one (S0-125).

    Args:
        options: Base images, and what builds and commands get to reach the network; nothing by default.

    Raises:
        SandboxUnavailable: The Docker SDK is missing, or no engine answers; says what to do.
    """
    try:
        # Not docker.from_env(): what it cannot connect it leaves open.
        engine = connect_now(engine_urls())
        names = engine.ask_now(_patient, "list its networks")
    except SandboxError as error:
        why = error.message.rstrip(".")
        missing = f"no engine answers ({why}). Start Docker or Podman, set DOCKER_HOST, or take --sandbox local"
        raise SandboxUnavailable(f"Tasks cannot run in containers: {missing}.", (missing,)) from error
    network = next((name for name in _NETWORKS if name in names), None)
    return ContainerMode(engine, network, options or EngineOptions())


def _patient(client: Any) -> set[str]:
    client.api.timeout = _ANSWER_SECONDS
    return {str(found.name) for found in client.networks.list()}
