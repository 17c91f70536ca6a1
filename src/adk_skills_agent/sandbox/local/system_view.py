"""What a sandbox with a file system of its own sees of the host: the system and an interpreter, read-only.

Everything else is not there. Of ``/usr`` and ``/usr/local`` the usual folders are shown and others hidden, because
images put applications there (``/usr/src/app``); of a Python installation its folders and not the one it is in, which
may be a project's. Of ``/etc`` only what programs need to start, to know the time zone and to check certificates.
"""

from __future__ import annotations

import functools
import os
import sys
from dataclasses import dataclass

from adk_skills_agent.sandbox.contract import WORK_DIR
from adk_skills_agent.sandbox.local.bubblewrap import bind_arguments
from adk_skills_agent.sandbox.local.landlock import python_folders

USER_NAME = "sandbox"
_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_USR = frozenset((*_LINKS, "libexec", "share", "include", "games", "local"))
_ETC = ("ld.so.cache", "alternatives", "ssl/certs", "ssl/openssl.cnf", "pki/tls/certs", "localtime", "fonts")
_ETC_WITH_NETWORK = ("resolv.conf", "hosts")
_MAX_LINKS = 16
_MOVED = "/opt"


@dataclass(frozen=True, slots=True)
class MadeFile:
    """A small file made for the sandbox."""

    path: str
    content: bytes


@dataclass(frozen=True, slots=True)
class SystemView:
    """Bubblewrap's arguments that make the system visible.

    Attributes:
        shown: Come first.
        sealed: Come last: they make the folders that hide others read-only.
    """

    shown: tuple[str, ...]
    sealed: tuple[str, ...]


@functools.lru_cache(maxsize=8)
def system_view(*, network: bool) -> SystemView:
    """The system, looked at once per process.

    Args:
        network: The sandbox has the host's network and needs to find name servers.
    """
    arguments = ["--ro-bind", "/usr", "/usr"]
    masked = [*_others("/usr", _USR), *_others("/usr/local", _USR)]
    sealed: list[str] = []
    for path in masked:
        arguments += ["--size", "4096", "--tmpfs", path]
        sealed += ["--remount-ro", path]
    for name in _LINKS:
        path = f"/{name}"
        if os.path.islink(path):  # noqa: PTH114
            arguments += ["--symlink", os.readlink(path), path]  # noqa: PTH115
        elif os.path.isdir(path):  # noqa: PTH112
            arguments += ["--ro-bind", path, path]
    if os.path.isdir("/nix/store"):  # noqa: PTH112
        arguments += ["--ro-bind", "/nix/store", "/nix/store"]
    etc = [f"/etc/{name}" for name in (*_ETC, *(_ETC_WITH_NETWORK if network else ()))]
    arguments += bind_arguments((path, path) for path in etc if os.path.exists(path))  # noqa: PTH110
    return SystemView(tuple(arguments), tuple(sealed))


def etc_files(uid: int, *, network: bool) -> tuple[MadeFile, ...]:
    """MadeFile of ``/etc`` that are made: they name the sandbox's user and nobody of the host."""
    files = [
        MadeFile(
            "/etc/passwd",
            f"root:x:0:0:root:/root:/usr/sbin/nologin\n{USER_NAME}:x:{uid}:{uid}::/work:/bin/sh\n".encode(),
        ),
        MadeFile("/etc/group", f"root:x:0:\n{USER_NAME}:x:{uid}:\n".encode()),
        MadeFile("/etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files dns\nservices: files\n"),
    ]
    if not network:
        files.append(MadeFile("/etc/hosts", b"127.0.0.1 localhost\n::1 localhost\n"))
    return tuple(files)


@functools.lru_cache(maxsize=16)
def python_folders_of(python: str | None) -> tuple[str, ...]:
    """What has to be shown, at its own path, for an interpreter to work (row 55), wherever it is installed.

    Args:
        python: Its absolute path; None for the one running the agent.
    """
    prefixes = [sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix] if python is None else []
    prefixes += _prefixes_of(python or sys.executable)
    return tuple(
        folder
        for folder in dict.fromkeys(python_folders(prefixes))
        if not _is_system(folder) and os.path.exists(folder)  # noqa: PTH110
    )


def shown_at(path: str) -> str:
    """Where a host path of an interpreter is inside: the same, unless that is in the workspace, which stays empty."""
    return f"{_MOVED}{path}" if path.startswith(f"{WORK_DIR}/") else path


def _is_system(folder: str) -> bool:
    """Whether it is visible without being named."""
    parts = folder.split("/")[1:]
    if parts[0] in _LINKS:
        return True
    if parts[:2] == ["usr", "local"]:
        return len(parts) > 2 and parts[2] in _USR
    return parts[0] == "usr" and len(parts) > 1 and parts[1] in _USR


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


def _others(folder: str, known: frozenset[str]) -> list[str]:
    """What is in a system folder besides the usual, if there is anything in it."""
    try:
        with os.scandir(folder) as entries:
            folders = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return sorted(entry.path for entry in folders if entry.name not in known and _has_content(entry.path))


def _has_content(path: str) -> bool:
    try:
        with os.scandir(path) as entries:
            return next(entries, None) is not None
    except OSError:
        return True
