"""In which forms a secret may turn up in output, and how they are found without slowing the output down.

Covered: the value as it is, in other case, reversed, percent- and plus-encoded (also twice), escaped as in JSON,
Python, C, HTML or a shell, in hexadecimal with the usual separators, in base64 (standard and URL-safe) and base32 at
every alignment inside longer data, in UTF-16; each also with line breaks inside, wherever they are. A longer secret is
also recognised by its lines and by pieces of 256 bytes.

Data is looked at through *lenses*. A lens leaves out what may stand between two characters of a form and gives what has
several spellings one; then a form is a fixed string, and looking for it costs little. Only after a hit is its place in
the data itself counted out. All of it takes time in proportion to the data, whatever a script prints: nothing is tried
twice, there is no pattern that could go back.
"""

from __future__ import annotations

import functools
import html
import json
import re
import shlex
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

from adk_skills_agent.sandbox.secrets import MIN_SECRET_CHARS, Secret

_PIECE_BYTES = 256
_LINE_BYTES = 16  # a line of a longer secret that is recognised by itself; a shorter one says nothing
_BREAKS = b"\r\n\0"  # between any two characters: line wrapping, and the zero bytes of UTF-16
_HEX_SEPARATORS = b" :,;-\t"
_HELD_PER_CHAR = 4
_HELD_BESIDES = 4096
"""Held back is at most this much for each character of the longest form and besides: a script cannot make the agent
keep its output in memory by printing the first character of a secret and then only line breaks."""
_ALPHABETS = (
    (6, b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"),
    (5, b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"),
)
# One spelling for upper and lower case, and for the two alphabets of base64.
_ONE_SPELLING = bytes(range(256)).lower().translate(bytes.maketrans(b"-_", b"+/"))


_Span = tuple[int, int, str]


class SecretForms:
    """All forms of some secrets, ready to be looked for in bytes or text.

    Args:
        secrets: Names and values; a value that occurs twice keeps its first name.
    """

    def __init__(self, secrets: Iterable[tuple[str, Secret]]) -> None:
        plain: dict[bytes, str] = {}
        hexadecimal: dict[bytes, str] = {}
        for name, secret in secrets:
            for piece, whole in _pieces(secret.reveal()):
                for form in _written(piece, every_way=whole):
                    plain.setdefault(form, name)
                hexadecimal.setdefault(piece.encode().hex().encode(), name)
        self._lenses = (
            _Lens(plain, _BREAKS),
            _Lens(plain, _BREAKS + b"\\", escaped_breaks=True),
            _Lens(hexadecimal, _BREAKS + _HEX_SEPARATORS),
        )
        self.reach = max(lens.reach for lens in self._lenses)
        """How far apart the first and the last byte of one occurrence can be, in bytes."""

    def redact(self, data: bytes) -> bytes:
        """The same data with ``[secret NAME]`` for every occurrence."""
        return _replaced(data, self._spans(data), len(data))

    def redact_start(self, data: bytes) -> tuple[bytes, bytes]:
        """Redact data that goes on: what is finished, and the rest that may be the beginning of an occurrence."""
        spans = self._spans(data)
        cut = min(lens.open_from(data) for lens in self._lenses)
        # A whole occurrence may be the beginning of a longer one, or hold such a beginning: then it waits, too.
        cut = next((start for start, end, _ in spans if start < cut < end), cut)
        if cut < len(data) - self.reach:
            cut = len(data) - self.reach
            cut = next((end for start, end, _ in spans if start < cut < end), cut)
        return _replaced(data, spans, cut), data[cut:]

    def text(self, text: str) -> str:
        """:meth:`redact` for text."""
        data = text.encode("utf-8", "surrogatepass")
        spans = self._spans(data)
        if not spans:
            return text
        clean = _replaced(data, spans, len(data))
        try:
            return clean.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return clean.decode("utf-8", "replace")

    def host_name(self, name: str) -> str:
        """:meth:`text` for the name of a host, whose labels may cut a form into pieces: then nothing of it is left."""
        clean = self.text(name)
        found = self.found_in(clean.replace(".", "").encode("utf-8", "surrogatepass"))
        return clean if found is None else f"[secret {found}]"

    def found_in(self, data: bytes) -> str | None:
        """The name of a secret that occurs in the data, or None."""
        spans = self._spans(data)
        return spans[0][2] if spans else None

    def _spans(self, data: bytes) -> list[_Span]:
        found = [span for lens in self._lenses for span in lens.spans(data)]
        if len(found) < 2:
            return found
        # Of occurrences that overlap all is taken out, under the name of the one that begins first.
        found.sort(key=lambda span: (span[0], -span[1]))
        merged = found[:1]
        for start, end, name in found[1:]:
            last = merged[-1]
            if start < last[1]:
                merged[-1] = (last[0], max(end, last[1]), last[2])
            else:
                merged.append((start, end, name))
        return merged


def _replaced(data: bytes, spans: list[_Span], until: int) -> bytes:
    """The data up to ``until`` without the spans; none of them lies across that place."""
    if not spans:
        return data[:until] if until < len(data) else data
    parts: list[bytes] = []
    position = 0
    for start, end, name in spans:
        if start >= until:
            break
        parts += (data[position:start], b"[secret ", name.encode(), b"]")
        position = end
    parts.append(data[position:until])
    return b"".join(parts)


@functools.lru_cache(maxsize=64)
def forms_of(secrets: tuple[tuple[str, Secret], ...]) -> SecretForms | None:
    """The forms of some secrets, made once for all runs that have the same; None when there are none."""
    return SecretForms(secrets) if secrets else None


class _Lens:
    """One way to look at data.

    Args:
        forms: What to look for and whose it is.
        left_out: Bytes that are left out.
        escaped_breaks: Line breaks written with a backslash, as in JSON, are left out as well.
    """

    def __init__(self, forms: dict[bytes, str], left_out: bytes, *, escaped_breaks: bool = False) -> None:
        self._left_out = left_out
        self._escaped = escaped_breaks
        seen: dict[bytes, str] = {}
        for form, name in forms.items():
            sharp = self._look(form)
            if len(sharp) >= MIN_SECRET_CHARS:
                seen.setdefault(sharp, name)
        self._forms = sorted(seen.items(), key=lambda item: -len(item[0]))
        gap = b"[" + re.escape(left_out) + b"]"
        self._gaps = re.compile(rb"(?:\\[rn]|" + gap + b")++" if escaped_breaks else gap + b"++")
        longest = len(self._forms[0][0]) if self._forms else 0
        self.reach = longest * _HELD_PER_CHAR + _HELD_BESIDES

    def spans(self, data: bytes) -> Iterator[_Span]:
        """Every occurrence: where it begins and ends, and whose it is."""
        if self._escaped and b"\\" not in data:
            return  # the lens without escapes sees the same
        seen = self._look(data)
        hits = []
        for form, name in self._forms:
            start = seen.find(form)
            while start >= 0:
                hits.append((start, start + len(form) - 1, name))
                start = seen.find(form, start + len(form))
        if hits:
            at = self._places(data, sorted({place for start, last, _ in hits for place in (start, last)}))
            yield from ((at[start], at[last] + 1, name) for start, last, name in hits)

    def _places(self, data: bytes, shown: list[int]) -> dict[int, int]:
        """Where in the data some of the bytes are that the lens shows (ascending), in one pass whatever it holds."""
        places: dict[int, int] = {}
        left_out = index = 0
        for gap in self._gaps.finditer(data):
            before = gap.start() - left_out
            while index < len(shown) and shown[index] < before:
                places[shown[index]] = shown[index] + left_out
                index += 1
            if index == len(shown):
                return places
            left_out += gap.end() - gap.start()
        places.update((place, place + left_out) for place in shown[index:])
        return places

    def open_from(self, data: bytes) -> int:
        """Where the longest unfinished form at the end of the data begins; its length when there is none."""
        if self._escaped and b"\\" not in data[-self.reach :]:
            return len(data)
        end = data[-self.reach :]
        if self._escaped and end.endswith(b"\\"):
            end = end[:-1]  # perhaps half of an escape
        seen = self._look(end)
        most = 0
        for form, _ in self._forms:
            start = max(0, len(seen) - len(form) + 1)
            while len(seen) - start > most and (start := seen.find(form[:1], start)) >= 0:
                if form.startswith(seen[start:]):
                    most = max(most, len(seen) - start)
                    break
                start += 1
        return self._back(data, most) if most else len(data)

    def _look(self, data: bytes) -> bytes:
        if self._escaped:
            # By a byte that is left out, so that what is around it does not become another escape.
            data = data.replace(b"\\n", b"\0").replace(b"\\r", b"\0")
        return data.translate(_ONE_SPELLING, self._left_out)

    def _back(self, data: bytes, count: int) -> int:
        """Where the last ``count`` bytes the lens shows begin in the data."""
        position = len(data)
        if self._escaped and data.endswith(b"\\"):
            position -= 1
        while count > 0 and position > 0:
            position -= 1
            byte = data[position]
            if byte in self._left_out:
                continue
            if self._escaped and byte in b"rn" and data[position - 1 : position] == b"\\":
                position -= 1
                continue
            count -= 1
        return position


def _pieces(value: str) -> Iterator[tuple[str, bool]]:
    """What is looked for, and whether in every form: the value, or parts of it when it is long."""
    lines = [line.strip() for line in value.splitlines()]
    if len(value.encode()) <= _PIECE_BYTES:
        yield value, True
        if len(lines) > 1:
            yield from ((line, True) for line in lines if _says_something(line))
        return
    for line in lines:
        if _says_something(line):
            yield from _segments(line)
    if len(lines) > 1:
        yield from _segments("".join(lines))


def _says_something(line: str) -> bool:
    return len(line.encode()) >= _LINE_BYTES and not (line.startswith("-----") and line.endswith("-----"))


def _segments(text: str) -> Iterator[tuple[str, bool]]:
    """Parts of about 256 characters; the last one is never so short that it would be found by chance."""
    count = max(1, round(len(text) / _PIECE_BYTES))
    size = -(-len(text) // count)
    for start in range(0, len(text), size):
        part = text[start : start + size]
        if len(part) >= MIN_SECRET_CHARS:
            yield part, False


def _written(value: str, *, every_way: bool) -> Iterator[bytes]:
    """The ways to write a value, except plain hexadecimal."""
    raw = value.encode("utf-8")
    yield raw
    texts = {
        quote(value, safe=""),
        quote(value),
        quote_plus(value),
        quote(value, safe="~()*!'"),
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        json.dumps(value).replace("/", "\\/")[1:-1],
    }
    if every_way:
        texts |= {
            value[::-1],
            value.replace("/", "%2F"),
            value.replace("+", "%2B"),
            quote(quote(value, safe=""), safe=""),
            repr(value)[1:-1],
            repr(raw)[2:-1],
            html.escape(value),
            html.escape(value).replace("&#x27;", "&#39;").replace("&quot;", "&#34;"),
            shlex.quote(value),
            "".join(f"%{byte:02x}" for byte in raw),
            "".join(f"\\x{byte:02x}" for byte in raw),
            "".join(f"\\{byte:03o}" for byte in raw),
            "".join(f"\\u{ord(character):04x}" for character in value if ord(character) <= 0xFFFF),
            ",".join(f"0x{byte:02x}" for byte in raw),
            ", ".join(f"0x{byte:02x}" for byte in raw),
            ", ".join(str(byte) for byte in raw),
            " ".join(str(byte) for byte in raw),
        }
        if not value.isascii():
            yield from (value.encode(encoding, "ignore") for encoding in ("latin-1", "utf-16-le", "utf-16-be"))
    yield from (text.encode("utf-8") for text in texts)
    for bits, alphabet in _ALPHABETS if every_way else _ALPHABETS[:1]:
        yield from _aligned(raw, bits, alphabet)


def _aligned(raw: bytes, bits: int, alphabet: bytes) -> Iterator[bytes]:
    """The characters of an encoding that only the value decides, for each way it can lie in longer data."""
    number, size = int.from_bytes(raw, "big"), len(raw) * 8
    for shift in range(0, bits, 1 if bits % 2 else 2):
        # The first ``shift`` bits belong to a character together with what comes before.
        count = (size - shift) // bits
        rest = size - shift - count * bits
        core = (number >> rest) & ((1 << (count * bits)) - 1)
        positions = range((count - 1) * bits, -1, -bits)
        yield bytes(alphabet[(core >> position) & ((1 << bits) - 1)] for position in positions)
