"""A few permanent threads for the file work of runs, so that it neither blocks an event loop nor takes a thread each.

Their number is also the bound of runs that are being started at the same time. asyncio's own pool is left alone: an
agent's other work must not wait behind scripts.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.local.one_per_process import OnePerProcess

_Result = TypeVar("_Result")

WORKERS = 2 * (os.cpu_count() or 1)

_pool = OnePerProcess(lambda: ThreadPoolExecutor(WORKERS, thread_name_prefix="adk-skills-files"))
_served = threading.local()


def submit(loop: asyncio.AbstractEventLoop, work: Callable[[], _Result]) -> asyncio.Future[_Result]:
    """Run ``work`` in a worker thread; the future belongs to ``loop``.

    Raises:
        SandboxError: The interpreter is shutting down, or no thread can be started.
    """
    try:
        future = _pool().submit(_serve, loop, work)
    except RuntimeError as error:
        raise SandboxError(f"The sandbox could not start its work: {error}.") from error
    return asyncio.wrap_future(future, loop=loop)


def served_loop() -> asyncio.AbstractEventLoop:
    """The event loop this thread works for: the one that runs in it, or the one a worker thread has its work from.

    Raises:
        RuntimeError: There is none.
    """
    loop: asyncio.AbstractEventLoop | None = getattr(_served, "loop", None)
    return asyncio.get_running_loop() if loop is None else loop


def _serve(loop: asyncio.AbstractEventLoop, work: Callable[[], _Result]) -> _Result:
    _served.loop = loop
    try:
        return work()
    finally:
        _served.loop = None
