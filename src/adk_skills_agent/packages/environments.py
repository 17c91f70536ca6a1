"""Environments: folders with the packages of a lock, made once, shared read-only by all skills that resolve alike.

``<cache>/environments/<digest>`` is what the lock, the Python and the machine come to. It is made in a folder beside,
checked, and renamed; a process that is killed meanwhile leaves only that folder, which the next one removes. Two that
want the same environment at once wait for one another by a lock on a file.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from packaging.utils import canonicalize_name

from adk_skills_agent.catalog.settings import RegistryConfig, cache_folder
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.packages import prepared
from adk_skills_agent.packages.builds import built_folders
from adk_skills_agent.packages.lock import Lock, check_fits, npm_cache, python_of
from adk_skills_agent.packages.npm import NODE_DIR, checked_lock, install_node, link_commands, node_version, write_node
from adk_skills_agent.packages.uv import Index, Progress, failure, run_uv
from adk_skills_agent.platforms import O_CLOEXEC, O_NOFOLLOW, bytes_in, lock_within
from adk_skills_agent.sandbox import remove_tree

INSTALL_SECONDS = 1_800.0
"""For all downloads of an environment: torch and what it brings are 3 GB."""
WAIT_SECONDS = 1_900.0
"""For another process that makes the same environment."""
UNUSED_DAYS = 30.0

_MARK = "adk-skills.json"
_USED = ".used"
_LOCK = ".lock"
_ASIDE = ".preparing-"
_FORMAT = 2
_TOUCH_SECONDS = 3_600.0
_COMPILE_SECONDS = 900.0
_COMPILE_BYTES = 1 << 30  # of memory for each process: the compiler takes 400 times the size of a source (row 142)
_MOST_RECORD_BYTES = 64 << 20  # of the list of a package's files; the largest known ones have 5 MB
_MOST_DEPTH = 100  # of folders in folders
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PYTHON_NAME = re.compile(r"python[\d.]*[tw]?|pythonw?")
# A package's command of such a name would stand in for the system's in every shell script.
_NOT_REPLACED = frozenset({"sh", "bash", "dash", "zsh", "ksh", "env", "sudo", "su", "node", "npm", "npx", "uv"})
_READ_AT_START = frozenset({"pyvenv.cfg", "pybuilddir.txt"})
_STARTS_BY_ITSELF = frozenset({"sitecustomize", "usercustomize"})


@dataclass(frozen=True, slots=True)
class Environment:
    """Packages that are ready to use."""

    folder: Path  # everything that is in it; shown to a sandbox read-only, at the same path
    python: Path  # its interpreter
    bin: Path  # where its commands are
    site: Path  # where its modules are
    digest: str  # its name: what it is made of
    notes: tuple[str, ...] = ()  # what was removed from packages when it was made, one sentence each, for the owner


def packages_folder(cache: Path | None = None) -> Path:
    """The folder of the environments and of uv's cache; it need not exist.

    Raises ``ConfigError`` when the user has no home folder.
    """
    if cache is not None:
        return Path(cache).absolute()
    found = cache_folder(RegistryConfig())
    if found is None:
        raise ConfigError("There is no home folder to keep environments in. Set HOME or XDG_CACHE_HOME.")
    return Path(found)


def environment_digest(lock: Lock, python: str | None = None) -> str:
    """The name of the environment of a lock: SHA-256 of its packages, the interpreter and the kind of machine."""
    interpreter = python_of(python)
    content = [_FORMAT, lock.digest, interpreter.path, interpreter.version]
    if lock.node:  # whether Node takes the hook depends on its version
        content.append(node_version())
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def find_environment(lock: Lock, *, cache: Path, python: str | None = None) -> Environment | None:
    """The environment of a lock when it is there and whole; touches nothing of the network.

    ``python`` is the interpreter it is for; None is the one that runs this.
    """
    digest = environment_digest(lock, python)
    found = _opened(cache / "environments" / digest, digest)
    if found is not None:
        _touch(found)
    return found


def _opened(folder: Path, digest: str) -> Environment | None:
    try:
        mark = json.loads((folder / _MARK).read_bytes())
        # The interpreter is a link to the system's, which may have been replaced or removed.
        if not os.access(folder / "bin" / "python", os.X_OK):
            return None
        return Environment(
            folder,
            folder / "bin" / "python",
            folder / "bin",
            folder / mark["site"],
            digest,
            tuple(mark["notes"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _touch(environment: Environment) -> None:
    """Note that it is used, for :func:`collect`."""
    used = environment.folder.with_name(environment.digest + _USED)
    with contextlib.suppress(OSError):
        try:
            if time.time() - used.stat().st_mtime < _TOUCH_SECONDS:
                return
        except FileNotFoundError:
            pass
        used.touch()


def prepare(
    lock: Lock,
    *,
    cache: Path,
    python: str | None = None,
    index: Index | None = None,
    what: str = "the packages",
    seconds: float = INSTALL_SECONDS,
    progress: Progress | None = None,
) -> Environment:
    """The environment of a lock; made when it is not there. Blocks.

    Nothing but the exact packages of ``lock`` is installed; what :mod:`.builds` has built is taken from the cache.
    ``what`` they are is for sentences: ``the packages of skill 'x'``. ``seconds`` bounds the downloads; ``progress`` is
    called with each step, from several threads. Raises ``PackageError`` when a package cannot be fetched, or is not
    what was locked, or must not be used.
    """
    found = find_environment(lock, cache=cache, python=python)
    if found is not None:
        return found
    check_fits(lock, python)
    digest = environment_digest(lock, python)
    root = cache / "environments"
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _turn(root / (digest + _LOCK), what) as hold:
            found = find_environment(lock, cache=cache, python=python)
            if found is not None:
                return found
            for left in root.glob(f"{_ASIDE}{digest[:16]}-*"):  # of one that was killed: nobody else has the turn
                _remove(left)
            return _make(lock, digest, root, cache, python, index or Index(), what, seconds, progress, hold)
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        why = "the disk is full" if full else error.strerror or str(error)
        raise failure(
            f"{what[:1].upper()}{what[1:]} cannot be installed: {why}. Do it without them, or tell the user.",
            f"The environment cannot be made in {root}: {why}.",
        ) from error


@contextlib.contextmanager
def _turn(path: Path, what: str) -> Iterator[int]:
    """Hold the lock of one environment; it ends with the process and with the uv it started, however they end."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        try:
            if not lock_within(descriptor, deadline - time.monotonic()):
                raise failure(
                    f"{what[:1].upper()}{what[1:]} are being prepared by another program. Try again later.",
                    f"Another process holds {path} for more than {WAIT_SECONDS:g} seconds.",
                )
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_ino == os.fstat(descriptor).st_ino:
                    yield descriptor
                    return
        finally:
            os.close(descriptor)


