"""The image containers are made of: found, pulled or built, with progress, and typed errors (S0-99, S0-104)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adk_skills_agent.errors import ConfigError, ImageUnavailable, SandboxError
from adk_skills_agent.sandbox.container.engine import Engine, connect_now, engine_urls
from adk_skills_agent.sandbox.container.removals import sweep_orphans
from adk_skills_agent.sandbox.container.volumes import Volumes

if TYPE_CHECKING:
    from docker import DockerClient


logger = logging.getLogger(__name__)

DEFAULT_IMAGE = "python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b"
"""Taken when no image is given: bytes that cannot change under a name."""
VARIABLE = "ADK_SKILLS_CONTAINER_IMAGE"
"""The environment variable that names another image where the code names none, as at the command line."""
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


def _find(client: DockerClient, engine: Engine, wanted: Wanted) -> str:
    """The id of the image, which is built or pulled when it has to be. Blocking, for minutes."""
    tell = wanted.on_progress if wanted.on_progress is not None else (lambda line: logger.info("%s", line))
    if wanted.docker_path is not None:
        return _build(client, engine, wanted.docker_path, wanted.image or BUILT_NAME, tell)
    name = wanted.image or os.environ.get(VARIABLE, "").strip() or DEFAULT_IMAGE
    try:
        return str(client.images.get(name).id)
    except Exception as error:
        problem = engine.translated(error, f"find the image {name!r}")
        if not isinstance(problem, ImageUnavailable):
            raise problem from error
    return _pull(client, engine, name, tell)


def _build(client: DockerClient, engine: Engine, docker_path: str, name: str, tell: OnProgress) -> str:
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
        refused = engine.translated(error, f"build the image of {docker_path!r}")
        if isinstance(refused, SandboxError) and type(refused) is not SandboxError:
            raise refused from error
        raise ImageUnavailable(f"{refused} Its last lines: {_shown(last)}" if last else f"{refused}") from error
    raise ImageUnavailable(
        f"The Dockerfile in {docker_path!r} does not build: {_clean(problem)}. Its last lines: {_shown(last)}"
    )


def _pull(client: DockerClient, engine: Engine, name: str, tell: OnProgress) -> str:
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
        problem = engine.translated(error, f"pull the image {name!r}")
        if type(problem) in {SandboxError, ImageUnavailable}:
            raise ImageUnavailable(_not_pulled(engine.info.title, name, problem.message)) from error
        raise problem from error
    raise ImageUnavailable(_not_pulled(engine.info.title, name, said))


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
        f"registry, or name an image that is here: {VARIABLE}=NAME in the environment, or image= in code."
        f"{_how_to_make()}"
    )


def _how_to_make() -> str:
    """Where the files are that make an image, in a sentence."""
    with contextlib.suppress(ConfigError):
        folder = shipped_image()
        return f" To make one: the Dockerfile in {folder}, or where no registry is the script build_rootfs beside it."
    return ""


def _clean(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip(" .")[:300]


def _shown(lines: list[str]) -> str:
    return " | ".join(line[:120] for line in lines[-_KEPT_LINES:]) or "none."


# The engine with the image on it: looked for at the first use, by one for all who wait, in a thread of its own.
#
# Building or pulling an image takes minutes. Who waits for it may give up without disturbing the others, no lock is
# held meanwhile, and the thread keeps no interpreter alive. An engine stops building when nobody listens any more.


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to look for: arguments of :class:`~.sandbox.ContainerSandbox`, and the label of what it makes."""

    image: str | None
    docker_path: str | None
    base_url: str | None
    on_progress: OnProgress | None
    token: str


@dataclass(frozen=True, slots=True)
class Ready:
    """An engine with the image on it, and a sentence for what agents left that are gone, and could not be removed."""

    engine: Engine
    image: str
    volumes: Volumes
    notes: tuple[str, ...]


