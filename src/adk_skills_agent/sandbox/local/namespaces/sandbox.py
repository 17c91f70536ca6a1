"""A sandbox with namespaces: its description, and once started its processes, control group and file systems.

Both makers put the same description into practice: :mod:`.bubblewrap` as arguments, :mod:`.zygote_root` as mounts.

Of ``/usr`` and ``/usr/local`` the usual folders are shown and others hidden, because images put applications there
(``/usr/src/app``). Of ``/etc`` only what programs need to start, to know the time zone and to check certificates.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import platform
import select
import signal
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import (
    HOME_DIR,
    WORK_DIR,
    ExecutionRequest,
    ReadOnlyMount,
    SandboxPolicy,
    Status,
)
from adk_skills_agent.sandbox.files.workspace import Workspace
from adk_skills_agent.sandbox.local.cgroup import ControlGroup, group_pool
from adk_skills_agent.sandbox.local.init.control import USUAL_FLAGS, InitControl, shown_at
from adk_skills_agent.sandbox.local.kernel.landlock import program_settings, python_folders
from adk_skills_agent.sandbox.process import seccomp
from adk_skills_agent.sandbox.process.command import NOBODY
from adk_skills_agent.sandbox.process.supervise import Child, is_readable, reap_late
from adk_skills_agent.sandbox.process.tree import RunMarks, children_of, is_ending, machine_memory
from adk_skills_agent.sandbox.process.watchdog import DiskLimit, Limits, Watched, watchdog
from adk_skills_agent.sandbox.streaming import ResourceSample

USER_NAME = "sandbox"
SYSTEM_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
SYSTEM_FOLDERS = frozenset((*SYSTEM_LINKS, "libexec", "share", "include", "games", "local"))
_ETC = ("ld.so.cache", "alternatives", "ssl/openssl.cnf", "fonts")
# Each mount costs a sandbox a tenth of a millisecond, a small file nothing. Chromium does not start without its flags,
# and R has neither packages nor the functions of statistics without its settings.
_SMALL_FILES = (
    *("debian_version", "mime.types", "os-release", "protocols", "services", "chromium.d/default-flags"),
    *(f"R/{name}" for name in ("Makeconf", "Renviron", "javaconf", "ldpaths", "repositories")),
)
_MOST_OF_A_FILE = 1 << 17
_ETC_WITH_HOSTS_NETWORK = ("resolv.conf", "hosts")
_CERTIFICATES = ("ssl/certs", "pki/tls/certs")
_LIBRARIES = "cuda"  # /usr/local/cuda-13.0: no application's
BARE_FLAGS = ("-I", "-S", "-B")
"""The switches of an init program that never runs a script itself."""
# Who may read a file may lock it: the database of rpm, whose lock every package manager waits for (row 389).
_LOCKED = ("/usr/lib/sysimage",)
_PAGE = 4096
_FOLDER_MODE, _OPEN_TO_ALL = 0o755, 0o1777

Step = tuple[str, *tuple[str | bytes | int | None, ...]]
"""One step of putting a file system together, the path inside last: ``bind SOURCE PATH`` (read-only), ``tmpfs SIZE MODE
PATH``, ``link TARGET PATH``, ``file CONTENT PATH``, ``dir PATH``, ``proc PATH``, ``dev PATH``, and ``seal PATH``, which
makes a file system read-only."""


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """Everything a sandbox is made from; equal ones make equal sandboxes. What is not here is as in ``SandboxPolicy``.

    Attributes:
        uid: Whose rights the command gets when the agent is root; None keeps the agent's.
        grouped: Whether it gets a control group.
        shown: Folders and files of the host, read-only, and where they are inside.
        identities: Device and inode of each of ``shown``, so that a folder made anew makes another sandbox.
        mounts: Those of ``shown`` that a request mounts, and whether they are linked into the workspace.
        python: The interpreter of the init program, as the sandbox sees it; ``flags`` are its switches.
    """

    uid: int | None
    network: str
    shm_bytes: int | None
    tmp_bytes: int | None
    workspace_bytes: int | None
    memory_bytes: int | None
    pids: int | None
    open_files: int | None
    grouped: bool
    shown: tuple[tuple[str, str], ...]
    identities: tuple[tuple[int, int], ...]
    mounts: tuple[ReadOnlyMount, ...]
    python: str
    flags: tuple[str, ...]
    preload: tuple[str, ...]
    maker: str
    syscalls: str


def sandbox_spec(
    request: ExecutionRequest, policy: SandboxPolicy, script: tuple[str, ...], *, uid: int | None, grouped: bool
) -> SandboxSpec:
    """What a run's sandbox is made from.

    ``script`` is the interpreter and its switches when the init program can run the command itself, which is a Python
    script; else nothing.
    """
    mounts = request.mounts
    here = "/" if all(os.fspath(mount.source)[:1] == "/" for mount in mounts) else os.getcwd()  # noqa: PTH109
    shown = _shown(policy.python, policy.extra_ro, mounts, here)
    python, *flags = script or _interpreter(policy.python)
    return SandboxSpec(
        uid,
        policy.network.mode,
        policy.shm_bytes,
        policy.tmp_bytes,
        policy.workspace_bytes,
        policy.memory_bytes,
        policy.pids,
        policy.open_files,
        grouped,
        shown,
        identities(shown),
        mounts,
        python,
        tuple(flags),
        policy.preload,
        policy.maker,
        policy.syscalls,
    )


def identities(shown: Iterable[tuple[str, str]]) -> tuple[tuple[int, int], ...]:
    """Device and inode of what is shown now."""
    return tuple((info.st_dev, info.st_ino) for info in (os.stat(source) for source, _ in shown))  # noqa: PTH116


def _interpreter(python: str | None) -> tuple[str, ...]:
    """What runs the init program where it is not the script's own interpreter."""
    if python in {None, sys.executable}:
        return (shown_at(sys.executable), *USUAL_FLAGS)
    # Of the agent's interpreter only the standard library is shown beside the one the policy names.
    return (shown_at(os.path.realpath(sys.executable)), *BARE_FLAGS)


