"""What an isolation level of this machine is, the ones there are, the choice of one, and what their runs share.

A level prepares, starts and ends runs in its own way; everything between (output, deadline, limits that are watched,
the result) is the same for all and in :mod:`..sandbox`. A run has two blocking halves, everything before the command
and everything after it. Both are called in a worker thread; each leaves nothing behind when it fails.
"""

from __future__ import annotations

import atexit
import functools
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from adk_skills_agent.errors import SandboxError, SandboxUnavailable
from adk_skills_agent.platforms import after_fork_in_child
from adk_skills_agent.sandbox.contract import (
    TMP_DIR,
    WORK_DIR,
    ExecutionRequest,
    IsolationLevel,
    SandboxPolicy,
    Status,
)
from adk_skills_agent.sandbox.files.collect import collect, left_in_home, left_in_tmp, portable
from adk_skills_agent.sandbox.files.workspace import (
    Workspace,
    create_workspace,
    fill_workspace,
    keep_lasting_tmp,
    persist,
)
from adk_skills_agent.sandbox.output import Capture, PathMapping, open_captures, secrets_of_run
from adk_skills_agent.sandbox.process import seccomp
from adk_skills_agent.sandbox.process.command import (
    NOT_STARTED_CODES,
    build_environment,
    check_argv,
    encode,
    find_command,
    has_tmp_at_home,
    launcher,
    most_watches,
    spelling,
    without_limits,
)
from adk_skills_agent.sandbox.process.supervise import (
    Child,
    EndReport,
    Launch,
    LiveStdin,
    drain,
    filled,
    has_ended,
    is_readable,
    memory_file,
    nobody_writes,
    reap_late,
    spawner,
    take_status,
    wait_until_ended,
)
from adk_skills_agent.sandbox.process.tree import (
    RunMarks,
    children_of,
    end_run,
    reap_adopted,
    signal_group,
    stat_fields,
)
from adk_skills_agent.sandbox.process.watchdog import TMP_NAMES, DiskLimit, Limits, folder_limit
from adk_skills_agent.sandbox.skill_store import Staged, stage
from adk_skills_agent.sandbox.streaming import ResourceSample


@dataclass(frozen=True, slots=True)
class Enforcement:
    """Who enforces what for runs of one level under one policy; see ``IsolationReport``.

    ``hard`` has the concerns the kernel bounds for a run as a whole, so that the watchdog need not.
    """

    enforced: Mapping[str, str]
    degraded: tuple[str, ...] = ()
    hard: frozenset[str] = frozenset()


def cpu_enforced(policy: SandboxPolicy) -> str:
    """Who bounds the processor time of runs, at every level: each process has a limit of its own."""
    unlimited = policy.cpu_seconds is None and policy.wall_seconds is None
    return "none" if unlimited or without_limits() is not None else "rlimit"


def cpu_sentences(policy: SandboxPolicy) -> tuple[str, ...]:
    """What a limit for each process leaves open, for ``Enforcement.degraded``."""
    if policy.cpu_seconds is None:
        return ()
    return ("cpu: cpu_seconds holds for each process; all together are bounded only by the deadline.",)


class LocalLevel:
    """One way to contain runs on this machine; works everywhere and for every request, unless it says otherwise."""

    level: IsolationLevel

    def problem(self) -> str | None:
        """Why it does not work here, as a clause ("bubblewrap is not installed"); None when it does.

        Found by really running it once per process; blocking, for a worker thread.
        """
        return None

    def remedy(self) -> str | None:
        """The one command that would make it work here, or enforce more; only asked after ``problem()``."""
        return None

    def refusal(self, request: ExecutionRequest, policy: SandboxPolicy) -> str | None:  # noqa: ARG002
        """Why it cannot run this request although it works here, as a clause; None when it can."""
        return None

    def new_run(self, request: ExecutionRequest, policy: SandboxPolicy) -> LocalRun:
        """A run that is not started yet."""
        return LocalRun(request, policy)

    def report(self, policy: SandboxPolicy) -> Enforcement:
        """What holds for runs under ``policy``."""
        raise NotImplementedError


@functools.cache
def local_levels() -> tuple[LocalLevel, ...]:
    """The levels there are, strongest first; the modules of each are imported at the first use."""
    from adk_skills_agent.sandbox.local.levels.landlock import LandlockLevel
    from adk_skills_agent.sandbox.local.levels.namespaces import NamespacesLevel
    from adk_skills_agent.sandbox.local.levels.process import ProcessLevel

    return (NamespacesLevel(), LandlockLevel(), ProcessLevel())


