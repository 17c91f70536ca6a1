"""The host's side of :mod:`.zygote_program`: a process that makes sandboxes by forking, which is four times faster.

It is started in the background once a process has run several scripts, and ends with it. Where it cannot be, or when
it fails, bubblewrap makes the sandboxes, and it is not tried again.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import marshal
import os
import platform
import signal
import socket
import sys
import threading
import time
from itertools import chain

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import HOME_DIR, TMP_DIR
from adk_skills_agent.sandbox.files.workspace import Workspace, link_mounts
from adk_skills_agent.sandbox.local.cgroup import group_of_run, group_pool
from adk_skills_agent.sandbox.local.init.control import (
    BASE,
    MOVED,
    THEN_THE_SCRIPT,
    USUAL_FLAGS,
    InitControl,
    code_of,
    is_usual,
    shown_at,
)
from adk_skills_agent.sandbox.local.namespaces.bubblewrap import start_with_bubblewrap
from adk_skills_agent.sandbox.local.namespaces.sandbox import (
    BARE_FLAGS,
    READY_SECONDS,
    SandboxSpec,
    StartedSandbox,
    WatchedImports,
    file_system,
    filter_of,
    identities,
    map_users,
    python_folders_of,
)
from adk_skills_agent.sandbox.process.command import (
    OWN_IDS,
    encode,
    import_limits,
    is_own_id,
    limit_of_cores,
    own_id,
    search_path,
)
from adk_skills_agent.sandbox.process.open_files import memory_in_files
from adk_skills_agent.sandbox.process.supervise import (
    Child,
    Launch,
    is_readable,
    memory_file,
    own_peak,
    reap_late,
    spawner,
)
from adk_skills_agent.sandbox.process.system_calls import NUMBERS
from adk_skills_agent.sandbox.process.tree import status_bytes
from adk_skills_agent.sandbox.threads import OnePerProcess

_PROGRAMS = ("program.py", "../namespaces/zygote_root.py", "../namespaces/zygote_program.py")
_ANSWER_BYTES = 4096
_STAGE = """\
import marshal, posix, sys
_data = int(sys.argv[1])
_zygote, _spec = marshal.loads(posix.pread(_data, posix.fstat(_data).st_size, 0))
_names = {"__name__": "adk_skills_init"}
exec(_zygote, _names)
"""
_FIRST_STAGE = f'{_STAGE}_names["begin"](_spec)\n'
_SECOND_STAGE = f"""\
{_STAGE}posix.close(_data)
_code, _script, _ended = _names["serve"](_spec)
{THEN_THE_SCRIPT}"""

_logger = logging.getLogger("adk_skills_agent.sandbox")


class Zygote:
    """A running one, for one user id."""

    def __init__(self, uid: int | None) -> None:
        self._lock = threading.Lock()
        self._uid = uid
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection = ours
        ours.settimeout(READY_SECONDS)
        program = second = None
        try:
            second = memory_file(_second_program())
            program = memory_file(_first_program(uid, second))
            line = (sys.executable, "-I", "-S", "-c", _FIRST_STAGE, str(program))
            self._child = spawner().spawn(
                Launch(
                    tuple(encode(part) for part in line),
                    {},
                    b"/",
                    theirs.fileno(),
                    (program, second),
                    0o022,
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
                own = ((OWN_IDS.start, OWN_IDS.start, len(OWN_IDS)),) if own_id(uid) != uid else ()
                map_users(self._child.pid, (uid, uid, 1), *own)
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

    def start(self, spec: SandboxSpec, task_files: tuple[tuple[str, str], ...]) -> StartedSandbox:
        """Make a sandbox. Blocking, a few milliseconds."""
        outside = own_id(spec.uid)
        with contextlib.ExitStack() as given, contextlib.ExitStack() as undo:
            ours, theirs = socket.socketpair()
            init = InitControl(ours)
            undo.callback(init.close)
            given.callback(theirs.close)
            (out_read, out_write), (err_read, err_write) = _pipe(undo, given), _pipe(undo, given)
            passed = [theirs.fileno(), out_write, err_write, memory_file(_told(spec, outside))]
            given.callback(os.close, passed[-1])
            for task_file in chain.from_iterable(zip(*task_files, strict=True)):
                passed.append(os.open(task_file, os.O_WRONLY | os.O_CLOEXEC))
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
            imports = WatchedImports(spec, pid, first) if spec.preload else None
            undo.callback(imports.end if imports is not None else lambda: None)
            if not init.wait_until_ready(READY_SECONDS):
                raise SandboxError("The sandbox could not be set up: it ended before it was ready.")
            child = Child(pid, None, out_read, err_read, time.monotonic(), own_peak())
            started = StartedSandbox.ready("zygote", child, outer, pid, first, init, outside)
            started.imports = imports
            undo.pop_all()
        return started

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
            self.let_go()

    def let_go(self) -> None:
        """Close what is here of it; all there is to do in a forked child."""
        self._connection.close()
        self._child.close()


def _told(spec: SandboxSpec, outside: int | None) -> bytes:
    """What :mod:`.zygote_program` is told of one sandbox."""
    steps = [
        (kind, *(encode(part) if isinstance(part, str) else part for part in parts))
        for kind, *parts in file_system(spec)
    ]
    shown = [encode(source) for source, _ in spec.shown]
    return marshal.dumps(
        {
            "steps": steps,
            "uid": outside,
            "inside": spec.uid,
            "cores": limit_of_cores(),
            "filter": filter_of(spec),
            "identities": dict(zip(shown, identities(spec.shown), strict=True)),
            "python": spec.python,
            "utf8": "utf8" in spec.flags,
            "preload": list(spec.preload),
            "limits": import_limits(spec.memory_bytes, spec.pids, spec.open_files, grouped=spec.grouped),
        }
    )


def _pipe(undo: contextlib.ExitStack, given: contextlib.ExitStack) -> tuple[int, int]:
    read, write = os.pipe()
    undo.callback(os.close, read)
    given.callback(os.close, write)
    return read, write


_END_SECONDS = 2.0


def _end(pid: int) -> None:
    """End a child nobody has waited for, so that its number is its own; one that hangs in the kernel is left to it."""
    with contextlib.suppress(OSError):  # it is gone, or no descriptor is left: then a thread waits for it
        os.kill(pid, signal.SIGKILL)
        pidfd = os.pidfd_open(pid)
        try:
            is_readable(pidfd, _END_SECONDS)
        finally:
            os.close(pidfd)
    reap_late(pid)


def _first_program(uid: int | None, second: int) -> bytes:
    maker = own_id(uid)
    moved = _moved()
    path = ":".join(shown_at(folder) for folder in search_path(None).split(":"))  # a script may see it in /proc
    environment = {"PATH": path, "HOME": str(HOME_DIR), "TMPDIR": str(TMP_DIR), **BASE}
    return marshal.dumps(
        (
            code_of(*_PROGRAMS),
            {
                "mapped_by_host": uid is not None,
                "maker": maker if is_own_id(maker) else None,
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
    return marshal.dumps((code_of(*_PROGRAMS), {name: numbers[name] for name in ("clone", "pivot_root")}))


# When this process has a zygote: from its third sandbox on, until it ends or all sandboxes are closed.
#
# One command, or a look at what works here, is over before a zygote would be of use. It is started by a thread of its
# own while runs go on with bubblewrap.

_FIRST_OF_USE = 3
_MOST_FAILURES = 3


class ZygoteLife:
    """The zygote of one process, for the user id it was first needed with."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._needed = 0
        self._uid: int | None = None
        self._inherited: tuple[int, ...] = ()
        self._starting = False
        self._zygote: Zygote | None = None
        self._failures = 0

    def can_make(self, spec: SandboxSpec) -> bool:
        """Whether a zygote could make such a sandbox."""
        usual = spec.flags == BARE_FLAGS or is_usual(spec.python, spec.flags)
        return spec.maker == "auto" and spec.network != "host" and usual and _is_in_sight(spec)

    def succeeded(self) -> None:
        """A zygote has made one."""
        self._failures = 0

    def wait(self, seconds: float) -> bool:
        """Whether one is ready, after at most so many seconds when it is being started."""
        with self._changed:
            self._changed.wait_for(lambda: not self._starting, seconds)
            return self._zygote is not None

    def end(self) -> None:
        """End it; it is started again when it is needed."""
        with self._changed:
            self._changed.wait_for(lambda: not self._starting, 1.0)
            zygote, self._zygote = self._zygote, None
        if zygote is not None:
            zygote.end()

    def forget(self) -> None:
        """In a forked child: let go of the parent's."""
        if self._zygote is not None:
            self._zygote.let_go()

    def ready(self, uid: int | None) -> Zygote | None:
        """The one to use now; each question counts as a need of one."""
        with self._changed:
            self._needed += 1
            if self._needed < _FIRST_OF_USE or self._failures >= _MOST_FAILURES:
                return None
            inherited = _inherited()
            if self._zygote is not None and self._inherited == inherited:
                return self._zygote if self._uid == uid else None
            if not self._starting:
                outdated, self._zygote = self._zygote, None
                if outdated is not None:
                    outdated.end()
                self._starting, self._uid, self._inherited = True, uid, inherited
                try:
                    threading.Thread(target=self._make, args=(uid,), name="adk-skills-zygote", daemon=True).start()
                except RuntimeError:  # no more threads, or the interpreter is ending
                    self._starting = False
            return None

    def _make(self, uid: int | None) -> None:
        made: Zygote | None = None
        try:
            if not _interpreter_can_move():
                raise SandboxError(f"the interpreter is both below {MOVED} and elsewhere")
            made = Zygote(uid)
        except (SandboxError, OSError) as error:
            if self._failures == 0:
                _tell(error)
        finally:
            with self._changed:
                self._failures += made is None
                self._zygote, self._starting = made, False
                self._changed.notify_all()

    def failed(self, zygote: Zygote, error: Exception) -> None:
        """A zygote could not make what bubblewrap then could: end it."""
        with self._changed:
            if self._zygote is not zygote:
                return  # somebody else's failure already
            self._zygote = None
            self._failures += 1
            first = self._failures == 1
        zygote.end()
        if first:
            _tell(error)


