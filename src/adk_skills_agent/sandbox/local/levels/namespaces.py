"""The namespaces level: a run has a file system, processes and a network of its own.

Needs bubblewrap and user namespaces, and no privilege. Where the agent may make control groups (version 2 where its
group was delegated to it, version 1 where it is root) each run gets one, and the kernel bounds its memory and processes
as a whole; elsewhere a watchdog does, and the report says so.
"""

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
from adk_skills_agent.platforms import TICKS_PER_SECOND
from adk_skills_agent.sandbox import threads
from adk_skills_agent.sandbox.contract import (
    HOME_DIR,
    SERVED_FOLDERS,
    TMP_DIR,
    WORK_DIR,
    ExecutionRequest,
    IsolationLevel,
    SandboxPolicy,
    Status,
)
from adk_skills_agent.sandbox.files.workspace import Workspace, fill_workspace, give_away, remove_on_the_way
from adk_skills_agent.sandbox.local.cgroup import NoControlGroups, group_pool
from adk_skills_agent.sandbox.local.init.control import Job, is_same_interpreter, not_started, script_position, shown_at
from adk_skills_agent.sandbox.local.kernel.user_namespaces import user_namespaces
from adk_skills_agent.sandbox.local.levels.base import (
    TRIAL_SECONDS,
    Enforcement,
    LocalLevel,
    LocalRun,
    answered_once,
    cpu_enforced,
    cpu_sentences,
    stdin_file,
    trial_run,
    unsupported,
)
from adk_skills_agent.sandbox.local.namespaces import bubblewrap
from adk_skills_agent.sandbox.local.namespaces.sandbox import (
    PrivateFolders,
    StartedSandbox,
    folders_on_the_way,
    sandbox_spec,
)
from adk_skills_agent.sandbox.local.namespaces.zygote import start_sandbox
from adk_skills_agent.sandbox.local.warm_pool import warm_pool
from adk_skills_agent.sandbox.output import PathMapping
from adk_skills_agent.sandbox.process.command import (
    build_environment,
    check_argv,
    encode,
    find_command,
    most_of_user,
    own_id,
    process_limits,
    run_uid,
    spelling,
)
from adk_skills_agent.sandbox.process.seccomp import WITHOUT_TIMERS, kernel_sentences
from adk_skills_agent.sandbox.process.supervise import EndReport, drain, is_readable, reap_late, take_status
from adk_skills_agent.sandbox.process.tree import RunMarks, alive_below, cpu_seconds, tcp_sockets
from adk_skills_agent.sandbox.process.watchdog import HIDDEN_MEMORY, UNCHARGED_MEMORY, DiskLimit
from adk_skills_agent.sandbox.secrets import FrozenMapping

if TYPE_CHECKING:
    from adk_skills_agent.sandbox.network.run_network import RunNetwork

_KILL_SECONDS = 5.0
_LEAVING_SECONDS = 1.0
_DYING_SECONDS = 0.5  # a killed process is not dead at once
_MOST_TERMINALS = 8  # as the zygote's mount has it
_MOST_CONNECTIONS = 4096  # ends of connections


