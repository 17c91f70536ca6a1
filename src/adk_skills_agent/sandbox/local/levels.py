"""What an isolation level of this machine is, and the ones there are, strongest first.

A level prepares, starts and ends runs in its own way; everything between (output, deadline, limits that are watched,
the result) is the same for all and in :mod:`.sandbox`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from adk_skills_agent.sandbox.contract import ExecutionRequest, IsolationLevel, SandboxPolicy, Status
from adk_skills_agent.sandbox.local.aftermath import Aftermath
from adk_skills_agent.sandbox.local.processes import RunMarks
from adk_skills_agent.sandbox.local.spawner import Child
from adk_skills_agent.sandbox.local.view import PathView
from adk_skills_agent.sandbox.local.watchdog import DiskLimit


@dataclass(frozen=True, slots=True)
class Enforcement:
    """Who enforces what for runs of one level under one policy.

    Attributes:
        enforced: See ``IsolationReport``.
        degraded: See ``IsolationReport``.
        hard: Concerns the kernel bounds for a run as a whole, so that the watchdog need not.
    """

    enforced: Mapping[str, str]
    degraded: tuple[str, ...] = ()
    hard: frozenset[str] = frozenset()


class LevelRun(Protocol):
    """One run of a level: everything it holds on the host.

    The course is ``start()``, then any number of ``terminate()`` and ``kill()``, then ``finish()``. Each leaves nothing
    behind when it fails.
    """

    @property
    def run_id(self) -> str:
        """Random, in hexadecimal."""

    @property
    def shown(self) -> str:
        """The command, as a sentence may show it; valid after ``start()``."""

    @property
    def child(self) -> Child:
        """The process to wait for, with the reading ends of the output; valid after ``start()``."""

    @property
    def view(self) -> PathView:
        """What host paths in the output are replaced by; valid after ``start()``."""

    @property
    def marks(self) -> RunMarks:
        """What the watchdog recognises the run's processes by; valid after ``start()``."""

    @property
    def disk(self) -> tuple[DiskLimit, ...]:
        """What the watchdog measures; valid after ``start()``."""

    @property
    def warm(self) -> bool:
        """Whether it runs in a sandbox that was started before it was asked for; valid after ``start()``."""

    def start(self) -> None:
        """Prepare and start the command. Blocking, in a worker thread.

        Raises:
            SandboxError: It could not be started; the sentence says which step failed and why.
            SandboxUnavailable: The level does not work for this request; it says why.
            ConfigError: The policy grants a variable it must not.
            ValueError: The request cannot be expressed.
        """

    def start_at_once(self) -> bool:
        """The same from the event loop when that takes no noticeable time; False, and nothing done, when it would.

        Raises:
            SandboxError: See ``start()``, also for more.
        """

    def may_write_more(self) -> bool | None:
        """Whether, now that the command has ended, somebody of the run is there to write; never blocks.

        None when only the end of the pipes can tell.
        """

    def beyond(self) -> tuple[Status, str] | None:
        """A limit that only the level sees was passed: the status and a sentence. From the watchdog's thread."""

    def terminate(self) -> None:
        """Ask the command to end (SIGTERM), from the event loop; never blocks. No effect when it has ended."""

    def kill(self) -> None:
        """End everything of the run at once (SIGKILL), from the event loop; never blocks, safe to call twice."""

    def finishes_at_once(self) -> bool:
        """Whether ``finish()`` takes no noticeable time, so that the event loop may call it."""

    def finish(self, *, wanted: bool) -> Aftermath:
        """End what is left, take the status and the output files, delete what is temporary. Blocking, in a worker.

        Args:
            wanted: Whether anybody wants the output files.

        Raises:
            SandboxError: The files could not be collected, or it cannot be known how the command ended.
        """

    def abandon(self) -> None:
        """End the run at once from any thread, also without its event loop. Does nothing in a forked child."""


class Level(Protocol):
    """One way to contain runs on this machine."""

    @property
    def level(self) -> IsolationLevel:
        """Which one."""

    def problem(self) -> str | None:
        """Why it does not work here, as a clause ("bubblewrap is not installed"); None when it does.

        Found by really running it once per process; blocking, for a worker thread.
        """

    def remedy(self) -> str | None:
        """The one command that would make it work here, when one is known; only asked after ``problem()``."""

    def refusal(self, request: ExecutionRequest, policy: SandboxPolicy) -> str | None:
        """Why it cannot run this request although it works here, as a clause; None when it can."""

    def new_run(self, request: ExecutionRequest, policy: SandboxPolicy) -> LevelRun:
        """A run that is not started yet."""

    def report(self, policy: SandboxPolicy) -> Enforcement:
        """What holds for runs under ``policy``."""


@functools.cache
def levels() -> tuple[Level, ...]:
    """The levels there are, strongest first; the modules of each are imported at the first use."""
    from adk_skills_agent.sandbox.local.cgroup_level import CgroupLevel
    from adk_skills_agent.sandbox.local.landlock_level import LandlockLevel
    from adk_skills_agent.sandbox.local.namespaces_level import NamespacesLevel
    from adk_skills_agent.sandbox.local.process_level import ProcessLevel
    from adk_skills_agent.sandbox.local.seccomp_level import SeccompLevel

    return (CgroupLevel(), NamespacesLevel(), LandlockLevel(), SeccompLevel(), ProcessLevel())
