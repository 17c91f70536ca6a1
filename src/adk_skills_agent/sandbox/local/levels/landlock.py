"""The landlock level: no package, no privilege, no namespace needed; works in a container with Docker's defaults.

Files by Landlock, everything else by a system call filter, strays by a supervisor. What it lacks against namespaces:
a view of its own of processes, a quota on disk, networks other than none and the host's.
"""

from __future__ import annotations

import contextlib
import functools
import marshal
import os
import platform
import re
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import ExecutionRequest, IsolationLevel, SandboxPolicy
from adk_skills_agent.sandbox.files.removal import temporary_prefix
from adk_skills_agent.sandbox.files.workspace import Workspace, give_away
from adk_skills_agent.sandbox.local.init.control import InitControl, code_of, not_started, script_position
from adk_skills_agent.sandbox.local.kernel import landlock
from adk_skills_agent.sandbox.local.levels.base import (
    TRIAL_SECONDS,
    Enforcement,
    LocalLevel,
    LocalRun,
    answered_once,
    cpu_enforced,
    cpu_sentences,
    trial_run,
    unsupported,
)
from adk_skills_agent.sandbox.process import seccomp, watchdog
from adk_skills_agent.sandbox.process.command import (
    RUN_ID_VARIABLE,
    encode,
    is_own_id,
    own_id,
    process_limits,
    room_for_processes,
    run_uid,
)
from adk_skills_agent.sandbox.process.seccomp import kernel_sentences
from adk_skills_agent.sandbox.process.supervise import (
    Child,
    EndReport,
    Launch,
    drain,
    is_readable,
    memory_file,
    nobody_writes,
    take_status,
    wait_until_ended,
)
from adk_skills_agent.sandbox.process.tree import LEAVING_SECONDS, end_run, reap_adopted
from adk_skills_agent.sandbox.process.watchdog import HIDDEN_MEMORY
from adk_skills_agent.sandbox.secrets import FrozenMapping

SUPERVISOR_PLACEHOLDER = 0x7FFF_FFF1
"""Stands in a filter for the supervisor's process id, which is known only inside."""

GUARDED_AT_MOST = 100
"""Process and thread ids a filter can look for in one call."""

_CAP_SYS_PTRACE = 19
_SWEEP_SECONDS = 5.0
_NAMED_FOLDERS = 5
_PASSED_ON = ("PATH", "LANG", RUN_ID_VARIABLE)

# The last lines are here and not in the init program, so that no frame of ours is in the script's traceback.
_BOOTSTRAP = """\
import marshal, posix, sys
_data = int(sys.argv[1])
_init, _job = marshal.loads(posix.pread(_data, posix.fstat(_data).st_size, 0))
posix.close(_data)
_names = {"__name__": "adk_skills_init"}
exec(_init, _names)
_code, _script = _names["main"](_job)
try:
    exec(_code, _script)
except BaseException as _error:
    _error.__traceback__ = _error.__traceback__.tb_next
    raise
"""


def pretends_metadata(policy: SandboxPolicy) -> bool:
    """Whether ``chmod`` and its like do nothing: the run may have the user id of files that are not its own.

    Only the default user of a root agent owns nothing; there they work, on the run's own files.
    """
    return run_uid(policy) is None or policy.run_as is not None


def _guarded(uid: int | None) -> tuple[int, ...] | None:
    """Whom the filter protects from signals: a run of another user cannot signal the agent anyway."""
    if uid is not None:
        return None
    # The id of any thread stands for its whole process. Of what starts later a filter cannot know.
    try:
        threads = sorted(int(name) for name in os.listdir("/proc/self/task"))  # noqa: PTH208
    except OSError:
        threads = []
    agent = os.getpid()
    others = [number for number in (os.getpgrp(), *threads) if number != agent]
    return (agent, SUPERVISOR_PLACEHOLDER, *others)[:GUARDED_AT_MOST]


