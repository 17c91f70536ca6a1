"""Blocking work of others in a thread of its own, which can be given up on."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

_Result = TypeVar("_Result")


class TooLate(Exception):
    """Work in a thread did not end in time; not a TimeoutError, which the work itself may raise."""


async def in_thread(work: Callable[[], _Result], seconds: float | None) -> _Result:
    """Do blocking work in a thread of its own, which does not keep the interpreter alive.

    Not the loop's pool: it has few threads, and name look-ups of the agent wait there too (row 19).

    Args:
        work: The work.
        seconds: How long it is waited for; the thread then goes on alone. None waits without end.

    Raises:
        TooLate: It did not end in time.
        BaseException: Whatever the work raises.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    outcome: list[Callable[[], _Result]] = []
    context = contextvars.copy_context()

    def finish() -> None:
        if not done.done():
            done.set_result(None)

    def go() -> None:
        try:
            result = context.run(work)
        except BaseException as error:  # noqa: BLE001 - SystemExit of a script too; raised again where it is awaited
            raised = error
            outcome.append(lambda: _raise(raised))
        else:
            outcome.append(lambda: result)
        try:
            loop.call_soon_threadsafe(finish)
        except RuntimeError:
            pass  # the loop was closed: nobody waits any more

    threading.Thread(target=go, name="adk-skills-execute-code", daemon=True).start()
    await asyncio.wait({done}, timeout=seconds)
    if not done.done():
        raise TooLate
    return outcome[0]()


def _raise(error: BaseException) -> Any:
    raise error
