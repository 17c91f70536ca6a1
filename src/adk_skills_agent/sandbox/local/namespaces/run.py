"""One run with namespaces of its own: bubblewrap, a workspace in memory, its files reached through descriptors."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import signal
import stat
import sys
import time
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from adk_skills_agent.errors import SandboxError, about
from adk_skills_agent.sandbox import threads
from adk_skills_agent.sandbox.contract import WORK_DIR, ExecutionRequest, SandboxPolicy, Status
from adk_skills_agent.sandbox.files.path_mapping import PathMapping
from adk_skills_agent.sandbox.files.walk import stamp
from adk_skills_agent.sandbox.files.workspace import Workspace, fill_workspace
from adk_skills_agent.sandbox.local.init.control import Job, not_started, script_position, shown_at
from adk_skills_agent.sandbox.local.namespaces.description import folders_on_the_way, sandbox_spec
from adk_skills_agent.sandbox.local.namespaces.sandbox import PrivateFolders, StartedSandbox
from adk_skills_agent.sandbox.local.run import TMP_DIR, LocalRun, drain, stdin_file
from adk_skills_agent.sandbox.local.warm_pool import start_sandbox, warm_pool
from adk_skills_agent.sandbox.process.command import (
    build_environment,
    check_argv,
    encode,
    find_command,
    process_limits,
    run_uid,
    spelling,
)
from adk_skills_agent.sandbox.process.supervise import EndReport, is_readable, reap_late, take_status
from adk_skills_agent.sandbox.process.tree import TICKS_PER_SECOND, RunMarks, alive_below, cpu_seconds
from adk_skills_agent.sandbox.process.watchdog import DiskLimit

if TYPE_CHECKING:
    from adk_skills_agent.sandbox.network.run_network import RunNetwork


_KILL_SECONDS = 5.0
_LEAVING_SECONDS = 1.0
_DYING_SECONDS = 0.5  # a killed process is not dead at once


class NamespacesRun(LocalRun):
    """A run in a sandbox made by bubblewrap or forked by the zygote, with a control group where it is to have one.

    Args:
        request: What to run.
        policy: Its checked policy.
        grouped: Whether it gets a control group.
    """

    def __init__(self, request: ExecutionRequest, policy: SandboxPolicy, *, grouped: bool) -> None:
        super().__init__(request, policy)
        self._grouped = grouped
        self._network: RunNetwork | None = None
        self._uid = run_uid(policy)
        self._sandbox: StartedSandbox | None = None
        self._folders: PrivateFolders | None = None
        self._alive_besides: int | None = None
        self._killed_cpu = 0.0
        self._ordered = False
        self._own_cpu = 0.0
        self._on_the_way: tuple[str, ...] = ()
        self._job: Job

    @property
    def disk(self) -> tuple[DiskLimit, ...]:
        """The three file systems of the run that it can write to."""
        assert self._folders is not None  # noqa: S101  # only called after start()
        return self._folders.limits(self._policy)

    def terminate(self) -> None:
        """Ask the command to end: SIGTERM to its group. Process 1, which leads it, does not heed it."""
        sandbox = self._sandbox
        if sandbox is None or self._over or os.getpid() != self._owner:
            return
        for number in (signal.SIGTERM, signal.SIGCONT):  # a stopped process could not answer
            with contextlib.suppress(OSError):
                os.killpg(sandbox.first_pid, number)

    def kill(self) -> None:
        """End everything of the run now: the kernel ends a namespace with its first process."""
        sandbox = self._sandbox
        if sandbox is None or os.getpid() != self._owner:
            return
        self._ordered = True
        self._count(sandbox)
        sandbox.end()

    def beyond(self) -> tuple[Status, str] | None:
        """Whether the memory of its control group ran out: the kernel ends one process, the run ends as a whole."""
        sandbox = self._sandbox
        return None if sandbox is None or sandbox.group is None else sandbox.group.beyond()

    def may_write_more(self) -> bool:
        """Whether anything but process 1 is alive, which keeps the pipes open, as bubblewrap does."""
        sandbox = self._sandbox
        if sandbox is None or os.getpid() != self._owner:
            return False
        return any(info.pid != sandbox.command for info in alive_below(sandbox.first_pid))

    def _count(self, sandbox: StartedSandbox) -> None:
        """Count what is alive besides the command, and what all used; only the first time counts."""
        if self._alive_besides is None:
            alive = alive_below(sandbox.first_pid)
            self._alive_besides = sum(info.pid != sandbox.command for info in alive)
            # A killed namespace takes the times of what died with it along.
            self._killed_cpu = sum(info.cpu_ticks for info in alive) / TICKS_PER_SECOND

    def _prepare_and_spawn(self) -> None:
        request, policy = self._request, self._policy
        environment = build_environment(
            policy,
            request.env,
            workspace=str(WORK_DIR),
            tmp=str(TMP_DIR),
            run_id=self.run_id,
        )
        check_sources(request, policy, self._uid)
        if policy.network.mode == "allow":  # else nothing of the proxy is imported
            from adk_skills_agent.sandbox.network.run_network import network_of_run

            self._network = network = network_of_run(request, policy)
            if network is not None:
                environment.update(network.environment())
        shown = mounted(request)
        self.view = view_of(shown)
        command = inner_command(request, policy, environment["PATH"], shown)
        self.shown = command.shown
        environment["PATH"] = ":".join(shown_at(folder) for folder in environment["PATH"].split(":"))
        script = None
        if policy.python in {None, sys.executable}:
            script = script_position([command.on_host, *command.argv[1:]], environment)
        interpreter = () if script is None else command.argv[:script]
        spec = sandbox_spec(request, policy, interpreter, uid=self._uid, grouped=self._grouped)
        self._on_the_way = folders_on_the_way(spec.shown)
        limits = process_limits(policy, None if policy.pids is None else policy.pids + 1)  # process 1 counts, too
        # As a shell would set it.
        variables = {**environment, "PWD": str(request.cwd)}
        self._job = Job(command.argv, variables, str(request.cwd), script, limits)
        if policy.warm_slots > 0 and policy.network.mode != "allow":
            waiting = warm_pool().take(spec, policy.warm_slots)
            if waiting is not None and self._begin_in(waiting):
                self.warm = True
                return
        # Modules are for sandboxes that wait: importing them first would make no run faster.
        self._begin_in(start_sandbox(replace(spec, preload=())))

    def _begin_in(self, sandbox: StartedSandbox) -> bool:
        """Fill a sandbox and let the command begin; False when the sandbox had died while it waited (row 71)."""
        self._sandbox, self.child, self.maker = sandbox, sandbox.child, sandbox.maker
        try:
            self._fill_and_begin(sandbox)
        except BaseException as error:
            died = isinstance(error, (SandboxError, OSError)) and is_readable(
                sandbox.first, _DYING_SECONDS if sandbox.was_waiting else 0
            )
            self._ordered = True
            self._end_processes(EndReport())
            self._close()
            if not died or not sandbox.was_waiting:
                raise
            self._drop_folders()
            self._ordered, self._alive_besides, self._killed_cpu = False, None, 0.0
            return False
        return True

    def _fill_and_begin(self, sandbox: StartedSandbox) -> None:
        request, policy = self._request, self._policy
        self._folders = folders = sandbox.folders
        self._workspace = workspace = sandbox.workspace or Workspace("", folders.work, folders.tmp)
        if workspace.links and (request.input_files or request.workspace is not None):
            workspace.unlink()  # files of these names come first
        workspace.given_folders.update(self._on_the_way)
        fill_workspace(
            workspace,
            policy,
            persistent=request.workspace,
            input_files=request.input_files,
            mounts=() if workspace.links else request.mounts,
            inside=True,
        )
        self._own(workspace)
        check_inside(request, policy, workspace, self._job.env["PATH"])
        if self._network is not None:
            self._network.start(sandbox.first_pid)
        self._own_cpu = cpu_seconds(sandbox.command)
        if request.stdin is None:
            sandbox.init.give(self._job)
        else:
            stdin = stdin_file(request.stdin, "")
            try:
                sandbox.init.give(replace(self._job, stdin=stdin))
            finally:
                os.close(stdin)
        self.child.started = time.monotonic()
        self.marks = RunMarks(self.child.pid, self.run_id, "", frozenset(), self.child.started)

    def _own(self, workspace: Workspace) -> None:
        uid = self._uid
        if uid is None:
            return
        for name in workspace.given_folders.difference(self._on_the_way):
            os.chown(encode(f"{workspace.work}/{name}"), uid, uid, follow_symlinks=False)
        for name in workspace.given:
            path = encode(f"{workspace.work}/{name}")
            os.chown(path, uid, uid, follow_symlinks=False)
            workspace.given[name] = stamp(os.lstat(path))

    def _end_processes(self, report: EndReport) -> None:
        sandbox = self._sandbox
        assert sandbox is not None  # noqa: S101  # only called after the sandbox was made
        group = sandbox.group
        if group is None:
            self._end_sandbox(sandbox, report)
            return
        try:
            if group.group.ended():
                self._ordered = True  # the kernel did it, for the limit we set; it is no accident of the sandbox
            self._end_sandbox(sandbox, report)
            if sandbox.init.used is None:
                group.group.end_all()
            group.account(report)
        except OSError as error:
            raise SandboxError(f"The run's control group could not be read: {error.strerror}.") from error
        finally:
            sandbox.group = None
            group.give_back()

    def _end_sandbox(self, sandbox: StartedSandbox, report: EndReport) -> None:
        init, child = sandbox.init, self.child
        self._count(sandbox)
        report.killed = self._alive_besides or 0
        if not self._ordered and not report.killed:
            init.wait_until_used(_LEAVING_SECONDS)
        if init.used is None:  # somebody is left, or process 1 was killed
            self._kill_and_wait(sandbox, report)
        if self._network is not None:
            self._network.stop()
            report.network = self._network.decisions
            report.notes.extend(self._network.notes())
        report.rest = (drain(child.stdout), drain(child.stderr))
        init.listen()
        if init.used is not None:
            seconds, report.max_rss = init.used
            report.cpu_seconds = max(0.0, seconds - self._own_cpu)
        report.status = init.status
        if init.failure is not None and not self._ordered:
            raise not_started(self.shown, *init.failure)
        if init.status is None and self._ordered:
            report.status = int(signal.SIGKILL)

    def _kill_and_wait(self, sandbox: StartedSandbox, report: EndReport) -> None:
        """End what is left, wait until all of it is dead, and take what it used."""
        child = self.child
        # Our own kill is none by others, and only a forked sandbox shows it in its status.
        ours = child.pid == sandbox.first_pid and not is_readable(sandbox.first, 0)
        sandbox.end()
        hung = False
        if not is_readable(sandbox.outer, _KILL_SECONDS):
            sandbox.end_outer()
            hung = True
            if not is_readable(sandbox.outer, _KILL_SECONDS):
                report.survivors += 1  # it hangs inside the kernel; nothing can be done about it
        take_status(child)
        if child.waited is None:
            return
        status, usage = child.waited
        report.cpu_seconds = max(0.0, usage.ru_utime + usage.ru_stime - self._own_cpu) + self._killed_cpu
        peak = usage.ru_maxrss * 1024
        report.max_rss = peak if peak > child.starter_rss else None
        if os.WIFSIGNALED(status) and not (hung or ours or self._ordered):
            # Nobody inside can do that (row 29), and how its command ended then says nothing about the command.
            raise SandboxError(
                "The sandbox of the run was killed by something outside of it, perhaps because the system has no "
                "memory left; it is not known how the command ended."
            )

    def _never_started(self, report: EndReport) -> bool:  # noqa: ARG002  # said by the init program instead
        return False

    def _collect(self, report: EndReport) -> None:
        assert self._workspace is not None  # noqa: S101  # checked by the caller
        assert self._folders is not None  # noqa: S101  # made together
        self._folders.open_again()
        for name in reversed(self._on_the_way):
            place = encode(f"{self._workspace.work}/{name}")
            with contextlib.suppress(OSError):  # the script put something there
                try:
                    os.rmdir(place)  # noqa: PTH106
                except NotADirectoryError:  # a file was shown there
                    os.unlink(place)  # noqa: PTH108
        super()._collect(report)

    def _close(self) -> None:
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None and self.child.waited is None and sandbox.init.used is not None:
            # All of the run is dead and accounted for; process 1 and the namespaces end without anybody waiting.
            threads.later(sandbox.reap)
        elif sandbox is not None:
            if self.child.waited is None:
                reap_late(self.child.pid)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(sandbox.first_pid, os.WNOHANG)  # ours when bubblewrap died first and the agent is process 1
            sandbox.close()
        if self.warm:
            warm_pool().refill()

    def _drop_workspace(self, *, started: bool) -> str | None:
        self._drop_folders()
        return super()._drop_workspace(started=started)

    def _drop_folders(self) -> None:
        # Nothing to delete: the file systems end with the last descriptor.
        self._workspace = None
        folders, self._folders = self._folders, None
        if folders is not None:
            threads.later(folders.close)


# What a run with a file system of its own is to start, as the sandbox sees it, checked as far as can be.

_OWN_PLACES = ((WORK_DIR, "/"), (TMP_DIR, "/"))
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EBADF})


@dataclass(frozen=True, slots=True)
class InnerCommand:
    """A command.

    Attributes:
        argv: As the sandbox sees it.
        on_host: Its first element as the host sees it.
        shown: The same as a sentence may show it.
    """

    argv: tuple[str, ...]
    on_host: str
    shown: str


def check_sources(request: ExecutionRequest, policy: SandboxPolicy, uid: int | None) -> None:
    """Say in a sentence what bubblewrap or the command could not read.

    Args:
        request: Its mounts.
        policy: Its further folders.
        uid: The user the command runs as when the agent is root.

    Raises:
        SandboxError: A folder is not there or cannot be read.
    """
    shown = [(str(mount.target), os.fspath(mount.source), True) for mount in request.mounts]
    for name, path, is_mount in (*shown, *((path, path, False) for path in policy.extra_ro)):
        try:
            mode = os.stat(path).st_mode  # noqa: PTH116
        except OSError as error:
            if is_mount and error.errno in _NOT_THERE:
                raise about(SandboxError(f"The folder for {name} is not there."), path) from error
            raise about(SandboxError(f"{name!r} cannot be shown to the script: {error.strerror}."), path) from error
        if is_mount and not stat.S_ISDIR(mode):
            raise about(SandboxError(f"The folder for {name} is not there."), path)
        needed = 0o005 if stat.S_ISDIR(mode) else 0o004
        if uid is not None and mode & needed != needed:
            raise about(
                SandboxError(
                    f"{name!r} cannot be read by user {uid}, as which scripts run when the agent is root. "
                    "Make it readable for others (chmod o+rX)."
                ),
                path,
            )


def mounted(request: ExecutionRequest) -> tuple[tuple[PurePosixPath, str], ...]:
    """Where each mount is inside, and on the host."""
    return tuple((mount.target, os.path.abspath(mount.source)) for mount in request.mounts)  # noqa: PTH100


@functools.lru_cache(maxsize=64)
def view_of(places: tuple[tuple[PurePosixPath, str], ...]) -> PathMapping:
    """The mapping between places inside and on the host; looked at once, since it takes a moment."""
    return PathMapping(places)


def inner_command(
    request: ExecutionRequest, policy: SandboxPolicy, path: str, shown: tuple[tuple[PurePosixPath, str], ...]
) -> InnerCommand:
    """The command as the sandbox sees it; one given by a path is looked at when the workspace is there.

    Args:
        request: Its ``argv``.
        policy: Names the interpreter.
        path: The run's PATH.
        shown: See :func:`mounted`.

    Raises:
        SandboxError: There is no such command.
        ValueError: It cannot be expressed.
    """
    argv = request.argv
    check_argv(argv)
    if "\0" in str(request.cwd):
        raise ValueError(f"cwd {str(request.cwd)!r} contains a NUL byte; no folder can be called so.")
    places = view_of((*shown, *_OWN_PLACES))
    spelled = spelling(argv[0], places.argument(argv[0]))
    if argv[0] in {policy.python, sys.executable}:
        return InnerCommand((shown_at(argv[0]), *argv[1:]), argv[0], spelled)
    if "/" in argv[0]:
        return InnerCommand(tuple(argv), places.argument(argv[0]), spelled)
    on_host = os.fsdecode(find_command(argv[0], argv[0], path=encode(path), cwd=b"/"))
    return InnerCommand((shown_at(on_host), *argv[1:]), on_host, spelled)


def check_inside(request: ExecutionRequest, policy: SandboxPolicy, workspace: Workspace, path: str) -> None:
    """Say in a sentence what can be known of the command and its folder before it starts.

    Args:
        request: Its ``argv`` and ``cwd``.
        policy: Names the interpreter.
        workspace: As the run will find it.
        path: The run's PATH.

    Raises:
        SandboxError: The command cannot be started.
        ValueError: The folder is not there.
    """
    name = request.argv[0]
    by_path = "/" in name and name not in {policy.python, sys.executable}
    if not by_path and request.cwd == WORK_DIR:
        return
    linked: dict[str, str] = {}
    for mount in request.mounts:
        source = os.path.abspath(mount.source)  # noqa: PTH100
        for entry in workspace.links if mount.linked else ():
            if entry not in linked and os.path.lexists(encode(f"{source}/{entry}")):
                linked[entry] = f"{source}/{entry}"
    outside = PathMapping(
        [
            *mounted(request),
            (WORK_DIR, workspace.work),
            (TMP_DIR, workspace.tmp),
            *((WORK_DIR / entry, where) for entry, where in linked.items()),
        ]
    )
    if not os.path.isdir(encode(outside.directory(request.cwd))):  # noqa: PTH112
        raise ValueError(f"cwd {str(request.cwd)!r} does not exist in the sandbox.")
    if not by_path:
        return
    where = os.path.normpath(name if name.startswith("/") else str(request.cwd / name))
    find_command(name, outside.argument(where), path=encode(path), cwd=b"/")
