"""Ending a command from outside: whatever the signal, the script it runs is ended first."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

import click

Result = TypeVar("Result")

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


def run_interruptible(work: Coroutine[Any, Any, Result]) -> Result:
    """``asyncio.run``, but SIGTERM and SIGHUP cancel the work instead of ending the program on the spot.

    Raises:
        Exit: A signal ended it; the exit code is 128 and the signal's number, as shells have it.
    """
    received: list[int] = []

    async def main() -> Result:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()

        def stop(number: int) -> None:
            received.append(number)
            task.cancel()

        for number in _SIGNALS:
            loop.add_signal_handler(number, stop, number)
        try:
            return await task
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        if received:
            click.echo(f"adk-skills: ended by {signal.Signals(received[0]).name}", err=True)
            raise click.exceptions.Exit(128 + received[0]) from None
        raise
