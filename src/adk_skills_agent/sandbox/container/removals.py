"""Containers are removed in the background, and what could not be removed is known (S0-79)."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from adk_skills_agent.errors import EngineUnavailable, SandboxError
from adk_skills_agent.sandbox.container.engine import Engine, remove_in_background
from adk_skills_agent.sandbox.container.engine_errors import is_going, is_gone

logger = logging.getLogger(__name__)

REMOVE_SECONDS = 30.0
"""How long the engine may take to remove one."""
_LOOK_SECONDS = 0.01
_GOING_SECONDS = 0.02
_SOON_SECONDS = 0.03
_MOST_WAITING = 2  # more than these wait for nothing: the engine's threads are needed
_PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


@dataclass(slots=True)
class Removals:
    """What becomes of the containers of one sandbox: removed in the background, and counted when that fails.

    Attributes:
        failed: Names and reasons of containers that are, or may be, still there.
    """

    failed: dict[str, str] = field(default_factory=dict)
    _pending: set[object] = field(default_factory=set)
    _there: dict[str, tuple[Engine, asyncio.AbstractEventLoop]] = field(default_factory=dict)
    _asked: dict[str, float] = field(default_factory=dict)
    _last: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def expect(self, creation: object) -> None:
        """Something is being made that may have to be removed."""
        with self._lock:
            self._pending.add(creation)

    def settle(self, creation: object) -> None:
        """It is made, or will not be."""
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

    def begin(self, engine: Engine, container: str) -> None:
        """Kill and remove a container in a thread; nobody waits. Safe from any thread, also without a loop."""
        with self._lock:
            self._there.pop(container, None)
            if container in self._pending:
                return
            self._pending.add(container)
        try:
            remove_in_background(lambda: self._remove(engine, container))
        except RuntimeError as error:  # the interpreter ends: the container does with the stream
            self._end(container, str(error))

    def begin_soon(self, engine: Engine, container: str, let_go: Callable[[], None]) -> None:
        """The same for one in which nothing runs any more, a moment later.

        The engine needs the processors for it, and so does who waits for the result of what ran in there.

        Args:
            engine: Its engine.
            container: Its id.
            let_go: Closes its streams, with which its program ends; called in a thread.
        """
        with self._lock:
            self._there.pop(container, None)
            if container in self._pending:
                return
            busy = len(self._pending) >= _MOST_WAITING
            self._pending.add(container)

        def remove() -> None:
            if not busy:
                time.sleep(_SOON_SECONDS)
            let_go()
            self._remove(engine, container)

        try:
            remove_in_background(remove)
        except RuntimeError as error:
            let_go()
            self._end(container, str(error))

    def _remove(self, engine: Engine, container: str) -> None:
        problem: str | None = None
        with self._lock:
            self._asked[container] = time.monotonic()
        until = time.monotonic() + REMOVE_SECONDS
        pauses = iter(_PAUSES)
        while True:
            try:
                engine.ask_now(
                    lambda client: client.api.remove_container(container, force=True, v=True), "remove a container"
                )
                problem = None
                break
            except EngineUnavailable as error:
                problem = error.message
                break
            except SandboxError as error:
                if is_gone(error):
                    problem = None
                    break
                problem = error.message
                if is_going(error):  # the engine is at it, since its program has ended
                    if time.monotonic() > until:
                        break
                    time.sleep(_GOING_SECONDS)
                    continue
                # Podman refuses while the container is just ending
            except Exception as error:  # noqa: BLE001  # in a thread nobody looks at
                problem = f"an unexpected {type(error).__name__}"
            pause = next(pauses, None)
            if pause is None:
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

    async def wait(self, seconds: float, container: str | None = None) -> None:
        """Wait until all that was begun, or that one, has ended. What takes longer has failed, until it does end.

        Not in a thread of the engine's: those are what it waits for.

        Args:
            seconds: How long the engine may take for one; it removes only some at a time, so those that wait for their
                turn have failed when it removed nothing for so long.
            container: Which one; None for all.
        """
        began = time.monotonic()
        while True:
            if self._is_over(seconds, container, began):
                return
            await asyncio.sleep(_LOOK_SECONDS)

    def _is_over(self, seconds: float, container: str | None, began: float) -> bool:
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
