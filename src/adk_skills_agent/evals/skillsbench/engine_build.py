"""One build by the engine: followed line by line, ended when its time is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Any

from adk_skills_agent.evals.skillsbench.box import BuildError
from adk_skills_agent.evals.skillsbench.engine_options import EngineOptions

DOCKERFILE = "Dockerfile.adk-skills"
_LAST_LINES = 40


@dataclass(frozen=True, slots=True)
class EngineBuild:
    """What to build.

    Attributes:
        what: For messages: the task, or the base.
        tag: The image's name afterwards.
        context: A tar with ``DOCKERFILE`` in it, at its start.
        seconds: Most seconds it may take.
        labels: Of the image.
        nocache: Whether the engine's layers of earlier builds do not count.
    """

    what: str
    tag: str
    context: IO[bytes]
    seconds: float
    labels: Mapping[str, str]
    nocache: bool = False


def build(client: Any, build: EngineBuild, options: EngineOptions, say: Callable[[str], None]) -> Any:
    """Build it and return the engine's image; blocks.

    Raises:
        BuildError: A step failed, the engine refused, or the time was over.
    """
    import docker.errors
    import requests

    lines: list[str] = []
    ends = time.monotonic() + build.seconds
    too_long = BuildError(f"{build.what}: the build took longer than {build.seconds:g} seconds")
    try:
        messages = client.api.build(
            fileobj=build.context,
            custom_context=True,
            dockerfile=DOCKERFILE,
            tag=build.tag,
            rm=True,
            forcerm=True,
            nocache=build.nocache,
            decode=True,
            labels=dict(build.labels),
            network_mode=options.build_network,
            buildargs=dict(options.build_arguments),
            timeout=build.seconds,  # of silence; a build that says something is ended below
        )
        for message in messages:
            line = options.without_secrets(str(message.get("stream") or message.get("status") or "").rstrip())
            if line:
                lines.append(line)
                del lines[:-_LAST_LINES]
                say(f"{build.what}: {line[:120]}")
            if "error" in message:
                why = options.without_secrets(str(message["error"])).strip()
                raise BuildError(f"{build.what}: the engine could not build it: {why}", "\n".join(lines))
            if time.monotonic() > ends:
                messages.close()  # the engine ends a build nobody listens to
                too_long.output = "\n".join(lines)
                raise too_long
        return client.images.get(build.tag)
    except requests.exceptions.Timeout:
        too_long.output = "\n".join(lines)
        raise too_long from None
    except (docker.errors.DockerException, requests.RequestException, OSError) as error:
        why = options.without_secrets(str(error))
        raise BuildError(f"{build.what}: the engine could not build it: {why}", "\n".join(lines)) from error