@functools.lru_cache(maxsize=64)
def _shown(
    python: str | None, extra: tuple[str, ...], mounts: tuple[ReadOnlyMount, ...], here: str
) -> tuple[tuple[str, str], ...]:
    folders = dict.fromkeys(python_folders_of(python))
    if python not in {None, sys.executable}:
        folders |= dict.fromkeys(python_folders_of(os.path.realpath(sys.executable)))
    pairs = [(path, shown_at(path)) for path in folders]
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


def filter_of(spec: SandboxSpec) -> bytes:
    """The system call filter of everything in a sandbox."""
    # Without a network of its own the sandbox shares the host's abstract sockets, so it gets none of that kind.
    families = (seccomp.AF_INET, seccomp.AF_INET6) if spec.network == "host" else None
    strict = spec.syscalls == "strict"
    return seccomp.program(platform.machine(), seccomp.NAMESPACES, sockets=families, strict=strict)


def file_system(spec: SandboxSpec) -> list[Step]:
    """The steps that put a sandbox's file system together."""
    uid = NOBODY if spec.uid is None else spec.uid
    system, sealed = _system(spec.network)
    steps: list[Step] = [
        *system,
        (
            "file",
            f"root:x:0:0:root:/root:/usr/sbin/nologin\n{USER_NAME}:x:{uid}:{uid}::{HOME_DIR}:/bin/sh\n",
            "/etc/passwd",
        ),
        ("file", f"root:x:0:\n{USER_NAME}:x:{uid}:\n", "/etc/group"),
        (
            "file",
            "passwd: files\ngroup: files\nhosts: files dns\nprotocols: files\nservices: files\n",
            "/etc/nsswitch.conf",
        ),
    ]
    if spec.network != "host":
        steps.append(("file", "127.0.0.1 localhost sandbox\n::1 localhost\n", "/etc/hosts"))
    steps += [
        ("proc", "/proc"),
        ("seal", "/proc"),  # a process may lower its own oom_score_adj again, and then memory ends the agent (row 215)
        ("dev", "/dev"),
        _tmpfs("/dev/shm", spec.shm_bytes),  # noqa: S108  # the sandbox's own
        ("seal", "/dev"),
        _tmpfs("/tmp", spec.tmp_bytes),  # noqa: S108  # the sandbox's own
        _tmpfs(str(WORK_DIR), spec.workspace_bytes),
        # After the sandbox's own folders, because an interpreter may be installed under one of those on the host.
        *_bound(spec.shown),
        *(("seal", path) for path in sealed),
        ("seal", "/"),
    ]
    return steps


