"""What of one test is open in its process: threads of tests before it open and close things of their own meanwhile."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path


def open_below(folder: Path) -> list[str]:
    """The files and folders in a folder, and itself, that this process has open."""
    top = os.path.realpath(folder)
    return [target for target in _targets() if target == top or target.startswith(f"{top}/")]


def sockets_at(*ports: int) -> list[str]:
    """The sockets of this process one end of which is one of these TCP ports, in whatever network namespace."""
    found = []
    for number in _descriptors():
        with contextlib.suppress(OSError):  # another thread has closed it, or it has no other end
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                with socket.socket(fileno=os.dup(number)) as copy:
                    ends = [_address(copy.getsockname), _address(copy.getpeername)]
                    if any(isinstance(end, tuple) and end[1] in ports for end in ends):
                        found.append(" to ".join(f"{end[0]}:{end[1]}" for end in ends if isinstance(end, tuple)))
    return found


def _descriptors() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd")]


def _targets() -> list[str]:
    found = []
    for number in _descriptors():
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{number}").removesuffix(" (deleted)"))
    return found


def _address(ask: Callable[[], object]) -> object:
    try:
        return ask()
    except OSError:
        return None
