"""A few workers that take from one queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from adk_skills_agent.errors import SkillsError


async def in_parallel(workers: int, waiting: int, work: Callable[[], Coroutine[object, object, None]]) -> None:
    """Run a worker function several times at once, until all have come to their end.

    Args:
        workers: How many at most.
        waiting: How many pieces of work there are; more workers than that are not started.
        work: Takes one piece after the other.

    Raises:
        SkillsError: What a worker raised first; the others are cancelled.
        OSError: As :class:`~adk_skills_agent.errors.SkillsError`.
        CancelledError: The wait was cancelled; so were the workers.
    """
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(max(workers, 1), max(waiting, 1))):
                group.create_task(work())
    except ExceptionGroup as errors:
        first: BaseException = errors
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        if isinstance(first, SkillsError | OSError):
            raise first from None  # one worker's sentence, not the tree of all
        raise
