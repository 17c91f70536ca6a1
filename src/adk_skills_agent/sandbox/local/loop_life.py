"""Which event loops have run several scripts and will perhaps run more: only for these are sandboxes kept warm."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator

from adk_skills_agent.sandbox.local.slots import slot_pool

_RUNS_BEFORE = 1
"""Runs in a loop before slots are worth it: a program that runs one script pays for none."""


class _Life:
    """One loop: how much it has run, and what notices its end."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self.runs = 0
        self.sentinel: AsyncGenerator[None, None] | None = None

    def is_over(self) -> bool:
        """Whether the loop is closed or gone."""
        loop = self._loop()
        return loop is None or loop.is_closed()


_lives: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Life] = weakref.WeakKeyDictionary()


async def keeps_slots() -> bool:
    """Count a run of the running loop; whether it may use slots, and have new ones made."""
    loop = asyncio.get_running_loop()
    life = _lives.get(loop)
    if life is None:
        life = _lives.setdefault(loop, _Life(loop))
    life.runs += 1
    if life.runs <= _RUNS_BEFORE:
        return False
    if life.sentinel is None:
        slot_pool().hold(life.is_over)
        life.sentinel = _until_closed(life)
        await anext(life.sentinel)
    return True


async def _until_closed(life: _Life) -> AsyncGenerator[None, None]:
    """Lives in the loop; ``asyncio.run`` closes such generators right before the loop itself."""
    try:
        yield
    finally:
        slot_pool().let_go(life.is_over)
