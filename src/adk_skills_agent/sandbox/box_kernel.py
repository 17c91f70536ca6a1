"""The supervisor's side of the process that holds a session's Python state.

Part of the program in a box (:mod:`.box_program`); the other side is :mod:`.kernel`.
"""

from __future__ import annotations

import marshal
import os
import sys
from typing import Any

from adk_skills_agent.sandbox.box_process import Started, fork_kernel
from adk_skills_agent.sandbox.kernel import (
    ANSWER_BYTES,
    ENDED,
    INTERRUPTED,
    LENGTH_BYTES,
    LINK_LOST,
    OUT_OF_CPU,
    RUNS,
)

_SOL_SOCKET, _SCM_RIGHTS = 1, 1
LINK_CLOSED = "the code closed descriptors of its own process, put another program in it, or broke its Python"
"""Why a state is lost whose kernel cannot be reached any more."""


class KernelLink:
    """A kernel and the socket to it.

    Args:
        home: Its working directory.
        channel: Descriptors it must not have.

    Attributes:
        pid: Its process, and its group.
        is_closed: It has let go of the socket.
        is_forged: It said what no kernel says.
    """

    def __init__(self, home: str, channel: list[int]) -> None:
        self.pid, self._socket, self._progress = fork_kernel(home, channel)
        self.is_closed = self.is_forged = False
        self._answer = b""
        self._token = 0

    @property
    def descriptor(self) -> int:
        """To watch for an answer."""
        return int(self._socket.fileno())

    @property
    def has_begun(self) -> bool:
        """Whether the code has: what is to interrupt it would be lost before. Only what the kernel says."""
        return self._progress[0] in (RUNS, ENDED)

    @property
    def has_ended(self) -> bool:
        """Whether the code has, and the kernel is busy with its end. Only what the kernel says."""
        return bool(self._progress[0] == ENDED)

    def give(self, job: dict[str, Any]) -> Started:
        """Let an execution begin, with streams of its own."""
        out, err = os.pipe(), os.pipe()
        self._progress[0] = 0
        # Not a secret from code that searches its own process for it, only nothing it could guess: who gets that far
        # has gained no more than an early end of its own execution.
        self._token = int.from_bytes(os.urandom(8), "big")
        try:
            data = marshal.dumps({**job, "token": self._token})
            passed = out[1].to_bytes(4, sys.byteorder) + err[1].to_bytes(4, sys.byteorder)
            message = len(data).to_bytes(LENGTH_BYTES, "big") + data
            sent = self._socket.sendmsg([message], [(_SOL_SOCKET, _SCM_RIGHTS, passed)])
            if sent < len(message):
                self._socket.sendall(message[sent:])
        except OSError:
            pass  # the kernel is gone: what its end looks like is about to be seen
        finally:
            os.close(out[1])
            os.close(err[1])
        return Started(self.pid, out[0], err[0])

    def hear(self, number: int | None) -> dict[str, Any] | None:
        """What a ``done`` frame says of the end of an execution, once the kernel has told; see the attributes, too.

        Args:
            number: The execution in flight; None when there is none.
        """
        try:
            said = self._socket.recv(ANSWER_BYTES + 1)
        except BlockingIOError:
            return None
        except OSError:
            said = b""
        self._answer += said
        answer = self._answer
        if not said:
            self.is_closed = True
        if len(answer) < ANSWER_BYTES and number is not None:
            return None
        if answer:
            self._answer = b""
            found, flags = int.from_bytes(answer[:8], "big"), answer[12] if len(answer) == ANSWER_BYTES else -1
            if number is not None and found == self._token and flags in {0, INTERRUPTED, OUT_OF_CPU}:
                return {
                    "exit": int.from_bytes(answer[8:12], "big", signed=True),
                    "signal": None,
                    "interrupted": flags != 0,
                    "out_of_cpu": flags == OUT_OF_CPU,
                    "cpu_ms": int.from_bytes(answer[13:], "big") / 1000,
                }
            self.is_forged = True
        return None

    def close(self) -> None:
        """It has ended."""
        self._socket.close()


def why_ended(code: int | None, number: int | None) -> str:
    """Why a state is lost, as a clause, from the exit code or the signal of its kernel."""
    if code == LINK_LOST:
        return LINK_CLOSED
    if code is not None:
        return f"the code ended its process (exit code {code})"
    return f"its process was ended by signal {number}"
