"""The image containers are made of: found, pulled or built, with progress, and typed errors (S0-99, S0-104)."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adk_skills_agent.errors import ConfigError, ImageUnavailable, SandboxError
from adk_skills_agent.sandbox.container.engine_errors import translated

if TYPE_CHECKING:
    from docker import DockerClient

logger = logging.getLogger(__name__)

DEFAULT_IMAGE = "python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b"
"""Taken when no image is given: bytes that cannot change under a name."""
BUILT_NAME = "adk-code-executor:latest"
"""What an image built from ``docker_path`` is called when no name is given, as in google-adk."""

OnProgress = Callable[[str], None]
_KEPT_LINES = 8
_LEAST_STEP = 5  # percent of a layer between two lines of progress


def shipped_image() -> Path:
    """The folder of this package's image (``images/adk-code-executor``), for ``docker_path``.

    Raises:
        ConfigError: This installation does not have it.
    """
    package = Path(__file__).parents[2]
    for folder in (package / "_images" / "adk-code-executor", package.parents[1] / "images" / "adk-code-executor"):
        if (folder / "Dockerfile").is_file():
            return folder
    raise ConfigError("This installation has no images/adk-code-executor; give docker_path a folder with a Dockerfile.")


def resolve(
    client: DockerClient, engine: str, url: str, image: str | None, docker_path: str | None, progress: OnProgress | None
) -> str:
    """The id of the image, which is built or pulled when it has to be. Blocking, for minutes.

    Args:
        client: The engine's.
        engine: Its name, for sentences.
        url: Where it listens.
        image: Name of the image; None takes the default, or with ``docker_path`` what was built.
        docker_path: Folder with a Dockerfile to build from; None builds nothing.
        progress: Gets one line at a time; None logs them.

    Raises:
        ImageUnavailable: It is not there and cannot be made; says why and what to do.
        SandboxError: The engine does not work.
    """
    tell = progress if progress is not None else (lambda line: logger.info("%s", line))
    if docker_path is not None:
        return _build(client, engine, url, docker_path, image or BUILT_NAME, tell)
    name = image or DEFAULT_IMAGE
    try:
        return str(client.images.get(name).id)
    except Exception as error:
        problem = translated(error, engine, f"find the image {name!r}", url)
        if not isinstance(problem, ImageUnavailable):
            raise problem from error
    return _pull(client, engine, url, name, tell)


def _build(client: DockerClient, engine: str, url: str, docker_path: str, name: str, tell: OnProgress) -> str:
    folder = Path(docker_path)
    if not (folder / "Dockerfile").is_file():
        raise ImageUnavailable(
            f"docker_path {docker_path!r} has no Dockerfile. Give it the folder that has one, such as this package's: "
            "adk_skills_agent.sandbox.container.shipped_image()."
        )
    last: list[str] = []

    def lines(events: Iterable[Any]) -> str | None:
        problem = None
        for event in events:  # to the end: the SDK leaves a connection open that was not read out
            if not isinstance(event, Mapping):
                continue
            if event.get("error"):
                problem = problem or str(event["error"])
            for line in str(event.get("stream") or event.get("status") or "").splitlines():
                if line.strip():
                    last.append(line.strip())
                    del last[:-_KEPT_LINES]
                    tell(line.rstrip())
        return problem

    try:
        problem = lines(client.api.build(path=str(folder), tag=name, rm=True, forcerm=True, decode=True))
        if problem is None:
            return str(client.images.get(name).id)
    except Exception as error:
        refused = translated(error, engine, f"build the image of {docker_path!r}", url)
        if isinstance(refused, SandboxError) and type(refused) is not SandboxError:
            raise refused from error
        raise ImageUnavailable(f"{refused} Its last lines: {_shown(last)}" if last else f"{refused}") from error
    raise ImageUnavailable(
        f"The Dockerfile in {docker_path!r} does not build: {_clean(problem)}. Its last lines: {_shown(last)}"
    )


def _pull(client: DockerClient, engine: str, url: str, name: str, tell: OnProgress) -> str:
    tell(f"Pulling {name}")
    seen: dict[str, int] = {}
    said = None
    try:
        for event in client.api.pull(name, stream=True, decode=True):  # to the end, as above
            if event.get("error"):
                said = said or str(event["error"])
            else:
                _tell_pull(event, seen, tell)
        if said is None:
            return str(client.images.get(name).id)
    except Exception as error:
        problem = translated(error, engine, f"pull the image {name!r}", url)
        if type(problem) in {SandboxError, ImageUnavailable}:
            raise ImageUnavailable(_not_pulled(engine, name, problem.message)) from error
        raise problem from error
    raise ImageUnavailable(_not_pulled(engine, name, said))


def _tell_pull(event: Mapping[str, Any], seen: dict[str, int], tell: OnProgress) -> None:
    status, layer = str(event.get("status") or ""), str(event.get("id") or "")
    detail = event.get("progressDetail") or {}
    if not detail.get("total"):
        if status:
            tell(f"{layer}: {status}" if layer else status)
        return
    percent = int(100 * detail.get("current", 0) / detail["total"])
    if percent >= seen.get(f"{layer}{status}", -_LEAST_STEP) + _LEAST_STEP:
        seen[f"{layer}{status}"] = percent
        tell(f"{layer}: {status} {percent} %")


def _not_pulled(engine: str, name: str, why: str) -> str:
    return (
        f"{engine} has no image {name!r} and could not pull it: {_clean(why)}. Look at its name and at the way to its "
        "registry; or build one: docker_path=adk_skills_agent.sandbox.container.shipped_image(). Without any registry "
        "images/adk-code-executor/build_rootfs makes the same layers."
    )


def _clean(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip(" .")[:300]


def _shown(lines: list[str]) -> str:
    return " | ".join(line[:120] for line in lines[-_KEPT_LINES:]) or "none."
