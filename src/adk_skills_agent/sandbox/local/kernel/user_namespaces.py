"""Whether programs of this user may make user namespaces, tried; why not, and what permits them."""

from __future__ import annotations

import functools
import os
import sys
from dataclasses import dataclass
from pathlib import Path

_SECONDS = 10
# In a process of its own, because it cannot be undone; prints 0 or the error number.
_TRY_NAMESPACE = """
import ctypes
library = ctypes.CDLL(None, use_errno=True)
print(0 if library.unshare(0x10000000) == 0 else ctypes.get_errno())
"""
_APPARMOR = "kernel.apparmor_restrict_unprivileged_userns"
# Kernel settings that forbid user namespaces: the value that does, and one that permits them.
_SETTINGS = {
    "user.max_user_namespaces": ("0", "15000"),
    "kernel.unprivileged_userns_clone": ("0", "1"),
    _APPARMOR: ("1", "0"),
}
_ROOT_TOO = frozenset({"user.max_user_namespaces"})
_CONTAINER_OPTIONS = "--security-opt seccomp=unconfined --security-opt systempaths=unconfined"


@dataclass(frozen=True, slots=True)
class UserNamespaces:
    """Whether programs of this user may make user namespaces (None: not known), why not, and the command that permits
    them.
    """

    allowed: bool | None
    reason: str | None = None
    fix: str | None = None


@functools.cache
def user_namespaces() -> UserNamespaces:
    """Try to make one, in a process of its own, once per process of ours."""
    if sys.platform != "linux":
        return UserNamespaces(allowed=False, reason="user namespaces are a feature of Linux")
    number = _try_namespace()
    if number is None:
        return UserNamespaces(allowed=None, reason="it could not be tried")
    for name, (forbidding, permitting) in _SETTINGS.items():
        value = _setting(name)
        # AppArmor permits the call and takes the rights away again; the others refuse the call.
        refused = number != 0 or name == _APPARMOR
        if value == forbidding and refused and (os.geteuid() != 0 or name in _ROOT_TOO):
            return UserNamespaces(allowed=False, reason=f"{name} is {value}", fix=f"sysctl -w {name}={permitting}")
    if number == 0:
        return UserNamespaces(allowed=True)
    return UserNamespaces(
        allowed=False,
        reason=f"the system refuses them ({os.strerror(number)}), as a container's system call filter does",
        fix=f"start the container with {_CONTAINER_OPTIONS}, which weakens the container itself",
    )


def _try_namespace() -> int | None:
    import subprocess

    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _TRY_NAMESPACE],
            capture_output=True,
            check=False,
            timeout=_SECONDS,
            env={},
            cwd="/",
        )
        return int(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _setting(name: str) -> str:
    try:
        return Path("/proc/sys", *name.split(".")).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
