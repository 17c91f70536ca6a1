"""Where one trial of a task happens: a machine of its own, seen by the runner through a few verbs.

Both modes give it: a folder of this machine made from the Dockerfile (``local_mode.py``), or a container.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.evals.skillsbench.results import BuildCounts
from adk_skills_agent.evals.skillsbench.task import Task
from adk_skills_agent.sandbox import what_is_scarce

LOGS = "/logs"
"""A folder of the environment whose files the runner reads afterwards: ``/logs/verifier/reward.txt`` is one."""
MAX_OUTPUT_BYTES = 1 << 20
"""Most bytes kept of what one command writes: the start and the end."""


_LOOK_SECONDS = 0.5


async def until_scarce(folder: Path | None) -> str:
    """Wait until this machine has next to nothing left of something, such as the disk of a folder; says of what.

    Limits bound what one task may have of most things; this bounds what they do not count (row 283).
    """
    while (found := await asyncio.to_thread(what_is_scarce, folder)) is None:  # noqa: ASYNC110  # no event tells it
        await asyncio.sleep(_LOOK_SECONDS)
    return found


class BuildError(SandboxError):
    """The task's environment cannot be made; ``output`` is the end of what the failing step wrote."""

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output


class NotInterpretable(BuildError):
    """The Dockerfile has something that local mode cannot do; another mode may."""


class MissingSource(BuildError):
    """The Dockerfile copies what is not in the task's environment folder; no mode can build it."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What one command in an environment did."""

    exit_code: int | None  # None when a signal ended it, which a limit of the run does
    output: bytes  # standard output and error, mixed as they came; start and end of a long one
    timed_out: bool = False
    truncated: bool = False
    seconds: float = 0.0

    @property
    def text(self) -> str:
        """The output as text."""
        return self.output.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Phase:
    """What is there beside the task's own files while a command runs."""

    network: bool = False
    # path in the environment to a host folder, of which it gets a fresh, writable copy each time it is named anew:
    # neither what was there before nor the original is touched
    folders: tuple[tuple[str, Path], ...] = ()
    env: tuple[tuple[str, str], ...] = ()  # variables, over those of the image


class TaskEnvironment(ABC):
    """A started trial. Every command ends, with all it started, before ``run`` returns or ``end_processes`` does."""

    workdir: str
    """The image's working directory."""

    @abstractmethod
    async def run(
        self,
        command: Sequence[str],
        *,
        seconds: float,
        phase: Phase | None = None,
        cwd: str | None = None,
        stdin: bytes | None = None,
        on_output: Callable[[bytes], None] | None = None,
    ) -> Ran:
        """Run one command.

        Args:
            command: Program and arguments.
            seconds: After so many it is ended with all it started.
            phase: What else is there; nothing by default.
            cwd: Working directory; the image's by default.
            stdin: Bytes to read; none by default.
            on_output: Gets the output as it comes.

        Raises:
            SandboxError: The environment itself failed; never the command.
        """

    @abstractmethod
    async def end_processes(self) -> None:
        """End everything that still runs in the environment."""

    @abstractmethod
    async def empty(self, path: str) -> None:
        """Remove a path of the environment with all below it, whatever it is, and make it an empty folder."""

    @abstractmethod
    async def read(self, path: str, most: int) -> bytes | None:
        """A regular file below ``/logs``, at most so many bytes; None when there is none. Links are not followed."""

    @abstractmethod
    async def close(self) -> None:
        """End everything and remove the environment. Safe to call twice."""


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """A task's environment, built."""

    name: str
    env: Mapping[str, str]
    workdir: str
    seconds: float  # how long building it took, or finding it
    notes: tuple[str, ...]  # What differs from the Dockerfile, one sentence each, e.g. another base.
    handle: object  # what the mode needs to start it
    cached: bool = False  # whether all of it was there already, and nothing was built


class TaskSandbox(ABC):
    """One mode. It is opened by its own function, used by one event loop, and closed."""

    name: str
    """``local`` or ``container``."""

    @abstractmethod
    def problem(self, task: Task) -> str | None:
        """Why this mode cannot run a task, as far as its files tell; None when it can."""

    @abstractmethod
    async def build(self, task: Task, *, with_skills: bool, rebuild: bool, say: Callable[[str], None]) -> BuiltImage:
        """Build a task's environment, or take the one that was built before.

        Raises:
            BuildError: It cannot be built.
        """

    @abstractmethod
    async def open(self, task: Task, image: BuiltImage) -> TaskEnvironment:
        """Start a trial.

        Raises:
            SandboxError: It cannot be started.
        """

    @abstractmethod
    async def prune(self) -> str:
        """Remove what is of no use any more; says what, in one line."""

    @abstractmethod
    def notes(self) -> tuple[str, ...]:
        """What this machine does not give a trial, one sentence each."""

    @abstractmethod
    def without_secrets(self, text: str) -> str:
        """A text for results and messages, without the logins of proxies that commands with a network knew."""

    @abstractmethod
    async def close(self) -> None:
        """Release what the mode holds; trials must have ended."""


RETRIES = 2


@dataclass(slots=True)
class Images:
    """Builds on demand."""

    sandbox: TaskSandbox
    counts: BuildCounts
    rebuild: bool = False  # whether to build anew what was built by an earlier run
    prune_interval: int = 0  # prune after so many builds; 0 never
    say: Callable[[str], None] = lambda _: None
    _built: dict[tuple[str, bool], BuiltImage | BuildError] = field(default_factory=dict)
    _locks: dict[tuple[str, bool], asyncio.Lock] = field(default_factory=dict)
    _since_prune: int = 0

    async def get(self, task: Task, *, with_skills: bool) -> BuiltImage:
        """The environment of a task; waits when another trial is building it.

        Raises:
            BuildError: It cannot be built, now or for an earlier trial of this run.
        """
        key = task.name, with_skills
        async with self._locks.setdefault(key, asyncio.Lock()):
            found = self._built.get(key)
            if found is None:
                found = self._built[key] = await self._build(task, with_skills=with_skills)
        if isinstance(found, BuildError):
            raise found
        return found

    async def _build(self, task: Task, *, with_skills: bool) -> BuiltImage | BuildError:
        for attempt in range(RETRIES + 1):
            try:
                image = await self.sandbox.build(task, with_skills=with_skills, rebuild=self.rebuild, say=self.say)
            except (NotInterpretable, MissingSource) as error:
                return self._failed(task, error)
            except SandboxError as error:
                failure = error if isinstance(error, BuildError) else BuildError(error.message)
                if attempt == RETRIES:
                    return self._failed(task, failure)
                self.counts.retried += 1
                self.say(f"{error.message} Trying again ({attempt + 1} of {RETRIES}).")
                await self._prune()
            else:
                self.counts.cached += image.cached
                self.counts.built += not image.cached
                self.counts.seconds += image.seconds
                self._since_prune += not image.cached
                if self.prune_interval and self._since_prune >= self.prune_interval:
                    self._since_prune = 0
                    await self._prune()
                return image
        raise AssertionError  # the last attempt returned

    def _failed(self, task: Task, error: BuildError) -> BuildError:
        self.counts.failed[task.name] = self.sandbox.without_secrets(error.message)
        return error

    async def _prune(self) -> None:
        with contextlib.suppress(SandboxError):  # the build will say what is wrong
            self.say(await self.sandbox.prune())
