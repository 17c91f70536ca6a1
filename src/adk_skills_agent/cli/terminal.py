"""The terminal: strangers' text without characters that control it, and the signals that end a command.

An escape sequence can write to the clipboard (OSC 52), make a link that is not what it says (OSC 8), move the cursor
over what was printed before, change the title, or have the terminal type an answer. A script may print any of them.
On a terminal each control character is shown as text, so that no sequence begins; files and pipes get the bytes.
"""

from __future__ import annotations

import codecs
import io
import re
import signal
import sys
import unicodedata
from collections.abc import Coroutine
from typing import Any, TextIO, TypeVar

import click

_JOINERS = "\u200c\u200d"  # words of Persian and pictures of families need them
_STAY = "\n\t"
_NOT_PLAIN = re.compile("[^ -~]")


def visible(text: str, stay: str = _STAY) -> str:
    r"""The text with each character that a terminal obeys, or that reorders others, as ``\x1b`` or ``\u202e``.

    Control characters in ``stay`` stay.
    """

    def shown(found: re.Match[str]) -> str:
        character = found[0]
        if character.isprintable() or character in stay or character in _JOINERS:
            return character
        if unicodedata.category(character) == "Zs":  # a blank of another width
            return character
        return character.encode("unicode_escape").decode()

    return _NOT_PLAIN.sub(shown, text)


class VisibleBytes:
    """A script's output for a terminal, in pieces: :func:`visible`, wherever a sequence or a character is cut.

    Line breaks, tabs and the carriage returns of progress bars stay.
    """

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def feed(self, data: bytes, *, final: bool = False) -> bytes:
        """The text to send. The start of a character that is cut waits for the next piece, unless this is the last."""
        text = visible(self._decoder.decode(data, final), _STAY + "\r")
        return text.encode(self._encoding, "backslashreplace")


class TerminalStream(io.TextIOWrapper):
    """Standard output or error on a terminal: whatever is printed, also a library's warning, is :func:`visible`."""

    def write(self, text: str) -> int:
        """Write the text; the length is that of what was given."""
        super().write(visible(text))
        return len(text)


def protect_terminals() -> None:
    """Make standard output and error, where they are terminals, show what they would obey."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if type(stream) is io.TextIOWrapper and stream.isatty():
            stream.flush()
            encoding, errors, line_buffering = stream.encoding, stream.errors, stream.line_buffering
            shown = TerminalStream(stream.detach(), encoding, errors, line_buffering=line_buffering)
            setattr(sys, name, shown)
            setattr(sys, f"__{name}__", shown)


def unprotected(stream: TextIO) -> TextIO:
    """The same terminal for this program's own sequences: a status line, a progress bar."""
    return open(stream.fileno(), "w", encoding=stream.encoding, errors="backslashreplace", closefd=False)


# Ending a command from outside: whatever the signal, the script it runs is ended first.

Result = TypeVar("Result")
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


def run_interruptible(work: Coroutine[Any, Any, Result]) -> Result:
    """``asyncio.run``, but SIGTERM and SIGHUP cancel the work instead of ending the program on the spot.

    Raises ``Exit`` when a signal ended it; the exit code is 128 and the signal's number, as shells have it.
    """
    import asyncio

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