def _make(
    lock: Lock,
    digest: str,
    root: Path,
    cache: Path,
    python: str | None,
    index: Index,
    what: str,
    seconds: float,
    progress: Progress | None,
    hold: int,
) -> Environment:
    interpreter = python_of(python)
    aside = Path(tempfile.mkdtemp(prefix=f"{_ASIDE}{digest[:16]}-", dir=root))
    uv_cache = cache / "uv"
    try:
        env = aside / "env"
        common = ["--no-config"]
        run_uv(
            ["venv", "--relocatable", f"--python={interpreter.path}", "--no-project", *common, str(env)],
            cache=uv_cache,
            seconds=60,
            what=what,
            hold=hold,
        )
        before = _own_files(env)
        site = env / "lib" / f"python{interpreter.minor}" / "site-packages"
        if lock.python_packages:
            listed = aside / "requirements.txt"
            listed.write_text(lock.pip_requirements(), encoding="utf-8")
            arguments = ["pip", "install", f"--python={env / 'bin' / 'python'}", "--require-hashes", "--no-deps"]
            arguments += ["--only-binary=:all:", *common, *index.options()]
            hashes = [digest for one in lock.python_packages for digest in one.hashes]
            arguments += [f"--find-links={folder}" for folder in built_folders(cache, hashes)]
            run_uv(
                [*arguments, f"--requirements={listed}"],
                cache=uv_cache,
                seconds=seconds,
                what=what,
                progress=progress,
                hold=hold,
            )
        if lock.node:
            install_node(
                checked_lock(json.loads(lock.node), what),
                env / NODE_DIR,
                cache=npm_cache(cache),
                index=index,
                what=what,
                seconds=seconds,
                progress=progress,
                hold=hold,
            )
        notes = _cleaned(env, site, before, lock, what)
        if lock.node:
            notes += link_commands(env, _NOT_REPLACED)
            write_node(env, root / digest)
        _put_installers(env, site)
        _compile(interpreter.path, site, str(env), str(root / digest))
        mark = {"format": _FORMAT, "site": str(site.relative_to(env)), "notes": notes, "lock": lock.to_dict()}
        (env / _MARK).write_text(json.dumps(mark), encoding="utf-8")
        _make_read_only(env)
        target = root / digest
        if target.exists():  # its Python is gone, or it is not whole
            target.rename(aside / "broken")
        env.rename(target)
    finally:
        _remove(aside)
    made = _opened(root / digest, digest)
    if made is None:
        raise failure(
            f"{what[:1].upper()}{what[1:]} cannot be prepared here. Do it without them, or tell the user.",
            f"The environment {root / digest} is not whole after it was made. Remove it and try again.",
        )
    _touch(made)
    return made


