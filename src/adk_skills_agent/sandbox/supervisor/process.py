"""Processes inside a sandbox: how the supervisor starts and ends commands, protects itself, and sees what they use.

Part of the program in the sandbox (:mod:`.program`); see :mod:`.supervisor`.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import _thread
import errno
import io
import os
import stat
import struct
import sys
import time
from typing import Any, Iterator, List, Mapping, Tuple, Union

from adk_skills_agent.sandbox.supervisor.python_program import program_text

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2
_INSTRUCTION_BYTES = 8
_OUT_OF_THE_WAY = 60  # descriptors from here on
MOST_DESCRIPTORS = 4096
_NOT_STARTED = 127
_NO_HOST = 3
_GREETED_SECONDS = 60
_LOOK_SECONDS = 0.005
_PAUSE_SECONDS = 0.001
_END_SECONDS = 5.0
_PAUSE_FACTOR = 20  # at most one part in so many of the time is spent counting watches
_UNSEEN_WATCHES = 2048
_MOST_UNANSWERED = 15  # looks; as the program gets its turn for each, so does its other thread
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
    """Nobody of the same user may look into this process or attach to it, if the system can do that; adopts orphans."""
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
_most_files: Any = None
_niceness = 0


def filter_calls(program: bytes) -> None:
    """Put a system call filter on everything started from here on; its surrounding may have its own."""
    global _call_filter  # noqa: PLW0603
    import ctypes

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]

    _call_filter = ctypes.byref(Program(len(program) // _INSTRUCTION_BYTES, program)) if program else None


def make_home(environment: Mapping[str, str]) -> None:
    """The folder that ``HOME`` names: each sandbox is one run's or one session's, so it is new and empty there."""
    try:
        os.makedirs(environment["HOME"], mode=0o700, exist_ok=True)
    except (OSError, KeyError):
        pass  # what uses it says what is wrong with it


def start_command(
    argv: list[Any],
    environment: dict[str, str],
    cwd: str,
    stdin: bytearray | None,
    channel: list[int],
    limits: dict[str, int | None],
    here: bool = False,
) -> Started:
    """Start one command in a session of its own, under resource limits by name; None is no limit. Child in the fork."""
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
        leave_supervisor(channel)
        os.chdir(cwd)
        make_home(environment)
        if _call_filter is not None:  # see WITHOUT_TIMERS in seccomp.py, which is not here
            environment.setdefault("GHCRTS", "-V0")
        limit({name: most for name, most in limits.items() if most is not None})
        if here:
            _pose_as_interpreter(argv, environment)
            os.closerange(3, MOST_DESCRIPTORS)
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


def leave_supervisor(channel: list[int]) -> None:
    """From here on this process is not the supervisor any more."""
    for descriptor in channel:
        os.close(descriptor)
    _signal.set_wakeup_fd(-1)
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    os.setsid()
    os.umask(0o077)
    prctl(_PR_SET_DUMPABLE, 1)  # first: until then its files in /proc are root's
    try:  # when memory runs out the kernel takes this process, and not its supervisor
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass
    prctl(_PR_SET_PDEATHSIG, _signal.SIGKILL)
    os.nice(_niceness)
    if _most_files is not None:
        limit({"NOFILE": _most_files})
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
    """Everything in the sandbox but this process; only where a sandbox has a process table of its own."""
    try:
        os.kill(-1, _signal.SIGKILL)
    except OSError:
        pass


def end_everything() -> list[tuple[int, int]]:
    """Kill all others in a sandbox of its own and wait until they have ended: nobody in it writes any more.

    Gives the process id and status of each child of this process among them.
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
    """End what commands left running and this process has inherited, where others have to be left alone; how many."""
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


def others(gone_within: float = 0.0) -> int:
    """Processes in the sandbox besides this one and process 1 that have not ended by themselves within some seconds."""
    until = time.monotonic() + gone_within
    while True:
        found = sum(state not in "ZX" for pid, state, _ in _processes() if pid not in {1, os.getpid()})
        if not found or time.monotonic() >= until:
            return found
        time.sleep(_LOOK_SECONDS)


def _children(spared: int | None) -> list[int]:
    """Children of this process; those that have ended are reaped."""
    found, own = [], os.getpid()
    for pid, state, parent in _processes():
        if parent != own or pid == spared:
            continue
        if state not in "ZX":
            found.append(pid)
            continue
        try:
            os.waitpid(pid, os.WNOHANG)
        except OSError:
            pass
    return found


