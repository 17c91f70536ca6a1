"""What google-adk gives a tool that it calls: the same for its own tools and for ours."""

from __future__ import annotations

import asyncio
import logging
import time
import warnings
from collections.abc import Awaitable, Callable

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)


async def tool_contexts(count: int = 1) -> list[object]:
    """Contexts of so many sessions of one agent."""
    from google.adk.agents import LlmAgent
    from google.adk.agents.invocation_context import InvocationContext
    from google.adk.artifacts import InMemoryArtifactService
    from google.adk.sessions import InMemorySessionService
    from google.adk.tools import ToolContext

    agent = LlmAgent(name="agent", model="gemini-2.5-flash")
    service = InMemorySessionService()
    artifacts = InMemoryArtifactService()
    contexts: list[object] = []
    for _ in range(count):
        session = await service.create_session(app_name="bench", user_id="user")
        contexts.append(
            ToolContext(
                InvocationContext(
                    session_service=service,
                    artifact_service=artifacts,
                    invocation_id="invocation",
                    agent=agent,
                    session=session,
                )
            )
        )
    return contexts


async def all_at_once(calls: list[Callable[[], Awaitable[object]]]) -> dict[str, object]:
    """Make all calls at the same time; how long they took, and how long an unrelated thread was waited for."""
    waits: list[float] = []

    async def unrelated() -> None:
        while True:
            start = time.perf_counter()
            await asyncio.to_thread(int)
            waits.append(time.perf_counter() - start)
            await asyncio.sleep(0.01)

    start = time.perf_counter()
    other = asyncio.ensure_future(unrelated())
    await asyncio.sleep(0)
    await asyncio.gather(*(call() for call in calls))
    seconds = time.perf_counter() - start
    # A wait that has not ended yet counts too.
    tail = time.perf_counter()
    await asyncio.to_thread(int)
    waits.append(time.perf_counter() - tail)
    other.cancel()
    return {"seconds": seconds, "wait": max(waits)}


def status_bytes(field: str) -> int:
    """``VmRSS`` or ``VmHWM`` of this process, in bytes."""
    with open("/proc/self/status", "rb") as stream:
        for line in stream:
            if line.startswith(field.encode() + b":"):
                return int(line.split()[1]) * 1024
    raise LookupError(field)


async def peak_growth(work: Callable[[], Awaitable[object]]) -> int:
    """How much resident memory grew at most during the work, in bytes."""
    with open("/proc/self/clear_refs", "w") as stream:
        stream.write("5")  # the peak starts over
    before = status_bytes("VmRSS")
    await work()
    return status_bytes("VmHWM") - before
