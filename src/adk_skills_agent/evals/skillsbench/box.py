"""Where one trial of a task happens: a machine of its own, seen by the runner through a few verbs.

Both modes give it: a folder of this machine made from the Dockerfile (``local_box.py``), or a container.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from adk_skills_agent.errors import SandboxError

LOGS = "/logs"
"""A folder of the box whose files the runner reads afterwards: ``/logs/verifier/reward.txt`` is one."""
MAX_OUTPUT_BYTES = 1 << 20
"""Most bytes kept of what one command writes: the start and the end."""


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
    """What one command in a box did.

    Attributes:
        exit_code: None when a signal ended it, which a limit of the run does.
        output: Standard output and error, mixed as they came; start and end of a long one.
        timed_out: Whether its time was over.
        truncated: Whether the middle of the output is missing.
        seconds: How long it took.
    """

    exit_code: int | None
    output: bytes
    timed_out: bool = False
    truncated: bool = False
    seconds: float = 0.0

    @property
    def text(self) -> str:
        """The output as text."""
        return self.output.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Phase:
    """What is there beside the task's own files while a command runs.

    Attributes:
        network: Whether it may use the host's network.
        folders: Path in the box to a host folder; the box gets a fresh, writable copy each time it is named anew, so
            that neither what was there before nor the original is touched.
        env: Variables, over those of the image.
    """

    network: bool = False
    folders: tuple[tuple[str, Path], ...] = ()
    env: tuple[tuple[str, str], ...] = ()


class TaskBox(ABC):
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
            SandboxError: The box itself failed; never the command.
        """

    @abstractmethod
    async def end_processes(self) -> None:
        """End everything that still runs in the box."""

    @abstractmethod
    async def empty(self, path: str) -> None:
        """Remove a path of the box with all below it, whatever it is, and make it an empty folder."""

    @abstractmethod
    async def read(self, path: str, most: int) -> bytes | None:
        """A regular file below ``/logs``, at most so many bytes; None when there is none. Links are not followed."""

    @abstractmethod
    async def close(self) -> None:
        """End everything and remove the box. Safe to call twice."""


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """A task's environment, built.

    Attributes:
        name: For people.
        env: Variables of the image.
        workdir: Its working directory.
        seconds: How long the build took; 0 when all of it was there already.
        notes: What differs from the Dockerfile, one sentence each, e.g. another base.
        handle: What the mode needs to start it.
    """

    name: str
    env: Mapping[str, str]
    workdir: str
    seconds: float
    notes: tuple[str, ...]
    handle: object
