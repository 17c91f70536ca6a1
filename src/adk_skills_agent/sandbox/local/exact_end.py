"""How a process that is no child of ours ended, from its pidfd; Linux 6.15 and later tell."""

from __future__ import annotations

import os
import struct

_PIDFD_GET_INFO = 0xC040FF0B  # _IOWR(0xFF, 11, struct pidfd_info of 64 bytes)
_INFO = struct.Struct("=QQ11Ii")
_WANT_EXIT = 1 << 3
_SIGNALLED = 128  # and the signal's number, as shells say it


def exact_status(pidfd: int) -> int | None:
    """The status of a dead process in the encoding of ``wait``; None when the system does not say."""
    import fcntl

    asked = bytearray(_INFO.pack(_WANT_EXIT, *([0] * 13)))
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, asked)
    except OSError:
        return None
    mask, *_, status = _INFO.unpack(asked)
    # A kernel that does not know the question leaves its bit out.
    return int(status) if mask & _WANT_EXIT else None


def told_status(exact: int | None, code: int | None) -> tuple[int | None, bool]:
    """The status of a command whose exit code a shell told, and whether a signal had to be deduced from that.

    Args:
        exact: What the system says.
        code: What the shell said; None for nothing.
    """
    if exact is not None or code is None:
        return exact, False
    return (code - _SIGNALLED, True) if code > _SIGNALLED else (code << 8, False)


def children_of(pid: int) -> list[int]:
    """The processes whose parent is this one's main thread; empty when it is gone."""
    try:
        descriptor = os.open(f"/proc/{pid}/task/{pid}/children", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        return [int(child) for child in os.read(descriptor, 1 << 16).split()]
    except OSError:
        return []
    finally:
        os.close(descriptor)