class ConfinedRun(LocalRun):
    """A run whose command confines itself through the init program."""

    def __init__(self, request: ExecutionRequest, policy: SandboxPolicy, version: int) -> None:
        super().__init__(request, policy)
        self._version = version
        # The user and group id to take on; None keeps the agent's. With it goes the capability to pass and read what
        # that user could not, within what Landlock permits: the interpreter or the skill may be below a private home
        # (docs/explanation/decisions/0006-landlock-as-root.md).
        self._uid = run_uid(policy) if policy.run_as is not None else own_id(run_uid(policy))
        self._init: InitControl | None = None
        self._given: list[int] = []  # descriptors of the init program
        self._supervisor: int | None = None  # its pidfd, where the system has such descriptors
        self._ordered = False
        self._gone = False

    def terminate(self) -> None:
        """Ask the command to end: SIGTERM to its group."""
        self._tell(signal.SIGTERM)

    def kill(self) -> None:
        """End everything of the run now; the supervisor does it. Does not wait."""
        self._ordered = True
        self._tell(signal.SIGUSR1)

    def _tell(self, number: int) -> None:
        if not self._gone and os.getpid() == self._owner:  # not waited for yet, so the id is its own
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.child.pid, number)

    def _prepare_and_spawn(self) -> None:
        try:
            super()._prepare_and_spawn()
            self._take_over(self.child)
        except BaseException:
            self._close_own()
            raise
        finally:
            while self._given:
                os.close(self._given.pop())

    def _take_over(self, child: Child) -> None:
        # The loop watches for the end of the command; the supervisor lives on until it is told to end.
        assert self._init is not None  # noqa: S101  # made before
        self._supervisor, child.pidfd = child.pidfd, self._init.descriptor

    def _own(self, workspace: Workspace) -> None:
        uid = self._uid
        if uid is None:
            return
        os.chmod(workspace.root, 0o711)  # noqa: PTH101, S103  # it must pass; the name of the folder cannot be guessed
        # From the inside out: until the workspace itself is the run's user's, nobody else reaches what is in it.
        give_away(workspace, uid)
        for folder in (workspace.work, workspace.home, workspace.tmp):
            os.chown(folder, uid, uid, follow_symlinks=False)

    def _launch(self, command: list[str], environment: dict[str, str], cwd: bytes) -> Launch:
        policy, uid = self._policy, self._uid
        # It may hold what is the owner's, so it cannot be read; git gives up on a file that is there and cannot be.
        environment = {"GIT_CONFIG_NOSYSTEM": "1"} | seccomp.WITHOUT_TIMERS | environment
        script = script_position(command, environment)
        rules = self._rules()
        open_network = policy.network.mode == "host"
        program = seccomp.program(
            platform.machine(),
            seccomp.LANDLOCK,
            # With the host's network all of the Internet's, never a path to a local service.
            sockets=(seccomp.AF_INET, seccomp.AF_INET6, seccomp.AF_NETLINK) if open_network else (),
            pretend_metadata=pretends_metadata(policy),
            guarded=_guarded(uid) if self._version < landlock.ABI_SCOPE else None,
            refuse_truncate=self._version < landlock.ABI_TRUNCATE,
            strict=policy.syscalls == "strict",
        )
        processes = None
        # Not enforced for root by the kernel, so a run as root would only be counted.
        if policy.pids is not None and (uid or os.geteuid()):
            alone = is_own_id(uid)  # nobody else's processes count
            processes = policy.pids if alone else room_for_processes(os.geteuid() if uid is None else uid, policy.pids)
        ours, theirs = socket.socketpair()
        self._init = InitControl(ours)
        self._given.append(theirs.detach())
        job = {
            "agent": os.getpid(),
            "host": self._given[0],
            "argv": [encode(part) for part in command],
            "env": {encode(name): encode(value) for name, value in environment.items()},
            "script": script,
            "uid": uid,
            "limits": list(process_limits(policy, processes)),
            "landlock": (rules.attributes, list(rules.rules), rules.flags),
            "filter": program,
            "placeholder": SUPERVISOR_PLACEHOLDER,
        }
        self._given.append(memory_file(marshal.dumps((code_of("landlock.py"), job))))
        # Isolated: nothing a run was given decides what is loaded before it is confined.
        interpreter = sys.executable if script is None else command[0]
        flags = ("-I", "-S", "-B") if script is None else ("-I", "-B", "-u", "-X", "utf8")
        return Launch(
            argv=tuple(encode(part) for part in (interpreter, *flags, "-c", _BOOTSTRAP, str(self._given[1]))),
            env={encode(name): encode(environment[name]) for name in _PASSED_ON},
            cwd=cwd,
            pass_fds=tuple(self._given),
        )

    def _rules(self) -> landlock.Ruleset:
        assert self._workspace is not None  # noqa: S101  # made before
        policy = self._policy
        readable = [os.path.abspath(mount.source) for mount in self._request.mounts]  # noqa: PTH100
        readable += policy.extra_ro
        if policy.python is not None:
            prefix = os.path.dirname(os.path.dirname(policy.python))  # noqa: PTH120
            base = os.path.dirname(os.path.dirname(os.path.realpath(policy.python)))  # noqa: PTH120
            readable += landlock.python_folders((prefix, base))
        return landlock.ruleset(
            self._version,
            read_only=readable,
            read_write=(self._workspace.work, self._workspace.tmp),
            tcp=policy.network.mode == "host",
        )

    def _end_processes(self, result: EndReport) -> None:
        child = self.child
        cancelled = self._ordered
        if not cancelled:
            # The supervisor ends by itself when nobody is left; only what stays is swept, and counted.
            if nobody_writes(child):
                self._wait_for_supervisor(LEAVING_SECONDS)
            self._tell(signal.SIGUSR1)
        self._wait_for_supervisor(_SWEEP_SECONDS)
        init = self._init
        assert init is not None  # noqa: S101  # made before
        init.listen()
        result.status, result.killed = init.status, init.swept
        if init.used is not None:
            result.cpu_seconds, result.max_rss = init.used
        result.rest = (drain(child.stdout), drain(child.stderr))
        take_status(child)
        self._gone = child.waited is not None
        clean = child.waited is not None and child.waited[0] == 0
        if not clean:  # the supervisor itself was killed; what it looked after is found by its marks
            killed, result.survivors, met = end_run(self.marks)
            result.killed += killed
            reap_adopted(child.pid, met)
            if not self._gone:
                wait_until_ended(child, 1.0)
                take_status(child)
                self._gone = True
        if cancelled:
            if result.status is None:
                result.status = int(signal.SIGKILL)  # ours, before the supervisor could see it
            return
        if init.failure is not None:
            raise not_started(self._request.argv[0], *init.failure)
        if result.status is None:
            raise SandboxError(
                "The supervisor of the run was killed by something outside of the sandbox, perhaps because the system "
                "has no memory left; it is not known how the command ended."
            )

    def _wait_for_supervisor(self, seconds: float) -> None:
        if self._supervisor is None:
            wait_until_ended(self.child, seconds)
        else:
            is_readable(self._supervisor, seconds)

    def _never_started(self, result: EndReport) -> bool:  # noqa: ARG002  # said by the report instead
        return False

    def _close(self) -> None:
        self.child.pidfd, self._supervisor = self._supervisor, None
        super()._close()
        self._close_own()

    def _close_own(self) -> None:
        if self._init is not None:
            self._init.close()


