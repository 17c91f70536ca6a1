"""When this process has a zygote: from its third sandbox on, until it ends or all sandboxes are closed.

One command, or a look at what works here, is over before a zygote would be of use. It is started by a thread of its
own while runs go on with bubblewrap.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.local.one_per_process import OnePerProcess
from adk_skills_agent.sandbox.local.own_interpreter import is_usual
from adk_skills_agent.sandbox.local.python_view import MOVED, python_folders_of, shown_at
from adk_skills_agent.sandbox.local.sandbox_start import SandboxSpec, Started
from adk_skills_agent.sandbox.local.zygote_control import Zygote

_FIRST_OF_USE = 3
_MOST_FAILURES = 3

_logger = logging.getLogger("adk_skills_agent.sandbox")


class ZygoteLife:
    """The zygote of one process, for the user id it was first needed with."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._needed = 0
        self._uid: int | None = None
        self._inherited: tuple[int, ...] = ()
        self._starting = False
        self._zygote: Zygote | None = None
        self._failures = 0

    def start(
        self,
        spec: SandboxSpec,
        python: str | None,
        flags: tuple[str, ...],
        preload: tuple[str, ...],
        otherwise: Callable[[], Started],
        *,
        ahead: bool = False,
    ) -> Started:
        """A sandbox with a guest, forked if that is possible now. Blocking.

        Args:
            spec: What it is made from.
            python: The interpreter its script is to find itself in; None for a command that is none.
            flags: Its switches.
            preload: Modules to import first.
            otherwise: Makes one with bubblewrap.
            ahead: Whether its job will not come at once.

        Raises:
            SandboxError: It could not be made that way either.
            OSError: No descriptor or memory is left.
        """
        possible = spec.network != "host" and (python is None or is_usual(python, flags))
        zygote = self.ready(spec.uid) if possible else None
        if zygote is None:
            return otherwise()
        try:
            started = zygote.start(spec, python, flags, preload, ahead=ahead)
        except (SandboxError, OSError) as error:
            started = otherwise()  # when this fails, too, it is not the zygote's fault
            self._failed(zygote, error)
        else:
            self._failures = 0
        return started

    def wait(self, seconds: float) -> bool:
        """Whether one is ready, after at most so many seconds when it is being started."""
        with self._changed:
            self._changed.wait_for(lambda: not self._starting, seconds)
            return self._zygote is not None

    def end(self) -> None:
        """End it; it is started again when it is needed."""
        with self._changed:
            self._changed.wait_for(lambda: not self._starting, 1.0)
            zygote, self._zygote = self._zygote, None
        if zygote is not None:
            zygote.end()

    def forget(self) -> None:
        """In a forked child: let go of the parent's."""
        if self._zygote is not None:
            self._zygote.let_go()

    def ready(self, uid: int | None) -> Zygote | None:
        """The one to use now; each question counts as a need of one."""
        with self._changed:
            self._needed += 1
            if self._needed < _FIRST_OF_USE or self._failures >= _MOST_FAILURES:
                return None
            inherited = _inherited()
            if self._zygote is not None and self._inherited == inherited:
                return self._zygote if self._uid == uid else None
            if not self._starting:
                outdated, self._zygote = self._zygote, None
                if outdated is not None:
                    outdated.end()
                self._starting, self._uid, self._inherited = True, uid, inherited
                try:
                    threading.Thread(target=self._make, args=(uid,), name="adk-skills-zygote", daemon=True).start()
                except RuntimeError:  # no more threads, or the interpreter is ending
                    self._starting = False
            return None

    def _make(self, uid: int | None) -> None:
        made: Zygote | None = None
        try:
            if not _interpreter_can_move():
                raise SandboxError(f"the interpreter is both below {MOVED} and elsewhere")
            made = Zygote(uid)
        except (SandboxError, OSError) as error:
            if self._failures == 0:
                _tell(error)
        finally:
            with self._changed:
                self._failures += made is None
                self._zygote, self._starting = made, False
                self._changed.notify_all()

    def _failed(self, zygote: Zygote, error: Exception) -> None:
        with self._changed:
            if self._zygote is not zygote:
                return  # somebody else's failure already
            self._zygote = None
            self._failures += 1
            first = self._failures == 1
        zygote.end()
        if first:
            _tell(error)


def _inherited() -> tuple[int, ...]:
    """What a process has from the one that starts it, and cannot be given later."""
    import resource

    limits = {getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}
    return os.geteuid(), os.getegid(), *(resource.getrlimit(which)[1] for which in sorted(limits))


def _interpreter_can_move() -> bool:
    folders = python_folders_of(None)
    moved = [path for path in folders if shown_at(path) != path]
    return not moved or not any(path.startswith(f"{MOVED}/") for path in folders)


def _tell(error: Exception) -> None:
    _logger.warning("Sandboxes are made by bubblewrap, which is slower: %s", getattr(error, "message", error))


zygote_life = OnePerProcess(ZygoteLife, ZygoteLife.forget)


def end_zygote() -> None:
    """End this process's zygote, if there is one."""
    if (life := zygote_life.made) is not None:
        life.end()


atexit.register(end_zygote)
