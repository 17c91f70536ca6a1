"""Local mode: tasks without an engine, from Debian's and Ubuntu's packages and the kernel's own isolation."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from adk_skills_agent.evals.skillsbench.dockerfile import Source, write_tar
from adk_skills_agent.evals.skillsbench.engine_options import without_secrets
from adk_skills_agent.evals.skillsbench.environment import LOGS, BuiltImage, Phase, Ran, TaskEnvironment, TaskSandbox
from adk_skills_agent.evals.skillsbench.local_image import (
    LocalImage,
    NewLayer,
    build_local,
    new_layer,
    not_interpretable,
)
from adk_skills_agent.evals.skillsbench.local_run import Command, Layers, Limits, in_folder, run_in_layers
from adk_skills_agent.evals.skillsbench.task import Task
from adk_skills_agent.evals.skillsbench.user_range import UserRange, open_user_range, remove_tree
from adk_skills_agent.sandbox import control_groups_problem, require_bubblewrap, temporary_prefix

_UNFINISHED = re.compile(r"new-(\d+)-[0-9a-f]+\Z")


class LocalMode(TaskSandbox):
    """Use :func:`open_local_mode`."""

    name = "local"

    def __init__(self, store: Path, users: UserRange) -> None:
        self._store = store
        self._users = users

    def problem(self, task: Task) -> str | None:
        """Its own reasons, or the line of the Dockerfile that needs an engine."""
        return not_interpretable(task)

    async def build(self, task: Task, *, with_skills: bool, rebuild: bool, say: Callable[[str], None]) -> BuiltImage:
        """Interpret the Dockerfile; layers that are there are taken."""
        return await build_local(task, self._store, self._users, with_skills=with_skills, rebuild=rebuild, say=say)

    async def open(self, task: Task, image: BuiltImage) -> TaskEnvironment:
        """A layer of the trial's own over those of the image."""
        async with contextlib.AsyncExitStack() as stack:
            layer = await stack.enter_async_context(new_layer(self._store, self._users, below="trials"))
            environment = LocalEnvironment(task, image, self._store, self._users, layer, stack.pop_all())
        await environment.empty(f"{LOGS}/verifier")
        await environment.empty(f"{LOGS}/agent")
        return environment

    async def prune(self) -> str:
        """Remove what runners that have ended left unfinished; finished layers are the cache and stay."""
        left = await asyncio.to_thread(_abandoned, self._store)
        for folder in left:
            await remove_tree(folder, self._users)
        return f"{len(left)} unfinished layers of runners that have ended were removed"

    def notes(self) -> tuple[str, ...]:
        """Whether memory is limited here."""
        missing = control_groups_problem()
        return (f"Memory and processes of a task are not limited here: {missing}",) if missing else ()

    def without_secrets(self, text: str) -> str:
        """Without the logins of this environment's proxies, which every command with a network has."""
        return without_secrets(text, os.environ)

    async def close(self) -> None:
        """End the process that keeps the user range."""
        self._users.close()


def open_local_mode(store: Path) -> LocalMode:
    """Local mode with its cache in a folder.

    One ``store`` may serve several runs at a time. Raises ``SandboxUnavailable`` when this machine cannot run tasks so;
    says what is missing.
    """
    require_bubblewrap("Tasks cannot run in local mode")
    store = store.absolute()
    store.mkdir(parents=True, exist_ok=True)
    return LocalMode(store, open_user_range())


def _abandoned(store: Path) -> list[Path]:
    found = []
    for below in ("layers", "trials"):
        for folder in sorted((store / below).glob("new-*")):
            match = _UNFINISHED.match(folder.name)
            if match and not _runs(int(match[1])):
                found.append(folder)
    return found


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


# A trial on this machine: the image's layers below one of its own, each command in namespaces of its own.
#
# A command's processes end with it, also those it left in the background.


class LocalEnvironment(TaskEnvironment):
    """See :meth:`LocalMode.open`."""

    def __init__(
        self,
        task: Task,
        image: BuiltImage,
        store: Path,
        users: UserRange,
        layer: NewLayer,
        stack: contextlib.AsyncExitStack,
    ) -> None:
        handle = image.handle
        assert isinstance(handle, LocalImage)  # noqa: S101  # of another mode: a mistake of the runner's
        self.workdir = image.workdir
        self._image = image
        self._task = task
        self._users = users
        self._layers = Layers(store, handle.layers, layer.top, layer.scratch)
        self._top = store / layer.top
        self._stack = stack
        self._turn = asyncio.Lock()  # two mounts of one writable layer at a time are not defined
        self._given: dict[str, Path] = {}

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
        """Run in namespaces of its own over the trial's layers."""
        phase = phase or Phase()
        async with self._turn:
            for path, folder in phase.folders:
                if self._given.get(path) != folder:
                    await self._give(path, folder)
            return await run_in_layers(
                Command(
                    command,
                    cwd or self.workdir,
                    {**self._image.env, **dict(phase.env)},
                    network=phase.network,
                    stdin=stdin,
                ),
                self._layers,
                self._users,
                Limits(seconds, self._task.limits.memory_bytes),
                on_output,
            )

    async def end_processes(self) -> None:
        """Wait for the command that runs."""
        async with self._turn:  # every command has ended what it started
            return

    async def empty(self, path: str) -> None:
        """Make it empty in the trial's own layer, and hide what is below."""
        async with self._turn:
            self._given.pop(path, None)
            await in_folder(self._users, self._top, "empty", path=path)

    async def read(self, path: str, most: int) -> bytes | None:
        """Read it from the trial's own layer."""
        if not path.startswith(f"{LOGS}/"):
            raise ValueError(f"{path} is not below {LOGS}")
        async with self._turn:
            return await in_folder(self._users, self._top, "read", path=path, most=most)

    async def close(self) -> None:
        """Remove the trial's layer."""
        await self._stack.aclose()

    async def _give(self, path: str, folder: Path) -> None:
        with tempfile.NamedTemporaryFile(prefix=temporary_prefix("bench")) as packed:
            await asyncio.to_thread(write_tar, packed, [Source(folder, folder=True)], {})
            packed.flush()
            await in_folder(self._users, self._top, "empty", path=path)
            await in_folder(self._users, self._top, "unpack", path=path, tar=Path(packed.name))
        self._given[path] = folder
