"""Where the levels that are made of Linux system calls can exist at all."""

from __future__ import annotations

import os
import platform
import sys

from adk_skills_agent.sandbox.local import seccomp


def unsupported() -> str | None:
    """Why neither Landlock nor a system call filter can be used in this process; None when they can be tried."""
    if sys.platform != "linux":
        return f"{platform.system()} has neither Landlock nor system call filters; they are Linux's"
    if not seccomp.supports(platform.machine()):
        return f"no system call filter is known for {platform.machine()}; there is one for x86_64 and aarch64"
    if sys.byteorder != "little" or sys.maxsize < 1 << 32:
        return "system call filters are only known for 64-bit little-endian systems"
    if not sys.executable or not os.access(sys.executable, os.X_OK):
        return "this Python does not know its own interpreter (sys.executable), which has to start the sandbox"
    if not os.path.isdir(f"/proc/{os.getpid()}/task"):  # noqa: PTH112
        return "/proc is not mounted, so what a run leaves behind could not be found"
    return None
