"""What a sandbox with a file system of its own sees of the host's system, read-only.

Of ``/usr`` and ``/usr/local`` the usual folders are shown and others hidden, because images put applications there
(``/usr/src/app``). Of ``/etc`` only what programs need to start, to know the time zone and to check certificates.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass

from adk_skills_agent.sandbox.local.bubblewrap import bind_arguments

USER_NAME = "sandbox"
SYSTEM_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
SYSTEM_FOLDERS = frozenset((*SYSTEM_LINKS, "libexec", "share", "include", "games", "local"))
_ETC = ("ld.so.cache", "alternatives", "ssl/openssl.cnf", "fonts")
_ETC_WITH_HOSTS_NETWORK = ("resolv.conf", "hosts")
_CERTIFICATES = ("ssl/certs", "pki/tls/certs")
_LIBRARIES = "cuda"  # /usr/local/cuda-13.0: no application's
# One of these hides a folder with less work for the kernel than a file system of its own; all are the system's.
_EMPTY = ("/usr/games", "/usr/local/games", "/usr/local/src", "/usr/local/include", "/usr/local/sbin", "/usr/local/etc")


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
def system_view(inside: tuple[str, ...], *, network: str) -> SystemView:
    """The system, looked at once per process.

    Args:
        inside: Folders that will be shown besides it; one may be in a folder that is hidden.
        network: Mode of the policy's network; certificates are shown where a host can be reached.
    """
    arguments = ["--ro-bind", "/usr", "/usr"]
    empty = next((path for path in _EMPTY if os.path.isdir(path) and not _has_content(path)), None)  # noqa: PTH112
    sealed: list[str] = []
    for path in (*_others("/usr", SYSTEM_FOLDERS), *_others("/usr/local", SYSTEM_FOLDERS)):
        if empty is None or any(folder.startswith(f"{path}/") for folder in inside):
            arguments += ["--size", "4096", "--tmpfs", path]
            sealed += ["--remount-ro", path]
        else:
            arguments += ["--ro-bind", empty, path]
    for name in SYSTEM_LINKS:
        path = f"/{name}"
        if os.path.islink(path):  # noqa: PTH114
            arguments += ["--symlink", os.readlink(path), path]  # noqa: PTH115
        elif os.path.isdir(path):  # noqa: PTH112
            arguments += ["--ro-bind", path, path]
    if os.path.isdir("/nix/store"):  # noqa: PTH112
        arguments += ["--ro-bind", "/nix/store", "/nix/store"]
    arguments += _time_zone()
    names = [*_ETC, *(_CERTIFICATES if network in {"host", "allow"} else ())]
    names += _ETC_WITH_HOSTS_NETWORK if network == "host" else ()
    etc = [f"/etc/{name}" for name in names]
    arguments += bind_arguments((path, path) for path in etc if os.path.exists(path))  # noqa: PTH110
    return SystemView(tuple(arguments), tuple(sealed))


def _time_zone() -> list[str]:
    path = "/etc/localtime"
    if not os.path.exists(path):  # noqa: PTH110
        return []
    real = os.path.realpath(path)
    if real.startswith("/usr/share/"):
        return ["--dir", "/etc", "--symlink", real, path]
    return bind_arguments([(real, path)])


def etc_files(uid: int, *, network: str) -> tuple[MadeFile, ...]:
    """Files of ``/etc`` that are made: they name the sandbox's user and nobody of the host."""
    files = [
        MadeFile(
            "/etc/passwd",
            f"root:x:0:0:root:/root:/usr/sbin/nologin\n{USER_NAME}:x:{uid}:{uid}::/work:/bin/sh\n".encode(),
        ),
        MadeFile("/etc/group", f"root:x:0:\n{USER_NAME}:x:{uid}:\n".encode()),
        MadeFile("/etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files dns\nservices: files\n"),
    ]
    if network != "host":
        files.append(MadeFile("/etc/hosts", b"127.0.0.1 localhost\n::1 localhost\n"))
    return tuple(files)


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
