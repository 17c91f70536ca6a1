"""The host's side of :mod:`.guest`: its command line, its job, and what it tells."""

from __future__ import annotations

import functools
import marshal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.local.command import encode, encoded
from adk_skills_agent.sandbox.local.confined_run import not_started, stub_code
from adk_skills_agent.sandbox.local.first_process import Control

_SEND_SECONDS = 20.0
_NEWS_BYTES = 4096
# Here and not in the guest, so that no frame of ours is in the script's traceback.
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
_stub, _guest, _spec = marshal.loads(posix.pread(_data, posix.fstat(_data).st_size, 0))
posix.close(_data)
_names = {{"__name__": "adk_skills_guest"}}
exec(_stub, _names)
exec(_guest, _names)
_code, _script, _ended = _names["main"](_spec)
{THEN_THE_SCRIPT}"""


@dataclass(frozen=True, slots=True)
class Job:
    """What a guest is to do.

    Attributes:
        argv: The command as the sandbox sees it.
        env: Its whole environment.
        cwd: Its working directory.
        script: Position in ``argv`` of a Python script the guest runs itself; None to become the command.
        limits: Resource, soft and hard limit.
        stdin: A descriptor to read from; None for nothing.
    """

    argv: Sequence[str]
    env: dict[str, str]
    cwd: str
    script: int | None
    limits: tuple[tuple[int, int, int], ...]
    stdin: int | None = None


def guest_line(python: str, flags: Sequence[str]) -> list[str]:
    """The command line of a guest; the descriptor of :func:`guest_program` is still to be appended.

    Args:
        python: The interpreter that runs the agent, as the sandbox sees it.
        flags: The switches its script is to find set.
    """
    return [python, *flags, "-c", _BOOTSTRAP]


@functools.lru_cache(maxsize=16)
def guest_program(uid: int | None, preload: tuple[str, ...], *, ahead: bool) -> bytes:
    """What a guest reads first.

    Args:
        uid: The user and group id it takes on; None keeps the agent's.
        preload: Modules it imports before it is ready.
        ahead: Whether its job will not come at once.
    """
    return marshal.dumps((stub_code(), guest_code(), {"uid": uid, "preload": list(preload), "ahead": ahead}))


@functools.lru_cache(maxsize=1)
def guest_code() -> CodeType:
    """The guest, compiled once per agent; the same interpreter runs it."""
    here = Path(__file__)
    parts = (here.parents[1] / "script_end.py", here.with_name("guest_end.py"), here.with_name("guest.py"))
    source = b"\n".join(part.read_bytes() for part in parts)
    return compile(source, "guest", "exec", dont_inherit=True, optimize=2)


class GuestControl(Control):
    """The host's end of a guest's socket.

    Attributes:
        status: How the command ended, in the encoding of ``wait``; None while that is not known.
        alone: Whether nothing but process 1 is left in the sandbox, and that is about to end.
        cpu_seconds: Processor time of all others, once alone, that before the job included.
        max_rss: The largest of them, in bytes.
        failure: The step that failed before the command ran, and the error number.
    """

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self.status: int | None = None
        self.alone = False
        self.cpu_seconds = 0.0
        self.max_rss = 0
        self.failure: tuple[str, int] | None = None
        self._said = b""

    def wait_until_ready(self, seconds: float) -> bool:
        """Whether it is ready; False when it ended before.

        Raises:
            SandboxError: It says what failed, or nothing came in so many seconds.
        """
        said = self._first_line(seconds)
        if said == b"ready\n":
            return True
        self._take(said)
        if self.failure is not None:
            raise not_started("", *self.failure)
        return False

    def give(self, job: Job) -> None:
        """Let the job begin.

        Raises:
            SandboxError: The sandbox is gone.
        """
        data = marshal.dumps(
            {
                "argv": [encode(part) for part in job.argv],
                "env": encoded(job.env),
                "cwd": encode(job.cwd),
                "script": job.script,
                "limits": list(job.limits),
                "stdin": job.stdin is not None,
            }
        )
        message = len(data).to_bytes(8, sys.byteorder) + data
        try:
            sent = self._send_at_once(message)
            if sent == len(message) and job.stdin is None:
                return
            self._connection.settimeout(_SEND_SECONDS)
            self._connection.sendall(message[sent:])
            if job.stdin is not None:
                socket.send_fds(self._connection, [b"x"], [job.stdin])
            self._connection.setblocking(False)
        except OSError as error:
            reason = error.strerror or error
            raise SandboxError(f"The sandbox ended before its command began: {reason}.") from error

    def _send_at_once(self, message: bytes) -> int:
        """How much of it went without waiting."""
        try:
            return self._connection.send(message, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return 0

    def listen(self) -> None:
        """Take what was said until now; never blocks."""
        while not self.alone:  # its last word
            try:
                data = self._connection.recv(_NEWS_BYTES)
            except OSError:
                return
            if not data:
                return
            self._take(data)

    def _take(self, data: bytes) -> None:
        *lines, self._said = (self._said + data).split(b"\n")
        for line in lines:
            match line.split():
                case [b"ended", status]:
                    self.status = int(status)
                case [b"failed", step, number]:
                    self.failure = (step.decode("utf-8", "replace"), int(number))
                case [b"alone", microseconds, size]:
                    self.alone = True
                    self.cpu_seconds, self.max_rss = int(microseconds) / 1e6, int(size) << 10
                case _:
                    pass
