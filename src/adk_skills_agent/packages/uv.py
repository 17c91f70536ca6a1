"""uv, the program that resolves and installs: where it is, how it is run, and what its failures mean.

It is run without any configuration file, with an environment of its own, in an empty folder, with a time limit, and
never builds anything: a build runs a stranger's code on the host.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from adk_skills_agent.errors import PackageError
from adk_skills_agent.installation import install_hint
from adk_skills_agent.platforms import O_CLOEXEC, O_NOFOLLOW, is_nearly_full
from adk_skills_agent.sandbox import remove_tree, temporary_prefix

_HTTP_SECONDS = 20
"""Without an answer of the index for so long, uv gives up a request; it tries each again once."""
_KEPT_CHARS = 4_000  # of what uv says, for the owner
_LOOK_SECONDS = 0.2
_MOST_BYTES = 24 << 30  # of disk that one call may take: 3 MB of a wheel unpack to 3 GB (row 146)
_MOST_MEMORY = 4 << 30  # of each process, or half of a smaller machine's: uv reads a list of files whole (row 225)
_MOST_OUTPUT = 64 << 20  # characters of what one call prints, where a lock of a hundred packages is 100 KB
_PASSED_ON = (
    "HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy all_proxy no_proxy "
    "SSL_CERT_FILE SSL_CERT_DIR UV_SYSTEM_CERTS UV_NATIVE_TLS LANG LC_ALL TMPDIR NETRC"
)
_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+@")

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Index:
    """Where packages come from."""

    # Package indexes, the first one first; a name is taken from the first that has it. Empty for those of
    # ``UV_DEFAULT_INDEX``, ``UV_INDEX_URL`` or ``PIP_INDEX_URL``, else PyPI.
    urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()  # folders or pages with wheels, besides
    offline: bool = False  # use only what was fetched before
    npm_registry: str = ""  # the URL of the registry of npm packages; empty for the one that npm is configured with
    # packages that may be built from their source where there is no wheel, by name, or all
    builds: tuple[str, ...] | bool = False

    def options(self) -> list[str]:
        """The options of uv."""
        urls = list(self.urls)
        if not urls and (given := environment_index()) is not None:
            urls = [given]
        options = [f"--default-index={urls[0]}", *(f"--index={url}" for url in urls[1:])] if urls else []
        if not urls and self.find_links:
            options.append("--no-index")
        # uv runs in another folder.
        places = [place if "://" in place else str(Path(place).expanduser().absolute()) for place in self.find_links]
        options += [f"--find-links={place}" for place in places]
        return [*options, "--index-strategy=first-index", *(["--offline"] if self.offline else [])]

    @property
    def is_public(self) -> bool:
        """Whether it is PyPI itself, which says when each file was published."""
        return not self.urls and not self.find_links and environment_index() is None


def environment_index() -> str | None:
    """The index that the environment names for uv or pip; None for PyPI."""
    names = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


@functools.lru_cache(maxsize=1)
def _bundled() -> str | None:
    """The program of the PyPI package ``uv``, which the extra ``packages`` brings."""
    try:
        from uv import find_uv_bin
    except ImportError:
        return None
    try:
        return str(find_uv_bin())
    except FileNotFoundError:
        return None


def find_uv() -> str:
    """The path of uv. Raises ``PackageError`` when uv is not installed."""
    found = _bundled() or shutil.which("uv")
    if found is None:
        raise failure(
            "Packages cannot be prepared on this machine. Do it without them, or tell the user.",
            f"uv is not installed. Install it: {install_hint('packages')}",
        )
    return found


def failure(for_model: str, for_owner: str) -> PackageError:
    """An error with a sentence for each reader."""
    error = PackageError(for_model)
    error.add_note(without_credentials(for_owner))
    return error


def without_credentials(text: str) -> str:
    """A text without the user and password of any URL in it."""
    return _CREDENTIALS.sub("***@", text)


def run_program(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: str,
    *,
    seconds: float,
    what: str,
    causes: Sequence[Cause],
    place: Path,
    progress: Progress | None = None,
    hold: int | None = None,
) -> str:
    """Run a package manager to its end, with nothing of the agent's environment but what is named; its output.

    ``place`` is on the disk that it fills; it need not exist. ``progress`` is called with each line it says, from
    another thread. ``hold`` is a descriptor it keeps open: a lock lasts as long as the program, also where this process
    is killed. Raises ``PackageError`` when it cannot be started, failed, took too long or too much of the disk; the
    sentence says why.
    """
    program = Path(command[0]).name
    disk = _Disk(place)
    try:
        process = subprocess.Popen(
            with_little_memory(command, _MOST_MEMORY),
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
            pass_fds=() if hold is None else (hold,),
        )
    except OSError as error:
        raise failure(
            f"{_capital(what)} cannot be prepared here. Do it without them, or tell the user.",
            f"{program} cannot be started: {error.strerror}. Install it again.",
        ) from error
    said, output = _communicate(process, seconds, progress, disk)
    if len(output) > _MOST_OUTPUT:
        raise failure(
            f"{_capital(what)} cannot be prepared: there are too many of them. Do it without them, or tell the user.",
            f"{program} prints more than {_MOST_OUTPUT >> 20} MiB. Find out which package has so many files.",
        )
    if disk.problem:
        raise failure(
            f"{_capital(what)} cannot be installed: {disk.problem}. Do it without them, or tell the user.",
            f"{program} was stopped: {disk.problem}. Free some space (adk-skills prepare --collect removes unused "
            "environments), or find out which package is so large.",
        )
    if said is None:
        raise failure(
            f"{_capital(what)} could not be prepared within {seconds:g} seconds. Do it without them, or tell the user.",
            f"{program} was stopped after {seconds:g} seconds. Check the index, or give it more time.",
        )
    if process.returncode != 0:
        raise explained(
            causes, what, said, " ".join([program, *(word for word in command[1:3] if not word.startswith("-"))])
        )
    return output


def run_uv(
    arguments: Sequence[str],
    *,
    cache: Path,
    seconds: float,
    what: str,
    progress: Progress | None = None,
    hold: int | None = None,
) -> str:
    """As :func:`run_program`, for uv."""
    environment = {name: os.environ[name] for name in _PASSED_ON.split() if os.environ.get(name)}
    environment |= {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(Path("~").expanduser()),
        "UV_CACHE_DIR": str(cache),
        "UV_NO_CONFIG": "1",
        "UV_NO_PROGRESS": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_HTTP_TIMEOUT": str(_HTTP_SECONDS),
        "UV_HTTP_RETRIES": "1",
        "UV_KEYRING_PROVIDER": "disabled",
        "NO_COLOR": "1",
    }
    with tempfile.TemporaryDirectory(prefix=temporary_prefix("uv")) as empty:
        try:
            return run_program(
                [find_uv(), *arguments],
                environment,
                empty,
                seconds=seconds,
                what=what,
                causes=_CAUSES,
                place=cache,
                progress=progress,
                hold=hold,
            )
        except BaseException:
            _remove_half_unpacked(cache)
            raise


def _remove_half_unpacked(cache: Path) -> None:
    """Remove what a uv that was ended had begun to unpack, unless another uv works there now: it holds the lock."""
    import fcntl

    with contextlib.suppress(OSError):
        descriptor = os.open(cache / ".lock", os.O_RDWR | O_CLOEXEC | O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for left in cache.glob(".tmp*"):
                remove_tree(str(left))
        finally:
            os.close(descriptor)


def with_little_memory(command: Sequence[str], most: int) -> list[str]:
    """A command whose processes may have ``most`` bytes of memory each, or half of a smaller machine's.

    What strangers send makes a program take all memory of the machine, and the kernel then ends any process of it.
    """
    if hasattr(os, "sysconf"):
        most = min(most, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
    # By a shell, as the limit has to be there before the program starts others; one that is lower already stays.
    limit = f'(ulimit -d {most >> 10}) 2>/dev/null && ulimit -d {most >> 10}; exec "$0" "$@"'
    return ["/bin/sh", "-c", limit, *command]


class _Disk:
    """The disk that a package manager fills, and how much of it there was when it began."""

    def __init__(self, place: Path) -> None:
        self._place = next(folder for folder in (place, *place.parents) if folder.exists())
        self._free = shutil.disk_usage(self._place).free
        self.problem = ""

    def is_too_full(self) -> bool:
        """Whether too much was taken since, or too little is left for others; ``problem`` says which."""
        if is_nearly_full(self._place):
            self.problem = "the disk is full"
        elif self._free - shutil.disk_usage(self._place).free > _MOST_BYTES:
            self.problem = f"they take more than {_MOST_BYTES >> 30} GiB of the disk"
        return bool(self.problem)


def _communicate(
    process: subprocess.Popen[str], seconds: float, progress: Progress | None, disk: _Disk
) -> tuple[str | None, str]:
    """What it said and what it printed; None for the first when it took too long, or too much of the disk."""
    said: list[str] = []

    def listen() -> None:
        assert process.stderr is not None  # noqa: S101 - it was asked for
        for line in iter(lambda: process.stderr.readline(_KEPT_CHARS), ""):  # type: ignore[union-attr]
            if sum(map(len, said[-50:])) < 10 * _KEPT_CHARS:
                said.append(line)
            if progress is not None:
                progress(without_credentials(line.rstrip()))

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    output: list[str] = []

    def take() -> None:
        assert process.stdout is not None  # noqa: S101
        taken = 0
        while part := process.stdout.read(1 << 16):  # to its end, or it would wait
            taken += len(part)
            if taken - len(part) <= _MOST_OUTPUT:
                output.append(part)

    taker = threading.Thread(target=take, daemon=True)
    taker.start()
    deadline = time.monotonic() + seconds
    late = False
    try:
        while not late:
            try:
                process.wait(timeout=max(0.0, min(_LOOK_SECONDS, deadline - time.monotonic())))
                break
            except subprocess.TimeoutExpired:
                late = time.monotonic() >= deadline or disk.is_too_full()
    except BaseException:
        _end(process)
        raise
    finally:
        if process.poll() is None:
            _end(process)
        for thread in (listener, taker):
            thread.join(max(1.0, deadline - time.monotonic()) if thread.is_alive() else None)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    return (None if late else "".join(said)), "".join(output)


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a package manager failed, as its words tell."""

    pattern: re.Pattern[str]  # what it says then
    for_model: str  # the end of a sentence that begins with the packages
    for_owner: str  # what is wrong and what to do
    of_some: bool = False  # whether it is about some of the packages: without them the others may be had
    # finds the package in what was said; in the two sentences it takes the place of ``one of them`` and ``NAME``
    named: re.Pattern[str] | None = None


