"""Containers are removed in the background, and what could not be removed is known (S0-79)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from adk_skills_agent.errors import EngineUnavailable, SandboxError
from adk_skills_agent.sandbox.container.engine import Engine, is_going, is_missing, remove_in_background
from adk_skills_agent.sandbox.files.removal import is_gone, owner_name

if TYPE_CHECKING:
    from docker import DockerClient


logger = logging.getLogger(__name__)

REMOVE_SECONDS = 30.0
"""How long the engine may take to remove one."""
_LOOK_SECONDS = 0.01
_GOING_SECONDS = 0.02
_PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


@dataclass(slots=True)
class Removals:
    """What becomes of the containers of one sandbox: removed in the background, and counted when that fails.

    ``failed`` has names and reasons of containers that are, or may be, still there.
    """

    failed: dict[str, str] = field(default_factory=dict)
    _pending: set[object] = field(default_factory=set)
    _there: dict[str, tuple[Engine, asyncio.AbstractEventLoop]] = field(default_factory=dict)
    _asked: dict[str, float] = field(default_factory=dict)
    _last: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def expect(self, creation: object) -> None:
        """Take note that a container is being made, which may have to be removed."""
        with self._lock:
            self._pending.add(creation)

    def settle(self, creation: object) -> None:
        """Take note that a container has been made, or that making it has failed."""
        with self._lock:
            self._pending.discard(creation)

    def made(self, engine: Engine, container: str, loop: asyncio.AbstractEventLoop) -> None:
        """A container is there, for a run in a loop; or in one that was closed while the engine made it."""
        with self._lock:
            self._there[container] = engine, loop
        if loop.is_closed():  # since then begin_of_closed_loops() may have been there, and will not come again
            self.begin(engine, container)

    def known(self) -> set[str]:
        """Containers that are there for a run, or are being removed."""
        with self._lock:
            return {*self._there, *(name for name in self._pending if isinstance(name, str))}

    def begin_of_closed_loops(self) -> None:
        """Begin with all whose loop was closed without their run having been told: it will never do it."""
        with self._lock:
            left = [(name, engine) for name, (engine, loop) in self._there.items() if loop.is_closed()]
        for name, engine in left:
            self.begin(engine, name)

    def begin(self, engine: Engine, container: str, let_go: Callable[[], None] | None = None) -> None:
        """Kill and remove a container in a thread; nobody waits. Safe from any thread, also without a loop.

        ``let_go``, called in the thread, closes the streams of one in which nothing runs any more: with them its
        program ends.
        """
        with self._lock:
            self._there.pop(container, None)
            if container in self._pending:
                return
            self._pending.add(container)

        def remove() -> None:
            if let_go is not None:
                let_go()
            self._remove(engine, container)

        try:
            remove_in_background(remove)
        except RuntimeError as error:  # the interpreter ends: the container does with the stream
            if let_go is not None:
                let_go()
            self._end(container, str(error))

    def _remove(self, engine: Engine, container: str) -> None:
        with self._lock:
            self._asked[container] = time.monotonic()
        until = time.monotonic() + REMOVE_SECONDS
        pauses = iter(_PAUSES)
        while True:
            problem: str | None = None
            pause: float | None = None
            try:
                engine.ask_now(
                    lambda client: client.api.remove_container(container, force=True, v=True), "remove a container"
                )
            except EngineUnavailable as error:
                problem = error.message
            except SandboxError as error:
                problem = None if is_missing(error) else error.message
                if is_going(error):  # the engine is at it, since its program has ended
                    pause = _GOING_SECONDS if time.monotonic() < until else None
                else:  # Podman refuses while the container is just ending
                    pause = next(pauses, None)
            except Exception as error:  # noqa: BLE001  # in a thread nobody looks at
                problem, pause = f"an unexpected {type(error).__name__}", next(pauses, None)
            if problem is None or pause is None:
                break
            time.sleep(pause)
        self._end(container, problem)

    def _end(self, container: str, problem: str | None) -> None:
        with self._lock:
            self._pending.discard(container)
            self._asked.pop(container, None)
            if problem is None:
                self._last = time.monotonic()
                self.failed.pop(container, None)
            else:
                self.failed[container] = problem
                logger.warning("Container %s could not be removed: %s", container[:12], problem)

    @property
    def waiting(self) -> int:
        """How many are to be removed, and are still there."""
        with self._lock:
            return sum(isinstance(one, str) for one in self._pending)

    async def wait(self, seconds: float, container: object = None) -> None:
        """Wait until all that was begun, or that one, has ended. What takes longer has failed, until it does end.

        Not in a thread of the engine's: those are what it waits for. The engine removes only some at a time, so those
        that wait for their turn have failed when it removed nothing for so long.
        """
        began = time.monotonic()
        while True:
            if self._is_over(seconds, container, began):
                return
            await asyncio.sleep(_LOOK_SECONDS)

    def _is_over(self, seconds: float, container: object, began: float) -> bool:
        now = time.monotonic()
        over = True
        with self._lock:
            stands = now - max(began, self._last) > seconds
            for one in self._pending if container is None else self._pending & {container}:
                if not isinstance(one, str):  # is being made
                    over = over and now - began > seconds
                    continue
                asked = self._asked.get(one)
                late = stands if asked is None else now - max(began, asked) > seconds
                if late:
                    self.failed[one] = f"the engine did not answer within {seconds:g} s"
                over = over and late
        return over


_HALF_REMOVED = re.compile(r'container from store "?([0-9a-f]{64})"?: container not known')
_LOOKS_AGAIN = (0.0, 0.05, 0.2, 0.5, 1.0)
_MOST = 1000


def containers(client: DockerClient, filters: dict[str, str]) -> list[dict[str, Any]]:
    """All containers that pass the filters, which only containers of this package do, running or not. Blocking.

    Podman refuses to list anything as long as it knows a container whose storage is gone: for a moment while it removes
    one, and for ever when it was killed meanwhile. Such a container cannot run any more; its removal is completed. So
    ``filters`` must not be empty.
    """
    from docker import errors

    looked: dict[str, int] = {}
    while True:
        try:
            found: list[dict[str, Any]] = client.api.containers(all=True, filters=filters)
        except errors.APIError as error:
            half = _HALF_REMOVED.search(str(error.explanation or error))
            if half is None:
                raise
            name = half[1]
            looks = looked[name] = looked.get(name, -1) + 1
            if looks >= len(_LOOKS_AGAIN) or len(looked) > _MOST:
                raise
            time.sleep(_LOOKS_AGAIN[looks])  # the engine may be just at it
            if looks:
                with contextlib.suppress(errors.APIError):
                    client.api.remove_container(name, force=True, v=True)
        else:
            return found


OWNER_LABEL = "adk-skills.owner"
SANDBOX_LABEL = "adk-skills.sandbox"
DEADLINE_LABEL = "adk-skills.deadline"
_SLACK_SECONDS = 3600


def labels(*, lasts: float | None = None) -> dict[str, str]:
    """The labels of what this process makes."""
    made = {OWNER_LABEL: owner()}
    if lasts is not None:
        made[DEADLINE_LABEL] = str(int(time.time() + lasts))
    return made


def is_orphan(found: Mapping[str, str] | None) -> bool:
    """Whether something with these labels is of an agent that is gone.

    Of an agent in another world (another machine, boot or process namespace) nobody here can know; its deadline tells,
    an hour late.
    """
    found = found or {}
    owner = found.get(OWNER_LABEL)
    if owner is None:
        return False
    world, _, rest = owner.partition("-")
    pid, _, start = rest.partition("-")
    if pid.isdigit() and start.isdigit() and is_gone(world, pid, start):
        return True
    deadline = found.get(DEADLINE_LABEL, "")
    return deadline.isdigit() and time.time() > int(deadline) + _SLACK_SECONDS


def owner() -> str:
    """This agent, as names on the engine may have it."""
    return owner_name() or f"unknown-{os.getpid()}"


def sweep_orphans(client: DockerClient) -> tuple[str, ...]:
    """Kill and remove what agents left that do not run any more; a sentence for each thing that could not be.

    Blocking.
    """
    problems = []
    for found in containers(client, {"label": OWNER_LABEL}):
        if not is_orphan(found.get("Labels")):
            continue
        name = str(found["Id"])
        try:
            client.api.remove_container(name, force=True, v=True)
            logger.info("Removed container %s of an agent that is gone.", name[:12])
        except Exception as error:  # noqa: BLE001  # one that stays must not keep the others
            if not is_missing(error) and not is_going(error):
                problems.append(f"Container {name[:12]} of an agent that is gone could not be removed: {error}.")
    listed = client.api.volumes(filters={"label": OWNER_LABEL}) or {}
    for found in listed.get("Volumes") or ():
        if not is_orphan(found.get("Labels")):
            continue
        try:
            client.api.remove_volume(found["Name"], force=True)
        except Exception as error:  # noqa: BLE001  # as above
            if not is_missing(error):
                problems.append(f"Volume {found['Name']} of an agent that is gone could not be removed: {error}.")
    for problem in problems:
        logger.warning("%s", problem)
    return tuple(problems)
