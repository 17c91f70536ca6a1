"""The folder of the skill cache: where it is, that it is ours alone, which entries are in use, and what is thrown away.

``<root>/<digest>/`` is an entry, ``<root>/<digest>.lock`` its lock: whoever uses the entry holds it shared, whoever
deletes the entry holds it alone. The time of the lock file is that of the last use; it holds the entry's size.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.local.removal import remove_tree
from adk_skills_agent.sandbox.local.workspace import about

CACHE_VARIABLE = "ADK_SKILLS_SANDBOX_CACHE"
"""Variable of the agent's environment that names another folder for the cache."""
MAX_CACHE_BYTES = 4 << 30
MAX_CACHE_ENTRIES = 1_000
_STALE_SECONDS = 3600.0
_ASIDE = "."  # names of what is being made or thrown away begin so
_WRITABLE_BY_OTHERS = 0o022
_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def cache_folder(chosen: Path | None = None) -> str:
    """The folder of the cache, made and checked: a real folder of this user that nobody else can write.

    As root it can be entered, though not listed, by others (mode 0711), because a run then has another user id; else it
    is closed to them (0700).

    Raises:
        SandboxError: It cannot be made, or belongs to or can be written by somebody else.
    """
    problem: SandboxError | None = None
    for candidate in _candidates(chosen):
        try:
            return _checked(candidate)
        except OSError as error:
            sentence = f"The folder of the skill cache cannot be made: {error.strerror}. Set {CACHE_VARIABLE}."
            problem = problem or about(SandboxError(sentence), candidate)
    assert problem is not None  # noqa: S101  # there is always a candidate
    raise problem


def aside(root: str) -> str:
    """A new name in the cache for what is being made or thrown away."""
    return f"{root}/{_ASIDE}{os.urandom(8).hex()}"


def lock_entry(root: str, digest: str) -> int:
    """Take an entry into use: a descriptor that holds its lock until it is closed.

    Raises:
        OSError: The lock cannot be taken.
    """
    path = f"{root}/{digest}.lock"
    while True:
        descriptor = os.open(path, _LOCK, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            # Whoever threw the entry away meanwhile has removed the lock file as well.
            if _same_file(descriptor, path):
                os.utime(descriptor)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def note_size(lock: int, size: int, files: int) -> None:
    """Write an entry's size into its lock file."""
    os.pwrite(lock, f"{size} {files}\n".encode(), 0)


@contextlib.contextmanager
def alone(root: str) -> Iterator[None]:
    """Keep every other process from replacing or throwing away entries."""
    descriptor = os.open(f"{root}/{_ASIDE}lock", _LOCK, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def discard(root: str, path: str) -> None:
    """Delete a tree of the cache: out of the way first, so that nobody meets half of it."""
    doomed = aside(root)
    try:
        os.rename(path, doomed)  # noqa: PTH104
    except FileNotFoundError:
        return
    remove_tree(doomed)


def clean_up(root: str, *, max_bytes: int = MAX_CACHE_BYTES, max_entries: int = MAX_CACHE_ENTRIES) -> int:
    """Throw away the entries unused for longest, until the cache is inside its bounds; how many.

    Entries that any process has in use stay.
    """
    with alone(root):
        entries: list[tuple[float, int, str]] = []
        with os.scandir(root) as scan:
            for item in scan:
                info = item.stat(follow_symlinks=False)
                if item.name.endswith(".lock") and item.name != f"{_ASIDE}lock":
                    entries.append((info.st_mtime, _size(item.path), item.name.removesuffix(".lock")))
                elif item.name.startswith(_ASIDE) and stat.S_ISDIR(info.st_mode) and _stale(info):
                    remove_tree(item.path)  # by a process that was killed while it made or deleted an entry
        total, count, thrown = sum(size for _, size, _ in entries), len(entries), 0
        for _, size, digest in sorted(entries):
            if total <= max_bytes and count <= max_entries:
                break
            if _throw_away(root, digest):
                total, count, thrown = total - size, count - 1, thrown + 1
        return thrown


def _throw_away(root: str, digest: str) -> bool:
    path = f"{root}/{digest}.lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        discard(root, f"{root}/{digest}")
        os.unlink(path)  # noqa: PTH108
    except OSError:  # somebody uses it
        return False
    finally:
        os.close(descriptor)
    return True


def _candidates(chosen: Path | None) -> Iterator[str]:
    named = str(chosen) if chosen is not None else os.environ.get(CACHE_VARIABLE, "")
    if named:
        yield os.path.abspath(named)  # noqa: PTH100
        return
    user = os.geteuid()
    if user == 0:
        # Not under root's home, which a run that has dropped its user id cannot enter.
        yield "/var/cache/adk-skills/skills"
    else:
        base = os.environ.get("XDG_CACHE_HOME", "")
        if not os.path.isabs(base):  # noqa: PTH117
            base = os.path.expanduser("~/.cache")  # noqa: PTH111
        if os.path.isabs(base):  # noqa: PTH117
            yield f"{base}/adk-skills/skills"
    import tempfile

    yield f"{tempfile.gettempdir()}/adk-skills-cache-{user}"


def _checked(root: str) -> str:
    user = os.geteuid()
    wanted = 0o711 if user == 0 else 0o700
    try:
        info = os.lstat(root)
    except FileNotFoundError:
        parent = os.path.dirname(root)  # noqa: PTH120
        os.makedirs(parent, 0o755 if user == 0 else 0o700, exist_ok=True)  # noqa: PTH103
        with contextlib.suppress(FileExistsError):
            os.mkdir(root, wanted)  # noqa: PTH102
            os.chmod(root, wanted)  # noqa: PTH101  # whatever the umask is
        info = os.lstat(root)
    if not stat.S_ISDIR(info.st_mode):
        problem = "is no folder (a symbolic link is not taken either)"
    elif info.st_uid != user:
        problem = f"belongs to user {info.st_uid}, not to {user}"
    elif info.st_mode & _WRITABLE_BY_OTHERS:
        problem = "can be written by others"
    else:
        if stat.S_IMODE(info.st_mode) != wanted:
            os.chmod(root, wanted)  # noqa: PTH101
        return root
    sentence = f"The folder of the skill cache {problem}: what is in it cannot be trusted. Delete it, or set"
    raise about(SandboxError(f"{sentence} {CACHE_VARIABLE} to another one."), root)


def _stale(info: os.stat_result) -> bool:
    return time.time() - info.st_ctime > _STALE_SECONDS


def _size(path: str) -> int:
    try:
        with open(path, "rb") as stream:
            return int(stream.read(64).split()[0])
    except (OSError, ValueError, IndexError):
        return 0  # being made, or by a process that was killed then


def _same_file(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False
