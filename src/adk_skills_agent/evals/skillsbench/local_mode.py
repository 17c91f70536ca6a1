"""Local mode: tasks without an engine, from Debian's and Ubuntu's packages and the kernel's own isolation."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from pathlib import Path

from adk_skills_agent.errors import SandboxUnavailable
from adk_skills_agent.evals.skillsbench.box import BuiltImage, TaskBox
from adk_skills_agent.evals.skillsbench.local_box import open_local_box
from adk_skills_agent.evals.skillsbench.local_image import build_local, not_interpretable
from adk_skills_agent.evals.skillsbench.local_run import limits_memory
from adk_skills_agent.evals.skillsbench.outside_network import without_secrets
from adk_skills_agent.evals.skillsbench.range_folders import remove_tree
from adk_skills_agent.evals.skillsbench.task import Task
from adk_skills_agent.evals.skillsbench.task_sandbox import TaskSandbox
from adk_skills_agent.evals.skillsbench.user_range import UserRange, open_user_range
from adk_skills_agent.sandbox.local import bubblewrap

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

    async def open(self, task: Task, image: BuiltImage) -> TaskBox:
        """A layer of the trial's own over those of the image."""
        return await open_local_box(task, image, self._store, self._users)

    async def prune(self) -> str:
        """Remove what runners that have ended left unfinished; finished layers are the cache and stay."""
        left = await asyncio.to_thread(_abandoned, self._store)
        for folder in left:
            await remove_tree(folder, self._users)
        return f"{len(left)} unfinished layers of runners that have ended were removed"

    def notes(self) -> tuple[str, ...]:
        """Whether memory is limited here."""
        missing = limits_memory()
        return (f"Memory and processes of a task are not limited here: {missing}",) if missing else ()

    def without_secrets(self, text: str) -> str:
        """Without the logins of this environment's proxies, which every command with a network has."""
        return without_secrets(text, os.environ)

    async def close(self) -> None:
        """End the process that keeps the user range."""
        self._users.close()


def open_local_mode(store: Path) -> LocalMode:
    """Local mode with its cache in a folder.

    Args:
        store: Made when it is missing; one folder may serve several runs at a time.

    Raises:
        SandboxUnavailable: This machine cannot run tasks so; says what is missing.
    """
    if missing := bubblewrap.missing():
        raise SandboxUnavailable(f"Tasks cannot run in local mode: {missing}.", (missing,))
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
