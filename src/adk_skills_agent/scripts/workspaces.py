"""One workspace per session: files a script leaves are there for the session's next script (row E10).

A workspace is a private folder of the host that a sandbox copies in before a run and updates after it. Two runs of one
session take turns; different sessions never wait for each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

MAX_WORKSPACES = 256
IDLE_SECONDS = 3600.0


@dataclass(slots=True)
class _Workspace:
    path: Path
    used: float
    users: int = 0
    # An asyncio lock belongs to one event loop; an agent usually has one, a test suite has many.
    locks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = field(
        default_factory=weakref.WeakKeyDictionary
    )


class SessionWorkspaces:
    """The workspaces of all sessions of one toolset.

    Args:
        max_workspaces: Beyond this many the least recently used idle one is deleted.
        idle_seconds: A workspace unused for this long is deleted when the next one is opened.
    """

    def __init__(self, *, max_workspaces: int = MAX_WORKSPACES, idle_seconds: float = IDLE_SECONDS) -> None:
        self._max = max_workspaces
        self._idle = idle_seconds
        self._mutex = threading.Lock()
        self._open: dict[str, _Workspace] = {}
        self._root: Path | None = None
        self._cleanup: weakref.finalize[[str], SessionWorkspaces] | None = None

    @contextlib.asynccontextmanager
    async def use(self, key: str) -> AsyncIterator[Path]:
        """The folder of ``key``, for the length of one run; waits while another run of the same key has it."""
        workspace, doomed = self._take(key)
        try:
            if doomed:
                await asyncio.to_thread(_delete, doomed)
            async with workspace.locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
                yield workspace.path
        finally:
            with self._mutex:
                workspace.users -= 1
                workspace.used = time.monotonic()

    def close(self) -> None:
        """Delete every workspace. Safe to call twice."""
        with self._mutex:
            self._open.clear()
            if self._cleanup is not None:
                self._cleanup()
            self._root = self._cleanup = None

    def _take(self, key: str) -> tuple[_Workspace, list[Path]]:
        with self._mutex:
            if self._root is None:
                root = tempfile.mkdtemp(prefix="adk-skills-sessions-")
                self._root = Path(root)
                self._cleanup = weakref.finalize(self, shutil.rmtree, root, ignore_errors=True)
            now = time.monotonic()
            doomed: list[Path] = []
            workspace = self._open.get(key)
            if workspace is None:
                doomed = self._evict(now)
                path = Path(tempfile.mkdtemp(dir=self._root))
                workspace = self._open[key] = _Workspace(path, now)
            workspace.users += 1
            workspace.used = now
            return workspace, doomed

    def _evict(self, now: float) -> list[Path]:
        """Forget idle workspaces that are too many or too old; their folders are the caller's to delete."""
        idle = sorted((item for item in self._open.items() if not item[1].users), key=lambda item: item[1].used)
        surplus = len(self._open) + 1 - self._max
        doomed = []
        for position, (key, workspace) in enumerate(idle):
            if position < surplus or now - workspace.used > self._idle:
                doomed.append(self._open.pop(key).path)
        return doomed


def _delete(folders: list[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
