"""What is known about a run once everything of it is gone."""

from __future__ import annotations

from dataclasses import dataclass, field

from adk_skills_agent.sandbox.contract import NetworkDecision, Status
from adk_skills_agent.sandbox.local.collection import Collected


@dataclass(slots=True)
class Aftermath:
    """What a level tells about a run that is over.

    Attributes:
        status: How the command ended, in the encoding of ``wait``; None when it cannot be known.
        inferred: ``status`` is a signal deduced from an exit code of 128+n.
        cause: A limit that ended the run and that only the level saw (memory of a cgroup); None for none.
        cpu_seconds: Of everything in the run, or of the command and the children it waited for when that is all that
            can be known.
        max_rss: Largest resident memory of one of them, in bytes, where the kernel's number is about them.
        killed: Processes that were still alive.
        survivors: Processes that could not be killed.
        rest: What was still in the two pipes.
        not_started: The launcher says that the command never ran; its reason is the last line of stderr.
        collected: Output files; None when they were not wanted.
        notes: Sentences about what is left behind or was not kept.
        network: Decisions of the run's network proxy.
    """

    status: int | None = None
    inferred: bool = False
    cause: Status | None = None
    cpu_seconds: float | None = None
    max_rss: int | None = None
    killed: int = 0
    survivors: int = 0
    rest: tuple[bytes, bytes] = (b"", b"")
    not_started: bool = False
    collected: Collected | None = None
    notes: list[str] = field(default_factory=list)
    network: tuple[NetworkDecision, ...] = ()
