"""Run as a program: enter a sandbox's network namespace, listen on its loopback, hand the socket back.

``python -I -S netns_helper.py PID PORT BACKLOG`` with a Unix socket as standard input. It is a process of its own
because only a process with a single thread can enter a user namespace. Imports are kept to what starts fast.
"""

from __future__ import annotations

import _socket
import ctypes
import fcntl
import os
import sys

_NS_GET_USERNS = 0xB701
_NS_GET_OWNER_UID = 0xB704
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000


def main(pid: int, port: int, backlog: int) -> None:
    """Do it; a ValueError when the process has the network of this machine."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        net = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    except PermissionError:
        _become(os.stat(f"/proc/{pid}").st_uid)  # noqa: PTH116
        net = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    if os.path.sameopenfile(net, os.open("/proc/self/ns/net", os.O_RDONLY)):
        raise ValueError("the sandbox has no network namespace of its own")
    user = fcntl.ioctl(net, _NS_GET_USERNS)
    _become(int.from_bytes(fcntl.ioctl(user, _NS_GET_OWNER_UID, bytes(4)), sys.byteorder))
    for descriptor, kind in ((user, _CLONE_NEWUSER), (net, _CLONE_NEWNET)):
        if libc.setns(descriptor, kind) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM, 0)
    listener.bind(("127.0.0.1", port))
    listener.listen(backlog)
    back = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, 0)
    passed = listener.fileno().to_bytes(4, sys.byteorder, signed=True)
    back.sendmsg([b"+"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, passed)])


def _become(uid: int) -> None:
    """Take on the user id a sandbox belongs to, when this is root and the sandbox is not root's.

    Who made a user namespace has every capability in it. The usual root of a container, without CAP_SYS_ADMIN and
    CAP_SYS_PTRACE, has none in a namespace of another user, and does not need them.
    """
    if os.geteuid() == 0 and uid != 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)


if __name__ == "__main__":
    try:
        main(*map(int, sys.argv[1:4]))
    except (OSError, ValueError) as error:
        sys.stderr.write(str(error))
        sys.exit(1)
