"""What the host sees of a run while it goes on, for the second act of ``adk-skills demo``."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from adk_skills_agent.sandbox.local.processes import all_processes

_PAUSE_SECONDS = 0.02


class HostWatch:
    """Counts this process's living descendants, and looks for a mark in their arguments, fifty times a second.

    Linux only. Every process of a sandbox descends from the agent, whatever session or namespace it made itself.

    Args:
        mark: What the arguments of the process looked for contain.

    Attributes:
        most: The most descendants at one moment beyond those at the start.
        marked: Whether one with the mark was seen.
    """

    def __init__(self, mark: str) -> None:
        self.most = 0
        self.marked = False
        self._mark = mark.encode()
        self._ended = threading.Event()
        self._before = len(_descendants())
        self._thread = threading.Thread(target=self._watch, name="adk-skills-demo-watch", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop watching."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_PAUSE_SECONDS):
            alive = _descendants()
            self.most = max(self.most, len(alive) - self._before)
            self.marked = self.marked or any(has_mark(pid, self._mark) for pid in alive)


def _descendants() -> set[int]:
    """Live processes below this one."""
    parents = {info.pid: info.parent for info in all_processes() if info.alive}
    below: set[int] = set()
    for first in parents:
        line = []
        pid = first
        while pid in parents and pid not in below and pid != os.getpid():
            line.append(pid)
            pid = parents.get(pid, 0)
        if pid in below or pid == os.getpid():
            below.update(line)
    return below


def has_mark(pid: int, mark: bytes) -> bool:
    """Whether a process has the mark in its arguments; not when it has ended meanwhile."""
    try:
        return mark in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