_THREADS = 17  # in /proc/PID/stat, after the name in brackets


def _processes() -> Iterator[Tuple[int, str, int]]:
    """Process id, state and parent of every process there is."""
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return
    for name in names:
        try:
            with open("/proc/" + name + "/stat", "rb") as file:
                fields = file.read().rpartition(b") ")[2].split()
            # One whose first thread alone has ended looks dead, and is not (row 246).
            state = "S" if int(fields[_THREADS]) > 1 else fields[0].decode()
            parent = int(fields[1])
        except (OSError, ValueError, IndexError):
            continue  # ended meanwhile
        yield int(name), state, parent


def _entries(folder: str) -> int:
    try:
        return len(os.listdir(folder))
    except OSError:
        return 0


def _tasks() -> int:
    """All processes and threads but those of this process."""
    found = 0
    for pid, state, _ in _processes():
        if pid != os.getpid() and state not in "ZX":
            try:
                found += len(os.listdir(f"/proc/{pid}/task"))
            except OSError:
                pass  # ended meanwhile
    return found


def _watches(enough: int) -> int:
    """The files that epoll instances of other processes watch, and the parts of files that they lock (row 369), no
    further than ``enough``; a guess for a process that does not show what it has open.
    """
    found = 0
    for pid, state, _ in _processes():
        if pid == os.getpid() or state in "ZX":
            continue
        try:
            # Of the last thread: that of a process whose first one has ended is empty (row 246).
            folder = f"/proc/{pid}/task/" + os.listdir(f"/proc/{pid}/task")[-1] + "/fd"
            names = os.listdir(folder)
        except PermissionError:
            found += _UNSEEN_WATCHES
            continue
        except (OSError, IndexError):
            continue  # ended meanwhile
        for name in names:
            try:
                if os.readlink(folder + "/" + name).startswith(("/", "anon_inode:[eventpoll]")):
                    with open(folder + "info/" + name, "rb") as file:
                        told = file.read(min(enough * 100, 1 << 22))
                    found += told.count(b"tfd:") + told.count(b"lock:")
            except OSError:
                pass  # closed meanwhile
        if found > enough:
            break
    return found


def limit_files(most: int) -> None:
    """Limit the open files of everything that is started from here on, and not this process's own.

    As many descriptors may be on their way between processes of a user as the limit of who sends one says; containers
    have one user. So no script can use up those that a supervisor needs to give its session an output (row 183).
    """
    global _most_files  # noqa: PLW0603  # one supervisor in a process
    _most_files = most


def give_way(niceness: int) -> None:
    """Let everything that is started from here on wait for this process, which shares its processors with it.

    Else what makes them busy is looked at late, and goes on for a part of a second after it was killed (row 333).
    """
    global _niceness  # noqa: PLW0603
    _niceness = niceness


def limit(limits: Mapping[str, Union[int, List[int]]]) -> None:
    """Resource limits by name (``NOFILE``), of everything started from here on; never above the hard one.

    One that is a pair has a soft limit below the hard one, and is not raised above the usual soft one.
    """
    import resource

    for name, wanted in limits.items():
        which = getattr(resource, "RLIMIT_" + name)
        usual, hard = resource.getrlimit(which)
        most = wanted if isinstance(wanted, int) else wanted[1]
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        if not isinstance(wanted, int):
            soft = wanted[0] if usual == resource.RLIM_INFINITY else min(wanted[0], usual)
            resource.setrlimit(which, (min(soft, value), value))
            continue
        # First SIGXCPU, a second later SIGKILL.
        resource.setrlimit(which, (value, value if name != "CPU" or value == hard else value + 1))


# Commands for which no interpreter has to be started, because the supervisor is one: a fork of it runs them.
#
# Python code without a session is a command like any other, ``python -I -c`` with :mod:`.python_program`; to start that
# takes longer in a container than all the rest of a run. The supervisor runs with the same switches and holds that
# program, too. Its fork has neither the channel nor anything of another run, and is what the command would have been in
# everything but its command line in ``/proc`` and modules that are imported already.