_PACKAGE_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?"

OUT_OF_MEMORY = Cause(
    re.compile(r"memory allocation of \d+ bytes failed|Cannot allocate memory|out of memory", re.IGNORECASE),
    "were refused: one of them needs too much memory to be installed",
    "A package has a file that takes too much memory to read, such as a list of files of gigabytes. Do not use it.",
)
"""That a program had to end because of :func:`with_little_memory`."""

# What uv says when it fails, first match first: the sentence for the model and what the owner should do.

_CAUSES: tuple[Cause, ...] = (
    Cause(
        re.compile(r"No space left on device|os error 28|Disk quota exceeded", re.IGNORECASE),
        "cannot be installed: the disk is full",
        "The disk is full. Free some space (adk-skills prepare --collect removes unused environments).",
    ),
    OUT_OF_MEMORY,
    Cause(
        re.compile(r"[Hh]ash mismatch|hashes? (?:did|do) not match"),
        "were refused: what the index sent is not what was locked",
        "A file has another hash than the lock says. Find out why before you lock again.",
    ),
    Cause(
        re.compile(r"yanked"),
        "cannot be installed: a version they need was withdrawn by its author",
        "A version was yanked. Ask for another one.",
        of_some=True,
    ),
    Cause(
        re.compile(r"invalid peer certificate|UnknownIssuer"),  # before the next: it says that the request failed, too
        "cannot be fetched: the certificate of the package index is not trusted here",
        "For a company's own authority set SSL_CERT_FILE to the file of its certificates, or UV_SYSTEM_CERTS=1 where "
        "the system knows it.",
    ),
    Cause(
        re.compile(
            r"timed out|error sending request|Connection refused|dns error|Could not connect|operation timed"
            r"|Failed to fetch: `[^`]*`\s*\n\s*Caused by: (?:Request|error|HTTP status server)"
            r"|tcp connect error|network is unreachable|\b50[0-9] [A-Z]",
            re.IGNORECASE,
        ),
        "cannot be fetched: the package index does not answer",
        "The index cannot be reached. Check the network and the index.",
    ),
    Cause(
        re.compile(r"Network connectivity is disabled|--offline|needs? to be downloaded"),
        "are not on this machine, and nothing may be fetched",
        "Prepare them where the network is allowed: adk-skills prepare.",
    ),
    Cause(
        re.compile(r"no wheels|has no usable wheels|building (?:from )?source|no-binary|`--no-build`|only-binary"),
        "cannot be installed: one of them has no ready-made wheel for this machine",
        "A build runs a package's own code, so it has to be allowed: adk-skills prepare with --build NAME, or "
        "Dependencies(builds=('NAME',)); it runs in the sandbox. Or use a version with a wheel.",
        of_some=True,
        named=re.compile(rf"\b({_PACKAGE_NAME})(?:==\S+)? has no (?:usable )?wheels"),
    ),
    Cause(
        re.compile(r"not found in the (?:package registry|provided package locations)|there (?:are|is) no versions?"),
        "cannot be installed: one of them does not exist in the package index",
        "Check the name and the version of NAME.",
        of_some=True,
        named=re.compile(rf"\b({_PACKAGE_NAME})(?:[=<>~!]\S+)? was not found|no versions? of ({_PACKAGE_NAME})"),
    ),
    Cause(
        re.compile(r"No solution found"),
        "cannot be installed together: their versions exclude one another",
        "The requirements exclude one another. Change one of them.",
        of_some=True,
    ),
    Cause(
        re.compile(r"Invalid wheel|Failed to (?:read|extract|unzip)|invalid Zip|escapes|outside|Unsafe", re.IGNORECASE),
        "were refused: one of them is not a proper wheel",
        "A wheel is damaged or writes where it must not. Do not use it.",
    ),
)


def explained(causes: Sequence[Cause], what: str, said: str, command: str) -> PackageError:
    """The error that what a program said comes to: the first cause that fits, else its own words for the owner."""
    tail = " ".join(without_credentials(said)[-_KEPT_CHARS:].split())
    program = command.partition(" ")[0]
    for cause in causes:
        if cause.pattern.search(said):
            match = cause.named.search(said) if cause.named is not None else None
            name = next(filter(None, match.groups()), "") if match is not None else ""
            model = cause.for_model.replace("one of them", name) if name else cause.for_model
            owner = cause.for_owner.replace("NAME", name or "NAME")
            error = failure(
                f"{_capital(what)} {model}. Do it without them, or tell the user.", f"{owner} {program} says: {tail}"
            )
            error.of_some = cause.of_some
            return error
    return failure(
        f"{_capital(what)} cannot be prepared here. Do it without them, or tell the user.",
        f"{command} failed: {tail or 'without a word'}",
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