_PROGRAM = "prepared.py"
_INSTALLER = """\
#!/bin/sh
here=$(dirname -- "$(realpath -- "$0")")
exec "$here/python" -I "$here/../{program}" {name} "$@"
"""
_PIP = """\
import os.path, sys

os.execv(sys.executable, [sys.executable, "-I", os.path.join(sys.prefix, {program!r}), "pip", *sys.argv[1:]])
"""


def _put_installers(env: Path, site: Path) -> None:
    """Put :mod:`.prepared` in the place of uv and pip, so that the lines of documents that call them work."""
    (env / _PROGRAM).unlink(missing_ok=True)
    (env / _PROGRAM).write_text(Path(prepared.__file__).read_text(encoding="utf-8"), encoding="utf-8")
    for name in prepared.COMMANDS:
        command = env / "bin" / name
        command.unlink(missing_ok=True)
        command.write_text(_INSTALLER.format(program=_PROGRAM, name=name), encoding="utf-8")
        command.chmod(0o755)
    if not (site / "pip").exists():
        (site / "pip").mkdir()
        (site / "pip" / "__init__.py").touch()
        (site / "pip" / "__main__.py").write_text(_PIP.format(program=_PROGRAM), encoding="utf-8")


# Compiles the files it is told, one a line; what does not compile is left as it is. compileall has a task and an
# answer for each file, which takes a sixth more of the processors.
_COMPILER = """
import gc, py_compile, resource, sys
gc.disable()
was, will_be, most = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_DATA, (int(most), int(most)))
for line in sys.stdin:
    path = line.rstrip("\\n")
    try:
        py_compile.compile(path, dfile=will_be + path[len(was):], quiet=2)
    except (OSError, ValueError, RecursionError, MemoryError):
        pass
"""


