"""What each operating system gives: what works on it, what is refused there and which way is left.

Linux has everything. macOS has no namespaces, Landlock or system call filters, so scripts run in a container. Windows
has neither the calls by which files of strangers are opened safely nor process groups: the package can be imported
there, and says what to use instead.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shlex
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.installation import install_hint

if TYPE_CHECKING:
    from tarfile import TarFile, TarInfo

# Flags of os.open that Windows lacks; what needs them is refused there, but can be imported.
O_CLOEXEC: int = getattr(os, "O_CLOEXEC", 0)
O_NOCTTY: int = getattr(os, "O_NOCTTY", 0)
O_DIRECTORY: int = getattr(os, "O_DIRECTORY", 0)
O_NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
O_NONBLOCK: int = getattr(os, "O_NONBLOCK", 0)


# What /proc counts in.
PAGE_BYTES: int = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
TICKS_PER_SECOND: int = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@dataclass(frozen=True, slots=True)
class SystemSupport:
    """What an operating system is good for.

    Attributes:
        name: As people call it.
        works: What works, in a sentence.
        refused: What is refused and why, in a sentence; empty for nothing.
        instead: What to do about it, in a sentence; empty when nothing is refused.
    """

    name: str
    works: str
    refused: str = ""
    instead: str = ""


def system_support() -> SystemSupport:
    """What this operating system is good for."""
    system: str = sys.platform  # a type checker would take the name itself for that of its own machine
    if system == "win32":
        return SystemSupport(
            "Windows",
            "Checking single skills (adk-skills validate) and the rehearsed model work.",
            "Finding skills and running scripts are refused: Windows has no safe way to open files of strangers, and "
            "no process groups.",
            f"Run the agent in WSL 2, or in a Linux container; scripts can have one of their own there: "
            f"{install_hint('container')}",
        )
    if system == "darwin":
        return SystemSupport(
            "macOS",
            "Finding skills, the tools, packages and evals work.",
            "Scripts are refused on the machine itself: macOS has no namespaces, Landlock or system call filters.",
            "Run them in a container (Docker Desktop, Podman machine or Colima; sandbox='container'), or, for scripts "
            f"you wrote, at min_isolation='process', which protects nothing. The client for containers: "
            f"{install_hint('container')}",
        )
    if system == "linux":
        return SystemSupport("Linux", "Everything; scripts at the isolation levels below.")
    return SystemSupport(
        system,
        "Not tried: finding skills and the tools may work.",
        "Scripts are refused on the machine itself: the isolation levels are for Linux.",
        "Use Linux, or a container (sandbox='container').",
    )


def require_posix(what: str) -> None:
    """Refuse on Windows what would go wrong there in less clear ways.

    Args:
        what: What is asked for, as ``Finding skills``.

    Raises:
        ConfigError: This is Windows; with the way that is left.
    """
    system: str = sys.platform
    if system == "win32":
        raise ConfigError(f"{what} is refused on Windows itself. {system_support().instead}")


def after_fork_in_child(forget: Callable[[], object]) -> None:
    """Have a child that this process forks forget what is its parent's; nothing where there is no fork (Windows)."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forget)