class LandlockLevel(LocalLevel):
    """See the module; nothing that could be installed makes it work."""

    level = IsolationLevel.LANDLOCK

    def problem(self) -> str | None:
        """Why it does not work here, found by running it once per process; None when it does."""
        return answered_once(self.level, lambda: unsupported() or self._try())

    def refusal(self, request: ExecutionRequest, policy: SandboxPolicy) -> str | None:  # noqa: ARG002
        """What the policy demands that this level cannot do; None when there is nothing."""
        if policy.network.mode in {"loopback", "allow"}:
            return f"network {policy.network.mode!r} needs a network namespace"
        if policy.run_as == 0:
            return "run_as=0 keeps root's rights, which Landlock and a filter do not contain"
        if policy.run_as is not None and os.geteuid() not in {0, policy.run_as}:
            return f"run_as={policy.run_as} needs an agent that runs as root"
        return None

    def new_run(self, request: ExecutionRequest, policy: SandboxPolicy) -> ConfinedRun:
        """A run that is not started yet."""
        return ConfinedRun(request, policy, landlock.abi())

    def report(self, policy: SandboxPolicy) -> Enforcement:
        """Who enforces what for a run under ``policy``, and what is not fully enforced."""
        return landlock_report(policy, landlock.abi())

    def _try(self) -> str | None:
        return (blindness() or trial(self.new_run)) if landlock.abi() else landlock.absence()


