"""Start bubblewrap for one run, up to the point at which the command's process waits for a word to begin."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import select
import signal
import socket
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import WORK_DIR, ExecutionRequest, ReadOnlyMount, SandboxPolicy
from adk_skills_agent.sandbox.local import bubblewrap, seccomp
from adk_skills_agent.sandbox.local.agent_keeper import kept_group
from adk_skills_agent.sandbox.local.command import encode
from adk_skills_agent.sandbox.local.exact_end import children_of
from adk_skills_agent.sandbox.local.first_process import Control
from adk_skills_agent.sandbox.local.memfd import memory_file
from adk_skills_agent.sandbox.local.private_folders import PrivateFolders
from adk_skills_agent.sandbox.local.python_view import python_folders_of, shown_at
from adk_skills_agent.sandbox.local.reaping import reap_late
from adk_skills_agent.sandbox.local.run import drain
from adk_skills_agent.sandbox.local.spawner import Child, Launch, spawner
from adk_skills_agent.sandbox.local.system_view import etc_files, system_view
from adk_skills_agent.sandbox.local.user_mapping import map_users

READY_SECONDS = 20.0
_END_SECONDS = 2.0
_INFO_BYTES = 4096
_UMASK = 0o022  # of the folders bubblewrap makes; the command gets a stricter one


@dataclass(frozen=True, slots=True)
class Started:
    """A sandbox whose command has not begun.

    Attributes:
        child: Bubblewrap, with the reading ends of the output; its ``pidfd`` becomes readable when the command has
            ended, and is the control socket's.
        outer: Bubblewrap's real pidfd.
        first_pid: Process 1 of the sandbox, as the host numbers it; leader of the command's session and group.
        first: Its pidfd.
        control: To say "begin" and to hear of the end.
        command: The process that becomes the command, as the host numbers it.
        folders: The sandbox's file systems in memory; the command's user owns the workspace.
    """

    child: Child
    outer: int
    first_pid: int
    first: int
    control: Control
    command: int
    folders: PrivateFolders

    def end(self) -> None:
        """Kill everything by killing process 1, without waiting; bubblewrap ends when it is dead."""
        _kill(self.first)

    def end_outer(self) -> None:
        """Kill bubblewrap too, which should have ended."""
        _kill(self.outer)

    def close(self) -> None:
        """Close all descriptors but those of the folders."""
        self.control.close()
        for descriptor in (self.first, self.outer, self.child.stdout, self.child.stderr):
            os.close(descriptor)

    def reap(self) -> None:
        """Wait for the end of what is left, which was ordered or is near; at most seconds. Then close. Blocking."""
        if not is_readable(self.outer, _END_SECONDS):
            self.end_outer()
            is_readable(self.outer, _END_SECONDS)
        reap_late(self.child.pid)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.first_pid, os.WNOHANG)  # ours when bubblewrap died first and the agent is process 1
        self.close()


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """Everything a sandbox is made from besides its first process; equal ones make equal sandboxes.

    Attributes:
        uid: Whose rights the command gets when the agent is root; None keeps the agent's.
        network: Mode of the policy's network.
        shm_bytes: Size of ``/dev/shm``; None for half of the machine's memory, as for the next two.
        tmp_bytes: Size of ``/tmp``.
        workspace_bytes: Size of ``/work``.
        system_v_memory: Whether memory may be shared that belongs to no process.
        shown: Folders and files of the host, read-only, and where they are inside.
    """

    uid: int | None
    network: str
    shm_bytes: int | None
    tmp_bytes: int | None
    workspace_bytes: int | None
    system_v_memory: bool
    shown: tuple[tuple[str, str], ...]


def sandbox_spec(request: ExecutionRequest, policy: SandboxPolicy, uid: int | None) -> SandboxSpec:
    """What a run's sandbox is made from.

    Args:
        request: Its mounts are used.
        policy: Sizes, network and more folders.
        uid: See :class:`SandboxSpec`.
    """
    return _one_spec(
        uid,
        policy.network.mode,
        policy.shm_bytes,
        policy.tmp_bytes,
        policy.workspace_bytes,
        policy.memory_bytes is None,
        shown_folders(request, policy),
    )


_one_spec = functools.lru_cache(maxsize=64)(SandboxSpec)  # the same object is found sooner


@dataclass(frozen=True, slots=True)
class FirstProcess:
    """What process 1 of a sandbox is.

    Attributes:
        line: Its command line.
        environment: Its environment, and the command's unless that gets another.
        control: The host's end of its standard input.
        stdin: What is at :data:`bubblewrap.STDIN_PATH`; None for nothing.
        program: What it reads through a descriptor whose number ends its command line; None for nothing.
    """

    line: list[str]
    environment: dict[str, str]
    control: type[Control] = Control
    stdin: bytes | None = None
    program: bytes | None = None


def start_sandbox(spec: SandboxSpec, first_process: FirstProcess) -> Started:
    """Make the sandbox. Blocking, for a worker thread.

    Raises:
        SandboxError: Bubblewrap refused, with its reason as a note, or it hangs.
        ValueError: The arguments are too large.
        OSError: No descriptor or memory is left.
    """
    with contextlib.ExitStack() as temporary, contextlib.ExitStack() as undo:
        ours, theirs = socket.socketpair()
        control = first_process.control(ours)
        undo.callback(control.close)
        temporary.callback(theirs.close)
        files = _Files(temporary)
        info = files.pipe_from()
        arguments = _arguments(spec, first_process, files)
        if spec.uid is not None:
            # The socket, because bubblewrap would leave a descriptor of its own to the command.
            arguments += ["--userns-block-fd", "0"]
        arguments += ["--info-fd", str(info[1])]
        listed = files.memory(b"\0".join(encode(part) for part in arguments) + b"\0")
        found = bubblewrap.features()
        assert found is not None  # noqa: S101  # checked by the level
        line = [found.path, "--args", str(listed), "--", *first_process.line]
        if first_process.program is not None:
            line.append(str(files.memory(first_process.program)))
        if len(arguments) + len(line) > bubblewrap.MAX_ARGUMENTS:
            raise ValueError(
                f"The command has about {len(first_process.line):,} arguments and the sandbox takes "
                f"{bubblewrap.MAX_ARGUMENTS:,}, its own included. Pass the data as an input file or on stdin."
            )
        words = tuple(encode(part) for part in line)
        group = temporary.enter_context(kept_group())
        child = spawner().spawn(Launch(words, {}, b"/", theirs.fileno(), tuple(files.passed), _UMASK, group=group))
        undo.callback(_end, child)
        files.close_passed()  # so that the sandbox's end is the end of the pipes
        theirs.close()
        first_pid = _first_pid(info[0], child)
        try:
            first = os.pidfd_open(first_pid)
        except OSError:
            _kill_clone(first_pid)  # the list of bubblewrap's children needs a descriptor, too
            raise
        undo.callback(os.close, first)
        undo.callback(_kill, first)
        if spec.uid is not None:
            map_users(first_pid, spec.uid)
            control.allow_set_up()
        if not control.wait_until_ready(READY_SECONDS):
            raise _refusal(child)
        if child.pidfd is None:
            raise SandboxError("The sandbox could not be set up: no descriptor is left, or the kernel has no pidfd.")
        folders = PrivateFolders(first_pid, spec.uid)
        command = next(iter(children_of(first_pid)), 0)
        outer, child.pidfd = child.pidfd, control.descriptor
        undo.pop_all()
    return Started(child, outer, first_pid, first, control, command, folders)


def is_readable(descriptor: int, seconds: float) -> bool:
    """Whether a descriptor becomes readable, or has ended, in so many seconds."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def shown_folders(request: ExecutionRequest, policy: SandboxPolicy) -> tuple[tuple[str, str], ...]:
    """What a run sees of the host besides the system: host path and path inside."""
    mounts = request.mounts
    here = "/" if all(os.fspath(mount.source)[:1] == "/" for mount in mounts) else os.getcwd()  # noqa: PTH109
    return _shown_folders(policy.python, policy.extra_ro, mounts, here)