# What an interpreter or its C library reads when it starts; PYTHON* it ignores with -I.
_READ_AT_START = ("LANG", "LC_", "LD_", "GLIBC_", "MALLOC_", "TZ")
_ENVIRONMENT = slice(47, 49)  # its begin and end in /proc/PID/stat, after the name in brackets
_OTHER_SWITCHES = (
    "debug",
    "inspect",
    "optimize",
    "dont_write_bytecode",
    "no_site",
    "verbose",
    "bytes_warning",
    "dev_mode",
    "utf8_mode",
)


class Child(BaseException):
    """Raised in the fork: from here on its process is the command's, and :func:`.python_program.main` is to run."""


def is_own(argv: list[str], environment: dict[str, str]) -> bool:
    """Whether a command is the program for Python code, under the very interpreter that runs here."""
    if argv[1:3] != ["-I", "-c"] or argv[3:4] != [program_text()] or not _has_only_our_switches():
        return False
    for name in {*environment, *os.environ}:
        if name.startswith(_READ_AT_START) and environment.get(name) != os.environ.get(name):
            return False
    return _found(argv[0], environment.get("PATH", os.defpath)) == sys.executable


def _pose_as_interpreter(argv: list[str], environment: dict[str, str]) -> None:
    """Make this process, which has the command's descriptors, look like a new interpreter to the code it will run."""
    os.environ.clear()
    os.environ.update(environment)
    _replace_first_environment(environment)
    sys.argv[:] = ["-c", *argv[4:]]
    if hasattr(sys, "orig_argv"):  # since Python 3.10
        sys.orig_argv[:] = argv
    # As the interpreter makes them at its start; the ones made then are for descriptors that are no more.
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        old = getattr(sys, name)
        buffer = io.open(number, mode + "b", closefd=False)  # noqa: SIM115, UP020
        buffer.raw.name = f"<{name}>"  # type: ignore[attr-defined]
        made = io.TextIOWrapper(buffer, old.encoding, old.errors, "\n", line_buffering=old.line_buffering)
        made.mode = mode  # type: ignore[misc]
        setattr(sys, name, made)
        setattr(sys, f"__{name}__", made)


def _replace_first_environment(environment: dict[str, str]) -> None:
    """What ``/proc/self/environ`` shows: what this process started with is not for the code."""
    try:
        import ctypes

        with open("/proc/self/stat", "rb") as file:
            begin, end = (int(field) for field in file.read().rpartition(b")")[2].split()[_ENVIRONMENT])
    except (ImportError, OSError, ValueError):
        return
    shown = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in environment.items())
    if 0 < begin < end:  # where the kernel tells; nothing is shown of one that needs more room
        ctypes.memmove(begin, (shown if len(shown) <= end - begin else b"").ljust(end - begin, b"\0"), end - begin)


def _has_only_our_switches() -> bool:
    flags = sys.flags
    others = [name for name in _OTHER_SWITCHES if getattr(flags, name, 0)]
    return bool(flags.isolated) and not (others or sys.warnoptions or sys._xoptions)


def _found(command: str, path: str) -> str | None:
    """What ``execvpe`` would start."""
    if "/" in command:
        return command
    for folder in path.split(os.pathsep):
        place = os.path.join(folder, command)
        try:
            if stat.S_ISREG(os.stat(place).st_mode) and os.access(place, os.X_OK):
                return place
        except OSError:
            continue
    return None


INTERVAL_SECONDS = 0.1
_OOM_KILLS = (
    ("/sys/fs/cgroup/memory.events", b"oom_kill ", 1),
    ("/sys/fs/cgroup/memory/memory.oom_control", b"oom_kill ", 1),
)
_SOCKETS = (("/proc/net/sockstat", b"sockets: used ", 1),)
_DATAGRAMS = ("udp", "udp6", "icmp", "icmp6")
_BLIND_SOCKETS = 64
_QUEUES = 4  # in a line of these: bytes that wait to be sent and to be read
_AF_NETLINK, _NETLINK_SOCK_DIAG = 16, 4
_SOCKETS_BY_FAMILY, _END_OF_LIST, _WHOLE_LIST, _MEMORY = 20, 3, 0x301, 7
_NOT_TIME_WAIT = 0xFFFFFFFF ^ 1 << 6  # those are no sockets any more
_MESSAGE, _ATTRIBUTE, _QUESTION = struct.Struct("=IHHII"), struct.Struct("=HH"), struct.Struct("=BBBBI48x")
_BEFORE_ATTRIBUTES = 72
_IN_SOCKET = struct.Struct("=I16xIII")  # to be read; to be sent; options; what came while it was locked
_LISTED_SECONDS = 1.0
_MOST_TOLD = 1 << 16
_CPU_MICROSECONDS = (
    ("/sys/fs/cgroup/cpuacct/cpuacct.usage", b"", 1000),
    ("/sys/fs/cgroup/cpu.stat", b"usage_usec ", 1),
)