def blindness() -> str | None:
    """Why an agent could not see what runs under other user ids hold open, as a clause; None when it can (row 340)."""
    if os.geteuid() != 0:
        return None
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    if found is not None and int(found[1], 16) >> _CAP_SYS_PTRACE & 1:
        return None
    return (
        "the agent is root without CAP_SYS_PTRACE, so nobody would see what runs hold in memory and on the disk; give "
        "it this capability and CAP_DAC_READ_SEARCH, or run it as another user"
    )


def landlock_report(policy: SandboxPolicy, version: int) -> Enforcement:
    """Who enforces what for a run under ``policy``, with this version of Landlock."""
    scoped = version >= landlock.ABI_SCOPE
    watched = "+watchdog" * watchdog.works_here()
    network = "seccomp+landlock" if version >= landlock.ABI_TCP else "seccomp"
    enforced = {
        "files": f"landlock (ABI {version})" + "+seccomp" * pretends_metadata(policy),
        "network": "none" if policy.network.mode == "host" else network,
        "processes": "supervisor+" + ("landlock" if scoped else "seccomp"),
        "memory": f"rlimit{watched}",
        "pids": f"rlimit{watched}",
        "disk": f"rlimit{watched}",
        "cpu": cpu_enforced(policy),
        "syscalls": "seccomp",
    }
    sentences = [
        "files: whether a path outside of the sandbox exists, its size, its owner and where a link leads can be seen; "
        "no content can, nor extended attributes, which by path do not exist, not even for the run's own files.",
        "files: /tmp itself cannot be used, only TMPDIR; there is no /dev/shm and of /proc only cpuinfo and meminfo.",
    ]
    if version < landlock.ABI_REFER:
        sentences.append("files: this kernel lets a script rename and link only within one folder (Landlock ABI 1).")
    if version < landlock.ABI_TRUNCATE:
        sentences.append("files: truncate() is refused everywhere, because this kernel's Landlock does not cover it.")
    if not scoped:
        sentences.append(_signals(policy))
    if folders := _mounting_folders():
        sentences.append(
            f"network: below {', '.join(folders)} this machine mounts what anybody names, from other machines; "
            "so a script can send words to them by looking for a path. Stop the automounter, or require 'namespaces'."
        )
    return Enforcement(FrozenMapping(enforced), (*sentences, *_degraded(policy)))


@functools.cache
def _mounting_folders(mounts: str = "/proc/self/mounts") -> tuple[str, ...]:
    """Folders whose paths are looked up elsewhere, by automounters: Landlock looks only at opening (row 298)."""
    try:
        with open(mounts, errors="replace") as stream:
            fields = [line.split() for line in stream]
    except OSError:
        return ()
    found = [
        where
        for _, where, kind, options, *_ in fields
        if (kind == "autofs" and "indirect" in options.split(",")) or kind == "afs"
    ]
    return tuple(dict.fromkeys(found))[:_NAMED_FOLDERS]