def _tmpfs(path: str, size: int | None) -> Step:
    return "tmpfs", None if size is None else max(_PAGE, size), _OPEN_TO_ALL, path


def _bound(pairs: Iterable[tuple[str, str]]) -> list[Step]:
    """Read-only files and folders, and the folders on the way: bubblewrap makes them for its own user alone."""
    steps: list[Step] = []
    made = {"/"}
    for source, target in pairs:
        parent = os.path.dirname(target)  # noqa: PTH120
        if parent not in made:
            made.add(parent)
            steps.append(("dir", parent))
        steps.append(("bind", source, target))
    return steps


@functools.lru_cache(maxsize=8)
def _system(network: str) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """What shows the system, looked at once per process, and the folders to be made read-only at the end."""
    sealed = (*_others("/usr", SYSTEM_FOLDERS), *_others("/usr/local", SYSTEM_FOLDERS), *filter(os.path.isdir, _LOCKED))
    steps: list[Step] = [("bind", "/usr", "/usr"), *(("tmpfs", _PAGE, _FOLDER_MODE, path) for path in sealed)]
    for name in SYSTEM_LINKS:
        path = f"/{name}"
        if os.path.islink(path):  # noqa: PTH114
            steps.append(("link", os.readlink(path), path))  # noqa: PTH115
        elif os.path.isdir(path):  # noqa: PTH112
            steps.append(("bind", path, path))
    if os.path.isdir("/nix/store"):  # noqa: PTH112
        steps.append(("bind", "/nix/store", "/nix/store"))
    steps += _time_zone()
    names = [*_ETC, *(_CERTIFICATES if network in {"host", "allow"} else ())]
    names += _ETC_WITH_HOSTS_NETWORK if network == "host" else ()
    paths = [*(f"/etc/{name}" for name in names), *program_settings()]
    steps += _bound((path, path) for path in paths if os.path.exists(path))  # noqa: PTH110
    steps += _small_files()
    return tuple(steps), sealed


def _small_files() -> list[Step]:
    steps: list[Step] = []
    for name in _SMALL_FILES:
        path = f"/etc/{name}"
        with contextlib.suppress(OSError, ValueError), open(path, encoding="utf-8") as file:
            content = file.read(_MOST_OF_A_FILE + 1)
            if len(content) <= _MOST_OF_A_FILE:
                steps += [("dir", os.path.dirname(path)), ("file", content, path)]  # noqa: PTH120
    return steps


def _time_zone() -> list[Step]:
    path = "/etc/localtime"
    if not os.path.exists(path):  # noqa: PTH110
        return []
    real = os.path.realpath(path)
    if real.startswith("/usr/share/"):
        return [("dir", "/etc"), ("link", real, path)]
    return _bound([(real, path)])


def _others(folder: str, known: frozenset[str]) -> list[str]:
    """What is in a system folder besides the usual, if there is anything in it."""
    try:
        with os.scandir(folder) as entries:
            folders = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    strange = [entry for entry in folders if entry.name not in known and not entry.name.startswith(_LIBRARIES)]
    return sorted(entry.path for entry in strange if _has_content(entry.path))


