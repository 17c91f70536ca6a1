"""Building a task's image with an engine: its Dockerfile, with the context of the arm (S0-128)."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable
from typing import IO, Any

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.skillsbench.box import BuildError, BuiltImage
from adk_skills_agent.evals.skillsbench.build_context import Source, digest_of, write_tar
from adk_skills_agent.evals.skillsbench.dockerfile import without_skills
from adk_skills_agent.evals.skillsbench.task import Task

_DIGEST = "adk-skills.skillsbench"
_DOCKERFILE = "Dockerfile.adk-skills"
_LAST_LINES = 40


def build_image(client: Any, task: Task, *, with_skills: bool, rebuild: bool, say: Callable[[str], None]) -> BuiltImage:
    """Build, or take the image of the same Dockerfile and context that is there; blocks.

    Args:
        client: Of the Docker SDK.
        task: The task.
        with_skills: Whether the context and the Dockerfile have the skills.
        rebuild: Whether to build anew, without the engine's cache.
        say: Gets the build's lines.

    Raises:
        BuildError: A step failed, the engine refused, or the task's build time was over.
    """
    started = time.monotonic()
    tag = f"skillsbench-{task.name.lower()}:{'latest' if with_skills else 'no-skill'}"
    file = task.environment / "Dockerfile"
    text = file.read_text("utf-8", errors="replace") if file.is_file() else f"FROM {task.settings.image}\n"
    try:
        text = text if with_skills else without_skills(text)[0]
    except ConfigError as error:
        raise BuildError(f"{task.name}: {error.message}") from error
    left_out = frozenset(("Dockerfile", *(() if with_skills else ("skills",))))
    context = Source(task.environment, folder=True, without=left_out)
    digest = hashlib.sha256(f"{text}\0{digest_of([context])}".encode()).hexdigest()
    image = None if rebuild else _there(client, tag, digest)
    if image is None:
        with tempfile.TemporaryFile() as packed:
            write_tar(packed, [context], {_DOCKERFILE: text})
            packed.seek(0)
            image = _build(client, task, packed, tag, digest, rebuild=rebuild, say=say)
    config = image.attrs.get("Config") or {}
    env = dict(pair.partition("=")[::2] for pair in config.get("Env") or ())
    return BuiltImage(tag, env, config.get("WorkingDir") or "/", time.monotonic() - started, (), image.id)


def _there(client: Any, tag: str, digest: str) -> Any:
    import docker.errors

    try:
        image = client.images.get(tag)
    except docker.errors.ImageNotFound:
        return None
    except docker.errors.DockerException as error:
        raise BuildError(f"The engine does not answer: {error}") from error
    return image if (image.labels or {}).get(_DIGEST) == digest else None


def _build(
    client: Any, task: Task, packed: IO[bytes], tag: str, digest: str, *, rebuild: bool, say: Callable[[str], None]
) -> Any:
    import docker.errors
    import requests

    lines: list[str] = []
    ends = time.monotonic() + task.limits.build_seconds
    too_long = BuildError(f"{task.name}: the build took longer than {task.limits.build_seconds:g} seconds")
    try:
        messages = client.api.build(
            fileobj=packed,
            custom_context=True,
            dockerfile=_DOCKERFILE,
            tag=tag,
            rm=True,
            forcerm=True,
            nocache=rebuild,
            decode=True,
            labels={_DIGEST: digest},
            timeout=task.limits.build_seconds,  # of silence; a build that says something is ended below
        )
        for message in messages:
            line = str(message.get("stream") or message.get("status") or "").rstrip()
            if line:
                lines.append(line)
                del lines[:-_LAST_LINES]
                say(f"{task.name}: {line[:120]}")
            if "error" in message:
                said = "\n".join(lines)
                raise BuildError(f"{task.name}: the engine could not build it: {message['error']}".strip(), said)
            if time.monotonic() > ends:
                messages.close()  # the engine ends a build nobody listens to
                too_long.output = "\n".join(lines)
                raise too_long
        return client.images.get(tag)
    except requests.exceptions.Timeout:
        raise too_long from None
    except (docker.errors.DockerException, requests.RequestException, OSError) as error:
        raise BuildError(f"{task.name}: the engine could not build it: {error}", "\n".join(lines)) from error
