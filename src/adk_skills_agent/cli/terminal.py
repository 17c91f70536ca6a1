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


# Ending a command from outside: whatever the signal, what the command started is ended first.

Result = TypeVar("Result")
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class EndedBySignal(KeyboardInterrupt):
    """SIGTERM or SIGHUP: a command ends as Ctrl-C ends it. ``number`` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def exit_code_of(error: KeyboardInterrupt) -> int:
    """128 and the signal's number, as shells have it."""
    return 128 + (error.number if isinstance(error, EndedBySignal) else signal.SIGINT)


def end_in_order() -> None:
    """SIGTERM and SIGHUP raise :class:`EndedBySignal` from now on. One that is ignored (``nohup``) stays ignored."""

    def end(number: int, _frame: object) -> None:
        raise EndedBySignal(number)

    for number in _SIGNALS:
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, end)


def run_interruptible(work: Coroutine[Any, Any, Result]) -> Result:
    """``asyncio.run``, but SIGTERM and SIGHUP cancel the work, which an exception in the loop would not.

    Raises :class:`EndedBySignal` when a signal ended it.
    """
    import asyncio

    received: list[int] = []
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    async def main() -> Result:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()

        def stop(number: int) -> None:
            received.append(number)
            task.cancel()

        heard = [number for number in _SIGNALS if before[number] != signal.SIG_IGN]
        for number in heard:
            loop.add_signal_handler(number, stop, number)
        try:
            return await task
        finally:
            for number in heard:
                loop.remove_signal_handler(number)
                signal.signal(number, before[number])

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        if received:
            raise EndedBySignal(received[0]) from None
        raise