def _has_content(path: str) -> bool:
    try:
        with os.scandir(path) as entries:
            return next(entries, None) is not None
    except OSError:
        return True


# What a sandbox with a file system of its own sees of a Python installation, read-only.
#
# Its folders, and not the one they are in: that may be a project's (row 55).

_MAX_LINKS = 16


@functools.lru_cache(maxsize=16)
def python_folders_of(python: str | None) -> tuple[str, ...]:
    """What has to be shown, at its own path, for an interpreter, None for the agent's own, to work (row 55)."""
    prefixes = [sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix] if python is None else []
    prefixes += _prefixes_of(python or sys.executable)
    shown = python_folders(prefixes)
    return tuple(folder for folder in shown if not _is_system(folder) and os.path.exists(folder))  # noqa: PTH110


def _is_system(folder: str) -> bool:
    """Whether it is visible without being named."""
    parts = folder.split("/")[1:]
    if parts[0] in SYSTEM_LINKS:
        return True
    if parts[:2] == ["usr", "local"]:
        return len(parts) > 2 and parts[2] in SYSTEM_FOLDERS
    return parts[0] == "usr" and len(parts) > 1 and parts[1] in SYSTEM_FOLDERS


def _prefixes_of(python: str) -> list[str]:
    """Folders an interpreter's path leads through, by its links, and where its virtual environment comes from."""
    prefixes = []
    path = python
    for _ in range(_MAX_LINKS):
        prefix = os.path.dirname(os.path.dirname(path))  # noqa: PTH120
        prefixes.append(prefix)
        prefixes += _home_of(prefix)
        if not os.path.islink(path):  # noqa: PTH114
            break
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))  # noqa: PTH115, PTH118, PTH120
    real = os.path.realpath(python)
    return [*prefixes, os.path.dirname(os.path.dirname(real))]  # noqa: PTH120


def _home_of(prefix: str) -> list[str]:
    """The installation a virtual environment was made from, as its ``pyvenv.cfg`` says."""
    try:
        with open(f"{prefix}/pyvenv.cfg", encoding="utf-8") as stream:
            for line in stream:
                name, _, value = line.partition("=")
                if name.strip() == "home":
                    home = value.strip()
                    return [os.path.dirname(home), os.path.dirname(os.path.realpath(home))]  # noqa: PTH120
    except (OSError, UnicodeDecodeError):
        return []
    return []


_logger = logging.getLogger("adk_skills_agent.sandbox")
READY_SECONDS = 20.0
_END_SECONDS = 2.0
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC if hasattr(os, "O_PATH") else 0
_NAMES = ("work", "tmp", "dev/shm")


class PrivateFolders:
    """Descriptors of a sandbox's ``/work``, ``/tmp`` and ``/dev/shm``, which are file systems in memory.

    A descriptor keeps its file system alive: what a run left is read after everything inside is dead, without a path a
    script could have changed (SANDBOX.md finding 7). The workspace becomes that of ``uid``.
    """

    def __init__(self, pid: int, uid: int | None = None) -> None:
        self._descriptors: list[int] = []
        self._mount_namespace: list[int] = []
        try:
            # Held, so that process 1 ends without the work of taking all its mounts away.
            self._mount_namespace.append(os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC))
            for name in _NAMES:
                self._descriptors.append(os.open(f"/proc/{pid}/root/{name}", _FOLDER))
            # Through the dot it is a folder and not a link, also for what must not follow links.
            self.work, self.tmp = (f"/proc/self/fd/{descriptor}/." for descriptor in self._descriptors[:2])
            if uid is not None:
                os.chown(self.work, uid, uid)
                os.chmod(self.work, 0o700)  # noqa: PTH101
        except OSError:
            self.close()
            raise

    def open_again(self) -> None:
        """Give the workspace back the permissions the script may have taken from it; everything inside is dead."""
        # Without the dot: looking up "." needs the very permission.
        os.chmod(f"/proc/self/fd/{self._descriptors[0]}", 0o700)  # noqa: PTH101

    def limits(self, policy: SandboxPolicy) -> tuple[DiskLimit, ...]:
        """What the watchdog counts: files. Bytes are limited by the file systems themselves."""
        if policy.workspace_inodes is None:
            return ()
        return tuple(
            DiskLimit(functools.partial(_usage, descriptor), None, policy.workspace_inodes, place=place)
            for descriptor, place in zip(self._descriptors, ("the workspace", "/tmp", "/dev/shm"), strict=True)  # noqa: S108  # inside
        )

    def close(self) -> None:
        """Let go of the file systems. Blocking: ending all mounts takes the kernel milliseconds."""
        descriptors, self._descriptors = [*self._descriptors, *self._mount_namespace], []
        self._mount_namespace = []
        for descriptor in descriptors:
            os.close(descriptor)


