"""Texts of a page: each kept once however often it occurs, and shortened, visibly, when all would be too much."""

from __future__ import annotations

import gzip
import hashlib
from collections import Counter
from collections.abc import Iterable

Text = str | int | list[str | int]
"""A text as the page's script reads it: the text; its number among the shared texts; or [start, number of characters
left out, end].
"""
SHARED_FROM = 160
"""Characters from which a text is worth a number: skills' instructions come back in every trial."""


class RepeatedTexts:
    """Counts long texts, so that those that occur more than once are written once."""

    def __init__(self) -> None:
        self._seen: Counter[bytes] = Counter()

    def count(self, texts: Iterable[str]) -> None:
        """Take note of these."""
        self._seen.update(_digest(text) for text in texts if len(text) >= SHARED_FROM)

    def repeated(self, text: str) -> bool:
        """Whether it occurs more than once."""
        return len(text) >= SHARED_FROM and self._seen[_digest(text)] > 1


class TextTable:
    """Puts texts into the form of the page.

    Args:
        repeated: Which texts are shared.
        limit: The most characters of one text.

    Attributes:
        shared: The texts that others refer to by number.
        clipped: How many texts were shortened (a shared one counts once).
        left_out: Characters that are not in the page for it.
        shared_bytes: About the size of the shared texts in the page, compressed.
    """

    def __init__(self, repeated: RepeatedTexts, limit: int) -> None:
        self._repeated = repeated
        self._numbers: dict[bytes, int] = {}
        self.limit = limit
        self.shared: list[Text] = []
        self.clipped = 0
        self.left_out = 0
        self.shared_bytes = 0

    def text(self, text: str) -> Text:
        """The form of one text."""
        if not self._repeated.repeated(text):
            return self._clip(text)
        digest = _digest(text)
        number = self._numbers.get(digest)
        if number is None:
            number = self._numbers[digest] = len(self.shared)
            kept = self._clip(text)
            self.shared.append(kept)
            self.shared_bytes += len(gzip.compress(repr(kept).encode("utf-8", "replace"), 1)) * 4 // 3
        return number

    def _clip(self, text: str) -> Text:
        over = len(text) - self.limit
        if over <= 0:
            return text
        self.clipped += 1
        self.left_out += over
        # Errors and results stand at the end of an output, what it is at its start.
        end = self.limit // 3
        return [text[: self.limit - end], over, text[len(text) - end :]]


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).digest()
