"""Processes of a box, as its supervisor starts them, and how it protects itself from them.

Part of the program in a box (:mod:`.box_program`); see :mod:`.supervisor`.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import errno
import os
import time
from typing import Any

from adk_skills_agent.sandbox.box_interpreter import Child, become
from adk_skills_agent.sandbox.box_watch import first_to_end
from adk_skills_agent.sandbox.kernel import LINK_LOST, Kernel

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2
_INSTRUCTION_BYTES = 8
_OUT_OF_THE_WAY = 60  # descriptors from here on
_MOST_DESCRIPTORS = 4096
_NOT_STARTED = 127
_NO_HOST = 3
_GREETED_SECONDS = 60
_LOOK_SECONDS = 0.005
_PAUSE_SECONDS = 0.001
_END_SECONDS = 5.0
_HEAD_BYTES = 256  # what the kernel reads to find a #! line


class Started:
    """A process, its group of the same number, and the reading ends of its output."""

    def __init__(self, pid: int, stdout: int, stderr: int) -> None:
        self.pid, self.stdout, self.stderr = pid, stdout, stderr


def take_channel() -> tuple[int, int]:
    """Move the channel away from descriptors 0 and 1; what is started has nothing there."""
    import fcntl

    reading, writing = (fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY) for number in (0, 1))
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1):
        os.dup2(null, number)
    os.close(null)
    return reading, writing


def end_unless_greeted() -> None:
    """End this process when no host speaks to it for long: an engine that dies may forget what it was just starting."""
    _signal.signal(_signal.SIGALRM, lambda *_: os._exit(_NO_HOST))
    _signal.alarm(_GREETED_SECONDS)


def stay() -> None:
    """A host has spoken."""
    _signal.alarm(0)
    _signal.signal(_signal.SIGALRM, _signal.SIG_DFL)


def guard() -> bool:
    """Nobody of the same user may look into this process or attach to it; orphans become its children.

    Returns:
        Whether the system could do that.
    """
    guarded = prctl(_PR_SET_DUMPABLE, 0)
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    return guarded


def prctl(option: int, value: int, more: Any = 0) -> bool:
    """One setting of this process; whether it was accepted."""
    global _library  # noqa: PLW0603
    try:
        if _library is None:
            import ctypes

            _library = ctypes.CDLL(None)
        return bool(_library.prctl(option, value, more, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False


_library: Any = None
_call_filter: Any = None


def filter_calls(program: bytes) -> None:
    """Put a system call filter on everything started from here on; what surrounds the box may have one of its own."""
    global _call_filter  # noqa: PLW0603
    import ctypes

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]

    _call_filter = ctypes.byref(Program(len(program) // _INSTRUCTION_BYTES, program)) if program else None


def fork_kernel(home: str, channel: list[int]) -> tuple[int, Any, Any]:
    """A fresh Python state in a process of its own.

    Args:
        home: Its working directory.
        channel: Descriptors it must not have.

    Returns:
        Its process id, the socket to it, and a byte that both see.
    """
    import _socket
    import mmap

    progress = mmap.mmap(-1, 1)
    here, there = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
    pid = os.fork()
    if pid:
        there.close()
        here.setblocking(True)
        return pid, here, progress
    try:
        link = there.detach()
        here.close()
        _become(channel)
        os.closerange(3, link)
        os.closerange(link + 1, _MOST_DESCRIPTORS)
        os.chdir(home)
        Kernel(link, home, progress).serve()
    finally:
        os._exit(LINK_LOST)


def start_command(
    argv: list[Any],
    environment: dict[str, str],
    cwd: str,
    stdin: bytearray | None,
    channel: list[int],
    limits: dict[str, int | None],
    here: bool = False,
) -> Started:
    """Start one command in a session of its own, under resource limits by name; None is no limit.

    Args:
        argv: The command.
        environment: All of its environment.
        cwd: Its working directory.
        stdin: Its standard input; None for nothing.
        channel: Descriptors it must not have.
        limits: See above.
        here: The fork itself is to be the command; see :mod:`.box_interpreter`.

    Raises:
        OSError: It cannot be started.
        Child: In the fork, with ``here``.
    """
    out, err, told = os.pipe(), os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        _prepare(argv, environment, cwd, stdin, channel, (out[1], err[1], told[1]), limits, here)
        raise Child
    for _, write in (out, err, told):
        os.close(write)
    said = os.read(told[0], 64)
    os.close(told[0])
    if said:
        os.close(out[0])
        os.close(err[0])
        os.waitpid(pid, 0)
        number = int(said)
        raise OSError(number, _why_not(argv[0], cwd, number))
    return Started(pid, out[0], err[0])


def _prepare(
    argv: list[Any],
    environment: dict[str, str],
    cwd: str,
    stdin: bytearray | None,
    channel: list[int],
    ends: tuple[int, int, int],
    limits: dict[str, int | None],
    here: bool,
) -> None:
    """Give the fork what is the command's, and let it be that; returns only when it is Python code to be run here."""
    out, err, told = ends
    try:
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.dup2(_readable(stdin), 0)
        os.set_inheritable(0, True)
        _become(channel)
        os.chdir(cwd)
        limit({name: most for name, most in limits.items() if most is not None})
        if here:
            become(argv, environment)
            os.closerange(3, _MOST_DESCRIPTORS)
            return
        for number in (_signal.SIGPIPE, _signal.SIGXFSZ):  # Python ignores them; other programs must not
            _signal.signal(number, _signal.SIG_DFL)
        os.execvpe(argv[0], argv, environment)  # noqa: S606  # a command of the request, without a shell
    except OSError as error:
        os.write(told, str(error.errno).encode())
        os._exit(_NOT_STARTED)
    except BaseException:  # noqa: BLE001  # no memory: nothing of the supervisor may go on in its fork
        os._exit(_NOT_STARTED)


