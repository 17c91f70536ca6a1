"""The host's side of the init programs: their code, a job, what :mod:`.program` tells, what failed inside."""

from __future__ import annotations

import errno
import functools
import marshal
import os
import re
import select
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import WORK_DIR
from adk_skills_agent.sandbox.process.command import encode

_SEND_SECONDS = 20.0
_NEWS_BYTES = 4096
_NUMBER = re.compile(rb"[0-9]{1,15}")
_MOST_NEWS_BYTES = 64 << 10
"""Of all that is told; a few hundred are."""
# Here and not in the init program, so that no frame of ours is in the script's traceback.
THEN_THE_SCRIPT = """\
try:
    exec(_code, _script)
except BaseException as _error:
    _error.__traceback__ = _error.__traceback__.tb_next
    _ended(_error)
    raise
_ended(None)
"""
"""How the program of a process ends that runs the script itself."""

_BOOTSTRAP = f"""\
import marshal, posix, sys
_data = int(sys.argv[1])
_init, _spec = marshal.loads(posix.pread(_data, posix.fstat(_data).st_size, 0))
posix.close(_data)
_names = {{"__name__": "adk_skills_init"}}
exec(_init, _names)
_code, _script, _ended = _names["run_init"](_spec)
{THEN_THE_SCRIPT}"""


@dataclass(frozen=True, slots=True)
class Job:
    """What the init program is to do, as the sandbox sees it.

    Attributes:
        script: Position in ``argv`` of a Python script the init program runs itself; None to become the command.
        limits: Resource, soft and hard limit.
        stdin: A descriptor to read from; None for nothing.
    """

    argv: Sequence[str]
    env: dict[str, str]
    cwd: str
    script: int | None
    limits: tuple[tuple[int, int, int], ...]
    stdin: int | None = None


def init_line(python: str, flags: Sequence[str]) -> list[str]:
    """The command line of the init program; the descriptor of :func:`init_program` is still to be appended."""
    return [python, *flags, "-c", _BOOTSTRAP]


def init_program(
    uid: int | None, preload: tuple[str, ...], limits: tuple[tuple[int, int, int], ...], *, site: str
) -> bytes:
    """What the init program reads first: its code, the user it becomes, what it imports ahead and under which limits.

    ``site`` is the interpreter that it becomes, by its path in the sandbox, when it was started as that one's base and
    without ``site``: what runs code of packages is for after root is given up and the limits are set.
    """
    spec = {"uid": uid, "preload": list(preload), "limits": limits, "site": site}
    return marshal.dumps((code_of("program.py"), spec))


@functools.lru_cache(maxsize=4)
def code_of(*files: str) -> CodeType:
    """A program for another process, compiled once per agent, from its files by their paths from this folder."""
    here = Path(__file__).parent
    shared = (here.parents[1] / "supervisor" / "script_end.py", here / "payload.py")
    source = b"\n".join(path.read_bytes() for path in (*shared, *(here / name for name in files)))
    return compile(source, "init", "exec", dont_inherit=True, optimize=2)


