"""One run at the landlock or seccomp level: the folders of a :class:`LocalRun`, the command behind :mod:`.stub`."""

from __future__ import annotations

import contextlib
import errno
import functools
import marshal
import os
import re
import select
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.local.aftermath import Aftermath
from adk_skills_agent.sandbox.local.command import encode
from adk_skills_agent.sandbox.local.confinement import SUPERVISOR_PLACEHOLDER, Confinement
from adk_skills_agent.sandbox.local.environment import RUN_ID_VARIABLE
from adk_skills_agent.sandbox.local.exit_watch import nobody_writes, wait_until_ended
from adk_skills_agent.sandbox.local.memfd import memory_file
from adk_skills_agent.sandbox.local.own_interpreter import script_position
from adk_skills_agent.sandbox.local.processes import LEAVING_SECONDS, end_run, reap_adopted
from adk_skills_agent.sandbox.local.run import LocalRun, drain
from adk_skills_agent.sandbox.local.spawner import Child, Launch
from adk_skills_agent.sandbox.local.workspace import Workspace, stamp

Confine = Callable[[tuple[str, ...], tuple[str, ...]], Confinement]
"""From the folders to read and the folders to write to what confines the run."""

_SWEEP_SECONDS = 5.0
_REPORT_BYTES = 4096
_REPORT_WORDS = (b"ended ", b"failed ", b"swept ", b"others ")
_PASSED_ON = ("PATH", "LANG", RUN_ID_VARIABLE)

# The last lines are here and not in the stub, so that no frame of ours is in the script's traceback.
_BOOTSTRAP = """\
import marshal, posix, sys
_report = int(sys.argv[1])
_stub, _job = marshal.loads(posix.pread(_report, posix.fstat(_report).st_size, 0))
_names = {"__name__": "adk_skills_stub"}
exec(_stub, _names)
_code, _script = _names["main"](_report, _job)
try:
    exec(_code, _script)
except BaseException as _error:
    _error.__traceback__ = _error.__traceback__.tb_next
    raise
"""


@dataclass(frozen=True, slots=True)
class Report:
    """What the supervisor wrote.

    Attributes:
        status: As ``wait`` gives it; None when the command's end was not seen.
        cpu_seconds: Of everything in the run that has ended, strays included.
        max_rss: The largest of them, in bytes.
        swept: Processes that were still alive.
        failure: The step that failed before the command ran, and the error number.
    """

    status: int | None = None
    cpu_seconds: float | None = None
    max_rss: int | None = None
    swept: int = 0
    failure: tuple[str, int] | None = None


