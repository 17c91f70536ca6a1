"""Text into searchable words: the same for what is indexed and for what is asked."""

from __future__ import annotations

import re
import unicodedata

MAX_WORD = 64
"""Characters of a word that count. Longer ones are data (keys, digests), not words."""

# Scripts written without spaces between words. Their characters are indexed one by one and asked for in pairs.
_UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f"  # Myanmar
    "\u1780-\u17ff"  # Khmer
    "\u3040-\u30ff\u31f0-\u31ff"  # Hiragana, Katakana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Han
    "\uac00-\ud7a3"  # Hangul: has spaces, but glues particles to its words
    "\U00020000-\U0003ffff"  # Han, extensions
)
_WORD = re.compile(r"[^\W_]+")
_UNSPACED_OR_WORD = re.compile(f"[{_UNSPACED}]+|[^{_UNSPACED}]+")
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")

# A compound of two parts (front-end, next.js, don't) is also findable written as one word.
_JOINERS = "-._'\u2019"
_COMPOUND = re.compile(rf"(?<![^\W_])(?<![{_JOINERS}])([^\W_]+)[{_JOINERS}]([^\W_]+)(?![{_JOINERS}]?[^\W_])")

# Names whose punctuation is what tells them apart.
_SPELLED_OUT = {"c++": "cpp", "c#": "csharp", "f#": "fsharp", ".net": "dotnet"}
_PUNCTUATED = re.compile(r"(?<![\w.])(?:c\+\+|[cf]#|\.net)(?!\w)")


def fold(text: str) -> str:
    """One spelling for letters that differ in width, case or composition, and words for ``c++``, ``c#``, ``.net``."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return _PUNCTUATED.sub(lambda match: _SPELLED_OUT[match[0]], text.casefold())


def indexed_text(text: str) -> str:
    """Return the words of a text, separated by single spaces, ready for the index.

    Unspaced scripts come as single characters; a two-part compound adds its joined form.
    """
    folded = fold(text)
    words = [word[:MAX_WORD] for word in _WORD.findall(folded)]
    if not folded.isascii():
        words = [
            piece
            for word in words
            for run in _UNSPACED_OR_WORD.findall(word)
            for piece in (run if _IS_UNSPACED.match(run) else (run,))
        ]
    words += [(match[1] + match[2])[:MAX_WORD] for match in _COMPOUND.finditer(folded)]
    return " ".join(words)


def asked_words(text: str) -> list[tuple[str, ...]]:
    """Return what a query asks for, in its order: one-word tuples, and pairs of characters of unspaced scripts."""
    asked: list[tuple[str, ...]] = []
    for word in _WORD.findall(fold(text)):
        if word.isascii():
            asked.append((word[:MAX_WORD],))
            continue
        for run in _UNSPACED_OR_WORD.findall(word[:MAX_WORD]):
            if not _IS_UNSPACED.match(run) or len(run) == 1:
                asked.append((run,))
            else:
                asked += [(run[at], run[at + 1]) for at in range(len(run) - 1)]
    return asked
