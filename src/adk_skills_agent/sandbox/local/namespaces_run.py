"""One run with namespaces of its own: bubblewrap, a workspace in memory, its files reached through descriptors."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import WORK_DIR, ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.local.aftermath import Aftermath
from adk_skills_agent.sandbox.local.bubblewrap import NOBODY
from adk_skills_agent.sandbox.local.command import encode, find_command, spelling
from adk_skills_agent.sandbox.local.environment import build_environment
from adk_skills_agent.sandbox.local.exact_end import children_of, exact_status
from adk_skills_agent.sandbox.local.private_folders import PrivateFolders
from adk_skills_agent.sandbox.local.processes import ProcessInfo, RunMarks, process_info
from adk_skills_agent.sandbox.local.python_view import shown_at
from adk_skills_agent.sandbox.local.run import TMP_DIR, LocalRun, drain
from adk_skills_agent.sandbox.local.sandbox_start import Started, shown_folders, start_sandbox
from adk_skills_agent.sandbox.local.view import PathView
from adk_skills_agent.sandbox.local.watchdog import DiskLimit
from adk_skills_agent.sandbox.local.workspace import Workspace, about, fill_workspace, stamp

if TYPE_CHECKING:
    from adk_skills_agent.sandbox.local.network import RunNetwork

_KILL_SECONDS = 5.0
_SIGNALLED = 128
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

BeforeStart = Callable[[int], None]
"""Called with the host's id of process 1 when all limits hold and nothing of the command has run."""