class ConfinedRun(LocalRun):
    """A run whose command confines itself through the stub.

    Args:
        request: What to run.
        policy: Its checked policy.
        confine: Makes what confines it.
    """

    def __init__(self, request: ExecutionRequest, policy: SandboxPolicy, confine: Confine) -> None:
        super().__init__(request, policy)
        self._confine = confine
        self._confinement: Confinement
        self._report: int | None = None  # a file in memory the supervisor writes to
        self._ended: int | None = None  # the reading end of a pipe that closes when the command has ended
        self._ended_write: int | None = None
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
            if self._ended_write is not None:
                os.close(self._ended_write)
                self._ended_write = None

    def _take_over(self, child: Child) -> None:
        # The loop watches for the end of the command; the supervisor lives on until it is told to end.
        self._supervisor, child.pidfd = child.pidfd, self._ended
        self._ended = None

    def _own(self, workspace: Workspace) -> None:
        mounts = tuple(os.path.abspath(mount.source) for mount in self._request.mounts)  # noqa: PTH100
        self._confinement = self._confine(mounts, (workspace.work, workspace.tmp))
        uid = self._confinement.uid
        if uid is None:
            return
        os.chmod(workspace.root, 0o711)  # noqa: PTH101, S103  # it must pass; the name of the folder cannot be guessed
        # From the inside out: until the workspace itself is the run's user's, nobody else reaches what is in it, and so
        # nobody can put a link there that would lead this elsewhere.
        for name in workspace.given:
            path = f"{workspace.work}/{name}"
            os.chown(path, uid, uid, follow_symlinks=False)
            workspace.given[name] = stamp(os.lstat(path))
        given = (f"{workspace.work}/{name}" for name in sorted(workspace.given_folders, reverse=True))
        for folder in (*given, workspace.work, workspace.tmp):
            os.chown(folder, uid, uid, follow_symlinks=False)

    def _launch(self, command: list[str], environment: dict[str, str], cwd: bytes) -> Launch:
        confinement = self._confinement
        script = script_position(command, environment)
        rules = confinement.ruleset
        self._ended, self._ended_write = os.pipe()
        job = {
            "agent": os.getpid(),
            "ended": self._ended_write,
            "argv": [encode(part) for part in command],
            "env": {encode(name): encode(value) for name, value in environment.items()},
            "script": script,
            "uid": confinement.uid,
            "search": confinement.search,
            "limits": list(confinement.limits),
            "landlock": None if rules is None else (rules.attributes, list(rules.rules)),
            "filter": confinement.program,
            "placeholder": SUPERVISOR_PLACEHOLDER,
        }
        self._report = memory_file(marshal.dumps((stub_code(), job)))
        # Isolated: nothing a run was given decides what is loaded before it is confined.
        interpreter = sys.executable if script is None else command[0]
        flags = ("-I", "-S", "-B") if script is None else ("-I", "-B", "-u", "-X", "utf8")
        return Launch(
            argv=tuple(encode(part) for part in (interpreter, *flags, "-c", _BOOTSTRAP, str(self._report))),
            env={encode(name): encode(environment[name]) for name in _PASSED_ON},
            cwd=cwd,
            pass_fds=(self._report, self._ended_write),
        )

    def _end_processes(self, result: Aftermath) -> None:
        child = self.child
        cancelled = self._ordered
        if not cancelled:
            # The supervisor ends by itself when nobody is left; only what stays is swept, and counted.
            if nobody_writes(child):
                self._wait_for_supervisor(LEAVING_SECONDS)
            self._tell(signal.SIGUSR1)
        self._wait_for_supervisor(_SWEEP_SECONDS)
        report = read_report(self._report)
        result.rest = (drain(child.stdout), drain(child.stderr))
        with contextlib.suppress(ChildProcessError):
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            child.waited = (status, usage) if pid else None
        self._gone = child.waited is not None
        clean = child.waited is not None and child.waited[0] == 0
        result.killed = report.swept
        if not clean:  # the supervisor itself was killed; what it looked after is found by its marks
            killed, result.survivors, met = end_run(self.marks)
            result.killed += killed
            reap_adopted(child.pid, met)
            if not self._gone:
                wait_until_ended(child, 1.0)
                with contextlib.suppress(ChildProcessError):
                    pid, status, usage = os.wait4(child.pid, os.WNOHANG)
                    child.waited = (status, usage) if pid else None
                self._gone = True
        result.status = report.status
        result.cpu_seconds = report.cpu_seconds
        result.max_rss = report.max_rss
        if report.status is None and cancelled:
            result.status = int(signal.SIGKILL)  # ours, before the supervisor could see it
        if not cancelled:
            self._check(report)

    def _check(self, report: Report) -> None:
        if report.failure is not None:
            raise not_started(self._request.argv[0], *report.failure)
        if report.status is None:
            raise SandboxError(
                "The supervisor of the run was killed by something outside of the sandbox, perhaps because the system "
                "has no memory left; it is not known how the command ended."
            )

    def _wait_for_supervisor(self, seconds: float) -> None:
        if self._supervisor is None:
            wait_until_ended(self.child, seconds)
            return
        poll = select.poll()
        poll.register(self._supervisor, select.POLLIN)
        poll.poll(seconds * 1000)

    def _never_started(self, result: Aftermath) -> bool:  # noqa: ARG002  # said by the report instead
        return False

    def _close(self) -> None:
        super()._close()
        self._close_own()

    def _close_own(self) -> None:
        for descriptor in (self._report, self._ended, self._supervisor):
            if descriptor is not None:
                os.close(descriptor)
        self._report = self._ended = self._supervisor = None


@functools.lru_cache(maxsize=1)
def stub_code() -> CodeType:
    """The stub and how a script begins, compiled once per agent; the same interpreter runs it."""
    here = Path(__file__)
    source = b"\n".join(here.with_name(name).read_bytes() for name in ("script_begin.py", "stub.py"))
    return compile(source, "stub", "exec", dont_inherit=True, optimize=2)


def read_report(descriptor: int | None) -> Report:
    """The supervisor's report as far as it got."""
    text = os.pread(descriptor, _REPORT_BYTES, 0) if descriptor is not None else b""
    # Before the stub has taken it, the job is in there.
    lines = text.decode("ascii", "replace").splitlines() if text.startswith(_REPORT_WORDS) else []
    status = cpu = rss = failure = None
    others, swept = 0.0, 0
    for line in lines:
        word, *values = line.split()
        if word == "ended":
            status, cpu, rss = int(values[0]), float(values[1]) + float(values[2]), int(values[3]) * 1024
        elif word == "failed":
            failure = (values[0], int(values[1]))
        elif word == "swept":
            swept = int(values[0])
        elif word == "others":
            others, rss = float(values[0]) + float(values[1]), max(rss or 0, int(values[2]) * 1024)
    return Report(status, None if cpu is None else cpu + others, rss, swept, failure)


def not_started(command: str, step: str, number: int) -> Exception:
    """What to raise when a step failed inside, before the command ran.

    Args:
        command: As a sentence may show it.
        step: ``exec`` for the start of the command itself.
        number: The error number; 0 when there is none.
    """
    if step == "exec" and number == errno.E2BIG:
        return ValueError(
            "The arguments are too large for this system (Linux allows 131,071 bytes for one). Pass the data as an "
            "input file or on stdin."
        )
    # Without an error number: what was done, the module it was done with, the class of the exception.
    what, *which, kind = re.split("[:-]", step) if not number else (step, "")
    if what == "preload" and which:
        return SandboxError(f"The module {which[0]!r} of preload cannot be imported in a sandbox: {kind}.")
    step, reason = what, os.strerror(number) if number else f"an unexpected {kind}"
    if step == "exec":
        return SandboxError(f"The command {command!r} could not be started: {reason}.")
    return SandboxError(f"The sandbox could not {step.replace('_', ' ')}: {reason}.")
