"""What one run holds on the host, and its two blocking halves: everything before the command, everything after it.

Both are called in a worker thread. Each leaves nothing behind when it fails.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from dataclasses import replace
from pathlib import PurePosixPath

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import WORK_DIR, ExecutionRequest, SandboxPolicy, Status
from adk_skills_agent.sandbox.files.collect import collect
from adk_skills_agent.sandbox.files.path_mapping import PathMapping
from adk_skills_agent.sandbox.files.walk import portable
from adk_skills_agent.sandbox.files.workspace import Workspace, create_workspace, fill_workspace, persist
from adk_skills_agent.sandbox.output import Capture, open_captures, secrets_of_run
from adk_skills_agent.sandbox.process.command import (
    NOT_STARTED_CODES,
    build_environment,
    check_argv,
    encode,
    find_command,
    launcher,
    spelling,
)
from adk_skills_agent.sandbox.process.spawn import Child, Launch, LiveStdin, filled, memory_file, spawner
from adk_skills_agent.sandbox.process.supervise import (
    EndReport,
    has_ended,
    nobody_writes,
    reap_late,
    take_status,
    wait_until_ended,
)
from adk_skills_agent.sandbox.process.tree import RunMarks, end_run, reap_adopted, signal_group
from adk_skills_agent.sandbox.process.watchdog import DiskLimit, folder_limit
from adk_skills_agent.sandbox.skill_store import Staged, stage

TMP_DIR = PurePosixPath("/tmp")  # noqa: S108  # as the sandbox sees it, not a folder of the host
_KILL_SECONDS = 2.0
_LAST_READ_BYTES = 1 << 20  # what a pipe can hold at most when a script enlarged it


class LocalRun:
    """One run: everything it holds on the host. The levels' own runs differ in how the command is started and ended.

    The course is ``start()``, then any number of ``terminate()`` and ``kill()``, then ``finish()``. ``shown``,
    ``view``, ``child``, ``marks`` and ``disk`` are valid after ``start()``.

    Args:
        request: What to run.
        policy: Its checked policy.
    """

    def __init__(self, request: ExecutionRequest, policy: SandboxPolicy) -> None:
        self.run_id = os.urandom(8).hex()
        self.shown: str  # the command, as a sentence may show it
        self.view: PathMapping
        self.child: Child
        self.marks: RunMarks
        self.warm = False  # it runs in a sandbox that was started before it was asked for
        self.maker = ""  # see IsolationReport.maker
        self.notes: tuple[str, ...] = ()  # what of the mounts was left out
        self.captures: tuple[Capture, ...] = ()
        self._request = request
        self._policy = policy
        self._staged: Staged | None = None
        self._workspace: Workspace | None = None
        self._owner = os.getpid()
        self._lock = threading.RLock()  # re-entrant: garbage that is collected in here may abandon the run
        self._started = False
        self._abandoned = False
        self._over = False

    @property
    def disk(self) -> tuple[DiskLimit, ...]:
        """The workspace and the folder for temporary files."""
        assert self._workspace is not None  # noqa: S101  # only called after start()
        policy = self._policy
        return (
            folder_limit(self._workspace.work, policy.workspace_bytes, policy.workspace_inodes),
            folder_limit(self._workspace.tmp, policy.tmp_bytes, policy.workspace_inodes),
        )

    def may_write_more(self) -> bool | None:
        """Whether, now that the command has ended, somebody of the run is there to write; never blocks.

        None when only the end of the pipes can tell.
        """
        return None

    def beyond(self) -> tuple[Status, str] | None:
        """A limit that only the level sees was passed: the status and a sentence. From the watchdog's thread."""
        return None

    def terminate(self) -> None:
        """Ask the command to end: SIGTERM to its group."""
        signal_group(self.child.pid, signal.SIGTERM)
        signal_group(self.child.pid, signal.SIGCONT)  # a stopped process could not answer

    def kill(self) -> None:
        """End the command and its group now; what left the group is found by ``finish()``."""
        signal_group(self.child.pid, signal.SIGKILL)

    def start(self) -> None:
        """Copy the mounts, open what keeps the output, make the workspace and start the command.

        Raises:
            SandboxError: It could not be started; the sentence says which step failed and why.
            SandboxUnavailable: The level does not work for this request; it says why.
            ConfigError: The policy grants a variable it must not.
            ValueError: The request cannot be expressed.
        """
        try:
            self._staged = staged = stage(self._request)
            self._request, self.notes = staged.request, staged.notes
            self.captures = open_captures(self._request.spill_dir, self._policy, self.run_id)
            _live.add(self)
            try:
                self._prepare_and_spawn()
            except OSError as error:
                raise SandboxError(f"The sandbox could not be set up: {error.strerror or error}.") from error
        except BaseException:
            self._drop_workspace(started=False)
            self._discard_output()
            raise
        with self._lock:
            self._started = True
            abandoned = self._abandoned
        if abandoned:  # nobody is there any more to end it
            self.finish(wanted=False)
            self._discard_output()

    def finish(self, *, wanted: bool = True) -> EndReport:
        """Kill what is left, take the status, collect the output files, delete the workspace.

        Args:
            wanted: Whether anybody wants the output files.

        Raises:
            SandboxError: The files could not be collected, or the command's status was taken by somebody else.
        """
        result = EndReport()
        if os.getpid() != self._owner:
            return result  # a forked child; the run is its parent's
        with self._lock:
            if self._over:
                return result
            self._over = True
        problem: Exception | None = None
        try:
            self._end_processes(result)
            if wanted and self._workspace is not None:
                result.not_started = self._never_started(result)
                try:
                    self._collect(result)
                except OSError as error:
                    problem = SandboxError(f"The output files could not be collected: {error.strerror or error}.")
        finally:
            self._close()
            left = self._drop_workspace(started=True)
        if left:
            result.notes.append(left)
        if problem is not None:
            raise problem
        if wanted and result.status is None and not result.survivors:
            raise SandboxError(
                "The exit status of the command was taken by other code in this process (a wait for any child); it is "
                "not known how the command ended."
            )
        return result

    def abandon(self) -> None:
        """End the run at once from any thread, also while it is being started or without its event loop; keep nothing.

        Does nothing in a forked child.
        """
        if os.getpid() != self._owner:
            return  # before the lock, which somebody may have held when the process was forked
        with self._lock:
            self._abandoned = True
            if not self._started:
                return
        try:
            self.finish(wanted=False)  # no effect when it is over
        finally:
            self._discard_output()

    def _discard_output(self) -> None:
        for capture in self.captures:
            capture.discard()

    def _prepare_and_spawn(self) -> None:
        request, policy = self._request, self._policy
        self._workspace = workspace = create_workspace(self.run_id)
        fill_workspace(
            workspace,
            policy,
            persistent=request.workspace,
            input_files=request.input_files,
            mounts=request.mounts,
        )
        self._own(workspace)
        pairs = [(mount.target, os.path.abspath(mount.source)) for mount in request.mounts]  # noqa: PTH100
        self.view = PathMapping([*pairs, (WORK_DIR, workspace.work), (TMP_DIR, workspace.tmp)], root=workspace.root)
        environment = build_environment(
            policy,
            request.env,
            workspace=portable(workspace.work),
            tmp=portable(workspace.tmp),
            run_id=self.run_id,
        )
        cwd = encode(self.view.directory(request.cwd))
        if not os.path.isdir(cwd):  # noqa: PTH112
            raise ValueError(f"cwd {str(request.cwd)!r} does not exist in the sandbox.")
        launch = self._launch(self._command(environment["PATH"], cwd), environment, cwd)
        if request.stdin is None:
            self.child = spawner().spawn(launch)
        else:
            stdin = stdin_file(request.stdin, workspace.root)
            try:
                self.child = spawner().spawn(replace(launch, stdin=stdin))
            finally:
                os.close(stdin)
        # From here on nothing fails: the command runs, and finish() is its only end.
        pipes = frozenset(os.fstat(descriptor).st_ino for descriptor in (self.child.stdout, self.child.stderr))
        self.marks = RunMarks(self.child.pid, self.run_id, workspace.root, pipes, self.child.started)

    def _own(self, workspace: Workspace) -> None:
        """For levels that run the command as another user: give it the files of the workspace."""

    def _launch(self, command: list[str], environment: dict[str, str], cwd: bytes) -> Launch:
        """What is really started; other levels wrap the command differently."""
        assert self._workspace is not None  # noqa: S101  # made before
        self._marker = f"{portable(self._workspace.root)}/not-started-{os.urandom(8).hex()}"
        return Launch(
            argv=tuple(encode(part) for part in launcher(self._policy, self._marker, command)),
            env={encode(name): encode(value) for name, value in environment.items()},
            cwd=cwd,
        )

    def _command(self, path: str, cwd: bytes) -> list[str]:
        """The command and its arguments as the host sees them."""
        argv = self._request.argv
        check_argv(argv)
        # The host's interpreter is meant literally, also when it happens to be under a folder called /work.
        literal = argv[0] in {self._policy.python, sys.executable}
        name = argv[0] if literal else self.view.argument(argv[0])
        self.shown = spelling(argv[0], name)
        command = find_command(argv[0], name, path=encode(path), cwd=cwd)
        return [portable(os.fsdecode(command)), *(self.view.argument(part) for part in argv[1:])]

    def _end_processes(self, result: EndReport) -> None:
        child = self.child
        leaving = has_ended(child) and nobody_writes(child)
        result.killed, result.survivors, met = end_run(self.marks, leaving=leaving)
        if not wait_until_ended(child, _KILL_SECONDS):
            result.survivors += 1  # it hangs inside the kernel; nothing can be done about it
        result.rest = (drain(child.stdout), drain(child.stderr))
        take_status(child)
        reap_adopted(child.pid, met)
        if child.waited is not None:
            status, usage = child.waited
            result.status = status
            result.cpu_seconds = usage.ru_utime + usage.ru_stime
            peak = usage.ru_maxrss if _RSS_IN_BYTES else usage.ru_maxrss * 1024
            # Right after a vfork the child's memory is the agent's, and the kernel remembers that as its peak. Only a
            # larger number says anything about the command.
            result.max_rss = peak if peak > child.starter_rss else None

    def _never_started(self, result: EndReport) -> bool:
        status = result.status
        return (
            status is not None
            and os.WIFEXITED(status)
            and os.WEXITSTATUS(status) in NOT_STARTED_CODES
            and os.path.lexists(encode(self._marker))
        )

    def _collect(self, result: EndReport) -> None:
        assert self._workspace is not None  # noqa: S101  # checked by the caller
        result.notes.extend(self._workspace.notes)
        result.collected = collected = collect(
            self._workspace, self._policy, secrets_of_run(self._request, self._policy)
        )
        if self._request.workspace is not None:
            result.notes.extend(persist(self._workspace, collected, self._request.workspace, self._policy))

    def _close(self) -> None:
        if self.child.waited is None:
            reap_late(self.child.pid)
        for descriptor in (self.child.stdout, self.child.stderr, self.child.pidfd):
            if descriptor is not None:
                os.close(descriptor)

    def _drop_workspace(self, *, started: bool) -> str | None:
        _live.discard(self)
        staged, self._staged = self._staged, None
        if staged is not None:
            staged.release()
        workspace, self._workspace = self._workspace, None
        if workspace is None:
            return None
        return workspace.remove() if started else workspace.undo()


def stdin_file(data: bytes, root: str) -> int:
    """Standard input as a file: no writer that could block, no pipe that could break. In memory where possible."""
    if isinstance(data, LiveStdin):
        return os.dup(data.descriptor)
    if hasattr(os, "memfd_create"):
        return memory_file(data)
    path = f"{root}/stdin"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.unlink(path)  # noqa: PTH108
    return filled(descriptor, data)


def drain(descriptor: int) -> bytes:
    """What is in a pipe now, without waiting for more."""
    chunks: list[bytes] = []
    left = _LAST_READ_BYTES
    with contextlib.suppress(BlockingIOError):
        while left > 0 and (chunk := os.read(descriptor, left)):
            chunks.append(chunk)
            left -= len(chunk)
    return b"".join(chunks)


_RSS_IN_BYTES = sys.platform == "darwin"
_live: set[LocalRun] = set()


def _end_all() -> None:
    """The interpreter ends while runs are going on, in a daemon thread's loop perhaps: leave nothing behind."""
    for run in tuple(_live):
        run.abandon()


atexit.register(_end_all)
os.register_at_fork(after_in_child=_live.clear)