class InitControl:
    """The host's end of the init program's socket, its standard input until there is a job.

    Attributes:
        status: How the command ended, in the encoding of ``wait``; None while that is not known.
        used: Processor time in seconds of all processes but process 1, that before the job included, and the most
            memory one of them had, in bytes; None until all have ended.
        failure: The step that failed before the command ran, and the error number.
        swept: How many processes were ended, where process 1 has no namespace that ends with it.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        connection.setblocking(False)
        self.status: int | None = None
        self.used: tuple[float, int] | None = None
        self.failure: tuple[str, int] | None = None
        self.swept = 0
        self._said = b""
        self._told = 0
        self._is_ready = False
        self._is_over = False  # the sandbox's end of the socket is closed

    @property
    def descriptor(self) -> int:
        """Becomes readable when the command has ended, or process 1 has."""
        return self._connection.fileno()

    def allow_set_up(self) -> None:
        """Let bubblewrap go on: the user ids are mapped."""
        self._connection.send(b"x")

    def close(self) -> None:
        """Close the socket."""
        self._connection.close()

    def wait_until_ready(self, seconds: float) -> bool:
        """Whether it is ready; False when it ended before."""
        self._listen_until(lambda: self._is_ready or self.failure is not None, seconds)
        if self.failure is not None:
            raise not_started("", *self.failure)
        if not self._is_ready and not self._is_over:
            raise SandboxError(f"The sandbox was not ready after {seconds:.0f} seconds.")
        return self._is_ready

    def wait_until_used(self, seconds: float) -> None:
        """Wait until all processes but process 1 have ended and it has told what they used, at most so long."""
        self._listen_until(lambda: self.used is not None, seconds)

    def _listen_until(self, done: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        while True:
            self.listen()
            left = deadline - time.monotonic()
            if done() or self._is_over or left <= 0:
                return
            poll.poll(left * 1000)

    def give(self, job: Job) -> None:
        """Let the job begin."""
        data = marshal.dumps(
            {
                "argv": [encode(part) for part in job.argv],
                "env": {encode(name): encode(value) for name, value in job.env.items()},
                "cwd": encode(job.cwd),
                "script": job.script,
                "limits": list(job.limits),
                "stdin": job.stdin is not None,
            }
        )
        message = len(data).to_bytes(8, sys.byteorder) + data
        try:
            self._connection.settimeout(_SEND_SECONDS)
            self._connection.sendall(message)
            if job.stdin is not None:
                socket.send_fds(self._connection, [b"x"], [job.stdin])
            self._connection.setblocking(False)
        except OSError as error:
            reason = error.strerror or error
            raise SandboxError(f"The sandbox ended before its command began: {reason}.") from error

    def listen(self) -> None:
        """Take what was said until now; never blocks.

        Code that was imported ahead may hold the other end: what it says is bounded, and nothing of it raises.
        """
        while not self._is_over:
            try:
                data = self._connection.recv(_NEWS_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            self._told += len(data)
            if data and self._told <= _MOST_NEWS_BYTES:
                self._take(data)
            else:
                self._is_over = True

    def _take(self, data: bytes) -> None:
        *lines, self._said = (self._said + data).split(b"\n")
        for line in lines:
            match line.split():
                case [b"ready"]:
                    self._is_ready = True
                case [b"ended", status] if _NUMBER.fullmatch(status):
                    self.status = int(status)
                case [b"failed", step, number] if _NUMBER.fullmatch(number):
                    self.failure = (step.decode("utf-8", "replace"), int(number))
                case [b"used", microseconds, size] if _NUMBER.fullmatch(microseconds) and _NUMBER.fullmatch(size):
                    self.used = int(microseconds) / 1e6, int(size) << 10
                case [b"swept", count] if _NUMBER.fullmatch(count):
                    self.swept = int(count)
                case _:
                    pass


def not_started(command: str, step: str, number: int) -> Exception:
    """What to raise when a step (``exec`` for the command itself) failed inside, before the command ran."""
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
    if number == errno.EACCES and os.geteuid() == 0:
        reason += ". The agent is root and its scripts run as another user: make the interpreter and its packages "
        reason += "readable for others (chmod -R o+rX)"
    if step == "exec":
        return SandboxError(f"The command {command!r} could not be started: {reason}.")
    return SandboxError(f"The sandbox could not {step.replace('_', ' ')}: {reason}.")


# Which command lines a running interpreter of ours can carry out itself, which saves the start of another.

USUAL_FLAGS = ("-s", "-B", "-X", "utf8")
"""The switches scripts of skills are run with."""

SETTINGS_OF_KERNEL = ("sys", "sysrq-trigger", "irq", "bus")
"""Names in /proc through which a process with root's user id could change the machine."""

MOVED = "/opt"
"""Where an interpreter is shown that is in a folder called as the workspace on the host."""

# What an interpreter or its C library reads when it starts, before a running one could be given it.
_READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "GLIBC_", "MALLOC_", "TZ")
_SWITCHES = frozenset({"-s", "-B", "-u"})
BASE = {
    "LANG": "C.UTF-8",
    "PYTHONUTF8": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONNOUSERSITE": "1",
    "PYTHONUNBUFFERED": "1",
}
"""Variables of the base environment an interpreter reads at its start."""


def shown_at(path: str) -> str:
    """Where a host path of an interpreter is inside: the same, unless that is in the workspace, which stays empty."""
    return f"{MOVED}{path}" if path.startswith(f"{WORK_DIR}/") else path


def is_usual(python: str, flags: Sequence[str]) -> bool:
    """Whether an interpreter is the agent's own, and its switches set nothing the base environment would not."""
    own = os.path.dirname(shown_at(sys.executable)) == os.path.dirname(python)  # noqa: PTH120
    return own and set(flags) <= {*_SWITCHES, "-X", "utf8"}


def script_position(command: list[str], environment: Mapping[str, str], python: str | None = None) -> int | None:
    """Where the script is in a command line a running interpreter can carry out; None when it must be started.

    Only for the agent's own interpreter, or a virtual environment of it (``python``), with the switches scripts are run
    with and environment variables that change nothing about it: modules come from beside the script there, too, and
    those of the skill's other folders are for what it starts.
    """
    own = environment.get("SKILL_DIR", "")
    modules = environment.get("PYTHONPATH", "").split(":") if "PYTHONSAFEPATH" in environment else [""]
    known = BASE
    if own and all(f"{folder}/".startswith(f"{own}/") for folder in modules):
        known = BASE | {name: environment[name] for name in ("PYTHONPATH", "PYTHONSAFEPATH")}
    folders = {os.path.dirname(path) for path in (sys.executable, python) if path}  # noqa: PTH120
    if os.path.dirname(command[0]) not in folders or not is_same_interpreter(command[0]):  # noqa: PTH120
        return None
    for name, value in environment.items():
        if name.startswith(_READ_AT_START) and known.get(name) != value:
            return None
    position = 1
    while position < len(command):
        word = command[position]
        if word in _SWITCHES:
            position += 1
        elif word == "-X" and command[position + 1 : position + 2] == ["utf8"]:
            position += 2
        else:
            break
    if position >= len(command) or not command[position].endswith(".py") or command[position].startswith("-"):
        return None
    return position


@functools.lru_cache(maxsize=16)
def is_same_interpreter(path: str) -> bool:
    """Whether it is the program that runs the agent, in whatever virtual environment."""
    return os.path.realpath(path) == os.path.realpath(sys.executable)