# Whether something works here, found once per process: of several that ask at once, one tries and all get its answer.
#
# A trial is a run, so without this the first runs of an agent, which like to come together, would each begin with
# one.

_answers: dict[str, str | None] = {}
_lock = threading.RLock()  # whether a level works may depend on whether a part of it does


def answered_once(what: str, attempt: Callable[[], str | None]) -> str | None:
    """Why it does not work here; None when it does.

    Blocks while ``attempt`` finds out; what that raises is no answer.
    """
    if what not in _answers:
        with _lock:
            if what not in _answers:
                _answers[what] = attempt()
    return _answers[what]


def _forget() -> None:
    global _lock  # noqa: PLW0603  # it may have been held when the process was forked
    _lock = threading.RLock()
    _answers.clear()  # a forked child may be another user, or in a world of its own


after_fork_in_child(_forget)


TRIAL_SECONDS = 20.0
_LONG_SECONDS = 3.0  # a trial run that takes longer makes us ask whether the kernel is what holds it up
_FILTERS_STUCK = "no filters"


def trial_run(run: LocalRun) -> EndReport | None:
    """Run something to find out whether a level works; None when it did not end in :data:`TRIAL_SECONDS`."""
    if (stuck := _answers.get(_FILTERS_STUCK)) is not None:
        raise SandboxError(stuck)
    begun = time.monotonic()
    try:
        run.start()
    except SandboxError as error:
        if time.monotonic() - begun < _LONG_SECONDS or (stuck := answered_once(_FILTERS_STUCK, filters_stuck)) is None:
            raise
        raise SandboxError(stuck) from error
    try:
        assert run.child.pidfd is not None  # noqa: S101  # at the levels that are tried it is a pipe or a socket
        in_time = is_readable(run.child.pidfd, _LONG_SECONDS)
        if not in_time:
            stuck = answered_once(_FILTERS_STUCK, filters_stuck)
            in_time = stuck is None and is_readable(run.child.pidfd, TRIAL_SECONDS - _LONG_SECONDS)
        if not in_time:
            run.kill()
    finally:
        report = run.finish(wanted=False)
    if stuck is not None:
        raise SandboxError(stuck)
    return report if in_time else None


_ASK_FOR_A_FILTER = """
import ctypes
code = (ctypes.c_uint64 * 1)(0x7FFF000000000006)
program = (ctypes.c_uint64 * 2)(1, ctypes.addressof(code))
libc = ctypes.CDLL(None)
libc.prctl(38, 1, 0, 0, 0)
libc.prctl(22, 2, program)
"""


def filters_stuck() -> str | None:
    """Why the kernel installs no system call filter, when who asks for one never comes back; None when all is well.

    Some kernels get there by an error of their own: Linux 6.18 waits for ever once a thousand filters are freed
    together (attack row 117). Blocks for up to :data:`_LONG_SECONDS`.
    """
    argv = [sys.executable, "-I", "-S", "-c", _ASK_FOR_A_FILTER]
    null = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in range(3)]
    pid = os.posix_spawn(sys.executable, argv, {}, file_actions=null, setsid=True)
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:  # no descriptor is left
        reap_late(pid)
        return None
    try:
        came_back = is_readable(pidfd, _LONG_SECONDS)
        if not came_back:
            came_back = not _waits_in_the_kernel(pid)
            os.kill(pid, signal.SIGKILL)
            reap_late(pid)
        else:
            os.waitpid(pid, 0)
    finally:
        os.close(pidfd)
    if came_back:
        return None
    return "the kernel does not answer a program that asks for a system call filter; restart the machine"


_LOOKS, _LOOK_SECONDS = 20, 0.05  # reading from a slow disk looks the same, for a moment


def _waits_in_the_kernel(pid: int) -> bool:
    """Whether no signal reaches the process, each time one looks for a second."""
    for _ in range(_LOOKS):
        fields = stat_fields(pid)
        if fields is None or fields[0] != b"D":
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def unsupported() -> str | None:
    """Why neither namespaces, Landlock nor a filter can be used in this process; None when they can be tried."""
    if sys.platform != "linux":
        return f"{platform.system()} has neither namespaces, Landlock nor system call filters; they are Linux's"
    if not seccomp.supports(platform.machine()):
        return f"no system call filter is known for {platform.machine()}; there is one for x86_64 and aarch64"
    if (reason := without_limits()) is not None:
        return reason
    if sys.byteorder != "little" or sys.maxsize < 1 << 32:
        return "system call filters are only known for 64-bit little-endian systems"
    if not sys.executable or not os.access(sys.executable, os.X_OK):
        return "this Python does not know its own interpreter (sys.executable), which has to start the sandbox"
    if not os.path.isdir(f"/proc/{os.getpid()}/task"):  # noqa: PTH112
        return "/proc is not mounted, so what a run leaves behind could not be found"
    return None