class Watch:
    """What can be seen from inside of limits that nobody outside tells about: memory that ran out, full file systems.

    ``inodes`` are the most files and folders of some file systems; a tmpfs does not limit them everywhere. ``sockets``
    are the most of the sandbox's network, those that nobody accepted among them; None where it has none of its own.
    ``socket_bytes`` are the most that those for TCP and datagrams may hold.
    ``terminals`` are the most that it may open; None where they are not its own. ``tasks`` are the most processes and
    threads besides the supervisor, where nothing outside limits exactly those. ``watches`` are the most files that
    epoll instances may watch, and parts of files that may be locked.
    """

    def __init__(self) -> None:
        self.inodes: dict[str, int] = {}
        self.sockets: int | None = None
        self.socket_bytes: int | None = None
        self.terminals: int | None = None
        self.tasks: int | None = None
        self.watches: int | None = None
        self._asked: Any = None  # a lock that the other thread waits for
        self._found, self._unanswered, self._is_looking, self._is_old = "", 0, False, False
        self._oom_before = 0
        self._cpu_before: int | None = None
        self._reaped_before = 0.0
        self._rest_until: float | None = None
        self._next = 0.0

    def prepare(self) -> None:
        """Start the other thread that :meth:`beyond` needs, while there is room for one."""
        if self._asked is None and (self.terminals or self.watches):
            self._asked = _thread.allocate_lock()
            self._asked.acquire()
            _thread.start_new_thread(self._look_on, ())

    def begin(self, *, of_command: bool) -> None:
        """An execution begins; what code of a session uses is counted by its own process."""
        self._oom_before = _counted(_OOM_KILLS) or 0
        if of_command:
            self._cpu_before = _counted(_CPU_MICROSECONDS)
            self._reaped_before = _reaped()[0]
        self._next = time.monotonic() + INTERVAL_SECONDS
        self._found, self._unanswered, self._is_old = "", 0, self._is_looking

    def ran_out_of_memory(self) -> bool:
        """Whether the kernel ended a process of this sandbox since then because its memory ran out."""
        return (_counted(_OOM_KILLS) or 0) > self._oom_before

    def has_hidden_memory(self) -> bool:
        """Whether there are very many sockets, or much is in them: what nobody accepts or reads is charged to no group
        (rows 136, 160), with version 1 nothing of TCP is, and one connection may hold 36 MiB (row 333).
        """
        if self.sockets is None:
            return False
        there = _counted(_SOCKETS) or 0
        if not there or there > self.sockets or self.socket_bytes is None:
            return there > self.sockets
        try:
            held = _in_datagrams() + _in_connections(_socket.AF_INET) + _in_connections(_socket.AF_INET6)
        except OSError:  # this kernel does not tell, so that only few are harmless
            return there > max(_BLIND_SOCKETS, self.socket_bytes >> 20)
        return held > self.socket_bytes

    def has_many_tasks(self) -> bool:
        """Whether there are more processes and threads than it may have."""
        return self.tasks is not None and _tasks() > self.tasks

    def beyond(self) -> str:
        """Of what there was more at the last look than there may be: ``terminals``, so that other sandboxes on the
        machine may get none (rows 137, 170), or ``watches`` and locks, which others go through (rows 363, 369).

        A script can make who looks at folders of the kernel wait (row 309): so it is another thread, and when that does
        not answer at several looks it ``waits``.
        """
        if self._asked is None:
            return ""
        if self._is_looking:
            self._unanswered += 1
            return "waits" if self._unanswered > _MOST_UNANSWERED else ""
        found = "" if self._is_old else self._found
        self._found, self._unanswered, self._is_looking, self._is_old = "", 0, True, False
        self._asked.release()
        return found

    def _look_on(self) -> None:
        due = 0.0
        while True:
            self._asked.acquire()
            began, found = time.monotonic(), ""
            if self.terminals and _entries("/dev/pts") - 1 > self.terminals:
                found = "terminals"
            elif self.watches and began >= due:
                found = "watches" if _watches(self.watches) > self.watches else ""
                due = time.monotonic() + (time.monotonic() - began) * _PAUSE_FACTOR
            self._found, self._is_looking = found, False

    def rest(self, seconds: float | None) -> None:
        """An execution of code has ended, and what it left running may use some processor time until the next."""
        used = None if seconds is None else _counted(_CPU_MICROSECONDS)
        self._rest_until = None if used is None or seconds is None else used + seconds * 1e6

    def has_used_much_time(self) -> bool:
        """Whether it has used more than that (row 211); where no group of its own counts, nobody knows."""
        return self._rest_until is not None and (_counted(_CPU_MICROSECONDS) or 0) > self._rest_until

    def cpu_ms(self) -> float | None:
        """What everything in the sandbox has used since then, where it has a group of its own that tells."""
        now = _counted(_CPU_MICROSECONDS)
        return None if now is None or self._cpu_before is None else (now - self._cpu_before) / 1000

    def reaped(self) -> dict[str, float]:
        """What the processes that ended since then have used, where no group of its own tells: time and peak."""
        seconds, most = _reaped()
        return {"cpu_ms": round((seconds - self._reaped_before) * 1000, 3), "rss": most}

    def is_wanted(self) -> bool:
        """Whether there is a limit that is looked at."""
        return bool(self.inodes or self.sockets or self.terminals or self.tasks or self.watches)

    def is_due(self) -> bool:
        """Whether it is time to look at the limits again; once in each interval."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + INTERVAL_SECONDS
        return True

    def overfull(self) -> str | None:
        """A file system with too many files."""
        for path, most in self.inodes.items():
            try:
                found = os.statvfs(path)
            except OSError:
                continue
            if found.f_files - found.f_ffree > most:
                return path
        return None


def _counted(places: tuple[tuple[str, bytes, int], ...]) -> int | None:
    """A number the sandbox's group counts, by path, begin of its line and divisor; None where nothing counts."""
    for path, name, unit in places:
        try:
            with open(path, "rb") as file:
                for line in file:
                    if line.startswith(name):
                        return int(line[len(name) :]) // unit
        except (OSError, ValueError):
            pass
    return None


