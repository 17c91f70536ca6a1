"""Bubblewrap: where it is, what it can do, and the making of a sandbox with it.

All namespaces are new. When the agent is root, bubblewrap sets up the file system as root, so that skills and
interpreters in private folders can be shown, and the init program takes on another user id before it reads a job: the
kernel limits no processes of root (SANDBOX.md finding 4), and root's files must not be the command's.

An agent may be killed before bubblewrap has made a sandbox (row 31, decision 0017). The process that bubblewrap clones
waits for bubblewrap's word, and for ever when bubblewrap was killed before it gave it. So bubblewrap is started in the
process group of a *keeper*: a shell that reads from a pipe only the agent could write to, and when that ends, as it
does with the agent, kills its group and itself. What is cloned is in that group until it makes a session of its own,
the last step before process 1 of the sandbox, which hears of the agent's end itself. Nothing is missed at the
beginning either: a process that was forked and has not joined the group yet still holds the pipe, which is closed to it
after it has joined. Each start has a keeper of its own, for as long as it takes.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import HOME_DIR, TMP_DIR
from adk_skills_agent.sandbox.local.init.control import (
    BASE,
    SETTINGS_OF_KERNEL,
    InitControl,
    init_line,
    init_program,
    shown_at,
)
from adk_skills_agent.sandbox.local.namespaces.sandbox import (
    READY_SECONDS,
    SandboxSpec,
    StartedSandbox,
    Step,
    WatchedImports,
    file_system,
    filter_of,
    kill,
    map_users,
)
from adk_skills_agent.sandbox.process.command import (
    HIDDEN_OF_KERNEL,
    NOBODY,
    encode,
    find_program,
    import_limits,
    install_command,
    limit_of_cores,
    own_id,
    search_path,
)
from adk_skills_agent.sandbox.process.supervise import OWN_GROUP, Child, Launch, Membership, drain, memory_file, spawner
from adk_skills_agent.sandbox.process.tree import children_of

_PATH = "/.stdin"
MAX_ARGUMENTS = 9000
"""What bubblewrap takes, read from a file or not."""

_PATH = "/usr/local/bin:/usr/bin:/bin"
_INFO_BYTES = 4096
_UMASK = 0o022  # of the folders bubblewrap makes; the command gets a stricter one


@dataclass(frozen=True, slots=True)
class Features:
    """What the installed version can do."""

    path: str
    options: frozenset[str]


_NEEDED = ("--args", "--size", "--perms", "--as-pid-1", "--info-fd", "--seccomp", "--remount-ro", "--userns-block-fd")


@functools.lru_cache(maxsize=1)
def features() -> Features | None:
    """The installed bubblewrap; None when there is none. Looked for once per process."""
    import subprocess

    path = find_program("bwrap", _PATH)
    if path is None:
        return None
    try:
        done = subprocess.run([path, "--help"], capture_output=True, check=False, timeout=10, env={}, cwd="/")
    except (OSError, subprocess.SubprocessError):  # of another architecture, or it hangs
        return Features(path, frozenset())
    return Features(
        path, frozenset(re.findall(r"--[a-z0-9-]+", (done.stdout + done.stderr).decode("utf-8", "replace")))
    )


def missing() -> str | None:
    """What is not installed or too old, as a clause; None when all is there."""
    found = features()
    if found is None:
        return f"bubblewrap is not installed (no bwrap in {_PATH})"
    if not found.options:
        return f"the installed bubblewrap ({found.path}) does not run"
    lacking = [option for option in _NEEDED if option not in found.options]
    if lacking:
        return f"the installed bubblewrap is too old: it lacks {', '.join(lacking)}; 0.7 or later is needed"
    return None


def remedy() -> str | None:
    """The command that installs what is missing; None when nothing is, or when what is there is too old."""
    return install_command("bubblewrap") if features() is None else None


def isolation_arguments(network: str, *, root: bool) -> list[str]:
    """New namespaces, no capabilities, no terminal, an end with the agent."""
    arguments = ["--unshare-all", "--unshare-user", "--hostname", "sandbox", "--die-with-parent", "--new-session"]
    arguments += ["--as-pid-1", "--cap-drop", "ALL"]
    if network == "host":
        arguments.append("--share-net")
    if root:
        # Only for process 1, which gives up these, too.
        for name in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"):
            arguments += ["--cap-add", name]
        # The socket, because bubblewrap would leave a descriptor of its own to the command.
        return [*arguments, "--userns-block-fd", "0"]
    arguments += ["--uid", str(NOBODY), "--gid", str(NOBODY)]
    found = features()
    if found is not None and "--disable-userns" in found.options:
        arguments.append("--disable-userns")
    return arguments


def start_with_bubblewrap(spec: SandboxSpec, membership: Membership) -> StartedSandbox:
    """Make the sandbox. Blocking, for a worker thread. What bubblewrap says when it refuses is a note of the error."""
    with contextlib.ExitStack() as temporary, contextlib.ExitStack() as undo:
        ours, theirs = socket.socketpair()
        init = InitControl(ours)
        undo.callback(init.close)
        temporary.callback(theirs.close)
        info_read, info_write = os.pipe()
        temporary.callback(os.close, info_read)
        passed = _Passed([info_write])
        temporary.callback(passed.close)
        arguments = [*isolation_arguments(spec.network, root=spec.uid is not None), "--info-fd", str(info_write)]
        for step in file_system(spec):
            arguments += _argument(step, passed)
        arguments.append("--clearenv")
        # Only what an interpreter reads at its start. Everything else comes with the job.
        environment = {"PATH": search_path(None), "HOME": str(HOME_DIR), "TMPDIR": str(TMP_DIR), **BASE}
        for name, value in environment.items():
            arguments += ["--setenv", name, value]
        arguments += ["--seccomp", str(passed.memory(filter_of(spec)))]
        listed = passed.memory(b"\0".join(encode(part) for part in arguments) + b"\0")
        # Nothing in the folder of another interpreter decides how process 1 begins: an environment is strangers' code.
        base = shown_at(os.path.realpath(sys.executable))
        deferred = spec.python not in {shown_at(sys.executable), base}
        limits = import_limits(spec.memory_bytes, spec.pids, spec.open_files, grouped=spec.grouped)
        site = spec.python if deferred and "-S" not in spec.flags else ""
        python = base if deferred else spec.python
        program = passed.memory(init_program(spec.uid, spec.preload, limits, site=site))
        flags = ("-S", *spec.flags) if deferred else spec.flags
        outside = own_id(spec.uid)
        found = features()
        assert found is not None  # noqa: S101  # checked by the level
        line = [found.path, "--args", str(listed), "--", *init_line(python, flags), str(program)]
        words = tuple(encode(part) for part in line)
        group = temporary.enter_context(kept_group())
        child = spawner().spawn(
            Launch(words, {}, b"/", theirs.fileno(), tuple(passed.descriptors), _UMASK, membership, group)
        )
        undo.callback(_end, child)
        passed.close()  # so that the sandbox's end is the end of the pipes
        theirs.close()
        _limit_cores(child.pid)
        first_pid = _first_pid(info_read, child)
        _limit_cores(first_pid)
        try:
            first = os.pidfd_open(first_pid)
        except OSError:
            _kill_clone(first_pid)  # the list of bubblewrap's children needs a descriptor, too
            raise
        undo.callback(os.close, first)
        undo.callback(kill, first)
        if spec.uid is not None:
            map_users(first_pid, (spec.uid, outside or 0, 1))
            init.allow_set_up()
        imports = WatchedImports(spec, child.pid, first) if spec.preload else None
        undo.callback(imports.end if imports is not None else lambda: None)
        if not init.wait_until_ready(READY_SECONDS):
            raise _refusal(child)
        outer = child.pidfd
        if outer is None:
            raise SandboxError("The sandbox could not be set up: no descriptor is left, or the kernel has no pidfd.")
        started = StartedSandbox.ready("bubblewrap", child, outer, first_pid, first, init, outside)
        started.imports = imports
        _limit_cores(started.command)  # it may have been forked before
        undo.pop_all()
    return started


def _limit_cores(pid: int) -> None:
    """From outside, because bubblewrap installs the filter first, which keeps this limit as it is."""
    import resource

    which, soft, hard = limit_of_cores()
    with contextlib.suppress(ProcessLookupError):  # it ended, and somebody else says why
        resource.prlimit(pid, which, (soft, hard))


class _Passed:
    """Descriptors bubblewrap gets."""

    def __init__(self, descriptors: list[int]) -> None:
        self.descriptors = descriptors

    def memory(self, content: bytes) -> int:
        """A file with this content, at its start."""
        self.descriptors.append(memory_file(content))
        return self.descriptors[-1]

    def close(self) -> None:
        """Bubblewrap has them."""
        while self.descriptors:
            os.close(self.descriptors.pop())


def _argument(step: Step, passed: _Passed) -> list[str]:
    match step:
        case "bind", str(source), str(path):
            return ["--ro-bind", source, path]
        case "tmpfs", size, int(mode), str(path):
            sized = [] if size is None else ["--size", str(size)]
            return ["--perms", f"{mode:o}", *sized, "--tmpfs", path]
        case "link", str(target), str(path):
            return ["--symlink", target, path]
        case "file", str(content), str(path):
            return ["--perms", "0444", "--file", str(passed.memory(content.encode())), path]
        case "seal", str(path):
            return ["--remount-ro", path]
        case "proc", str(path):
            settings = (f"/proc/{name}" for name in SETTINGS_OF_KERNEL)
            # A process with root's user id may write them without any capability, and bubblewrap leaves them.
            covered = [("--ro-bind", one, path + one.removeprefix("/proc")) for one in settings if os.path.exists(one)]  # noqa: PTH110
            hidden = [name for name in HIDDEN_OF_KERNEL if os.path.exists(f"/proc/{name}")]  # noqa: PTH110
            covered += [("--ro-bind", "/dev/null", f"{path}/{name}") for name in hidden]
            return ["--proc", path, *(part for bound in covered for part in bound)]
        case kind, str(path):  # a folder or devices
            return [f"--{kind}", path]
        case _:
            raise AssertionError(f"{step!r} is no step of a file system")


def _first_pid(info: int, child: Child) -> int:
    """What bubblewrap tells about its process 1."""
    said = b""
    while b"}" not in said:
        poll = select.poll()
        poll.register(info, select.POLLIN)
        if not poll.poll(READY_SECONDS * 1000):
            raise SandboxError(f"Bubblewrap said nothing in {READY_SECONDS:.0f} seconds.")
        data = os.read(info, _INFO_BYTES)
        if not data:
            raise _refusal(child)
        said += data
    import json

    return int(json.loads(said)["child-pid"])


def _refusal(child: Child) -> SandboxError:
    """Bubblewrap ended before the sandbox was there. What it says has host paths, so it goes into a note."""
    _wait(child)
    said = drain(child.stderr).decode("utf-8", "replace").strip()
    reason = said.rpartition(": ")[2] or "it did not say why"
    error = SandboxError(f"The sandbox could not be set up: {reason}.")
    error.add_note(f"It said: {said}")
    return error


def _kill_clone(pid: int) -> None:
    """Kill what bubblewrap has cloned a moment ago, and would wait for bubblewrap's word for ever."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _end(child: Child) -> None:
    if child.waited is None:
        for clone in children_of(child.pid):
            _kill_clone(clone)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
        _wait(child)
    child.close()


