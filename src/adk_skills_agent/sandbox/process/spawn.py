"""The one thread that starts every process, for the life of the agent.

A permanent thread, because what a kernel ties to the starting thread (``PR_SET_PDEATHSIG``, bubblewrap's
``--die-with-parent``) would otherwise fire when a worker thread ends. Only what lets :mod:`subprocess` use ``vfork`` is
passed: no ``preexec_fn``, no ``user``; with a large agent a real fork costs tens of milliseconds.
"""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adk_skills_agent.errors import SandboxError, about
from adk_skills_agent.sandbox.threads import OnePerProcess

if TYPE_CHECKING:
    import resource


_UMASK = 0o077

OWN_GROUP = 0
"""A process group of its own, in the agent's session."""

Membership = Callable[[], contextlib.AbstractContextManager[None]]
"""Makes what is held in the starting thread while it starts a process, for what a process inherits from its starter."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start.

    Attributes:
        argv: The command line, its first element an absolute path.
        env: The whole environment.
        cwd: Working directory on the host.
        stdin: Descriptor of standard input, or None for ``/dev/null``.
        pass_fds: Descriptors the process gets besides 0, 1 and 2, under the same numbers.
        umask: Its file mode creation mask.
        membership: Puts it into its control group.
        group: The process group it joins, one of this agent's session, or :data:`OWN_GROUP`; None for a session of its
            own.
    """

    argv: tuple[bytes, ...]
    env: dict[bytes, bytes]
    cwd: bytes
    stdin: int | None = None
    pass_fds: tuple[int, ...] = ()
    umask: int = _UMASK
    membership: Membership = contextlib.nullcontext
    group: int | None = None


@dataclass(slots=True)
class Child:
    """A started process, not waited for yet; its descriptors are the caller's to close.

    Attributes:
        pid: Its id, also of its session and group unless it joined a group.
        pidfd: Becomes readable when it ends; None where the system has no such descriptors.
        stdout: Reading end, non-blocking.
        stderr: Reading end, non-blocking.
        started: ``time.monotonic()`` right after the start.
        starter_rss: Bytes the agent had used at most by then: a lower bound of what the kernel reports for the child.
        waited: What ``wait4`` gave, once the child has been waited for; its id may be another process's from then on.
    """

    pid: int
    pidfd: int | None
    stdout: int
    stderr: int
    started: float
    starter_rss: int
    waited: tuple[int, resource.struct_rusage] | None = None


class Spawner:
    """The thread and its queue."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Launch, Future[Child]]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="adk-skills-spawner", daemon=True).start()

    def spawn(self, launch: Launch) -> Child:
        """Start a process and wait until it is started (milliseconds). Call it from a worker thread.

        Raises:
            SandboxError: The system refused: no descriptors, memory or processes left, no ``/bin/sh``.
            ValueError: The arguments and environment are larger than the system allows.
        """
        done: Future[Child] = Future()
        self._jobs.put((launch, done))
        return done.result()

    def _work(self) -> None:
        while True:
            launch, done = self._jobs.get()
            try:
                done.set_result(start(launch))
            except BaseException as error:  # noqa: BLE001  # it belongs to the caller, who re-raises it
                done.set_exception(error)
            del launch, done


def start(launch: Launch) -> Child:
    """Start a process in this thread; see :meth:`Spawner.spawn`."""
    process: subprocess.Popen[bytes] | None = None
    with contextlib.ExitStack() as undo:
        try:
            out_read, out_write = _pipe(undo)
            err_read, err_write = _pipe(undo)
            with launch.membership():
                process = subprocess.Popen(
                    launch.argv,
                    stdin=subprocess.DEVNULL if launch.stdin is None else launch.stdin,
                    stdout=out_write,
                    stderr=err_write,
                    cwd=launch.cwd,
                    env=launch.env,
                    start_new_session=launch.group is None,
                    process_group=launch.group,
                    close_fds=True,
                    pass_fds=launch.pass_fds,
                    umask=launch.umask,
                )
        except OSError as error:
            if process is not None:  # its group could not be left
                process.kill()
                process.wait()
            raise _refusal(error, launch) from error
        started = time.monotonic()
        # The exit status is taken with wait4, for its resource usage; Popen must not wait, nor complain.
        process.returncode = 0
        undo.pop_all()
    os.close(out_write)
    os.close(err_write)
    os.set_blocking(out_read, False)
    os.set_blocking(err_read, False)
    return Child(process.pid, _pidfd(process.pid), out_read, err_read, started, own_peak())


def _pipe(undo: contextlib.ExitStack) -> tuple[int, int]:
    read, write = os.pipe()
    undo.callback(os.close, read)
    undo.callback(os.close, write)
    return read, write


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # macOS, an old kernel or gVisor, or no descriptor left: the exit is polled for
        return None


def own_peak() -> int:
    """Bytes this process has used at most until now."""
    import resource
    import sys

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _refusal(error: OSError, launch: Launch) -> Exception:
    if error.errno == errno.E2BIG:
        size = sum(len(part) + 1 for part in launch.argv)
        longest = max(len(part) for part in launch.argv)
        return ValueError(
            f"The arguments are too large for this system: {size:,} bytes together, the "
            f"longest {longest:,} bytes (Linux allows 131,071 for one). Pass the data as an input file or on stdin."
        )
    # A model may get to see the sentence; the path is for the developer's traceback.
    path = os.fsencode(error.filename) if error.filename else launch.argv[0]
    name = "the working directory" if path == launch.cwd else repr(os.fsdecode(path.rpartition(b"/")[2]))
    reason = {
        errno.EMFILE: "this process has no file descriptor left (raise its limit: ulimit -n)",
        errno.ENFILE: "the system has no file descriptor left",
        errno.ENOMEM: "the system has no memory left",
        errno.EAGAIN: "the limit of processes is reached (ulimit -u, or the container's pids limit)",
        errno.ENOENT: f"{name} does not exist",
        errno.EACCES: f"{name} may not be used",
    }.get(error.errno or 0, error.strerror or type(error).__name__)
    return about(SandboxError(f"The sandbox could not start a process: {reason}."), os.fsdecode(path))


spawner = OnePerProcess(Spawner)
"""This process's, started at the first use."""


# A file in memory with a given content, to be handed to another process.


def memory_file(content: bytes) -> int:
    """A descriptor of such a file, at its start, which a new program does not get by itself.

    Raises:
        OSError: No descriptor or memory is left.
    """
    return filled(os.memfd_create("adk-skills", os.MFD_CLOEXEC), content)


def filled(descriptor: int, content: bytes) -> int:
    """Write all of it into an empty file and go back to the start; the descriptor is closed when that fails.

    Raises:
        OSError: No memory or room is left.
    """
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


# Standard input that goes on while the command runs.


class LiveStdin(bytes):
    """In place of the bytes of ``ExecutionRequest.stdin``: a descriptor to read from, of which the run takes a copy.

    Args:
        descriptor: A socket or pipe; the caller's to close.
    """

    descriptor: int

    def __new__(cls, descriptor: int) -> LiveStdin:  # noqa: D102  # see Args
        stdin = super().__new__(cls)
        stdin.descriptor = descriptor
        return stdin