def _inherited() -> tuple[int, ...]:
    """What a process has from the one that starts it, and cannot be given later."""
    import resource

    limits = {getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}
    return os.geteuid(), os.getegid(), *(resource.getrlimit(which)[1] for which in sorted(limits))


def _interpreter_can_move() -> bool:
    return not _moved() or not any(path.startswith(f"{MOVED}/") for path in python_folders_of(None))


def _moved() -> list[tuple[str, str]]:
    return [(path, shown_at(path)) for path in python_folders_of(None) if shown_at(path) != path]


def _is_in_sight(spec: SandboxSpec) -> bool:
    """Whether a zygote sees all that is to be shown: where it puts its own interpreter, it does not see the host's."""
    return not any(source.startswith(f"{MOVED}/") for source, _ in spec.shown) or not _moved()


def _tell(error: Exception) -> None:
    _logger.warning("Sandboxes are made by bubblewrap, which is slower: %s", getattr(error, "message", error))


zygote_life = OnePerProcess(ZygoteLife, ZygoteLife.forget)


def end_zygote() -> None:
    """End this process's zygote, if there is one."""
    if (life := zygote_life.made) is not None:
        life.end()


atexit.register(end_zygote)


# Every sandbox with namespaces comes from here: a description goes in, a started sandbox comes out.