def _wait(child: Child) -> None:
    if child.waited is None:
        with contextlib.suppress(ChildProcessError):
            _, status, usage = os.wait4(child.pid, 0)
            child.waited = (status, usage)


# Nothing but the agent's end or SIGKILL ends it, whatever a terminal or a service manager sends to everybody.
_PROGRAM = b'trap "" HUP INT QUIT TERM TSTP TTIN TTOU; read x; kill -9 0'
_LINE = (b"/bin/sh", b"-c", _PROGRAM, b"adk-skills-keeper")


_forking = threading.RLock()
_alive: set[int] = set()  # the writing ends of the keepers' pipes


@contextlib.contextmanager
def kept_group() -> Iterator[int]:
    """The process group to start bubblewrap in, which ends with the agent. Hold it until the sandbox is ready."""
    with _forking:
        read, alive = os.pipe()
        try:
            keeper = spawner().spawn(Launch(_LINE, {}, b"/", read, group=OWN_GROUP))
        except BaseException:
            os.close(alive)
            raise
        finally:
            os.close(read)
        _alive.add(alive)
    try:
        yield keeper.pid
    finally:
        with _forking:
            if alive in _alive:  # a forked child has let go of it, and leaves the keeper to its parent
                _end(keeper)  # before its pipe ends, so that it does not kill its group: what is ready needs it no more
                _alive.remove(alive)
                os.close(alive)


def _forget() -> None:
    """In a forked child, whose copy of a pipe would hide the agent's end."""
    for pipe in _alive:
        os.close(pipe)
    _alive.clear()
    _forking.release()


# Held, because of a keeper that is being started a child would not know that it has the pipe.
if hasattr(os, "register_at_fork"):  # the module can be imported on Windows
    os.register_at_fork(before=_forking.acquire, after_in_parent=_forking.release, after_in_child=_forget)
