"""What a backend that can host Python sessions gives: boxes that run the program of :mod:`.box_program`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from adk_skills_agent.sandbox.contract import IsolationReport, SandboxPolicy, Status
from adk_skills_agent.sandbox.local.view import PathView


@dataclass(frozen=True, slots=True)
class BoxEnd:
    """How a box was when it was closed.

    Attributes:
        status: The limit that ended it, if one did.
        notes: A sentence for each.
        cpu_ms: Used by everything in it; None when that is not known.
        max_rss_bytes: Its peak; None when that is not known.
    """

    status: Status | None = None
    notes: tuple[str, ...] = ()
    cpu_ms: float | None = None
    max_rss_bytes: int | None = None


class Channel(Protocol):
    """A box in which the program runs, and the bytes to and from it."""

    @property
    def isolation(self) -> IsolationReport:
        """Who enforces what in it."""

    @property
    def view(self) -> PathView | None:
        """What host paths in its output are replaced by; None when it sees none."""

    @property
    def is_open(self) -> bool:
        """Whether, as far as can be told without asking it, the box is there; never blocks."""

    async def send(self, data: bytes) -> None:
        """Pass bytes to the program; without effect when it is gone, which ``receive`` will tell."""

    async def receive(self) -> bytes:
        """The next bytes from the program; none at its end. A cancelled call loses nothing."""

    def kill(self) -> None:
        """End the box at once, from any thread; never blocks, and may be called twice. ``receive`` then ends."""

    async def close(self) -> BoxEnd:
        """End it, wait for that, and leave nothing behind; the same answer when it is called again."""


class SessionHost(Protocol):
    """What can start boxes for sessions."""

    async def start(self, policy: SandboxPolicy) -> Channel:
        """Start the program in a new box.

        Args:
            policy: A checked policy; its deadline, processor time and output do not concern the box.

        Raises:
            SandboxUnavailable: The policy cannot be met here.
            SandboxError: The box could not be started.
        """
