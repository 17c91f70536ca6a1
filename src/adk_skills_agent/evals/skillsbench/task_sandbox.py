"""What builds the environments of tasks and starts trials in them: local mode or container mode, as one interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from adk_skills_agent.evals.skillsbench.box import BuiltImage, TaskBox
from adk_skills_agent.evals.skillsbench.task import Task


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

        Args:
            task: The task.
            with_skills: Whether the image has the skills where the Dockerfile puts them.
            rebuild: Whether to build anew what is there already.
            say: Gets a line for each step.

        Raises:
            BuildError: It cannot be built.
        """

    @abstractmethod
    async def open(self, task: Task, image: BuiltImage) -> TaskBox:
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