def _usage(descriptor: int, max_entries: int, max_seconds: float) -> tuple[int, int]:  # noqa: ARG001
    told = os.fstatvfs(descriptor)
    return (told.f_blocks - told.f_bfree) * told.f_frsize, told.f_files - told.f_ffree


class WatchedImports:
    """Watches the limits of a sandbox that imports modules and then waits: what they take is of no run (row 223).

    ``pid`` is our child, ``first`` the pidfd of process 1.
    """

    MOST_CPU_SECONDS = 60.0

    def __init__(self, spec: SandboxSpec, pid: int, first: int) -> None:
        self._lock = threading.Lock()
        self._first: int | None = os.dup(first)
        marks = RunMarks(pid, os.urandom(8).hex(), "", started=time.monotonic())
        in_memory = DiskLimit(lambda *_: (0, 0), None, None)  # its file systems are memory that it takes, too
        limits = Limits(
            marks, spec.memory_bytes, spec.pids, (in_memory,), self._breach, lambda: None, self._look, imports=True
        )
        self._limits = limits
        self._watched = Watched(lambda: False, lambda: None, limits=limits)
        watchdog().add(self._watched)

    def _breach(self, _status: Status, sentence: str) -> None:
        _logger.warning("A sandbox that imports modules beforehand was ended. %s", sentence)
        with self._lock:
            if self._first is not None:
                kill(self._first)

    def _look(self, sample: ResourceSample) -> None:
        if sample.cpu_seconds > self.MOST_CPU_SECONDS:
            self._breach(Status.TIMEOUT, f"It used more than {self.MOST_CPU_SECONDS:g} s of processor time.")

    def ready(self, first_pid: int, *, grouped: bool) -> None:
        """It has imported them. From here on it waits, and memory that others take is not its own.

        Raises ``SandboxError`` when it has taken too much that nothing shows.
        """
        import resource

        limits, now = self._limits, machine_memory()
        grown = now.shared - (limits.seen.before or now).shared
        if not grouped and limits.memory_bytes is not None and grown > limits.memory_bytes * 3 // 2:
            raise SandboxError("While modules are imported ahead, more memory is taken than memory_bytes.")
        self._limits.bounded, self._limits.imports, self._limits.waits = grouped, False, True
        with contextlib.suppress(OSError):  # it ended
            # An agent without privileges does not see the open files of process 1, so it gets no new ones in memory.
            resource.prlimit(first_pid, resource.RLIMIT_FSIZE, (0, 0))

    def end(self) -> None:
        """It got a run, whose limits hold, or it is over."""
        if (mine := watchdog.made) is not None:
            mine.remove(self._watched)
        with self._lock:
            if self._first is not None:
                os.close(self._first)
            self._first = None


