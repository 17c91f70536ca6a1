"""Parts for a caller that builds a sandbox of another shape, such as a benchmark's task in layers of files.

What runs in it is still contained as the scripts of skills are; the layers, users and limits are the caller's.
"""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Iterator
from pathlib import Path

from adk_skills_agent.errors import SandboxUnavailable
from adk_skills_agent.platforms import is_nearly_full
from adk_skills_agent.sandbox.local.cgroup import ControlGroup, NoControlGroups, group_pool
from adk_skills_agent.sandbox.local.namespaces import bubblewrap
from adk_skills_agent.sandbox.process import seccomp
from adk_skills_agent.sandbox.process.tree import machine_memory


def require_bubblewrap(without: str) -> str:
    """The path of bubblewrap; when it is missing or too old a SandboxUnavailable, whose sentence ``without`` begins."""
    found = bubblewrap.features()
    missing = bubblewrap.missing()
    if missing is not None or found is None:
        raise SandboxUnavailable(f"{without}: {missing}.", (missing or "",))
    return found.path


def container_filter() -> bytes:
    """A system call filter for what runs in namespaces of its own; allows the sockets that a container has, too.

    Netlink is among them: groupadd and useradd, which packages call, stop when they are refused an audit socket.
    """
    sockets = (seccomp.AF_UNIX, seccomp.AF_INET, seccomp.AF_INET6, seccomp.AF_NETLINK)
    return seccomp.program(platform.machine(), seccomp.NAMESPACES, sockets=sockets)


def control_groups_problem() -> str | None:
    """Why memory and processes cannot be limited by a control group here; None when they can."""
    try:
        group_pool()
    except NoControlGroups as error:
        return str(error)
    return None


@contextlib.contextmanager
def control_group() -> Iterator[ControlGroup | None]:
    """A control group to put processes into, given back at the end; None where there are no control groups."""
    try:
        pool = group_pool()
    except NoControlGroups:
        yield None
        return
    group = pool.take()
    try:
        yield group
    finally:
        pool.give_back(group)


def what_is_scarce(folder: Path | None = None) -> str | None:
    """What this machine has next to nothing left of: its memory, that of all TCP, or the disk of a folder; None if
    there is enough.

    For what runs without the watchdog of a script's sandbox: there is memory that no limit of a container or control
    group counts (rows 136 and 283).
    """
    if folder is not None and is_nearly_full(folder):
        return f"the disk of {folder} is nearly full"
    if machine_memory().is_scarce:
        return "the machine has next to no memory left"
    with contextlib.suppress(OSError, ValueError, IndexError):
        pressure = int(Path("/proc/sys/net/ipv4/tcp_mem").read_text().split()[1])
        _, _, counts = Path("/proc/net/sockstat").read_text().partition("\nTCP:")
        if int(counts.partition(" mem ")[2].split()[0]) > pressure * 3 // 4:
            return "the connections of the machine have nearly all memory that there is for TCP"
    return None