class Preparation:
    """Finds the engine and the image once, and again after :meth:`forget`; from any thread and loop."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._lock = threading.Lock()
        self._ready: Ready | None = None
        self._attempt: _Attempt | None = None
        self._left_volumes = False

    @property
    def known(self) -> Ready | None:
        """What was found."""
        return self._ready

    async def ready(self) -> Ready:
        """The engine and the image.

        SandboxError says that the engine refuses, or that :meth:`end` was called meanwhile.
        """
        found = self._ready
        # Its future is running: a wait that is cancelled does not cancel it.
        return found if found is not None else await asyncio.wrap_future(self._future())

    def _future(self) -> Future[Ready]:
        with self._lock:
            if self._attempt is None:
                attempt = _Attempt(self._wanted)
                if self._ready is not None:  # since it was looked for
                    attempt.future.set_result(self._ready)
                    return attempt.future
                threading.Thread(
                    target=self._go, args=(attempt,), name="adk-skills-container-image", daemon=True
                ).start()
                self._attempt = attempt
            return self._attempt.future

    def _go(self, attempt: _Attempt) -> None:
        ready = problem = None
        try:
            ready = attempt.make()
        except BaseException as error:  # noqa: BLE001  # raised where it is waited for
            problem = error
        with self._lock:
            wanted = self._attempt is attempt
            if wanted:
                self._attempt, self._ready = None, ready
        if ready is None or not wanted:
            attempt.close()
        if not wanted:
            problem = SandboxError("The sandbox was closed while its engine and its image were looked for.")
        if problem is not None:
            attempt.future.set_exception(problem)
        elif ready is not None:
            attempt.future.set_result(ready)

    def forget(self, ready: Ready) -> None:
        """The engine may be another one by now: who comes next looks again."""
        with self._lock:
            self._left_volumes = self._left_volumes or bool(ready.volumes)
            if self._ready is ready:
                self._ready = None
        ready.engine.close()

    def end(self) -> Ready | None:
        """What was found, which the caller closes; a search that goes on is broken off, and who waits is told."""
        with self._lock:
            ready, self._ready = self._ready, None
            attempt, self._attempt = self._attempt, None
            if ready is not None:  # removes what the ones before it have left, too
                self._left_volumes = False
        if attempt is not None:
            attempt.break_off()
        return ready

    def connect_again(self) -> Ready | None:
        """For the last time: an engine that was lost, and that has volumes of this sandbox. Blocking."""
        with self._lock:
            if not self._left_volumes:
                return None
            self._left_volumes = False
        engine = connect_now(engine_urls(self._wanted.base_url))
        return Ready(engine, "", Volumes(engine, "", self._wanted.token), ())


class _Attempt:
    """One search for the engine and the image."""

    def __init__(self, wanted: Wanted) -> None:
        self.future: Future[Ready] = Future()
        self.future.set_running_or_notify_cancel()
        self._wanted = wanted
        self._engine: Engine | None = None
        self._lock = threading.Lock()
        self._broken = False
        self._answer: Any = None

    def make(self) -> Ready:
        """Look for them; blocking, for minutes."""
        wanted = self._wanted
        self._engine = engine = connect_now(engine_urls(wanted.base_url))
        notes = engine.ask_now(sweep_orphans, "look for containers of agents that are gone")
        with engine.answers(self._listen):
            image = engine.ask_now(lambda client: _find(client, engine, wanted), "find the image")
        return Ready(engine, image, Volumes(engine, image, wanted.token), notes)

    def _listen(self, answer: Any) -> None:
        with self._lock:
            self._answer = answer
            broken = self._broken
        if broken:
            _hang_up(answer)

    def break_off(self) -> None:
        """Hang up on an engine that builds or pulls; never blocks, from any thread."""
        with self._lock:
            self._broken = True
            answer = self._answer
        if answer is not None:
            _hang_up(answer)

    def close(self) -> None:
        """Nothing came of it."""
        if self._engine is not None:
            self._engine.close()


def _hang_up(answer: Any) -> None:
    # Since urllib3 2.3; before, and when the answer has ended, the thread goes on until the engine has done its work.
    with contextlib.suppress(AttributeError, ValueError, RuntimeError, OSError):
        answer.raw.shutdown()
