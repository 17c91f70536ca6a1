"""A running script on a terminal: its output as it arrives, and one line that says what it uses, gone at the end."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adk_skills_agent.sandbox.streaming import OutputEvent, ResourceSample

_ERASE = "\r\x1b[K"


class LiveOutput:
    """Writes a script's output as it is; below it, on a terminal, what the script uses.

    The line is on stderr, is never drawn over an unfinished line of the script, and is erased before anything else is
    written.

    Args:
        status: Show the line where stderr is a terminal that can erase one.
    """

    def __init__(self, *, status: bool) -> None:
        self._possible = status and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._drawn = False
        self._unfinished = False

    def output(self, event: OutputEvent) -> None:
        """The next piece of the script's output, to the stream it wrote to."""
        self.clear()
        if event.left_out:
            newline = "\n" if self._unfinished else ""
            self._write(f"{newline}adk-skills: ... {event.left_out:,} bytes of {event.stream} not shown ...\n")
        target = sys.stdout if event.stream == "stdout" else sys.stderr
        target.buffer.write(event.data)
        target.buffer.flush()
        if self._possible and target.isatty():
            self._unfinished = not event.data.endswith(b"\n")

    def sample(self, sample: ResourceSample) -> None:
        """What the script uses now."""
        if not self._possible or self._unfinished:
            return
        count = f"{sample.processes} process{'es' if sample.processes != 1 else ''}"
        line = f"running {sample.seconds:.1f} s, {sample.memory_bytes / (1 << 20):.0f} MiB, {count}"
        # A line that wraps could not be erased.
        self._write(_ERASE + line[: max(0, shutil.get_terminal_size().columns - 1)])
        self._drawn = True

    def clear(self) -> None:
        """Erase the line."""
        if self._drawn:
            self._drawn = False
            self._write(_ERASE)

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
