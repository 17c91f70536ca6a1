"""A listening socket inside a run's network namespace, in the hands of the agent (SANDBOX.md, finding 8).

The sandbox has no way out but this one address, and needs no relay, no mount and no program inside for it.
"""

from __future__ import annotations

import os
import socket
import sys

from adk_skills_agent.errors import SandboxError

PROXY_HOST = "127.0.0.1"
PROXY_PORT = 3128
BACKLOG = 64
_HELPER = os.path.join(os.path.dirname(__file__), "netns_helper.py")  # noqa: PTH118, PTH120
_SECONDS = 20.0  # it takes 20 ms; a machine that needs longer than this has another problem


def listen_in(pid: int, *, port: int = PROXY_PORT, backlog: int = BACKLOG) -> socket.socket:
    """Listen on the loopback of another process's network namespace. Blocks for some 20 ms: call it in a worker.

    Args:
        pid: A process of the sandbox, kept from going on meanwhile.
        port: Where to listen; the namespace is new, so it is free.
        backlog: How many connections may wait.

    Returns:
        The listening socket, owned by the caller.

    Raises:
        SandboxError: The namespace cannot be entered, or it is not one of the sandbox's own.
    """
    import subprocess

    ours, theirs = socket.socketpair()
    with ours, theirs:
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-S", _HELPER, str(pid), str(port), str(backlog)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd="/",
                env={},
                timeout=_SECONDS,
                check=False,
            )
        except OSError as error:
            raise _failure(error.strerror or str(error)) from error
        except subprocess.TimeoutExpired:
            raise _failure(f"the helper did not end within {_SECONDS:.0f} s") from None
        ours.setblocking(False)
        descriptor = _receive(ours)
        if descriptor is None:
            said = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise _failure(said or f"the helper ended with {done.returncode}")
        return socket.socket(fileno=descriptor)


def _receive(channel: socket.socket) -> int | None:
    """The descriptor that was sent, closed on exec from the start (``socket.recv_fds`` does not pass its flags on)."""
    channel.setblocking(False)
    try:
        _, control, _, _ = channel.recvmsg(1, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC)
    except BlockingIOError:
        return None
    for level, kind, data in control:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            return int.from_bytes(data[:4], sys.byteorder, signed=True)
    return None


def _failure(reason: str) -> SandboxError:
    return SandboxError(f"The network proxy could not listen inside the sandbox: {reason}.")
