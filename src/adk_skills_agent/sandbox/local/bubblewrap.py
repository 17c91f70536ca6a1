"""Bubblewrap: where it is, what it can do, and the arguments that make a run's sandbox.

All namespaces are new. When the agent is root, bubblewrap sets up the file system as root, so that skills and
interpreters in private folders can be shown, and the command's processes take on another user id before their first
instruction: the kernel limits no processes of root (SANDBOX.md finding 4), and root's files must not be the command's.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from adk_skills_agent.sandbox.contract import WORK_DIR
from adk_skills_agent.sandbox.local.packages import find_program, install_command

NOBODY = 65534
"""The user id inside; on the host it is the agent's own, or really this one when the agent is root."""

STDIN_PATH = "/.stdin"
MAX_ARGUMENTS = 9000
"""What bubblewrap takes, read from a file or not."""

_PATH = "/usr/local/bin:/usr/bin:/bin"
_PAGE = 4096
_OPEN_TO_ALL = "1777"


@dataclass(frozen=True, slots=True)
class Features:
    """What the installed version can do.

    Attributes:
        path: The program.
        options: All it has.
    """

    path: str
    options: frozenset[str]


_NEEDED = ("--args", "--size", "--perms", "--as-pid-1", "--info-fd", "--seccomp", "--remount-ro", "--userns-block-fd")


@functools.lru_cache(maxsize=1)
def features() -> Features | None:
    """The installed bubblewrap; None when there is none. Looked for once per process."""
    import subprocess

    path = find_program("bwrap", _PATH)
    if path is None:
        return None
    try:
        done = subprocess.run([path, "--help"], capture_output=True, check=False, timeout=10, env={}, cwd="/")
    except (OSError, subprocess.SubprocessError):  # of another architecture, or it hangs
        return Features(path, frozenset())
    return Features(
        path, frozenset(re.findall(r"--[a-z0-9-]+", (done.stdout + done.stderr).decode("utf-8", "replace")))
    )


def missing() -> str | None:
    """What is not installed or too old, as a clause; None when all is there."""
    found = features()
    if found is None:
        return f"bubblewrap is not installed (no bwrap in {_PATH})"
    if not found.options:
        return f"the installed bubblewrap ({found.path}) does not run"
    lacking = [option for option in _NEEDED if option not in found.options]
    if lacking:
        return f"the installed bubblewrap is too old: it lacks {', '.join(lacking)}; 0.7 or later is needed"
    if os.geteuid() == 0 and setpriv() is None:
        return "setpriv (package util-linux) is not installed, which an agent that runs as root needs"
    return None


def remedy() -> str | None:
    """The command that installs what is missing; None when nothing is, or when what is there is too old."""
    if features() is None:
        return install_command("bubblewrap")
    if os.geteuid() == 0 and setpriv() is None:
        return install_command("util-linux")
    return None


@functools.lru_cache(maxsize=1)
def setpriv() -> str | None:
    """The program that gives up root inside."""
    return find_program("setpriv", _PATH)


def isolation_arguments(network: str, *, root: bool) -> list[str]:
    """New namespaces, no capabilities, no terminal, an end with the agent.

    Args:
        network: Mode of the policy's network.
        root: Whether the agent is root.
    """
    arguments = ["--unshare-all", "--unshare-user", "--hostname", "sandbox", "--die-with-parent", "--new-session"]
    arguments += ["--as-pid-1", "--cap-drop", "ALL"]
    if network == "host":
        arguments.append("--share-net")
    if root:
        # Only for process 1, which gives up these, too.
        for name in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"):
            arguments += ["--cap-add", name]
        return arguments
    arguments += ["--uid", str(NOBODY), "--gid", str(NOBODY)]
    found = features()
    if found is not None and "--disable-userns" in found.options:
        arguments.append("--disable-userns")
    return arguments


def drop_prefix(uid: int) -> list[str]:
    """What a root agent's sandbox starts before anything else: it gives up root for good."""
    return [
        str(setpriv()),
        f"--reuid={uid}",
        f"--regid={uid}",
        "--clear-groups",
        "--bounding-set=-all",
        "--inh-caps=-all",
        "--pdeathsig=KILL",  # a change of the user id forgets it
        "--",
    ]


def private_arguments(*, shm: int | None, tmp: int | None, workspace: int | None) -> list[str]:
    """The sandbox's own file systems and their sizes in bytes; the workspace's is the last that is made."""
    return [
        *("--proc", "/proc", "--dev", "/dev"),
        *_tmpfs("/dev/shm", shm),  # noqa: S108  # the sandbox's own
        *("--remount-ro", "/dev"),
        *_tmpfs("/tmp", tmp),  # noqa: S108  # the sandbox's own
        *_tmpfs(str(WORK_DIR), workspace),
    ]


def environment_arguments(environment: Mapping[str, str]) -> list[str]:
    """The command's environment; bubblewrap's own is empty."""
    arguments = ["--clearenv"]
    for name, value in environment.items():
        arguments += ["--setenv", name, value]
    return arguments


def bind_arguments(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Read-only files and folders: host path and path inside.

    Folders on the way are named, too: those bubblewrap makes unasked are its own user's alone.
    """
    arguments: list[str] = []
    made = {"/"}
    for source, target in pairs:
        parent = os.path.dirname(target)  # noqa: PTH120
        if parent not in made:
            made.add(parent)
            arguments += ["--dir", parent]
        arguments += ["--ro-bind", source, target]
    return arguments


def _tmpfs(path: str, size: int | None) -> list[str]:
    sized = [] if size is None else ["--size", str(max(_PAGE, size))]
    return ["--perms", _OPEN_TO_ALL, *sized, "--tmpfs", path]