def _compile(python: str, site: Path, was: str, will_be: str) -> None:
    """Compile the modules ahead: the folder is read-only when they are used, and pandas alone takes seconds.

    With the bare interpreter, not that of the environment (as uv's --compile-bytecode does), and without ``site``:
    nothing of the packages runs on the host.
    """
    files = sorted(
        (path for path in site.rglob("*.py") if "\n" not in str(path)), key=lambda path: -path.stat().st_size
    )
    workers = min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2, len(files), 16)
    running = []
    for worker in range(workers):
        process = subprocess.Popen(
            [python, "-I", "-S", "-W", "ignore", "-c", _COMPILER, was, will_be, str(_COMPILE_BYTES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        # The largest first and in turns, so that all are done at about the same time.
        listed = "".join(f"{path}\n" for path in files[worker::workers])
        feeder = threading.Thread(target=_feed, args=(process, listed), daemon=True)
        feeder.start()
        running.append((process, feeder))
    deadline = time.monotonic() + _COMPILE_SECONDS
    for process, feeder in running:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        feeder.join()


def _feed(process: subprocess.Popen[str], text: str) -> None:
    with contextlib.suppress(OSError), process.stdin as stream:  # type: ignore[union-attr]
        stream.write(text)


# What a package may not do, checked before anything of it can run.


def _own_files(env: Path) -> dict[str, str]:
    """The facts about a new environment's interpreter, which no package may replace."""
    found = {"pyvenv.cfg": (env / "pyvenv.cfg").read_text(encoding="utf-8")}
    for entry in (env / "bin").iterdir():
        if _PYTHON_NAME.fullmatch(entry.name):
            found[f"bin/{entry.name}"] = str(entry.readlink())
    return found


def _cleaned(env: Path, site: Path, before: dict[str, str], lock: Lock, what: str) -> list[str]:
    """Remove what would run unasked, refuse what replaces or leaves the environment.

    Returns what was removed, one sentence each. Raises ``PackageError`` when a package must not be used.
    """
    refused = _refusal(env, site, before, lock)
    if refused:
        raise failure(
            f"{what[:1].upper()}{what[1:]} were refused: one of them is not safe to use. "
            "Do it without them, or tell the user.",
            refused,
        )
    notes = []
    for entry in sorted(site.iterdir()):
        ours = entry.name.startswith("_virtualenv")  # uv's own, which patches how packages are installed
        if entry.name.endswith(".pth"):
            code = _runs_at_start(entry)
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
            if not ours:
                does = "runs code in every Python that starts" if code else "adds folders to Python's path"
                notes.append(f"{entry.name} was removed: it {does}.")
        elif entry.name.partition(".")[0] in _STARTS_BY_ITSELF:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            notes.append(f"{entry.name} was removed: Python would run it at every start.")
        elif ours:
            entry.unlink()
    for entry in sorted((env / "bin").iterdir()):
        if entry.name in _NOT_REPLACED:
            entry.unlink()
            notes.append(f"The command {entry.name} was removed: it would stand in for the system's.")
        elif entry.name.startswith(("activate", "deactivate", "pydoc")) and entry.is_file():
            entry.unlink()  # of uv; a sandbox has no use for them
    return notes


def _runs_at_start(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            lines = stream.read(1 << 20).splitlines()
    except OSError:
        return True
    return any(line.startswith((b"import ", b"import\t")) for line in lines)


def _refusal(env: Path, site: Path, before: dict[str, str], lock: Lock) -> str:
    """Why the environment must not be used; empty when it may be."""
    now = _own_files_again(env, before)
    for name, was in before.items():
        if now.get(name) != was:
            return f"A package replaced {name} of the environment."
    for place in (env, env / "bin"):
        for entry in place.iterdir():
            # Python takes its whole path from `python._pth` beside it, whatever its switches are.
            name = entry.name.lower()
            its_own = f"{entry.parent.name}/{entry.name}" if place != env else entry.name
            if its_own not in before and (
                name.endswith("._pth") or name in _READ_AT_START or _PYTHON_NAME.fullmatch(name)
            ):
                return f"A package put {its_own} where Python reads it at its start."
    others = [entry.name for entry in site.parents[1].iterdir() if entry != site.parent]
    if any(name.startswith("python") for name in others):
        return f"A package made folders for another Python in lib: {', '.join(sorted(others)[:3])}."
    root = os.path.realpath(env)
    for folder, folders, files in os.walk(env):
        if folder.count(os.sep) - str(env).count(os.sep) > _MOST_DEPTH:  # what walks through them calls itself
            return f"A package made more than {_MOST_DEPTH} folders in folders."
        for name in (*folders, *files):
            path = os.path.join(folder, name)  # noqa: PTH118 - thousands of them
            status = os.lstat(path)
            inside = path[len(str(env)) + 1 :]
            if stat.S_ISLNK(status.st_mode):
                target = os.path.realpath(path)
                if inside not in before and not target.startswith(root + os.sep):
                    return f"A package put a link out of the environment at {inside}."
            elif not stat.S_ISDIR(status.st_mode) and not stat.S_ISREG(status.st_mode):
                return f"A package put something that is not a file at {inside}."
            elif status.st_mode & (stat.S_ISUID | stat.S_ISGID):
                return f"A package put a file with rights of its own (setuid) at {inside}."
    installed = {}
    for record in site.glob("*.dist-info"):
        name, _, version = record.name.removesuffix(".dist-info").rpartition("-")
        installed[canonicalize_name(name)] = version
        listed = record / "RECORD"
        if listed.exists() and listed.stat().st_size > _MOST_RECORD_BYTES:
            return f"{record.name} has a list of files of more than {_MOST_RECORD_BYTES >> 20} MiB."
        outside = _recorded_outside(listed, site, env)
        if outside:
            return f"{record.name} says that it wrote outside the environment: {outside}."
    missing = [one.name for one in lock.python_packages if one.name not in installed]
    if missing:
        return f"These packages are not there after they were installed: {', '.join(missing[:5])}."
    extra = sorted(set(installed) - {one.name for one in lock.python_packages})
    return f"A package brought others that were not locked: {', '.join(extra[:5])}." if extra else ""


def _own_files_again(env: Path, before: dict[str, str]) -> dict[str, str]:
    found = {}
    for name, was in before.items():
        path = env / name
        with contextlib.suppress(OSError):
            if path.is_symlink():
                found[name] = str(path.readlink())
            else:
                with path.open(encoding="utf-8", errors="replace") as stream:
                    found[name] = stream.read(len(was) + 1)  # it may be of any size now
    return found


def _recorded_outside(record: Path, site: Path, env: Path) -> str:
    try:
        lines = record.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    root = str(env)
    for line in lines:
        name = line.rpartition(",")[0].rpartition(",")[0].strip('"')
        if ".." not in name and not name.startswith("/"):
            continue
        target = os.path.normpath(site / PurePosixPath(name))
        if target != root and not target.startswith(root + os.sep):
            return name[:100]
    return ""


def _make_read_only(env: Path) -> None:
    """Make the environment read-only, and readable for others, because a sandbox may run as another user."""
    for folder, _, files in os.walk(env):
        for name in files:
            path = os.path.join(folder, name)  # noqa: PTH118
            mode = os.lstat(path).st_mode
            if stat.S_ISREG(mode):
                wanted = 0o555 if mode & 0o111 else 0o444
                if stat.S_IMODE(mode) != wanted:
                    os.chmod(path, wanted)  # noqa: PTH101
        os.chmod(folder, 0o755)  # noqa: PTH101, S103 - a folder stays its owner's, or it could not be collected


def _remove(folder: Path) -> None:
    remove_tree(str(folder))  # of any depth; what stays is logged


# Collecting what nobody uses.


@dataclass(frozen=True, slots=True)
class Collected:
    """The files that were removed."""

    environments: tuple[str, ...]  # their digests
    bytes: int  # how much room they took
    kept: int  # how many are still used


def collect(
    cache: Path,
    *,
    unused_days: float = UNUSED_DAYS,
    keep: Sequence[str] = (),
    wanted: Callable[[str], bool] | None = None,
) -> Collected:
    """Remove environments that were not used for a while, and what killed processes left behind.

    ``unused_days`` 0 removes all but the digests in ``keep`` and what ``wanted`` says yes to.
    """
    root = cache / "environments"
    now, removed, room, kept = time.time(), [], 0, 0
    for entry in sorted(root.iterdir()) if root.is_dir() else ():
        if entry.name.startswith(_ASIDE):
            if now - entry.stat().st_mtime > INSTALL_SECONDS + WAIT_SECONDS:
                _remove(entry)
            continue
        if not _DIGEST.fullmatch(entry.name):
            continue
        used = root / (entry.name + _USED)
        since = max(one.stat().st_mtime for one in (entry, used) if one.exists())
        if entry.name in keep or (wanted is not None and wanted(entry.name)) or now - since < unused_days * 86_400:
            kept += 1
            continue
        with _turn(root / (entry.name + _LOCK), "the environments"):
            room += bytes_in(entry)
            gone = Path(tempfile.mkdtemp(prefix=_ASIDE, dir=root))
            entry.rename(gone / "env")  # at once: nobody finds half of it
            _remove(gone)
            used.unlink(missing_ok=True)
            (root / (entry.name + _LOCK)).unlink(missing_ok=True)
        removed.append(entry.name)
    if removed and not kept:
        _remove(cache / "uv")
        _remove(npm_cache(cache))
    return Collected(tuple(removed), room, kept)