# Which isolation level a run gets: the strongest that works here and can do what its policy asks (S0-43).

_known: set[tuple[int, str, str]] = set()


@dataclass(frozen=True, slots=True)
class Choice:
    """A level, and why the stronger ones were not taken."""

    level: LocalLevel
    reasons: tuple[str, ...] = ()


def choose(request: ExecutionRequest, policy: SandboxPolicy) -> Choice:
    """Choose a level for one run. The first time it tries levels out: blocking, for a worker thread.

    Raises:
        SandboxUnavailable: None at or above ``min_isolation`` works here and fits, with the reason of each.
    """
    reasons: list[str] = []
    remedies: list[str] = []
    works = False  # one of those asked for does, if only for other policies
    for level in _asked_for(policy.isolation, policy.min_isolation):
        problem = level.problem()
        if problem is not None:
            remedies += [remedy] if (remedy := level.remedy()) else []
        else:
            works = True
            problem = level.refusal(request, policy)
        if problem is None:
            _known.add((os.getpid(), policy.isolation, policy.min_isolation))
            return Choice(level, tuple(reasons))
        reasons.append(f"{level.level.value}: {problem}")
    _known.add((os.getpid(), policy.isolation, policy.min_isolation))
    if policy.isolation != "auto" and not reasons:
        reasons.append(f"{policy.isolation}: there is no such level on this system")
    error = SandboxUnavailable(_sentence(policy, reasons, works=works), tuple(reasons))
    best = _strongest(request, policy)
    # Notes are for the developer: a model that is told how to switch protection off may pass that on.
    for remedy in remedies[:1]:
        error.add_note(f"To change that: {remedy}.")
    error.add_note(_advice(policy, best))
    raise error


@functools.lru_cache(maxsize=64)
def _asked_for(isolation: str, min_isolation: str) -> tuple[LocalLevel, ...]:
    least = IsolationLevel(min_isolation)
    demanded = None if isolation == "auto" else IsolationLevel(isolation)
    if demanded is not None and demanded.strength < least.strength:
        raise SandboxUnavailable(
            f"isolation={demanded.value!r} is weaker than min_isolation={least.value!r}. Change one of them.",
            (f"{demanded.value}: weaker than min_isolation",),
        )
    return tuple(
        level for level in local_levels() if level.level.strength >= least.strength and demanded in {None, level.level}
    )


def is_known(policy: SandboxPolicy) -> bool:
    """Whether :func:`choose` has all it needs for such a policy, so that it does not block."""
    return (os.getpid(), policy.isolation, policy.min_isolation) in _known


def _strongest(request: ExecutionRequest, policy: SandboxPolicy) -> IsolationLevel | None:
    for level in local_levels():
        if level.problem() is None and level.refusal(request, policy) is None:
            return level.level
    return None


def _sentence(policy: SandboxPolicy, reasons: list[str], *, works: bool) -> str:
    if policy.isolation == "auto":
        fits = "what works here does not fit the policy" if works else "nothing that strong works here"
        wanted = f"at least {policy.min_isolation!r} is required and {fits}"
    else:
        wanted = f"{policy.isolation!r} is required and does not {'fit the policy' if works else 'work here'}"
    because = f" ({'; '.join(reasons)})" if reasons else ""
    return f"Isolation {wanted}{because}."


def _advice(policy: SandboxPolicy, best: IsolationLevel | None) -> str:
    if best is None:
        return "No level that works here fits the policy: change what the reasons name."
    if best.strength >= IsolationLevel(policy.min_isolation).strength:
        return f"The strongest level that works here and fits is {best.value!r}: isolation='auto' takes it."
    unprotected = "" if best is not IsolationLevel.PROCESS else ", which does not protect the host's files and network"
    return (
        f"The strongest level that works here and fits is {best.value!r}{unprotected}. When you trust the skills you "
        f"can choose min_isolation={best.value!r}."
    )


_KILL_SECONDS = 2.0
_EMPTY_HOME_BYTES = 4096  # what a folder without entries takes on the disk