def regular_descriptor(path: Path | str) -> tuple[int, os.stat_result]:
    """A descriptor to read a regular file, and what it is; never waits for a pipe or a device (row 201).

    Raises ``OSError`` when it is no regular file, or cannot be opened.
    """
    descriptor = os.open(path, os.O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise OSError(0, "it is no regular file", str(path))
    return descriptor, status


def open_regular(path: Path | str) -> BinaryIO:
    """A regular file, open for reading; errors as :func:`regular_descriptor`."""
    return os.fdopen(regular_descriptor(path)[0], "rb")


def make_folder_below(folder: Path, name: str | Path) -> Path:
    """Make a folder, and those on the way to it, below ``folder``; never through a link (rows 186 and 200).

    Raises ``OSError`` when a link is on the way, or the disk refuses.
    """
    made = folder / name
    if made.resolve() != folder.resolve() / name:
        raise OSError(errno.ELOOP, f"a link leads out of {folder}", str(made))
    made.mkdir(parents=True, exist_ok=True)
    return made


def extract_below(archive: TarFile, member: TarInfo, folder: Path) -> bool:
    """Unpack one member of an archive, unless it would leave ``folder``. Returns whether it was unpacked.

    What counts is tarfile's filter "data". Python before 3.11.4 has none (Debian 12): there only files and folders are
    unpacked. Raises ``OSError`` when the disk refuses.
    """
    import tarfile

    if hasattr(tarfile, "data_filter"):
        try:
            archive.extract(member, folder, filter="data")
        except tarfile.FilterError:
            return False
        return True
    root = os.path.realpath(folder)
    member.name = member.name.lstrip("/")
    target = os.path.realpath(Path(root) / member.name)
    if not (member.isreg() or member.isdir()) or os.path.commonpath((root, target)) != root:
        return False
    member.mode = 0o755 if member.isdir() else member.mode & 0o755 | 0o600
    member.uid, member.gid, member.uname, member.gname = os.geteuid(), os.getegid(), "", ""
    archive.extract(member, root)
    return True


def extract_all_below(archive: TarFile, folder: Path) -> None:
    """Unpack an archive. Raises ``ValueError`` at the first member that would leave ``folder``."""
    for member in archive:
        if not extract_below(archive, member, folder):
            raise ValueError(f"{member.name!r} in the archive leads out of its folder")


def write_whole(path: Path, data: bytes | Iterable[bytes], *, mode: int | None = None, flush: bool = False) -> None:
    """Write a file beside, then rename it: a reader sees the old bytes or the new ones, also after a kill.

    ``data`` may be parts, one after the other. ``mode`` None is that of the file there is, else that of new files. With
    ``flush`` the disk has the bytes before the file gets its name.

    Raises:
        OSError: The disk did not take it; what was there stays.
    """
    import tempfile

    aside: Path | None = None
    try:
        # A new file of a random name: nobody can have put a link in its place, and no name is too long for it.
        descriptor, name = tempfile.mkstemp(prefix=".aside-", dir=path.parent)
        aside = Path(name)
        with os.fdopen(descriptor, "wb") as file:
            file.writelines([data] if isinstance(data, bytes) else data)
            if flush:
                file.flush()
                os.fsync(descriptor)
        aside.chmod(_mode_of(path) if mode is None else mode)
        aside.replace(path)
    except BaseException as error:
        if aside is not None:
            aside.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def write_below(folder: int, name: str, data: bytes, mode: int) -> None:
    """The same below a folder's descriptor: whatever a script puts there meanwhile, no link is followed."""
    aside = f".{os.urandom(8).hex()}.part"
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode, dir_fd=folder)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        os.replace(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(aside, dir_fd=folder)
        raise


@contextlib.contextmanager
def locked(path: Path | str, flags: int = os.O_RDWR | os.O_CREAT | O_NOFOLLOW | O_CLOEXEC) -> Iterator[None]:
    """Hold the lock of a file, or of a folder with other flags, against all other processes; it ends with this one."""
    import fcntl

    descriptor = os.open(path, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def lock_within(descriptor: int, seconds: float) -> bool:
    """Lock an open file alone; False when somebody else has the lock for so long."""
    import fcntl

    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        else:
            return True


def typed_path(path: Path) -> str:
    """How a person names a folder on a command line: from the current one if it is below it, quoted for a shell."""
    try:
        shown = f"./{path.relative_to(Path.cwd())}"
    except (ValueError, OSError):
        shown = str(path)
    return shlex.quote(shown)


def _mode_of(path: Path) -> int:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        umask = os.umask(0)
        os.umask(umask)
        return 0o666 & ~umask


LEAST_FREE_BYTES, _LEAST_FREE_SHARE = 1 << 30, 20
LEAST_FREE_ENTRIES = 1 << 16
"""What is kept for others on a disk, or this part of a smaller one."""


def bytes_in(folder: Path) -> int:
    """The bytes of all files below a folder; what is removed meanwhile does not count."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size  # noqa: PTH118 - thousands of them
    return total


def is_nearly_full(folder: Path) -> bool:
    """Whether the disk of a folder has little room left, which is for others (rows 146, 158, 161 and 423)."""
    return min(room_left(folder)[0], entries_left(folder)[0]) < 0


def room_left(folder: Path) -> tuple[int, int]:
    """The bytes of a folder's disk until it is nearly full, less than none when it is; and those left for others."""
    import shutil

    total, _, free = shutil.disk_usage(folder)
    kept = min(LEAST_FREE_BYTES, total // _LEAST_FREE_SHARE)
    return free - kept, kept


def entries_left(folder: Path) -> tuple[int, int]:
    """The same of files and folders; a disk that makes room for them as they come is never full of them."""
    disk = os.statvfs(folder) if hasattr(os, "statvfs") else None
    if disk is None or disk.f_files == 0:
        return sys.maxsize, 0
    kept = min(LEAST_FREE_ENTRIES, disk.f_files // _LEAST_FREE_SHARE)
    return disk.f_favail - kept, kept


def own_groups(groups: str, mounts: str) -> dict[str, str]:
    """The folder of this process's group by controller; that of version 2 has an empty name.

    From two files of /proc/self.
    """
    paths: dict[str, str] = {}
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    found: dict[str, str] = {}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, _, options) = before.split(), after.split(" ", 2)
        if kind not in {"cgroup", "cgroup2"}:
            continue
        root, point = (_plain(field) for field in fields[3:5])
        for name in [""] if kind == "cgroup2" else options.split(","):
            folder = _below(paths.get(name), root, point)
            if folder is not None:
                found.setdefault(name, folder)
    return found


def _plain(field: str) -> str:
    """Without the octal escapes of mountinfo."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def _below(path: str | None, root: str, point: str) -> str | None:
    """Where a group is found when ``root`` of its tree is mounted at ``point``; None when it is outside of that."""
    if path is None or "/.." in path or "/.." in root:
        return None
    inside = os.path.relpath(path, root)
    if inside.startswith(".."):
        return None
    return os.path.normpath(f"{point}/{inside}")


_MOST_FILES = 1 << 16


def allow_many_files() -> None:
    """Have as many files open as this process may, up to 65,536: most systems begin with 1,024, for old programs."""
    if sys.platform != "win32":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(_MOST_FILES, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
