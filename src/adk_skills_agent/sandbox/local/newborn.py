"""A sandbox right after its start, with what was made for it, and the ways it can be born."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from adk_skills_agent.sandbox.local.sandbox_start import Started

if TYPE_CHECKING:
    from adk_skills_agent.sandbox.local.bash_ahead import Feed
    from adk_skills_agent.sandbox.local.cgroup_group import Group
    from adk_skills_agent.sandbox.local.workspace import Workspace

Birth = Callable[[Callable[[], Started]], "Newborn"]
"""Calls what starts a sandbox, in whatever surroundings it is to be born."""


@dataclass(frozen=True, slots=True, eq=False)
class Newborn:
    """A sandbox nothing has run in yet.

    Attributes:
        started: The sandbox.
        group: The control group it was born in; None for none of its own.
        give_back: Called with the group when nothing is in it any more.
        was_idle: Whether it waited for a run, and may have died meanwhile.
        workspace: What is in its workspace already; None for nothing.
        cpu_before: Processor time its group had used when it was made, in seconds.
        feed: The other end of what a bash in it reads that was started ahead; None where a guest waits.
        stats: Descriptors that tell of its processes while it waits; see :func:`.population.is_ending_now`.
    """

    started: Started
    group: Group | None = None
    give_back: Callable[[Group], None] | None = None
    was_idle: bool = False
    workspace: Workspace | None = None
    cpu_before: float = 0.0
    feed: Feed | None = None
    stats: list[int] = field(default_factory=list)

    def close_stats(self) -> None:
        """It waits no longer."""
        while self.stats:
            os.close(self.stats.pop())

    def discard(self) -> None:
        """End it unused, and wait for that; everything of it is gone or, after seconds, no longer waited for."""
        self.close_stats()
        self.started.end()
        self.started.reap()
        if self.feed is not None:
            self.feed.close()
        self.started.folders.close()
        if self.group is not None and self.give_back is not None:
            self.give_back(self.group)


def born_plainly(start: Callable[[], Started]) -> Newborn:
    """Without anything of its own."""
    return Newborn(start())