class LocalRun:
    """One run: everything it holds on the host. The levels' own runs differ in how the command is started and ended.

    The course is ``start()``, then any number of ``terminate()`` and ``kill()``, then ``finish()``. ``shown``,
    ``view``, ``child``, ``marks`` and ``disk`` are valid after ``start()``.
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
        """The workspace and the folder for temporary files, in which the home folder is."""
        assert self._workspace is not None  # noqa: S101  # only called after start()
        policy = self._policy
        tmp_bytes = None if policy.tmp_bytes is None else policy.tmp_bytes + _EMPTY_HOME_BYTES
        inodes = None if policy.workspace_inodes is None else policy.workspace_inodes + 1
        return (
            folder_limit(self._workspace.work, policy.workspace_bytes, policy.workspace_inodes),
            folder_limit(self._workspace.tmp, tmp_bytes, inodes, TMP_NAMES),
        )

    def limits(
        self,
        hard: frozenset[str],
        breach: Callable[[Status, str], None],
        on_look: Callable[[ResourceSample], None] | None = None,
    ) -> Limits:
        """What the watchdog looks at; ``hard`` names what the kernel bounds for the run as a whole."""
        pids = None if "pids" in hard else self._policy.pids
        memory, bounded = self._policy.memory_bytes, "memory" in hard
        return Limits(
            self.marks,
            memory,
            pids,
            self.disk,
            breach,
            self.beyond,
            on_look,
            bounded,
            self.guarded,
            most_watches(self._policy),
            tcp_bytes=self.tcp_bytes,
        )

    def guarded(self) -> frozenset[int]:
        """Its processes that are ours, and that nobody may look into: process 1, and what serves a session."""
        first = self._first()
        served = isinstance(self._request.stdin, LiveStdin)
        return frozenset({self.child.pid, first, *(children_of(first)[:1] if served else ())})

    def _first(self) -> int:
        """The process that starts the command."""
        return self.child.pid

    def may_write_more(self) -> bool | None:
        """Whether somebody of an ended command's run is there to write; None when only the pipes' end can tell."""
        return None

    def cpu_seconds(self) -> float | None:
        """Processor time of all its processes, those included that ended unseen; None where nothing counts it."""
        return None

    def tcp_bytes(self) -> int | None:
        """Bytes of the kernel's memory that its connections take; None where nothing counts them for it."""
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
        """Kill what is left, take the status, collect the output files if anybody wants them, delete the workspace.

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
                self._check_disk(result)
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
            tmp=request.tmp,
        )
        self._own(workspace)
        pairs = [(mount.target, os.path.abspath(mount.source)) for mount in request.mounts]  # noqa: PTH100
        self.view = PathMapping([*pairs, (WORK_DIR, workspace.work), (TMP_DIR, workspace.tmp)], root=workspace.root)
        environment = build_environment(
            policy,
            request.env,
            home=portable(workspace.home),
            tmp=portable(workspace.tmp),
            run_id=self.run_id,
            place=self.view.argument,
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
            if usage is None:
                return
            result.cpu_seconds = usage.ru_utime + usage.ru_stime
            peak = usage.ru_maxrss if _RSS_IN_BYTES else usage.ru_maxrss * 1024
            # Right after a vfork the child's memory is the agent's, and the kernel remembers that as its peak. Only a
            # larger number says anything about the command.
            result.max_rss = peak if peak > child.starter_rss else None

    def _check_disk(self, result: EndReport) -> None:
        """Whether the disk holds more than it may: a run can end between two looks of the watchdog (attack row 80)."""
        for limit in self.disk:
            try:
                excess = limit.excess_at_end()
            except OSError:
                continue  # the script removed it
            if excess is None:
                continue
            if result.cause is None:
                result.cause, result.limit_note = Status.DISK_LIMIT, f"It ended before it was stopped: {excess}."
            return

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
        secrets = secrets_of_run(self._request, self._policy)
        result.collected = collected = collect(self._workspace, self._policy, secrets)
        is_tmp = has_tmp_at_home(self._policy, self._request.env)
        result.notes.extend(left_in_home(self._workspace.home, is_tmp=is_tmp))
        if self._request.tmp is None:
            result.notes.extend(left_in_tmp(self._workspace.tmp))
        if self._request.workspace is not None:
            result.notes.extend(persist(self._workspace, collected, self._request.workspace, self._policy))
        if self._request.tmp is not None:
            result.notes.extend(keep_lasting_tmp(self._workspace, self._request.tmp, self._policy, secrets))

    def _close(self) -> None:
        if self.child.waited is None:
            reap_late(self.child.pid)
        self.child.close()

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


_RSS_IN_BYTES = sys.platform == "darwin"
_live: set[LocalRun] = set()


def _end_all() -> None:
    """The interpreter ends while runs are going on, in a daemon thread's loop perhaps: leave nothing behind."""
    for run in tuple(_live):
        run.abandon()


atexit.register(_end_all)
after_fork_in_child(_live.clear)