class NamespacesRun(LocalRun):
    """A run in a sandbox made by bubblewrap.

    Args:
        request: What to run.
        policy: Its checked policy.
        before_start: Puts process 1 under further control (a cgroup).
    """

    def __init__(
        self, request: ExecutionRequest, policy: SandboxPolicy, before_start: BeforeStart | None = None
    ) -> None:
        super().__init__(request, policy)
        self._before_start = before_start
        self._network = _network(request, policy)
        self._uid = run_uid(policy)
        self._started_sandbox: Started | None = None
        self._folders: PrivateFolders | None = None
        self._command_pid = 0
        self._command_end: int | None = None  # the command's pidfd
        self._alive_besides: int | None = None
        self._killed_cpu = 0.0
        self._ordered = False
        self._own_cpu = 0.0
        self._on_the_way: list[str] = []

    @property
    def disk(self) -> tuple[DiskLimit, ...]:
        """The three file systems of the run that it can write to."""
        assert self._folders is not None  # noqa: S101  # only called after start()
        return self._folders.limits(self._policy)

    def terminate(self) -> None:
        """Ask the command to end: SIGTERM to its group. Process 1, which leads it, does not heed it."""
        box = self._started_sandbox
        if box is None or self._over or os.getpid() != self._owner:
            return
        for number in (signal.SIGTERM, signal.SIGCONT):  # a stopped process could not answer
            with contextlib.suppress(OSError):
                os.killpg(box.first_pid, number)

    def kill(self) -> None:
        """End everything of the run now: the kernel ends a namespace with its first process."""
        box = self._started_sandbox
        if box is None or os.getpid() != self._owner:
            return
        self._ordered = True
        self._count(box)
        box.end()

    def may_write_more(self) -> bool:
        """Whether anything but process 1 is alive; bubblewrap keeps the pipes open, so their end says nothing."""
        box = self._started_sandbox
        if box is None or os.getpid() != self._owner:
            return False
        return _besides(_alive_below(box.first_pid), self._command_pid) > 0

    def _count(self, box: Started) -> None:
        """Count what is alive besides the command, and what all used; only the first time counts."""
        if self._alive_besides is None:
            alive = _alive_below(box.first_pid)
            self._alive_besides = _besides(alive, self._command_pid)
            # A killed namespace takes the times of what died with it along.
            self._killed_cpu = sum(info.cpu_ticks for info in alive) / _TICKS_PER_SECOND

    def _prepare_and_spawn(self) -> None:
        request, policy = self._request, self._policy
        environment = build_environment(
            policy,
            request.env,
            workspace=str(WORK_DIR),
            tmp=str(TMP_DIR),
            run_id=self.run_id,
        )
        self._check_sources()
        if self._network is not None:
            environment.update(self._network.environment())
        self.view = PathView(self._mounted())
        command = self._inner_command(environment["PATH"])
        environment["PATH"] = ":".join(shown_at(folder) for folder in environment["PATH"].split(":"))
        box = start_sandbox(request, policy, uid=self._uid, environment=environment, command=command)
        self._started_sandbox, self.child = box, box.child
        try:
            self._fill_and_begin(box, environment["PATH"])
        except BaseException:
            self._ordered = True
            self._end_processes(Aftermath())
            self._close()
            raise

    def _fill_and_begin(self, box: Started, path: str) -> None:
        request, policy = self._request, self._policy
        self._folders = folders = PrivateFolders(box.first_pid)
        self._workspace = workspace = Workspace("", folders.work, folders.tmp)
        self._on_the_way = _on_the_way(target for _, target in shown_folders(request, policy))
        workspace.given_folders.update(self._on_the_way)
        fill_workspace(
            workspace,
            policy,
            persistent=request.workspace,
            input_files=request.input_files,
            mounts=request.mounts,
            inside=True,
        )
        self._own(workspace)
        self._check_inside(path, workspace)
        self._command_pid = next(iter(children_of(box.first_pid)), 0)
        if self._command_pid:
            self._command_end = os.pidfd_open(self._command_pid)
        if self._before_start is not None:
            self._before_start(box.first_pid)
        if self._network is not None:
            self._network.start(box.first_pid)
        self._own_cpu = _cpu_seconds(self.child.pid) + _cpu_seconds(box.first_pid)
        name = f".not-started-{os.urandom(8).hex()}"
        self._marker = f"{folders.tmp}/{name}"
        box.control.begin(f"{TMP_DIR}/{name}")
        self.child.started = time.monotonic()
        self.marks = RunMarks(self.child.pid, self.run_id, "", frozenset(), self.child.started)

    def _own(self, workspace: Workspace) -> None:
        uid = self._uid
        if uid is None or self._folders is None:
            return
        self._folders.give_to(uid)
        for name in workspace.given_folders.difference(self._on_the_way):
            os.chown(encode(f"{workspace.work}/{name}"), uid, uid, follow_symlinks=False)
        for name in workspace.given:
            path = encode(f"{workspace.work}/{name}")
            os.chown(path, uid, uid, follow_symlinks=False)
            workspace.given[name] = stamp(os.lstat(path))

    def _check_sources(self) -> None:
        """Say in a sentence what bubblewrap or the command could not read."""
        for mount in self._request.mounts:
            if not mount.source.is_dir():
                raise about(SandboxError(f"The folder for {mount.target} is not there."), mount.source)
        shown = [(str(mount.target), os.fspath(mount.source)) for mount in self._request.mounts]
        for name, path in (*shown, *((path, path) for path in self._policy.extra_ro)):
            try:
                mode = os.stat(path).st_mode  # noqa: PTH116
            except OSError as error:
                raise about(SandboxError(f"{name!r} cannot be shown to the script: {error.strerror}."), path) from error
            needed = 0o005 if stat.S_ISDIR(mode) else 0o004
            if self._uid is not None and mode & needed != needed:
                raise about(
                    SandboxError(
                        f"{name!r} cannot be read by user {self._uid}, as which scripts run when the agent is root. "
                        "Make it readable for others (chmod o+rX)."
                    ),
                    path,
                )

    def _mounted(self) -> list[tuple[PurePosixPath, str]]:
        return [(mount.target, os.path.abspath(mount.source)) for mount in self._request.mounts]  # noqa: PTH100

    def _inner_command(self, path: str) -> list[str]:
        """The command as the sandbox sees it; one given by a path is looked at when the workspace is there."""
        argv = self._request.argv
        if not argv or not all(isinstance(part, str) for part in argv):
            raise ValueError("argv must be at least one string: the command and its arguments.")
        for position, part in enumerate(argv):
            if "\0" in part:
                raise ValueError(f"Argument {position} contains a NUL byte; no command can receive one.")
            encode(part)
        if "\0" in str(self._request.cwd):
            raise ValueError(f"cwd {str(self._request.cwd)!r} contains a NUL byte; no folder can be called so.")
        places = PathView([*self._mounted(), (WORK_DIR, "/"), (TMP_DIR, "/")])
        self.shown = spelling(argv[0], places.argument(argv[0]))
        if argv[0] in {self._policy.python, sys.executable}:
            return [shown_at(argv[0]), *argv[1:]]
        if "/" in argv[0]:
            return list(argv)
        found = find_command(argv[0], argv[0], path=encode(path), cwd=b"/")
        return [shown_at(os.fsdecode(found)), *argv[1:]]

    def _check_inside(self, path: str, workspace: Workspace) -> None:
        """Say in a sentence what can be known of the command and its folder before it starts."""
        name = self._request.argv[0]
        by_path = "/" in name and name not in {self._policy.python, sys.executable}
        if not by_path and self._request.cwd == WORK_DIR:
            return
        linked: dict[str, str] = {}
        for mount in self._request.mounts:
            source = os.path.abspath(mount.source)  # noqa: PTH100
            for entry in workspace.links if mount.linked else ():
                if entry not in linked and os.path.lexists(encode(f"{source}/{entry}")):
                    linked[entry] = f"{source}/{entry}"
        outside = PathView(
            [
                *self._mounted(),
                (WORK_DIR, workspace.work),
                (TMP_DIR, workspace.tmp),
                *((WORK_DIR / entry, where) for entry, where in linked.items()),
            ]
        )
        if not os.path.isdir(encode(outside.directory(self._request.cwd))):  # noqa: PTH112
            raise ValueError(f"cwd {str(self._request.cwd)!r} does not exist in the sandbox.")
        if not by_path:
            return
        where = os.path.normpath(name if name.startswith("/") else str(self._request.cwd / name))
        find_command(name, outside.argument(where), path=encode(path), cwd=b"/")

    def _end_processes(self, result: Aftermath) -> None:
        box, child = self._started_sandbox, self.child
        assert box is not None  # noqa: S101  # only called after the sandbox was made
        self._count(box)
        result.killed = self._alive_besides or 0
        box.end()
        if not _readable(box.outer, _KILL_SECONDS):
            box.end_outer()
            if not _readable(box.outer, _KILL_SECONDS):
                result.survivors += 1  # it hangs inside the kernel; nothing can be done about it
        if self._network is not None:
            self._network.stop()
            result.network = self._network.decisions
            result.notes.extend(self._network.notes())
        result.rest = (drain(child.stdout), drain(child.stderr))
        with contextlib.suppress(ChildProcessError):
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            child.waited = (status, usage) if pid else None
        with contextlib.suppress(ChildProcessError):
            os.waitpid(box.first_pid, os.WNOHANG)  # ours when bubblewrap died first and the agent is process 1
        if child.waited is not None:
            usage = child.waited[1]
            result.cpu_seconds = max(0.0, usage.ru_utime + usage.ru_stime - self._own_cpu) + self._killed_cpu
            peak = usage.ru_maxrss * 1024
            result.max_rss = peak if peak > child.starter_rss else None
        self._tell_end(box, result)

    def _tell_end(self, box: Started, result: Aftermath) -> None:
        exact = None if self._command_end is None else exact_status(self._command_end)
        code = box.control.exit_code()
        if exact is not None:
            result.status = exact
        elif code is not None and code > _SIGNALLED:
            result.status, result.inferred = code - _SIGNALLED, True
        elif code is not None:
            result.status = code << 8
        elif self._ordered:
            result.status = int(signal.SIGKILL)

    def _collect(self, result: Aftermath) -> None:
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
        super()._collect(result)

    def _close(self) -> None:
        box, self._started_sandbox = self._started_sandbox, None
        if box is not None:
            box.close()
        if self._command_end is not None:
            os.close(self._command_end)
            self._command_end = None

    def _drop_workspace(self, *, started: bool) -> str | None:
        # Nothing to delete: the file systems end with the last descriptor.
        self._workspace = None
        folders, self._folders = self._folders, None
        if folders is not None:
            folders.close()
        return super()._drop_workspace(started=started)


