"""Work that must not be left half done, whatever happens to who waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

_Result = TypeVar("_Result")


async def uninterrupted(work: Awaitable[_Result]) -> _Result:
    """Wait for work to its end; a cancellation comes out after it.

    Raises:
        CancelledError: The wait was cancelled; the work has ended nevertheless.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # taken, so that it is not reported as lost
        raise cancelled
    return task.result()