class NamespacesRun(LocalRun):
    """A run in a sandbox made by bubblewrap or forked by the zygote, with a control group where it is to have one."""

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

    def cpu_seconds(self) -> float | None:
        """What its control group counts."""
        sandbox = self._sandbox
        group = None if sandbox is None else sandbox.group
        with contextlib.suppress(OSError):  # it is over
            return None if group is None else group.cpu_seconds()
        return None

    def tcp_bytes(self) -> int | None:
        """See :meth:`ControlGroup.tcp_bytes`."""
        group = None if self._sandbox is None else self._sandbox.group
        return None if group is None else group.tcp_bytes()

    def beyond(self) -> tuple[Status, str] | None:
        """Whether the memory of its control group ran out: the kernel ends one process, the run ends as a whole.

        And whether it takes all terminals of the machine, which the zygote bounds by a mount and bubblewrap cannot
        (row 76), or all connections that are closing, of which the kernel has a number for the whole machine (row 179).
        """
        sandbox = self._sandbox
        if sandbox is None:
            return None
        if self._policy.network.mode != "host" and (ends := tcp_sockets(sandbox.first_pid)) > _MOST_CONNECTIONS:
            return Status.ERROR, f"Stopped: it had {ends:,} sockets of TCP; {_MOST_CONNECTIONS:,} are allowed."
        if sandbox.maker == "bubblewrap":
            with contextlib.suppress(OSError):  # it is over
                terminals = len(os.listdir(f"/proc/{sandbox.first_pid}/root/dev/pts")) - 1  # noqa: PTH208
                if terminals > _MOST_TERMINALS:
                    sentence = f"Stopped: it opened {terminals} terminals; {_MOST_TERMINALS} are allowed."
                    return Status.ERROR, sentence
        return None if sandbox.group is None else sandbox.group.beyond()

    def _first(self) -> int:
        return super()._first() if self._sandbox is None else self._sandbox.first_pid

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
        environment = WITHOUT_TIMERS | build_environment(
            policy,
            request.env,
            home=str(HOME_DIR),
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
        if policy.python is None or is_same_interpreter(policy.python):
            script = script_position([command.on_host, *command.argv[1:]], environment, policy.python)
        interpreter = () if script is None else command.argv[:script]
        spec = sandbox_spec(request, policy, interpreter, uid=self._uid, grouped=self._grouped)
        self._on_the_way = folders_on_the_way(spec.shown)
        limits = process_limits(policy, most_of_user(policy.pids, grouped=self._grouped), grouped=self._grouped)
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
        """Fill a sandbox and let the command begin.

        False when the sandbox had died while it waited (row 71), or what it imported ahead put something in the way.
        """
        sandbox.watch_no_more()
        self._sandbox, self.child, self.maker = sandbox, sandbox.child, sandbox.maker
        try:
            self._fill_and_begin(sandbox)
        except BaseException as error:
            died = isinstance(error, (SandboxError, OSError)) and is_readable(
                sandbox.first, _DYING_SECONDS if sandbox.was_waiting else 0
            )
            died = died or (isinstance(error, OSError) and bool(self._policy.preload))
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
            tmp=request.tmp,
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
        uid = None if self._sandbox is None else self._sandbox.uid
        if uid is not None:
            os.chown(workspace.home, uid, uid, follow_symlinks=False)
            give_away(workspace, uid, but=self._on_the_way)

    def _end_processes(self, report: EndReport) -> None:
        sandbox = self._sandbox
        assert sandbox is not None  # noqa: S101  # only called after the sandbox was made
        group = sandbox.group
        if group is None:
            self._end_sandbox(sandbox, report)
            return
        try:
            if group.ended():
                self._ordered = True  # the kernel did it, for the limit we set; it is no accident of the sandbox
            self._end_sandbox(sandbox, report)
            if sandbox.init.used is None:
                group.end_all()
            group.account(report)
        except OSError as error:
            raise SandboxError(f"The run's control group could not be read: {error.strerror}.") from error
        finally:
            sandbox.group = None
            group_pool().give_back(group)

    def _end_sandbox(self, sandbox: StartedSandbox, report: EndReport) -> None:
        init, child = sandbox.init, self.child
        init.listen()
        if init.used is None:  # else process 1 has seen the last of them end
            self._count(sandbox)
        report.killed = self._alive_besides or 0
        if not self._ordered and not report.killed:
            init.wait_until_used(_LEAVING_SECONDS)
        if init.used is None:  # somebody is left, or process 1 was killed
            self._kill_and_wait(sandbox, report)
        elif self._policy.preload:  # what was imported ahead may have said so, and be alive
            sandbox.end()
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
        # Our own kill must not count as somebody else's, and only a forked sandbox shows it in its status.
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
        if usage is not None:  # without it there is no such level
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
        remove_on_the_way(self._workspace, self._on_the_way)
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
    """A command as the sandbox sees it; its first element as the host sees it, and as a sentence may show it."""

    argv: tuple[str, ...]
    on_host: str
    shown: str


def check_sources(request: ExecutionRequest, policy: SandboxPolicy, uid: int | None) -> None:
    """Say in a sentence what bubblewrap or the command could not read."""
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
    """The command as the sandbox sees it; one given by a path is looked at when the workspace is there."""
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
    """Say in a sentence what can be known of the command and its folder before it starts."""
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


class NamespacesLevel(LocalLevel):
    """See the module."""

    level = IsolationLevel.NAMESPACES

    def problem(self) -> str | None:
        """Why it does not work here, found by running it once per process; None when it does."""
        return answered_once(self.level, self._try_all)

    def no_groups(self) -> str | None:
        """Why runs have no control group here, found like :meth:`problem`; None when they have."""
        return answered_once("control groups", lambda: _no_groups()[0] or missing() or self._try(grouped=True))

    def remedy(self) -> str | None:
        """The command that installs what is missing, or that permits user namespaces or else control groups."""
        if unsupported() is not None:
            return None
        if self.problem() is None:
            return _no_groups()[1]
        return bubblewrap.remedy() if bubblewrap.missing() is not None else user_namespaces().fix

    def refusal(self, request: ExecutionRequest, policy: SandboxPolicy) -> str | None:  # noqa: ARG002
        """What the policy demands that this level cannot do; None when there is nothing."""
        if policy.run_as == 0:
            return "run_as=0 keeps root's files in reach and the kernel limits no processes of root"
        if policy.run_as is not None and os.geteuid() not in {0, policy.run_as}:
            return f"run_as={policy.run_as} needs an agent that runs as root"
        return None

    def new_run(self, request: ExecutionRequest, policy: SandboxPolicy) -> NamespacesRun:
        """A run of its own; nothing happens before its ``start()``."""
        return NamespacesRun(request, policy, grouped=self.no_groups() is None)

    def report(self, policy: SandboxPolicy) -> Enforcement:
        """Who enforces what for a run under ``policy``, and what is not fully enforced."""
        without = self.no_groups()
        return namespaces_report(policy, without if without is not None else group_pool().version)

    def _try_all(self) -> str | None:
        lacking = missing()
        if lacking is None and self.no_groups() is not None:
            return self._try(grouped=False)
        return lacking

    def _try(self, *, grouped: bool) -> str | None:
        policy = SandboxPolicy(wall_seconds=TRIAL_SECONDS, warm_slots=0)
        run = NamespacesRun(ExecutionRequest(("sh", "-c", "exit 7"), policy), policy, grouped=grouped)
        try:
            report = trial_run(run)
        except (SandboxError, OSError) as error:
            said = str(getattr(error, "message", error))
            notes = [note for note in getattr(error, "__notes__", ()) if note.rpartition(": ")[2] not in said]
            return " ".join(["a trial run failed:", said, *notes]).rstrip(".")
        if report is None or report.status != 7 << 8:
            return f"a trial run ended in an unexpected way (status {report and report.status})"
        return None


def _no_groups() -> tuple[str | None, str | None]:
    """Why no control group can be made, and the command that would change it."""
    try:
        group_pool()
    except NoControlGroups as error:
        return str(error), error.fix
    except SandboxError as error:
        return error.message.rstrip("."), None
    return None, None


def missing() -> str | None:
    """What this system lacks for namespaces, without trying; None when nothing is known to be."""
    return unsupported() or bubblewrap.missing()


def namespaces_report(policy: SandboxPolicy, groups: int | str) -> Enforcement:
    """Who enforces what; ``groups`` is the version of the control groups of runs, or why they get none, as a clause."""
    together = f"cgroup v{groups}" if isinstance(groups, int) else "rlimit+watchdog"
    enforced = {
        "files": "mount namespace",
        "network": {"host": "none", "allow": "network namespace+proxy"}.get(policy.network.mode, "network namespace"),
        "processes": "pid namespace",
        "memory": together,
        "pids": together,
        "disk": "tmpfs size+watchdog",
        "cpu": cpu_enforced(policy),
        "syscalls": "seccomp+user namespace",
    }
    hard = frozenset({"memory", "pids"}) if isinstance(groups, int) else frozenset()
    return Enforcement(FrozenMapping(enforced), tuple(_degraded(policy, groups)), hard)


def _degraded(policy: SandboxPolicy, groups: int | str) -> list[str]:
    sentences = []
    if policy.network.mode == "host":
        sentences.append("network: the script has the host's network, by choice; unix sockets are refused.")
    if policy.extra_ro:
        sentences.append(SERVED_FOLDERS)
    if policy.memory_bytes is not None and isinstance(groups, str):
        sentences += [
            "memory: memory_bytes holds at once for what a process can write; the sum is checked ten times a second, "
            f"because there is no control group for the run ({groups}).",
            HIDDEN_MEMORY,
        ]
    elif policy.memory_bytes is not None:
        sentences.append(UNCHARGED_MEMORY)
    if policy.workspace_inodes is not None:
        sentences.append("disk: sizes hold at once; the number of files is checked several times a second.")
    unbounded = [name for name in ("workspace_bytes", "tmp_bytes", "shm_bytes") if getattr(policy, name) is None]
    if unbounded:
        sentences.append(f"disk: {', '.join(unbounded)} unlimited means half of this machine's memory.")
    if (uid := run_uid(policy)) is not None and own_id(uid) == uid:
        sentences.append(
            f"processes: all runs have the same user id, {uid}, each in its own namespaces; what the kernel counts for "
            "each user, such as descriptors on the way and pages of pipes, they share."
        )
    return [*sentences, *cpu_sentences(policy), *kernel_sentences()]
