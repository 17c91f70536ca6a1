"""The environments of a run: each built once, tried again when it fails, and shared by its trials (S0-128, S0-129)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.evals.skillsbench.box import BuildError, BuiltImage, MissingSource, NotInterpretable
from adk_skills_agent.evals.skillsbench.results import BuildCounts
from adk_skills_agent.evals.skillsbench.task import Task
from adk_skills_agent.evals.skillsbench.task_sandbox import TaskSandbox

RETRIES = 2
_CACHED_SECONDS = 0.5
"""A build that takes less found everything in the cache."""


@dataclass(slots=True)
class Images:
    """Builds on demand.

    Attributes:
        sandbox: Builds.
        counts: What became of the builds so far.
        rebuild: Whether to build anew what was built by an earlier run.
        prune_interval: Prune after so many builds; 0 never.
        say: Gets a line for each step.
    """

    sandbox: TaskSandbox
    counts: BuildCounts
    rebuild: bool = False
    prune_interval: int = 0
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
                cached = image.seconds < _CACHED_SECONDS
                self.counts.cached += cached
                self.counts.built += not cached
                self.counts.seconds += image.seconds
                self._since_prune += not cached
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