def start_sandbox(spec: SandboxSpec) -> StartedSandbox:
    """Make a sandbox, forked if that is possible now, else by bubblewrap. Blocking, for a worker thread."""
    with contextlib.ExitStack() as undo:
        group = None
        if spec.grouped:
            group = group_of_run()
            undo.callback(group_pool().give_back, group)
        life = zygote_life()
        zygote = life.ready(spec.uid) if life.can_make(spec) else None
        started = None
        if zygote is not None:
            try:
                started = zygote.start(spec, () if group is None else group.task_files())
                life.succeeded()
            except (SandboxError, OSError) as error:
                problem = error
        if started is None:
            started = start_with_bubblewrap(spec, contextlib.nullcontext if group is None else group.membership)
            if zygote is not None:
                life.failed(zygote, problem)  # only now: else it was not the zygote's fault
        undo.pop_all()
    started.group = group
    if group is not None:
        try:
            group.confine(started.first_pid, spec.memory_bytes, spec.pids)
        except BaseException:
            started.discard()
            raise
    return started


def start_waiting(spec: SandboxSpec) -> StartedSandbox:
    """Make a sandbox that will wait for a run, with the run's mounts linked into its workspace already."""
    started = start_sandbox(spec)
    try:
        if spec.preload and spec.memory_bytes is not None and _used(started) > spec.memory_bytes:
            raise SandboxError("The modules that are imported ahead take more memory than memory_bytes.")
        if started.imports is not None:
            started.imports.ready(started.first_pid, grouped=started.group is not None)
        started.workspace = Workspace("", started.folders.work, started.folders.tmp)
        link_mounts(started.workspace, spec.mounts, inside=True)
    except BaseException:
        started.discard()
        raise
    started.was_waiting = True
    return started


def _used(sandbox: StartedSandbox) -> int:
    """Bytes of memory that a sandbox has when it is ready; without a control group those of process 1."""
    if sandbox.group is not None:
        return sandbox.group.memory_of_its_own()
    pid = sandbox.first_pid
    return status_bytes((pid,), b"RssAnon:", b"RssShmem:") + memory_in_files((pid,))
