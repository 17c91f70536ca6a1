"""A started sandbox with namespaces: its processes, its control group, and its file systems seen from the host."""

from __future__ import annotations

import contextlib
import functools
import os
import select
import signal
from dataclasses import dataclass

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import SandboxPolicy
from adk_skills_agent.sandbox.files.workspace import Workspace
from adk_skills_agent.sandbox.local.cgroup import RunGroup
from adk_skills_agent.sandbox.local.init.control import InitControl
from adk_skills_agent.sandbox.process.spawn import Child
from adk_skills_agent.sandbox.process.supervise import is_readable, reap_late
from adk_skills_agent.sandbox.process.tree import children_of, is_ending
from adk_skills_agent.sandbox.process.watchdog import DiskLimit

READY_SECONDS = 20.0
_END_SECONDS = 2.0
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC if hasattr(os, "O_PATH") else 0
_NAMES = ("work", "tmp", "dev/shm")


class PrivateFolders:
    """Descriptors of a sandbox's ``/work``, ``/tmp`` and ``/dev/shm``, which are file systems in memory.

    A descriptor keeps its file system alive: what a run left is read after everything inside is dead, without a path a
    script could have changed (SANDBOX.md finding 7).

    Args:
        pid: Process 1 of the sandbox, which has its file system in place.
        uid: Who is to own the workspace; None leaves it as it is.

    Raises:
        OSError: It is gone, or no descriptor is left.
    """

    def __init__(self, pid: int, uid: int | None = None) -> None:
        self._descriptors: list[int] = []
        self._mount_namespace: list[int] = []
        try:
            # Held, so that process 1 ends without the work of taking all its mounts away.
            self._mount_namespace.append(os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC))
            for name in _NAMES:
                self._descriptors.append(os.open(f"/proc/{pid}/root/{name}", _FOLDER))
            # Through the dot it is a folder and not a link, also for what must not follow links.
            self.work, self.tmp = (f"/proc/self/fd/{descriptor}/." for descriptor in self._descriptors[:2])
            if uid is not None:
                os.chown(self.work, uid, uid)
                os.chmod(self.work, 0o700)  # noqa: PTH101
        except OSError:
            self.close()
            raise

    def open_again(self) -> None:
        """Give the workspace back the permissions the script may have taken from it; everything inside is dead."""
        # Without the dot: looking up "." needs the very permission.
        os.chmod(f"/proc/self/fd/{self._descriptors[0]}", 0o700)  # noqa: PTH101

    def limits(self, policy: SandboxPolicy) -> tuple[DiskLimit, ...]:
        """What the watchdog counts: files. Bytes are limited by the file systems themselves."""
        if policy.workspace_inodes is None:
            return ()
        return tuple(
            DiskLimit(functools.partial(_usage, descriptor), None, policy.workspace_inodes)
            for descriptor in self._descriptors
        )

    def close(self) -> None:
        """Let go of the file systems. Blocking: ending all mounts takes the kernel milliseconds."""
        descriptors, self._descriptors = [*self._descriptors, *self._mount_namespace], []
        self._mount_namespace = []
        for descriptor in descriptors:
            os.close(descriptor)


def _usage(descriptor: int, max_entries: int, max_seconds: float) -> tuple[int, int]:  # noqa: ARG001
    told = os.fstatvfs(descriptor)
    return (told.f_blocks - told.f_bfree) * told.f_frsize, told.f_files - told.f_ffree


@dataclass(slots=True, eq=False)
class StartedSandbox:
    """A sandbox in which nothing of a run is, up to the point at which its init program waits for a job.

    Attributes:
        maker: ``zygote`` or ``bubblewrap``, see ``IsolationReport.maker``.
        child: Our child, with the reading ends of the output: bubblewrap, or the process 1 of a forked sandbox. Its
            ``pidfd`` becomes readable when the command has ended; it is the descriptor of ``init``.
        outer: The child's real pidfd.
        first_pid: Process 1 of the sandbox, as the host numbers it; leader of the command's session and group.
        first: Its pidfd.
        init: To give the job and to hear of the end.
        command: The process that becomes the command, as the host numbers it.
        folders: The sandbox's file systems in memory; the command's user owns the workspace.
        group: Its control group; None for none of its own.
        workspace: What is in its workspace already; None for nothing.
        was_waiting: Whether it waited for a run, and may have died meanwhile.
    """

    maker: str
    child: Child
    outer: int
    first_pid: int
    first: int
    init: InitControl
    command: int
    folders: PrivateFolders
    group: RunGroup | None = None
    workspace: Workspace | None = None
    was_waiting: bool = False

    @classmethod
    def ready(
        cls, maker: str, child: Child, outer: int, first_pid: int, first: int, init: InitControl, uid: int | None
    ) -> StartedSandbox:
        """One whose init program has said that it is ready; see the attributes.

        Raises:
            OSError: It is gone, or no descriptor is left.
        """
        folders = PrivateFolders(first_pid, uid)
        child.pidfd = init.descriptor
        return cls(maker, child, outer, first_pid, first, init, next(iter(children_of(first_pid)), 0), folders)

    def is_waiting(self) -> bool:
        """Whether process 1 is there and silent: it says nothing while it waits for a job, unless it ends."""
        poll = select.poll()
        poll.register(self.first, select.POLLIN)
        poll.register(self.init.descriptor, select.POLLIN)
        return not poll.poll(0) and not any(map(is_ending, (self.first_pid, self.command)))

    def end(self) -> None:
        """Kill everything by killing process 1, without waiting; bubblewrap ends when it is dead."""
        kill(self.first)

    def end_outer(self) -> None:
        """Kill bubblewrap too, which should have ended."""
        kill(self.outer)

    def close(self) -> None:
        """Close all descriptors but those of the folders."""
        self.init.close()
        for descriptor in (self.first, self.outer, self.child.stdout, self.child.stderr):
            os.close(descriptor)

    def reap(self) -> None:
        """Wait for the end of what is left, which was ordered or is near; at most seconds. Then close. Blocking."""
        if not is_readable(self.outer, _END_SECONDS):
            self.end_outer()
            is_readable(self.outer, _END_SECONDS)
        reap_late(self.child.pid)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.first_pid, os.WNOHANG)  # ours when bubblewrap died first and the agent is process 1
        self.close()

    def discard(self) -> None:
        """End it unused, and wait for that; everything of it is gone or, after seconds, no longer waited for."""
        self.end()
        self.reap()
        self.folders.close()
        if self.group is not None:
            self.group.give_back()


def kill(pidfd: int) -> None:
    """SIGKILL, to a process that may have ended."""
    with contextlib.suppress(OSError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def map_users(pid: int, uid: int) -> None:
    """Write both maps of a new user namespace: root, to set the sandbox up, and the user its command runs as.

    Args:
        pid: A process in it.
        uid: The command's user and group id, the same inside and outside.

    Raises:
        SandboxError: The kernel refuses; in a container, root may lack the capabilities it needs.
    """
    lines = f"0 0 1\n{uid} {uid} 1\n".encode()
    for name in ("uid_map", "gid_map"):
        try:
            descriptor = os.open(f"/proc/{pid}/{name}", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(descriptor, lines)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise SandboxError(
                f"The sandbox's user ids could not be set: {error.strerror} ({name}). An agent that runs as root needs "
                "the capabilities SETUID, SETGID and SETFCAP."
            ) from error
