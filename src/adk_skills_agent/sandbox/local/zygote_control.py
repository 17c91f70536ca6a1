"""The host's side of :mod:`.zygote`: a process that makes sandboxes by forking, which is four times faster.

It is started in the background once a process has run several scripts, and ends with it. Where it cannot be, or when
it fails, bubblewrap makes the sandboxes, and it is not tried again.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import marshal
import os
import platform
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from types import CodeType

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import WORK_DIR
from adk_skills_agent.sandbox.local.command import encode
from adk_skills_agent.sandbox.local.confined_run import stub_code
from adk_skills_agent.sandbox.local.environment import search_path
from adk_skills_agent.sandbox.local.exact_end import children_of
from adk_skills_agent.sandbox.local.guest_control import THEN_THE_SCRIPT, GuestControl, guest_code
from adk_skills_agent.sandbox.local.memfd import memory_file
from adk_skills_agent.sandbox.local.mount_steps import described
from adk_skills_agent.sandbox.local.own_interpreter import BASE, USUAL_FLAGS
from adk_skills_agent.sandbox.local.private_folders import PrivateFolders
from adk_skills_agent.sandbox.local.python_view import MOVED, python_folders_of, shown_at
from adk_skills_agent.sandbox.local.run import TMP_DIR
from adk_skills_agent.sandbox.local.sandbox_start import READY_SECONDS, SandboxSpec, Started
from adk_skills_agent.sandbox.local.spawner import DOORS, Child, Launch, own_peak, spawner
from adk_skills_agent.sandbox.local.syscall_numbers import NUMBERS
from adk_skills_agent.sandbox.local.user_mapping import map_users

_ANSWER_BYTES = 4096
_FIRST_STAGE = """\
import marshal, posix, sys
_data = int(sys.argv[1])
_stub, _root, _zygote, _spec = marshal.loads(posix.pread(_data, posix.fstat(_data).st_size, 0))
_names = {"__name__": "adk_skills_zygote"}
exec(_stub, _names)
exec(_root, _names)
exec(_zygote, _names)
_names["begin"](_spec)
"""
_SECOND_STAGE = f"""\
import marshal, posix, sys
_data = int(sys.argv[1])
_stub, _guest, _root, _zygote, _spec = marshal.loads(posix.pread(_data, posix.fstat(_data).st_size, 0))
posix.close(_data)
_names = {{"__name__": "adk_skills_guest"}}
exec(_stub, _names)
exec(_guest, _names)
_names["guest_main"] = _names["main"]
exec(_root, _names)
exec(_zygote, _names)
_code, _script, _ended = _names["serve"](_spec)
{THEN_THE_SCRIPT}"""

_logger = logging.getLogger("adk_skills_agent.sandbox")


class Zygote:
    """A running one, for one user id.

    Args:
        uid: As whom sandboxes run when the agent is root; None for the agent's own user.

    Raises:
        SandboxError: It cannot be started here; the sentence says why.
        OSError: No descriptor or memory is left.
    """

    def __init__(self, uid: int | None) -> None:
        self._lock = threading.Lock()
        self._uid = uid
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection = ours
        ours.settimeout(READY_SECONDS)
        program = second = None
        try:
            second = memory_file(_second_program())
            program = memory_file(_first_program(uid is not None, second))
            line = (sys.executable, "-I", "-S", "-c", _FIRST_STAGE, str(program))
            self._child = spawner().spawn(
                Launch(
                    tuple(encode(part) for part in line),
                    {},
                    b"/",
                    theirs.fileno(),
                    (program, second),
                    0o022,
                    contextlib.nullcontext,
                )
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            for descriptor in (program, second):
                if descriptor is not None:
                    os.close(descriptor)
        try:
            said = self._hear()
            if said == b"map" and uid is not None:
                map_users(self._child.pid, uid)
                ours.send(b"mapped")
                said = self._hear()
            if said != b"ready":
                raise SandboxError(f"it said {said.decode('ascii', 'replace')!r}")
        except BaseException:
            self.end()
            raise

    def _hear(self) -> bytes:
        try:
            return self._connection.recv(_ANSWER_BYTES)
        except OSError as error:
            raise SandboxError(f"it does not answer: {error.strerror or error}") from error

    def start(
        self, spec: SandboxSpec, python: str | None, flags: tuple[str, ...], preload: tuple[str, ...], *, ahead: bool
    ) -> Started:
        """Make a sandbox in which a guest waits for a job. Blocking, a few milliseconds; see ``ZygoteLife.start``.

        Raises:
            SandboxError: It could not be made.
            OSError: No descriptor or memory is left.
        """
        with contextlib.ExitStack() as given, contextlib.ExitStack() as undo:
            ours, theirs = socket.socketpair()
            control = GuestControl(ours)
            undo.callback(control.close)
            given.callback(theirs.close)
            (out_read, out_write), (err_read, err_write) = _pipe(undo, given), _pipe(undo, given)
            passed = [theirs.fileno(), out_write, err_write]
            told = (described(spec), python, "utf8" in flags, list(preload), ahead, identities(spec.shown))
            passed.append(memory_file(marshal.dumps(told)))
            given.callback(os.close, passed[-1])
            for door in chain.from_iterable(zip(*DOORS.get(), strict=True)):
                passed.append(os.open(door, os.O_WRONLY | os.O_CLOEXEC))
                given.callback(os.close, passed[-1])
            pid = self._ask(passed)
            undo.callback(_end, pid)
            first = os.pidfd_open(pid)
            undo.callback(os.close, first)
            outer = os.dup(first)
            undo.callback(os.close, outer)
            given.close()
            os.set_blocking(out_read, False)
            os.set_blocking(err_read, False)
            if not control.wait_until_ready(READY_SECONDS):
                raise SandboxError("The sandbox could not be set up: it ended before it was ready.")
            folders = PrivateFolders(pid, spec.uid)
            command = next(iter(children_of(pid)), 0)
            child = Child(pid, control.descriptor, out_read, err_read, time.monotonic(), own_peak())
            undo.pop_all()
        return Started(child, outer, pid, first, control, command, folders)

    def _ask(self, passed: list[int]) -> int:
        with self._lock:
            try:
                socket.send_fds(self._connection, [b"sandbox"], passed)
                said = self._connection.recv(_ANSWER_BYTES)
            except OSError as error:
                raise SandboxError(f"it does not answer: {error.strerror or error}") from error
        match said.split():
            case [b"started", pid]:
                return int(pid)
            case _:
                raise SandboxError(f"it said {said.decode('ascii', 'replace')!r}")

    def end(self) -> None:
        """End it; sandboxes it has made go on."""
        _end(self._child.pid)
        with self._lock:  # whoever waits for an answer has heard of the end by now
            self._connection.close()
        for descriptor in (self._child.stdout, self._child.stderr, self._child.pidfd):
            if descriptor is not None:
                os.close(descriptor)

    def let_go(self) -> None:
        """In a forked child: close what is there of the parent's."""
        self._connection.close()
        for descriptor in (self._child.stdout, self._child.stderr, self._child.pidfd):
            if descriptor is not None:
                os.close(descriptor)


