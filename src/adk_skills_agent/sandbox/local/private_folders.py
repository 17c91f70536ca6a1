"""The file systems in memory that belong to one sandbox, seen from the host through descriptors.

A descriptor keeps its file system alive: what a run left is read after everything inside is dead, without a path a
script could have changed (SANDBOX.md finding 7).
"""

from __future__ import annotations

import functools
import os
import time

from adk_skills_agent.sandbox.contract import SandboxPolicy
from adk_skills_agent.sandbox.local.late_close import close_late
from adk_skills_agent.sandbox.local.watchdog import DiskLimit

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC if hasattr(os, "O_PATH") else 0
_SETTLED_NS = 50_000_000  # a tick has 10 ms at most
_NAMES = ("work", "tmp", "dev/shm")


class PrivateFolders:
    """Descriptors of a sandbox's ``/work``, ``/tmp`` and ``/dev/shm``.

    Args:
        pid: Process 1 of the sandbox, which has its file system in place.
        uid: Who is to own the workspace; None leaves it as it is.

    Raises:
        OSError: It is gone, or no descriptor is left.
    """

    def __init__(self, pid: int, uid: int | None = None) -> None:
        self._descriptors: list[int] = []
        self._world: list[int] = []
        try:
            # Held, so that process 1 ends without the work of taking all its mounts away.
            self._world.append(os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC))
            for name in _NAMES:
                self._descriptors.append(os.open(f"/proc/{pid}/root/{name}", _FOLDER))
            if uid is not None:
                os.chown(self.work, uid, uid)
                os.chmod(self.work, 0o700)  # noqa: PTH101
        except OSError:
            self.close()
            raise

    @property
    def work(self) -> str:
        """A host path of the workspace, valid in this process until ``close()``."""
        return _path(self._descriptors[0])

    @property
    def tmp(self) -> str:
        """The same for ``/tmp``."""
        return _path(self._descriptors[1])

    def holds_little(self, entries: int, size: int) -> bool:
        """Whether at most so many files and folders, and so many bytes, are in the workspace."""
        told = os.fstatvfs(self._descriptors[0])
        used = (told.f_blocks - told.f_bfree) * told.f_frsize
        return told.f_files - told.f_ffree - 1 <= entries and used <= size and told.f_files > 0

    def settled(self) -> tuple[int, int, int, int] | None:
        """What changes when something is made, removed or renamed in the workspace itself, or its mode is set.

        None while a change would not show, because the last one was within a tick of the file system's clock.
        """
        info = os.fstat(self._descriptors[0])
        if time.time_ns() - info.st_ctime_ns < _SETTLED_NS:
            return None
        return (info.st_ino, info.st_mode, info.st_mtime_ns, info.st_ctime_ns)

    def open_again(self) -> None:
        """Give the workspace back the permissions the script may have taken from it; everything inside is dead."""
        # Without the dot: looking up "." needs the very permission.
        os.chmod(f"/proc/self/fd/{self._descriptors[0]}", 0o700)  # noqa: PTH101

    def limits(self, policy: SandboxPolicy) -> tuple[DiskLimit, ...]:
        """What the watchdog counts: files. Bytes are limited by the file systems themselves."""
        if policy.workspace_inodes is None:
            return ()
        return tuple(
            DiskLimit(functools.partial(_files, descriptor), None, policy.workspace_inodes)
            for descriptor in self._descriptors
        )

    def close(self) -> None:
        """Let go of the file systems."""
        close_late(self._taken())

    def let_go(self) -> None:
        """The same in a forked child, whose descriptors are never the last."""
        for descriptor in self._taken():
            os.close(descriptor)

    def _taken(self) -> list[int]:
        descriptors, self._descriptors = self._descriptors, []
        world, self._world = self._world, []
        return [*descriptors, *world]


def _path(descriptor: int) -> str:
    # Through the dot it is a folder and not a link, also for what must not follow links.
    return f"/proc/self/fd/{descriptor}/."


def _files(descriptor: int, max_entries: int, max_seconds: float) -> tuple[int, int]:  # noqa: ARG001
    told = os.fstatvfs(descriptor)
    return (told.f_blocks - told.f_bfree) * told.f_frsize, told.f_files - told.f_ffree