def _network(request: ExecutionRequest, policy: SandboxPolicy) -> RunNetwork | None:
    if policy.network.mode != "allow":
        return None  # nothing of the proxy is imported
    from adk_skills_agent.sandbox.local.network import network_of_run

    return network_of_run(request, policy)


def run_uid(policy: SandboxPolicy) -> int | None:
    """The user id a run takes on: none but the agent's own unless the agent is root."""
    if os.geteuid() != 0:
        return None
    return NOBODY if policy.run_as is None else policy.run_as


def _on_the_way(targets: Iterable[str]) -> list[str]:
    """Folders of the workspace that exist because something is shown below it, parents first."""
    found: dict[str, None] = {}
    for target in targets:
        path = PurePosixPath(target)
        if path.is_relative_to(WORK_DIR):
            inside = path.relative_to(WORK_DIR)
            found.update(dict.fromkeys(str(part) for part in reversed((inside, *inside.parents)) if str(part) != "."))
    return list(found)


def _alive_below(first: int) -> list[ProcessInfo]:
    """Live processes of a sandbox besides its process 1."""
    waiting = children_of(first)
    seen: set[int] = set()
    alive: list[ProcessInfo] = []
    while waiting:
        pid = waiting.pop()
        if pid in seen:
            continue
        seen.add(pid)
        waiting += children_of(pid)
        info = process_info(pid)
        if info is not None and info.alive:
            alive.append(info)
    return alive


def _besides(alive: list[ProcessInfo], command: int) -> int:
    return sum(info.pid != command for info in alive)


def _cpu_seconds(pid: int) -> float:
    """Processor time of another process until now, by its clock."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def _readable(descriptor: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