def _why_not(command: str, cwd: str, number: int) -> str:
    """What keeps a file from being started; its first line may say more than the system does."""
    told = os.strerror(number)
    if not os.path.isdir(cwd):
        return "there is no such folder to start it in"
    if "/" not in command or number not in {errno.ENOENT, errno.ENOEXEC}:
        return told
    try:
        with open(os.path.join(cwd, command), "rb") as file:
            line, end, _ = file.read(_HEAD_BYTES).partition(b"\n")
    except OSError:
        return told
    if not line.startswith(b"#!"):
        return told if b"\0" in line else "it is a text file without a #! line"
    # As the kernel reads it: a carriage return is a part of the name.
    name = line[2:].replace(b"\t", b" ").strip(b" ").split(b" ", 1)[0].decode("utf-8", "replace")
    if not name:
        return "its #! line names no interpreter"
    hint = " (the file has Windows line ends)" if end and line.endswith(b"\r") else ""
    return f"its #! line names {name.strip()!r}, which does not exist{hint}"


def _readable(data: bytearray | None) -> int:
    if data is None:
        return os.open("/dev/null", os.O_RDONLY)
    descriptor = os.memfd_create("stdin")
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _become(channel: list[int]) -> None:
    """From here on this process is not the supervisor any more."""
    for descriptor in channel:
        os.close(descriptor)
    _signal.set_wakeup_fd(-1)
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    os.setsid()
    os.umask(0o077)
    prctl(_PR_SET_DUMPABLE, 1)  # first: until then its files in /proc are root's
    first_to_end()
    prctl(_PR_SET_PDEATHSIG, _signal.SIGKILL)
    if _call_filter is not None:
        prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, _call_filter)


def ending(status: int) -> tuple[int | None, int | None]:
    """Exit code or signal of what ``waitpid`` gave; the other one is None."""
    if os.WIFSIGNALED(status):
        return None, os.WTERMSIG(status)
    return os.WEXITSTATUS(status), None


def signal_group(pid: int, number: int) -> None:
    """Signal a process and its group; no effect when there is none."""
    try:
        os.killpg(pid, number)
    except OSError:
        pass


def kill_all() -> None:
    """Everything in the box but this process; only where a box has a process table of its own."""
    try:
        os.kill(-1, _signal.SIGKILL)
    except OSError:
        pass


def end_everything() -> list[tuple[int, int]]:
    """Kill all others in a box of its own and wait until they have ended: nobody in it writes any more.

    Returns:
        Process id and status of each child of this process among them.
    """
    reaped = []  # type: list[tuple[int, int]]
    until = time.monotonic() + _END_SECONDS  # what is still there then hangs in the kernel, and runs no more code
    while time.monotonic() < until:
        kill_all()
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if pid:
            reaped.append((pid, status))
        else:
            time.sleep(_PAUSE_SECONDS)
    return reaped


def end_orphans(spared: int | None, gone_within: float) -> int:
    """End what commands left running and this process has inherited, where other processes have to be left alone.

    Args:
        spared: The kernel's process id, if there is one.
        gone_within: Seconds; what ends in them by itself is not counted.

    Returns:
        How many had to be killed.
    """
    until = time.monotonic() + gone_within
    while (found := _children(spared)) and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
    killed = set()  # type: set[int]
    until = time.monotonic() + _END_SECONDS
    while found and time.monotonic() < until:
        killed.update(found)
        for pid in found:
            try:
                os.kill(pid, _signal.SIGKILL)
                os.waitpid(pid, 0)
            except OSError:
                pass
        found = _children(spared)  # theirs are ours now
    return len(killed)


def _children(spared: int | None) -> list[int]:
    """Children of this process; those that have ended are reaped."""
    found, own = [], os.getpid()
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    for name in names:
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b") ")[2].split()[:2]
            if int(parent) != own or int(name) == spared:
                continue
            if state in b"ZX":
                os.waitpid(int(name), os.WNOHANG)
            else:
                found.append(int(name))
        except (OSError, ValueError):
            continue  # ended meanwhile
    return found


def limit(limits: dict[str, int]) -> None:
    """Resource limits by name (``NOFILE``), of everything started from here on; never above the hard one."""
    import resource

    for name, most in limits.items():
        which = getattr(resource, "RLIMIT_" + name)
        hard = resource.getrlimit(which)[1]
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        # First SIGXCPU, a second later SIGKILL.
        resource.setrlimit(which, (value, value if name != "CPU" or value == hard else value + 1))
