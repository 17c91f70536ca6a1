"""What instructions ask for, by words that stand together, and whether a passage only describes an attack.

One word proves nothing: most skills have an API key, many say what not to show. An attack needs several within a few
lines: a secret, a way out, and silence. The words and what they mean together are data: ``[word]`` and ``[[together]]``
of ``words.toml``.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from adk_skills_agent.sources.scan.flow import with_short_gaps
from adk_skills_agent.sources.scan.programs import comments
from adk_skills_agent.sources.scan.python import Seen

_MOST_MATCHES = 500  # of one word in a file
_MOST_TEXT = 512 << 10


@dataclass(frozen=True, slots=True)
class _Together:
    id: str
    stops: bool
    says: str
    of: tuple[str, ...]
    within: int  # characters
    hidden: bool  # only in what a page does not show


@lru_cache(maxsize=1)
def _tables() -> tuple[dict[str, re.Pattern[str]], tuple[_Together, ...]]:
    data = tomllib.loads(resources.files("adk_skills_agent.sources.scan").joinpath("words.toml").read_text("utf-8"))
    words = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in data["word"].items()}
    together = tuple(
        _Together(
            one["id"],
            one["weight"] == "stop",
            one["says"],
            tuple(one["of"]),
            one.get("within", 500),
            one.get("hidden", False),
        )
        for one in data["together"]
    )
    return words, together


_NOT = re.compile(
    r"\b(?:never|do not|don't|must not|should not|shouldn't|cannot|can't|avoid|refuse|without|won't|not|no|instead of"
    r"|rather than)\b(?!\s+(?:forget|fail|skip|omit|wait|hesitate|need to|reason to|only|just|stop))",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"[.!?:;]\s|\n\n|\n[ \t]*(?:[-*+]|\d+[.)])\s|\|")
_NEGATED_ITSELF = frozenset({"silence", "secrecy", "unsaid", "unasked", "unchecked", "authority", "passed", "lie"}) | {
    "first_of_all",
    "foreign_order",
    "foreign_silence",
    "spends",
    "muted",
    "favours",
}
"""Words whose own sense is a negation."""
_UNSHOWN = re.compile(
    r"<(\w+)\b[^>]{0,200}(?:display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*[01](?:px|pt|em)?\b"
    r"|\bhidden\b|opacity\s*:\s*0\b|color\s*:\s*(?:white|#fff\w*|transparent)"
    r"|(?:left|top|text-indent)\s*:\s*-\d{3,}|(?:height|width)\s*:\s*0|clip(?:-path)?\s*:)"
    r"[^>]{0,200}>(.{0,2000}?)</\1>|^\[(?:[^\]\n]{1,40})\]:\s*#\s*[(\"'](.{0,2000})",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)


def word_findings(text: str) -> list[Seen]:
    """What words say together, with the line of the first of them."""
    text, line_of = with_short_gaps(text[:_MOST_TEXT])
    words, together = _tables()
    breaks = [found.end() for found in _SENTENCE.finditer(text)]
    flat = re.sub(r"\n(?!\s*\n)", " ", text)
    places = {name: _places(name, pattern, flat, breaks) for name, pattern in words.items()}
    unseen = [*comments(text), *(found.span() for found in _UNSHOWN.finditer(text))]
    found: list[Seen] = []
    for one in together:
        found += [Seen(one.id, one.stops, one.says, line_of(at)) for at in _meetings(one, places, unseen)]
    return found


def _places(name: str, pattern: re.Pattern[str], flat: str, breaks: list[int]) -> list[int]:
    """Where a word is, but for sentences that forbid it."""
    found: list[int] = []
    for match in pattern.finditer(flat):
        start = match.start()
        if name not in _NEGATED_ITSELF:
            index = bisect_right(breaks, start)
            begin = max(breaks[index - 1] if index else 0, start - 200)
            if _NOT.search(flat, begin, start):
                continue
        found.append(start)
        if len(found) == _MOST_MATCHES:
            break
    return found


def _meetings(one: _Together, places: dict[str, list[int]], unseen: list[tuple[int, int]]) -> Iterator[int]:
    """The first places where all the words are near each other; at most three."""
    first, *others = one.of
    told, after = 0, -1
    for at in places[first]:
        if at < after:
            continue
        if one.hidden:
            span = next(((start, end) for start, end in unseen if start <= at < end), None)
            if span is None:
                continue
            low, high = span
        else:
            low, high = at - one.within, at + one.within
        near = [_nearest(places[name], at, low, high) for name in others]
        if all(place is not None for place in near):
            yield min([at, *(place for place in near if place is not None)]) if one.hidden else at
            told += 1
            after = high
            if told == 3:
                return


def _nearest(places: list[int], at: int, low: int, high: int) -> int | None:
    index = bisect_right(places, at)
    near = [place for place in places[max(0, index - 1) : index + 1] if low <= place <= high]
    return min(near, key=lambda place: abs(place - at)) if near else None


# Whether a passage describes.

_HEADING = re.compile(r"^ {0,3}(#{1,6})\s+(.*)")
_DESCRIBING = re.compile(
    r"\b(?:(?:patterns?|things|what) to (?:report|flag|avoid|detect|look)|red flags?|look for|detect\w*|bad|unsafe"
    r"|anti-?patterns?|attacks?|threats?|droppers?|indicators?|never|avoid|do not|don'ts?|vulnerab\w+|suspicious"
    r"|signs? of|malicious|dangers?|dangerous|injections?|forbidden|prohibited|blocked|wrong|insecure|exploit\w*"
    r"|payloads?|malware|why not)\b|❌|✗|🚫",
    re.IGNORECASE,
)
_WARNS = r"(?:bad|wrong|unsafe|avoid|never|don't|do not|vulnerable|insecure|malicious|dangerous|incorrect)"
_LEAD = re.compile(rf"[\s>*_#-]*(?:❌|✗|🚫|\*{{0,2}}{_WARNS}\b)", re.IGNORECASE)
_LABEL = re.compile(
    rf"[\s>*_#|-]*(?:❌|✗|🚫|\*{{0,2}}{_WARNS}\b[*\s]{{0,4}}(?:\w+[*\s]{{0,3}}){{0,2}}[:|](?!/))", re.IGNORECASE
)
_ORDERS = re.compile(
    r"\b(?:run|execute|start|launch|call|invoke|paste|type|enter|install|apply|first|must|always|begin|then|now"
    r"|use|add|do|issue|via|set up|setup|bootstrap|open|source|load|refresh|update|fetch|get|send|step|read|post"
    r"|write|copy|save|put|append|upload|register)\b",
    re.IGNORECASE,
)


_OTHERS_DO = re.compile(
    r"\b(?:attackers?|adversar(?:y|ies)|malware|intruders?|the usual|the common|would (?:run|let|allow|give))\b",
    re.IGNORECASE,
)
_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)]|\|)\s")


class Passages:
    """The lines of a Markdown file: which of them describe an attack rather than ask for one."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._under: list[bool] = []  # of each line: whether a heading above it says that it describes
        self._fenced: list[int] = []  # of each line: the line before its fence, or -1
        chain: dict[int, bool] = {}
        fence, before = "", -1
        for number, line in enumerate(self._lines):
            mark = re.match(r"\s*(```+|~~~+)", line)
            if mark and (not fence or line.strip().startswith(fence)):
                before = number - 1 if not fence else before
                fence = "" if fence else mark[1]
            heading = None if fence else _HEADING.match(line)
            if heading:
                level = len(heading[1])
                chain = {above: told for above, told in chain.items() if above < level}
                chain[level] = _DESCRIBING.search(heading[2]) is not None
            self._under.append(any(chain.values()))
            self._fenced.append(before if fence else -1)

    def describes(self, line: int) -> bool:
        """Whether what is on a line (1-based) is shown there, and not asked for."""
        at = line - 1
        if not 0 <= at < len(self._lines):
            return False
        if self._under[at] or re.match(r"\s*>\s*[\"“«„']", self._lines[at]):
            return True
        if self._fenced[at] >= 0:
            lead = self._fenced[at]
            while lead > 0 and not self._lines[lead].strip():
                lead -= 1
            return _LEAD.match(self._lines[lead]) is not None
        return _LABEL.match(self._lines[at]) is not None

    def mentions(self, line: int) -> bool:
        """Whether a line outside of a fence has its code in ticks, in a sentence that asks nobody to run it."""
        at = line - 1
        if not 0 <= at < len(self._lines) or self._fenced[at] >= 0 or "`" not in self._lines[at]:
            return False
        start = at
        while (
            start > 0
            and at - start < 3
            and self._lines[start - 1].strip()
            and not re.match(r"\s*(?:[-*+]|\d+[.)]|\|)\s", self._lines[start])
        ):
            start -= 1
        sentence = re.sub(r"`[^`\n]*`", " ", "\n".join(self._lines[start : at + 1]))
        if _OTHERS_DO.search(sentence):
            return True
        return _ORDERS.search(sentence) is None and re.match(r"\s*\d+[.)]\s", self._lines[at]) is None
