"""One workspace per session: files a script leaves are there for the session's next script (row E10).

A workspace is a private folder of the host that a sandbox copies in before a run and updates after it. Two runs of one
session take turns, from whatever thread or event loop; different sessions never wait for each other. All agents of a
session share its workspace; it is deleted when the last toolset that used it is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import tempfile
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.local.turns import Turns

logger = logging.getLogger(__name__)

MAX_WORKSPACES = 256
IDLE_SECONDS = 3600.0
_REMEMBERED_LOSSES = 10_000  # sessions that came and went; only to tell a model that its files are gone


@dataclass(slots=True)
class _Workspace:
    path: Path
    used: float
    users: int = 0
    turn: Turns = field(default_factory=lambda: Turns(1))
    owners: set[int] = field(default_factory=set)
    doomed: bool = False


@dataclass(frozen=True, slots=True)
class SessionWorkspace:
    """A workspace while a run has it.

    Attributes:
        path: The folder on the host.
        note: A sentence for the model when files of earlier runs are gone; else None.
    """

    path: Path
    note: str | None = None


class SessionWorkspaces:
    """The workspaces of all sessions in this process.

    Args:
        max_workspaces: Beyond this many the least recently used idle one is deleted.
        idle_seconds: A workspace unused for this long is deleted when another session opens one.
    """

    def __init__(self, *, max_workspaces: int = MAX_WORKSPACES, idle_seconds: float = IDLE_SECONDS) -> None:
        self._max = max_workspaces
        self._idle = idle_seconds
        self._reset()

    @contextlib.asynccontextmanager
    async def use(self, key: str, owner: object = None) -> AsyncIterator[SessionWorkspace]:
        """The folder of ``key``, for the length of one run; waits while another run of the same key has it.

        Args:
            key: See :func:`~adk_skills_agent.scripts.execution_id.workspace_key`.
            owner: Who must be closed before the folder is deleted.

        Raises:
            SandboxError: The folder cannot be made.
        """
        workspace, note = await asyncio.to_thread(self._take, key, id(owner))
        try:
            async with workspace.turn.place():
                yield SessionWorkspace(workspace.path, note)
        finally:
            if self._put_back(workspace):
                await asyncio.to_thread(_delete, workspace.path)

    def close(self, owner: object = None) -> None:
        """Delete the workspaces that only ``owner`` used, those in use as soon as their run has ended."""
        with self._mutex:
            mine = [(key, found) for key, found in self._open.items() if id(owner) in found.owners]
            over = []
            for key, workspace in mine:
                workspace.owners.discard(id(owner))
                if workspace.owners:
                    continue
                del self._open[key]
                workspace.doomed = True
                if not workspace.users:
                    over.append(workspace.path)
        for path in over:
            _delete(path)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._mutex = threading.Lock()
        self._open: dict[str, _Workspace] = {}
        self._lost: OrderedDict[str, None] = OrderedDict()
        self._root: Path | None = None

    def _take(self, key: str, owner: int) -> tuple[_Workspace, str | None]:
        if self._pid != os.getpid():
            self._reset()  # a forked child: the folders are its parent's
        try:
            with self._mutex:
                workspace, doomed = self._found_or_made(key)
                workspace.users += 1
                workspace.owners.add(owner)
                workspace.used = time.monotonic()
                lost = self._lost.pop(key, self) is None
        except OSError as error:
            raise SandboxError(f"The workspace of the session cannot be made: {error.strerror or error}.") from error
        for path in doomed:
            _delete(path)
        note = "The files that earlier scripts of this session left are gone; the working directory started empty."
        return workspace, note if lost else None

    def _found_or_made(self, key: str) -> tuple[_Workspace, list[Path]]:
        now = time.monotonic()
        workspace = self._open.get(key)
        if workspace is not None and (workspace.users or workspace.path.is_dir()):
            return workspace, []
        if workspace is not None:
            logger.warning("the workspace of %s was deleted by somebody else", key)
            self._lost[key] = None
        doomed = self._evict(now)
        workspace = self._open[key] = _Workspace(Path(tempfile.mkdtemp(dir=self._root_folder())), now)
        return workspace, doomed

    def _root_folder(self) -> Path:
        if self._root is None or not self._root.is_dir():
            self._root = Path(tempfile.mkdtemp(prefix="adk-skills-sessions-"))
            weakref.finalize(self, _delete_own, self._root, os.getpid())
        return self._root

    def _evict(self, now: float) -> list[Path]:
        """Forget idle workspaces that are too many or too old; their folders are the caller's to delete."""
        idle = sorted((item for item in self._open.items() if not item[1].users), key=lambda item: item[1].used)
        surplus = len(self._open) + 1 - self._max
        doomed = []
        for position, (key, workspace) in enumerate(idle):
            if position < surplus or now - workspace.used > self._idle:
                logger.info("the workspace of %s was idle and is deleted", key)
                doomed.append(self._open.pop(key).path)
                self._lost[key] = None
        while len(self._lost) > _REMEMBERED_LOSSES:
            self._lost.popitem(last=False)
        return doomed

    def _put_back(self, workspace: _Workspace) -> bool:
        """End a use; whether the folder is to be deleted now."""
        with self._mutex:
            workspace.users -= 1
            workspace.used = time.monotonic()
            return workspace.doomed and not workspace.users


SHARED_WORKSPACES = SessionWorkspaces()
"""Those of this process: several agents of one session must see the same files."""


@contextlib.asynccontextmanager
async def private_folder(prefix: str) -> AsyncIterator[Path]:
    """A folder on the host for the length of one call.

    Raises:
        SandboxError: It cannot be made.
    """
    try:
        folder = await asyncio.to_thread(tempfile.mkdtemp, prefix=prefix)
    except OSError as error:
        raise SandboxError(f"There is no room for temporary files: {error.strerror or error}.") from error
    try:
        yield Path(folder)
    finally:
        await asyncio.to_thread(_delete, Path(folder))


def _delete(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _delete_own(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked child must not take its parent's files away
        _delete(folder)