def _in_datagrams() -> int:
    """Bytes in the sockets of this network for datagrams and echoes."""
    found = 0
    for name in _DATAGRAMS:
        try:
            with open("/proc/net/" + name, "rb") as file:
                next(file, None)
                found += sum(int(part, 16) for line in file for part in line.split()[_QUEUES].split(b":"))
        except (OSError, ValueError, IndexError):
            pass  # this kernel has none
    return found


def _in_connections(family: int) -> int:
    """Bytes in the TCP sockets of this network, those that nobody accepted among them.

    ``/proc/net/tcp`` has what was sent, and not the memory for it. Raises OSError where the kernel does not tell.
    """
    asked = _QUESTION.pack(family, _socket.IPPROTO_TCP, 1 << _MEMORY - 1, 0, _NOT_TIME_WAIT)
    found, link = 0, _socket.socket(_AF_NETLINK, _socket.SOCK_RAW, _NETLINK_SOCK_DIAG)
    try:
        link.settimeout(_LISTED_SECONDS)
        link.send(_MESSAGE.pack(_MESSAGE.size + len(asked), _SOCKETS_BY_FAMILY, _WHOLE_LIST, 1, 0) + asked)
        while True:
            for kind, one in _parts(link.recv(_MOST_TOLD), _MESSAGE):
                if kind == _END_OF_LIST:
                    return found
                if kind != _SOCKETS_BY_FAMILY:
                    raise OSError(errno.EPROTONOSUPPORT, "no list")
                attributes = _parts(one[_BEFORE_ATTRIBUTES:], _ATTRIBUTE)
                found += sum(sum(_IN_SOCKET.unpack_from(value)) for name, value in attributes if name == _MEMORY)
    finally:
        link.close()


def _parts(data: bytes, header: struct.Struct) -> Iterator[Tuple[int, bytes]]:
    """Kind and content of each part of what the kernel tells."""
    while len(data) >= header.size:
        length, kind = header.unpack_from(data)[:2]
        yield kind, data[header.size : length]
        data = data[max(length + 3 & ~3, header.size) :]


def _reaped() -> tuple[float, int]:
    """Seconds of processor time of all children that have ended, and the largest peak of one in bytes."""
    import resource

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime, used.ru_maxrss << 10
