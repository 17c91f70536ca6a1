"""Landlock: which files a run may read and write, as data for the init program, which makes the calls.

Everything that is not listed is refused (attack rows 35, 38, 43). What Landlock never covers, and the filter of
:mod:`.seccomp` answers for: modes, owners, times and attributes of files, sockets other than TCP. What stays open:
whether a path exists, its size and its owner (``stat``).
"""

from __future__ import annotations

import functools
import glob
import os
import stat
import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
MAKE_CHAR, MAKE_BLOCK, REFER, TRUNCATE, IOCTL_DEV = 1 << 6, 1 << 11, 1 << 13, 1 << 14, 1 << 15
BIND_TCP, CONNECT_TCP = 1 << 0, 1 << 1
SCOPE_ABSTRACT_UNIX, SCOPE_SIGNAL = 1 << 0, 1 << 1
LOG_SAME_EXEC_OFF = 1 << 0

ABI_REFER, ABI_TRUNCATE, ABI_TCP, ABI_IOCTL, ABI_SCOPE, ABI_LOG = 2, 3, 4, 5, 6, 7
"""The first version of Landlock that knows: links and renames between folders (Linux 5.19), ``truncate`` (6.2), TCP
(6.7), ``ioctl`` of devices (6.10), signals and abstract sockets (6.12), and a log of what it refuses (6.15)."""

_FILE_BITS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_OF_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
_READ = EXECUTE | READ_FILE | READ_DIR
_ATTRIBUTE_BYTES = {1: 8, 2: 8, 3: 8, 4: 16, 5: 16}
_CREATE_RULESET, _VERSION_FLAG = 444, 1

# Not /usr and /usr/local as a whole: the images on Docker Hub put the application into /usr/src/app.
_TREES = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec", "share", "include", "games")
_SYSTEM = (
    *(f"/{name}" for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32")),
    *(f"/usr/{name}" for name in _TREES),
    *(f"/usr/local/{name}" for name in _TREES),
    "/nix/store",
    "/sys/devices/system/cpu",
    *(f"/proc/{name}" for name in ("cpuinfo", "meminfo")),
)
# What programs need to start and to name users, hosts, times and types; nothing a user may have put a secret into.
_ETC = (
    "alternatives bash.bashrc ca-certificates ca-certificates.conf debian_version fonts gai.conf group host.conf hosts "
    "inputrc ld.so.cache ld.so.conf ld.so.conf.d ld.so.preload locale.alias locale.conf localtime lsb-release magic "
    "magic.mime mime.types nsswitch.conf os-release passwd pki/ca-trust pki/tls/certs pki/tls/cert.pem profile "
    "protocols resolv.conf services shells ssl/cert.pem ssl/certs ssl/openssl.cnf terminfo timezone "
    "R/Makeconf R/Renviron R/javaconf R/ldpaths R/repositories"  # its *.site may have keys
)
# Without these the JVM, LibreOffice, ImageMagick and TeX do not start, or lack fonts or formats. Not PHP's: keys of
# monitoring lie among its modules.
_PROGRAMS = "/etc/ImageMagick-* /etc/java-* /etc/libreoffice /etc/texmf /var/lib/texmf"
_PYTHON = ("bin", "lib", "lib64", "libexec", "include", "share", "ssl", "pyvenv.cfg")
_DEVICES = {"null": True, "zero": True, "full": True, "random": False, "urandom": False}

Rule = tuple[bytes, int]


@dataclass(frozen=True, slots=True)
class Ruleset:
    """What the init program passes to the kernel: ``struct landlock_ruleset_attr``, and host paths with permitted
    accesses. With its flags the kernel does not write into the machine's audit log what it refuses a script, which can
    ask without end (row 252).
    """

    attributes: bytes
    rules: tuple[Rule, ...]
    flags: int


def abi() -> int:
    """The version of Landlock this kernel has; 0 when it cannot be used, and :func:`absence` says why."""
    return max(0, _ask())


def absence() -> str:
    """Why :func:`abi` is 0, as a clause."""
    import errno

    known = {
        errno.ENOSYS: "this kernel has no Landlock (Linux 5.13 or later has it, gVisor has not)",
        errno.EOPNOTSUPP: "Landlock is built into this kernel but turned off; start it with lsm=landlock,...",
        errno.EPERM: "a system call filter of the container forbids Landlock; use Docker 20.10.13 or later",
    }
    return known.get(-_ask(), f"asking for Landlock failed: {os.strerror(-_ask())}")


def ruleset(
    version: int,
    *,
    read_only: Iterable[str],
    read_write: Iterable[str],
    tcp: bool = False,
) -> Ruleset:
    """The rules of one run: the system and ``read_only`` to read and execute, ``read_write`` to do everything.

    What does not exist is left out. ``tcp`` leaves TCP alone; the filter decides about sockets.
    """
    handled = (1 << _FILE_BITS.get(version, 16)) - 1
    network = BIND_TCP | CONNECT_TCP if version >= ABI_TCP and not tcp else 0
    scopes = SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL if version >= ABI_SCOPE else 0
    attributes = struct.pack("=QQQ", handled, network, scopes)[: _ATTRIBUTE_BYTES.get(version, 24)]
    full = handled & ~(MAKE_CHAR | MAKE_BLOCK)
    rules = [*_system_rules(handled), *_readable(read_only, handled)]
    rules += [(os.fsencode(path), full) for path in read_write]
    return Ruleset(attributes, tuple(rules), LOG_SAME_EXEC_OFF if version >= ABI_LOG else 0)


@functools.lru_cache(maxsize=1)
def program_settings() -> tuple[str, ...]:
    """Settings of the system's programs that a script may read at every level."""
    return tuple(path for pattern in _PROGRAMS.split() for path in sorted(glob.glob(pattern)))  # noqa: PTH207


def python_folders(prefixes: Iterable[str]) -> tuple[str, ...]:
    """What Python installations and virtual environments are made of; their folder as a whole may be a project's, and
    ``~/.local/share`` has data of all programs of a user (row 408).
    """
    return tuple(
        f"{prefix.rstrip('/')}/{name}"
        for prefix in dict.fromkeys(prefixes)
        for name in _PYTHON
        if name != "share" or os.path.basename(prefix.rstrip("/")) != ".local"  # noqa: PTH119
    )


def _readable(paths: Iterable[str], handled: int) -> list[Rule]:
    rules = []
    for path in paths:
        try:
            mode = os.stat(path).st_mode  # noqa: PTH116
        except OSError:
            continue
        access = _READ if stat.S_ISDIR(mode) else _READ & _OF_A_FILE
        rules.append((os.fsencode(path), access & handled))
    return rules


@functools.lru_cache(maxsize=4)
def _system_rules(handled: int) -> tuple[Rule, ...]:
    prefixes = python_folders((sys.prefix, sys.base_prefix, sys.exec_prefix))
    etc = (*(f"/etc/{name}" for name in _ETC.split()), *program_settings())
    rules = _readable(dict.fromkeys((*_SYSTEM, *etc, *prefixes)), handled)
    for name, writable in _DEVICES.items():
        access = READ_FILE | (WRITE_FILE | TRUNCATE if writable else 0)
        rules.append((f"/dev/{name}".encode(), access & handled))
    # /bin is /usr/bin on most systems: one rule is enough.
    seen: dict[bytes, int] = {}
    for path, access in rules:
        seen.setdefault(os.path.realpath(path), access)
    return tuple(seen.items())


def _ask() -> int:
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    answer = library.syscall(ctypes.c_long(_CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_long(_VERSION_FLAG))
    return int(answer) if answer >= 0 else -ctypes.get_errno()
