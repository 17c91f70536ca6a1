"""``sys.stdout`` and ``sys.stderr`` by thread: what some threads write is kept, what all others write goes on.

One stand-in per stream and process, however many threads are captured: it comes with the first and goes with the last.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any, TextIO

_NAMES = ("stdout", "stderr")


class Kept:
    """What one thread wrote to one stream.

    Args:
        most: Characters kept.
    """

    def __init__(self, most: int) -> None:
        self.cut = False
        self._parts: list[str] = []
        self._room = most

    @property
    def text(self) -> str:
        """Its beginning."""
        return "".join(self._parts)

    def add(self, text: str) -> None:
        """The next piece."""
        if self._room > 0:
            self._parts.append(text[: self._room])
        self._room -= len(text)
        self.cut = self._room < 0


class _StandIn:
    """Stands in for one of the streams."""

    def __init__(self, original: TextIO) -> None:
        self.original = original
        self.kept: dict[int, Kept] = {}

    def write(self, text: str) -> int:
        kept = self.kept.get(threading.get_ident())
        if kept is None:
            return self.original.write(text)
        kept.add(text)
        return len(text)

    def flush(self) -> None:
        if threading.get_ident() not in self.kept:
            self.original.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)


_lock = threading.Lock()
_standing_in: dict[str, _StandIn] = {}


@contextlib.contextmanager
def captured(out: Kept, err: Kept) -> Iterator[None]:
    """Keep what the running thread writes in the block; also when others do the same at the same time."""
    me = threading.get_ident()
    with _lock:
        for name, kept in zip(_NAMES, (out, err), strict=True):
            if name not in _standing_in:
                original = getattr(sys, name)
                # Somebody may have kept an earlier one and put it back.
                while isinstance(original, _StandIn):
                    original = original.original
                _standing_in[name] = _StandIn(original)
                setattr(sys, name, _standing_in[name])
            _standing_in[name].kept[me] = kept
    try:
        yield
    finally:
        with _lock:
            for name in _NAMES:
                stand_in = _standing_in[name]
                del stand_in.kept[me]
                if stand_in.kept:
                    continue
                del _standing_in[name]
                # Somebody else may have put their own in place meanwhile (a test runner does).
                if getattr(sys, name) is stand_in:
                    setattr(sys, name, stand_in.original)
