"""Process 1 of a sandbox with namespaces: a few lines of shell that hold the command back, wait for it, stay.

It talks with the host through its standard input, a socket the command never has:

1. ``ready``: the file system is in place, the limits hold, and the command's process exists, held back.
2. The host sends a line, the name for the marker below; the command begins.
3. The command's exit code. The shell stays until the host ends everything, so that the last process of a pipeline may
   still write (row 22), and so that its parent, bubblewrap, can tell what all of them used.

That the command's first instruction waits for the host's line makes bubblewrap's own ``--block-fd`` unnecessary; unlike
there, the host need not guess when the file system is in place. Nothing inside can signal process 1. When the agent
dies, reading gives an end of file, and process 1 ends with everything.
"""

from __future__ import annotations

import functools
import os
import select
import socket
import time

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import SandboxPolicy
from adk_skills_agent.sandbox.local.limits import limit_steps

READY = b"ready"
_LINE_BYTES = 64


def first_process(policy: SandboxPolicy, stdin: str, cwd: str, argv: list[str]) -> list[str]:
    """The command line of process 1.

    Args:
        policy: Its limits of a process.
        stdin: Path of the command's standard input, inside.
        cwd: Its working directory, inside.
        argv: The command.
    """
    steps = limit_steps(policy, None if policy.pids is None else policy.pids + 1)  # process 1 counts, too
    return ["/bin/sh", "-c", _program(steps), "sh", stdin, cwd, *argv]


@functools.lru_cache(maxsize=64)
def _program(steps: str) -> str:
    # 3 is the command's stderr: the shell itself must not say there how the command ended. In the brackets, a failed
    # exec leaves the marker: dash runs the trap then, bash (with execfail) the command after.
    return (
        "umask 077; exec 3>&2 2>/dev/null; "
        'i=$1 d=$2; shift 2; if [ "${BASH_VERSION-}" ]; then shopt -s execfail; fi; '
        f"( {steps} || exit 125; echo ready >&0; read -r m || exit 125; "
        'trap \': > "$m"\' EXIT; cd -- "$d" || exit 125; unset OLDPWD; '
        'exec "$@" <"$i" 2>&3 3>&-; : > "$m"; exit 126 ); '
        'echo "$?" >&0; read -r m'
    )


class Control:
    """The host's end of the socket.

    Args:
        connection: The socket; closed with this object.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        connection.setblocking(False)

    @property
    def descriptor(self) -> int:
        """Becomes readable when the command has ended, or process 1 has."""
        return self._connection.fileno()

    def allow_set_up(self) -> None:
        """Let bubblewrap go on: the user ids are mapped."""
        self._connection.send(b"x")

    def wait_until_ready(self, seconds: float) -> bool:
        """Whether process 1 is ready; False when it ended before.

        Raises:
            SandboxError: Nothing came in so many seconds.
        """
        return self._first_line(seconds).strip() == READY

    def _first_line(self, seconds: float) -> bytes:
        """What process 1 says first; without a line feed when it ended meanwhile."""
        deadline = time.monotonic() + seconds
        said = b""
        while not said.endswith(b"\n"):
            poll = select.poll()
            poll.register(self._connection, select.POLLIN)
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise SandboxError(f"The sandbox was not ready after {seconds:.0f} seconds.")
            try:
                data = self._connection.recv(_LINE_BYTES)
            except ConnectionError:
                return said
            if not data:
                return said
            said += data
        return said

    def begin(self, marker: str) -> None:
        """Let the command begin.

        Raises:
            SandboxError: The sandbox is gone.
        """
        try:
            self._connection.sendall(os.fsencode(marker) + b"\n")
        except OSError as error:
            raise SandboxError(f"The sandbox ended before its command began: {error.strerror}.") from error

    def exit_code(self) -> int | None:
        """What process 1 said about the command's end, once everything inside is dead; None when it said nothing."""
        try:
            said = self._connection.recv(_LINE_BYTES)
        except OSError:
            return None
        line = said.strip()
        return int(line) if line.isdigit() and len(line) <= 3 else None

    def close(self) -> None:
        """Close the socket."""
        self._connection.close()