def _signals(policy: SandboxPolicy) -> str:
    if run_uid(policy) is None:
        return (
            "processes: the agent, its process group and the threads it has when a run begins (at most "
            f"{GUARDED_AT_MOST}) cannot be signalled; threads it starts later and other processes of its user can be, "
            "and through the id of a thread the whole agent."
        )
    if policy.run_as is None and is_own_id(own_id(run_uid(policy))):
        return "processes: what the run itself started can be signalled; each run has a user id of its own."
    return f"processes: other processes of user {run_uid(policy)} can be signalled, also those of another run."


def _degraded(policy: SandboxPolicy) -> list[str]:
    sentences = []
    if policy.network.mode == "host":
        sentences.append("network: the script has the host's network, by choice; unix sockets are refused.")
    if pretends_metadata(policy):
        sentences.append(
            "files: chmod, chown, utime and setxattr report success and change nothing; start own programs by their "
            "interpreter."
        )
    if policy.memory_bytes is not None:
        sentences += [
            "memory: memory_bytes holds at once for what a process can write; the sum is checked ten times a second.",
            HIDDEN_MEMORY,
        ]
    if policy.pids is not None:
        sentences.append(
            "pids: the kernel counts all processes of the run's user together; a run's limit leaves room for the runs "
            "there are when it begins, so it is larger then, and runs that begin later can use it up."
        )
    if policy.workspace_bytes is not None or policy.workspace_inodes is not None or policy.tmp_bytes is not None:
        sentences.append(
            "disk: file_bytes holds at once for each file; workspace and TMPDIR are checked several times a second and "
            "at the end, and scripts wrote up to 1.1 GB before they were ended, whatever the limit: 4 times the "
            "default of workspace_bytes, 18 times that of tmp_bytes; 3 GB where they had made 19,500 folders before. "
            "Deleted files count while a process of the run "
            "has them open, but not where only a mapping, a socket or a process that hides from the agent holds them."
        )
    return [*sentences, *cpu_sentences(policy), *kernel_sentences()]


# Find out whether Landlock works here by running it once, with a program that tries what it must not be able to.

# Says in one sentence the first thing that is not as it must be; "outside" is a file to keep out of reach.
_PROGRAM = """
import _socket, sys
with open("trial.txt", "w") as file:
    file.write("written")
try:
    _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    sys.exit("a socket could be made")
except PermissionError:
    pass
try:
    open(outside).close()
    sys.exit("a file outside of the sandbox could be read")
except PermissionError:
    pass
"""


def trial(make: Callable[[ExecutionRequest, SandboxPolicy], ConfinedRun]) -> str | None:
    """Run the level once; why it does not work here, as a clause, or None."""
    policy = SandboxPolicy(wall_seconds=TRIAL_SECONDS)
    try:
        with tempfile.NamedTemporaryFile(prefix=temporary_prefix("trial")) as secret:
            # In the program's text, because a path in an argument would be translated to the run's own /tmp.
            program = f"outside = {secret.name!r}\n{_PROGRAM}"
            report = trial_run(make(ExecutionRequest((sys.executable, "-I", "-c", program), policy), policy))
    except (SandboxError, OSError) as error:
        return str(getattr(error, "message", error)).rstrip(".")
    if report is None:
        return f"a trial run did not end in {TRIAL_SECONDS:.0f} seconds"
    if report.status is None:
        return "a trial run ended in an unknown way"
    code = os.waitstatus_to_exitcode(report.status)
    if code != 0:
        said = report.rest[1].decode("utf-8", "replace").strip().rpartition("\n")[2]
        return f"in a trial run, {said}" if code == 1 and said else f"a trial run ended with {code}: {said}"
    return None
