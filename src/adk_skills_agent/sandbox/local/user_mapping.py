"""The user ids of a sandbox whose agent is root: root's own, to set it up, and the one its command runs as."""

from __future__ import annotations

import os

from adk_skills_agent.errors import SandboxError


def map_users(pid: int, uid: int) -> None:
    """Write both maps of a new user namespace.

    Args:
        pid: A process in it.
        uid: The command's user and group id, the same inside and outside.

    Raises:
        SandboxError: The kernel refuses; in a container, root may lack the capabilities it needs.
    """
    lines = f"0 0 1\n{uid} {uid} 1\n".encode()
    for name in ("uid_map", "gid_map"):
        try:
            descriptor = os.open(f"/proc/{pid}/{name}", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(descriptor, lines)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise SandboxError(
                f"The sandbox's user ids could not be set: {error.strerror} ({name}). An agent that runs as root needs "
                "the capabilities SETUID, SETGID and SETFCAP."
            ) from error