@dataclass(slots=True, eq=False)
class StartedSandbox:
    """A sandbox in which nothing of a run is, up to the point at which its init program waits for a job.

    Attributes:
        maker: ``zygote`` or ``bubblewrap``, see ``IsolationReport.maker``.
        child: Our child, with the reading ends of the output: bubblewrap, or the process 1 of a forked sandbox. Its
            ``pidfd`` becomes readable when the command has ended; it is the descriptor of ``init``.
        outer: The child's real pidfd.
        first_pid: Process 1 of the sandbox, as the host numbers it; leader of the command's session and group.
        first: Its pidfd.
        command: The process that becomes the command, as the host numbers it.
        workspace: What is in its workspace already; None for nothing.
        was_waiting: Whether it waited for a run, and may have died meanwhile.
        uid: Its command's user id on the host; None for the agent's own.
        imports: Watches it; None where it has imported nothing.
    """

    maker: str
    child: Child
    outer: int
    first_pid: int
    first: int
    init: InitControl
    command: int
    folders: PrivateFolders
    group: ControlGroup | None = None
    workspace: Workspace | None = None
    was_waiting: bool = False
    uid: int | None = None
    imports: WatchedImports | None = None

    @classmethod
    def ready(
        cls, maker: str, child: Child, outer: int, first_pid: int, first: int, init: InitControl, uid: int | None
    ) -> StartedSandbox:
        """One whose init program has said that it is ready; see the attributes."""
        folders = PrivateFolders(first_pid, uid)
        child.pidfd = init.descriptor
        command = next(iter(children_of(first_pid)), 0)
        _first_to_end(command)
        return cls(maker, child, outer, first_pid, first, init, command, folders, uid=uid)

    def is_waiting(self) -> bool:
        """Whether process 1 is there and silent: it says nothing while it waits for a job, unless it ends."""
        poll = select.poll()
        poll.register(self.first, select.POLLIN)
        poll.register(self.init.descriptor, select.POLLIN)
        return not poll.poll(0) and not any(map(is_ending, (self.first_pid, self.command)))

    def end(self) -> None:
        """Kill everything by killing process 1, without waiting; bubblewrap ends when it is dead."""
        kill(self.first)

    def end_outer(self) -> None:
        """Kill bubblewrap too, which should have ended."""
        kill(self.outer)

    def watch_no_more(self) -> None:
        """Somebody else sees to its limits."""
        imports, self.imports = self.imports, None
        if imports is not None:
            imports.end()

    def close(self) -> None:
        """Close all descriptors but those of the folders."""
        self.watch_no_more()
        self.init.close()
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

    def discard(self) -> None:
        """End it unused, and wait for that; everything of it is gone or, after seconds, no longer waited for."""
        self.end()
        self.reap()
        self.folders.close()
        if self.group is not None:
            group_pool().give_back(self.group)


def _first_to_end(command: int) -> None:
    """When memory runs out, the kernel takes the run and not the agent (row 79). Inside, nobody can change that."""
    with contextlib.suppress(OSError):  # it ended; or an agent without the right to, as a root of few capabilities
        Path(f"/proc/{command}/oom_score_adj").write_text("1000")


def kill(pidfd: int) -> None:
    """SIGKILL, to a process that may have ended."""
    with contextlib.suppress(OSError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def map_users(pid: int, *users: tuple[int, int, int]) -> None:
    """Write both maps of a new user namespace: root, to set the sandbox up, and the users that commands run as.

    Each of ``users`` is the first user and group id inside and outside, and how many.
    """
    lines = "".join(f"{inside} {outside} {count}\n" for inside, outside, count in ((0, 0, 1), *users)).encode()
    for name in ("uid_map", "gid_map"):
        try:
            descriptor = os.open(f"/proc/{pid}/{name}", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(descriptor, lines)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise SandboxError(
                f"The sandbox's user ids could not be set: {error.strerror} ({name}). An agent that runs as root needs "
                "the capabilities SETUID, SETGID and SETFCAP."
            ) from error
