"""Standard input that goes on while the command runs."""

from __future__ import annotations


class LiveStdin(bytes):
    """In place of the bytes of ``ExecutionRequest.stdin``: a descriptor to read from, of which the run takes a copy.

    Args:
        descriptor: A socket or pipe; the caller's to close.
    """

    descriptor: int

    def __new__(cls, descriptor: int) -> LiveStdin:  # noqa: D102  # see Args
        stdin = super().__new__(cls)
        stdin.descriptor = descriptor
        return stdin
