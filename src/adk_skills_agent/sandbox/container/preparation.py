"""The engine with the image on it: looked for at the first use, by one for all who wait, in a thread of its own.

Building or pulling an image takes minutes. Who waits for it may give up without disturbing the others, no lock is held
meanwhile, and the thread keeps no interpreter alive. An engine stops building when nobody listens any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.container.engine import Engine, connect_now, engine_urls
from adk_skills_agent.sandbox.container.image import OnProgress, resolve
from adk_skills_agent.sandbox.container.sweep import sweep_orphans
from adk_skills_agent.sandbox.container.volumes import Volumes


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
    """An engine with the image on it.

    Attributes:
        notes: What agents left that are gone, and that could not be removed: a sentence each.
    """

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

        Raises:
            EngineUnavailable: No engine can be used.
            ImageUnavailable: The image cannot be had.
            SandboxError: The engine refuses, or :meth:`end` was called meanwhile.
        """
        found = self._ready
        # Its future is running: a wait that is cancelled does not cancel it.
        return found if found is not None else await asyncio.wrap_future(self._future())

    def _future(self) -> Future[Ready]:
        with self._lock:
            if self._ready is not None:
                future: Future[Ready] = Future()
                future.set_result(self._ready)
                return future
            if self._attempt is None:
                attempt = _Attempt(self._wanted)
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
        """For the last time: an engine that was lost, and that has volumes of this sandbox. Blocking.

        Raises:
            EngineUnavailable: It is not there.
        """
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
        """Look for them; blocking, for minutes.

        Raises:
            SandboxError: See :meth:`Preparation.ready`.
        """
        wanted = self._wanted
        self._engine = engine = connect_now(engine_urls(wanted.base_url))
        notes = engine.ask_now(sweep_orphans, "look for containers of agents that are gone")
        with engine.answers(self._listen):
            image = engine.ask_now(
                lambda client: resolve(
                    client, engine.info.title, engine.url, wanted.image, wanted.docker_path, wanted.on_progress
                ),
                "find the image",
            )
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