@functools.lru_cache(maxsize=64)
def _shown_folders(
    python: str | None, extra: tuple[str, ...], mounts: tuple[ReadOnlyMount, ...], here: str
) -> tuple[tuple[str, str], ...]:
    pairs = [(path, shown_at(path)) for path in python_folders_of(python)]
    pairs += [(path, path) for path in extra]
    return (*pairs, *((str(Path(here, mount.source)), str(mount.target)) for mount in mounts))


@functools.lru_cache(maxsize=64)
def folders_on_the_way(shown: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Folders of the workspace that exist because something is shown below it, parents first."""
    found: dict[str, None] = {}
    for _, target in shown:
        path = PurePosixPath(target)
        if path.is_relative_to(WORK_DIR):
            inside = path.relative_to(WORK_DIR)
            found.update(dict.fromkeys(str(part) for part in reversed((inside, *inside.parents)) if str(part) != "."))
    return tuple(found)


def file_system_arguments(spec: SandboxSpec) -> tuple[list[str], list[str]]:
    """Bubblewrap's arguments for a sandbox's file system: those before, and those after the files made for it."""
    system = system_view(tuple(target for _, target in spec.shown), network=spec.network)
    after = bubblewrap.private_arguments(shm=spec.shm_bytes, tmp=spec.tmp_bytes, workspace=spec.workspace_bytes)
    # After the sandbox's own folders, because an interpreter may be installed under one of those on the host.
    after += bubblewrap.bind_arguments(spec.shown)
    return list(system.shown), [*after, *system.sealed, "--remount-ro", "/"]


def filter_of(spec: SandboxSpec) -> bytes:
    """The system call filter of everything in a sandbox."""
    # Without a network of its own the sandbox shares the host's abstract sockets, so it gets none of that kind.
    families = (seccomp.AF_INET, seccomp.AF_INET6) if spec.network == "host" else None
    return seccomp.program(
        platform.machine(), seccomp.NAMESPACES, sockets=families, system_v_memory=spec.system_v_memory
    )


def _arguments(spec: SandboxSpec, first_process: FirstProcess, files: _Files) -> list[str]:
    before, after = file_system_arguments(spec)
    arguments = [*bubblewrap.isolation_arguments(spec.network, root=spec.uid is not None), *before]
    for made in etc_files(bubblewrap.NOBODY if spec.uid is None else spec.uid, network=spec.network):
        arguments += ["--perms", "0444", "--file", str(files.memory(made.content)), made.path]
    if first_process.stdin is not None:
        content = files.memory(first_process.stdin)
        arguments += ["--perms", "0444", "--ro-bind-data", str(content), bubblewrap.STDIN_PATH]
    arguments += after
    arguments += bubblewrap.environment_arguments(first_process.environment)
    return [*arguments, "--seccomp", str(files.memory(filter_of(spec)))]


class _Files:
    """Descriptors needed until the sandbox is ready; ``passed`` are those bubblewrap gets."""

    def __init__(self, held: contextlib.ExitStack) -> None:
        self._held = held
        self.passed: list[int] = []
        held.callback(self.close_passed)

    def close_passed(self) -> None:
        """Bubblewrap has them."""
        passed, self.passed = self.passed, []
        for descriptor in passed:
            os.close(descriptor)

    def memory(self, content: bytes) -> int:
        """A file with this content, at its start."""
        descriptor = memory_file(content)
        self.passed.append(descriptor)
        return descriptor

    def pipe_from(self) -> tuple[int, int]:
        """A pipe: our reading end, and the passed writing end."""
        read, write = os.pipe()
        self._held.callback(os.close, read)
        self.passed.append(write)
        return read, write


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


def _kill(pidfd: int) -> None:
    with contextlib.suppress(OSError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


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
    for descriptor in (child.stdout, child.stderr, child.pidfd):
        if descriptor is not None:
            os.close(descriptor)


def _wait(child: Child) -> None:
    if child.waited is None:
        with contextlib.suppress(ChildProcessError):
            _, status, usage = os.wait4(child.pid, 0)
            child.waited = (status, usage)
