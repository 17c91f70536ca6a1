"""Building a task's image with an engine: its Dockerfile, with the context of the arm (S0-128)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import tempfile
import time
from collections.abc import Callable
from typing import Any

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.skillsbench.box import BuildError, BuiltImage
from adk_skills_agent.evals.skillsbench.build_context import Source, digest_of, write_tar
from adk_skills_agent.evals.skillsbench.container_bases import BaseImages
from adk_skills_agent.evals.skillsbench.dockerfile import without_skills
from adk_skills_agent.evals.skillsbench.dockerfile_bases import images_of, with_bases
from adk_skills_agent.evals.skillsbench.engine_build import DOCKERFILE, EngineBuild, build
from adk_skills_agent.evals.skillsbench.engine_options import EngineOptions
from adk_skills_agent.evals.skillsbench.task import Task

_DIGEST = "adk-skills.skillsbench"


async def build_image(
    client: Any,
    task: Task,
    bases: BaseImages,
    options: EngineOptions,
    *,
    with_skills: bool,
    rebuild: bool,
    say: Callable[[str], None],
) -> BuiltImage:
    """Build, or take the image of the same Dockerfile and context that is there.

    Args:
        client: Of the Docker SDK.
        task: The task.
        bases: What stands for the images of its FROM lines.
        options: What builds get.
        with_skills: Whether the context and the Dockerfile have the skills.
        rebuild: Whether to build anew, without the engine's cache.
        say: Gets the build's lines.

    Raises:
        BuildError: A step failed, the engine refused, or the task's build time was over.
    """
    started = time.monotonic()
    file = task.environment / "Dockerfile"
    text = file.read_text("utf-8", errors="replace") if file.is_file() else f"FROM {task.settings.image}\n"
    arguments = options.build_arguments
    try:
        text = text if with_skills else without_skills(text)[0]
        images = images_of(text, arguments) if options.changes_bases else ()
        found = {image: await bases.get(image, seconds=task.limits.build_seconds, say=say) for image in images}
        if found:
            text = with_bases(text, arguments, {image: base.name for image, base in found.items()}, bases.arguments)
    except ConfigError as error:
        raise BuildError(f"{task.name}: {error.message}") from error
    left = task.limits.build_seconds - (time.monotonic() - started)
    tag = f"skillsbench-{task.name.lower()}:{'latest' if with_skills else 'no-skill'}"

    def built() -> Any:
        left_out = frozenset(("Dockerfile", *(() if with_skills else ("skills",))))
        context = Source(task.environment, folder=True, without=left_out)
        kept = json.dumps(options.kept_arguments, sort_keys=True)
        digest = hashlib.sha256(f"{text}\0{kept}\0{digest_of([context])}".encode()).hexdigest()
        image = None if rebuild else _there(client, tag, digest)
        if image is not None:
            return image
        with tempfile.TemporaryFile() as packed:
            write_tar(packed, [context], {DOCKERFILE: text})
            packed.seek(0)
            wanted = EngineBuild(task.name, tag, packed, max(1.0, left), {_DIGEST: digest}, nocache=rebuild)
            return build(client, wanted, options, say)

    image = await asyncio.to_thread(built)
    config = image.attrs.get("Config") or {}
    env = dict(pair.partition("=")[::2] for pair in config.get("Env") or ())
    notes = tuple(base.note for base in found.values() if base.note)
    return BuiltImage(tag, env, config.get("WorkingDir") or "/", time.monotonic() - started, notes, image.id)


def _there(client: Any, tag: str, digest: str) -> Any:
    import docker.errors

    try:
        image = client.images.get(tag)
    except docker.errors.ImageNotFound:
        return None
    except docker.errors.DockerException as error:
        raise BuildError(f"The engine does not answer: {error}") from error
    return image if (image.labels or {}).get(_DIGEST) == digest else None