def identities(shown: Iterable[tuple[str, str]]) -> list[tuple[int, int]]:
    """Device and inode of what is shown, to be compared by a process that may see another tree of mounts."""
    return [(info.st_dev, info.st_ino) for info in (os.stat(source) for source, _ in shown)]  # noqa: PTH116


def _pipe(undo: contextlib.ExitStack, given: contextlib.ExitStack) -> tuple[int, int]:
    read, write = os.pipe()
    undo.callback(os.close, read)
    given.callback(os.close, write)
    return read, write


def _end(pid: int) -> None:
    """End a child nobody has waited for, so that its number is its own."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


def _first_program(mapped: bool, second: int) -> bytes:
    moved = [(path, shown_at(path)) for path in python_folders_of(None) if shown_at(path) != path]
    path = ":".join(shown_at(folder) for folder in search_path(None).split(":"))  # a script may see it in /proc
    environment = {"PATH": path, "HOME": str(WORK_DIR), "TMPDIR": str(TMP_DIR), **BASE}
    return marshal.dumps(
        (
            stub_code(),
            _code("zygote_root"),
            _code("zygote"),
            {
                "mapped_by_host": mapped,
                "moved": [(encode(path), encode(where)) for path, where in moved],
                "moved_to": encode(MOVED),
                "program": second,
                "line": [shown_at(sys.executable), *USUAL_FLAGS, "-c", _SECOND_STAGE],
                "env": environment,
            },
        )
    )


def _second_program() -> bytes:
    numbers = NUMBERS[platform.machine()]
    spec = {"clone": numbers["clone"], "pivot_root": numbers["pivot_root"]}
    return marshal.dumps((stub_code(), guest_code(), _code("zygote_root"), _code("zygote"), spec))


@functools.lru_cache(maxsize=2)
def _code(name: str) -> CodeType:
    path = Path(__file__).with_name(f"{name}.py")
    return compile(path.read_bytes(), name, "exec", dont_inherit=True, optimize=2)
