"""Values a script may have and nobody else may see: the type that carries them, and the filter that takes them out.

The filter guards against accidents and simple tricks: a traceback that prints a URL with the key in it, a debug dump, a
base64 header. A script that was granted a secret and wants to betray it can always disguise it in a way no filter
knows; against that only the grant itself helps (per skill, per script) and ``network="none"``.
"""

from __future__ import annotations

import functools
import html.entities
import itertools
import json
import logging
import os
import re
import traceback
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn, TypeVar
from urllib.parse import quote, quote_plus

from adk_skills_agent.errors import ConfigError, SkillsError

if TYPE_CHECKING:
    from adk_skills_agent.sandbox.contract import ExecutionResult


MIN_SECRET_CHARS = 6
"""A shorter value would occur in ordinary output by chance: taking it out there would damage the output and tell the
value at the same time."""
MAX_SECRET_BYTES = 32 << 10
"""Larger than any key, token or service account file; what is larger belongs into an input file."""


class Secret:
    """A value that is granted to a script and shown to nobody: not by ``repr``, ``str``, ``format`` or ``pickle``.

    Args:
        value: The text; at least 6 characters, so that it can be recognised in output, and at most 32 KiB.

    Raises:
        ConfigError: The value cannot be recognised or cannot be in an environment. The sentence never contains it.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        if not isinstance(value, str) or "\0" in value:
            raise ConfigError("A Secret must be a string without NUL bytes: no environment can hold anything else.")
        try:
            size = len(value.encode("utf-8"))
        except UnicodeEncodeError:
            raise ConfigError("A Secret must be valid text; this one holds a lone surrogate.") from None
        if len("".join(value.split())) < MIN_SECRET_CHARS:
            raise ConfigError(
                f"A Secret needs at least {MIN_SECRET_CHARS} characters: a shorter one occurs in output by chance and "
                "cannot be kept out. Check that the value is set; grant what is not a secret as a plain string."
            )
        if size > MAX_SECRET_BYTES:
            raise ConfigError(
                f"A Secret can have at most {MAX_SECRET_BYTES:,} bytes. Give the script a larger one as an input file."
            )
        self._value = value

    @classmethod
    def from_env(cls, name: str) -> Secret:
        """The value of a variable of the agent's own environment.

        Raises:
            ConfigError: It is not set, or cannot be a Secret.
        """
        value = os.environ.get(name)
        if not value:
            raise ConfigError(f"The secret {name!r} is not set in the environment of this process.")
        try:
            return cls(value)
        except ConfigError as error:
            raise ConfigError(f"The variable {name!r} cannot be a secret. {error.message}") from None

    def reveal(self) -> str:
        """The value itself."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(...)"

    def __str__(self) -> str:
        return "[secret]"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return self._value == other._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, _memo: object) -> Secret:
        return self

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("A Secret cannot be pickled; create it in the process that needs it.")


EnvValue = str | Secret
"""What an environment grant maps a name to."""


_Value = TypeVar("_Value")


class FrozenMapping(dict[str, _Value]):
    """A mapping that nobody changes and that is pickled, copied and hashed; a ``MappingProxyType`` cannot."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("A FrozenMapping does not change; make another one.")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[type[FrozenMapping[_Value]], tuple[dict[str, _Value]]]:
        return FrozenMapping, (dict(self),)


def secrets_of(*grants: Mapping[str, EnvValue]) -> tuple[tuple[str, Secret], ...]:
    """The secrets among granted variables, with their names; each value once."""
    found: dict[Secret, str] = {}
    for grant in grants:
        for name, value in grant.items():
            if isinstance(value, Secret):
                found.setdefault(value, name)
    return tuple((name, secret) for secret, name in found.items())


class Redactor:
    """Replaces secrets in a stream that arrives in pieces by ``[secret NAME]``, whichever way it is cut.

    What is held back between two pieces is only what may be the beginning of a secret.
    """

    __slots__ = ("_forms", "_held", "_references")

    def __init__(self, forms: SecretForms) -> None:
        self._forms = forms
        self._held = b""
        self._references = _MOST_IN_OUTPUT

    def feed(self, chunk: bytes) -> bytes:
        """What can be passed on now."""
        notice = b""
        data = self._held + chunk if self._held else chunk
        if self._references >= 0 and b"&" in data:
            self._references -= _most_references(data)  # what is held back is looked at again (row 354)
            if self._references < 0:  # the time for more is that of all runs (row 336)
                notice = _TOO_MANY_IN_OUTPUT
        ready, self._held = self._forms.redact_start(data, references=self._references >= 0)
        return notice + self._without_references(ready)

    def close(self) -> bytes:
        """What was held back."""
        data, self._held = self._held, b""
        return self._without_references(self._forms.redact_all(data, references=self._references >= 0))

    def whole(self, data: bytes) -> bytes:
        """All of some data at once; what follows is not its continuation, and has what is left of its references."""
        count = _most_references(data)
        if count <= self._references:
            self._references -= count
            return self._forms.redact_all(data)
        pieces = [self.feed(data[at : at + _PIECE_OF_WHOLE]) for at in range(0, len(data), _PIECE_OF_WHOLE)]
        return b"".join([*pieces, self.close()])

    def _without_references(self, ready: bytes) -> bytes:
        """Only now, for a secret may have an ampersand of its own."""
        return ready if self._references >= 0 else ready.replace(b"&", b"?")


# In which forms a secret may turn up in output, and how they are found without slowing the output down.
#
# Covered: the value as it is, in other case, reversed, percent- and plus-encoded (also twice), escaped as in JSON,
# Python, C, HTML (also by number) or a shell, in hexadecimal with the usual separators, in base64 (standard and
# URL-safe) and base32 at every alignment inside longer data, in UTF-16; each also with line breaks inside, wherever
# they are. A longer secret is also recognised by its lines and by pieces of 256 bytes.
#
# Data is looked at through *lenses*. A lens leaves out what may stand between two characters of a form and gives what
# has several spellings one; then a form is a fixed string, and looking for it costs little. Only after a hit is its
# place in the data itself counted out. All of it takes time in proportion to the data, whatever a script prints:
# nothing is tried twice, there is no pattern that could go back.

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

    A value that occurs twice keeps its first name.
    """

    def __init__(self, secrets: Iterable[tuple[str, Secret]]) -> None:
        plain: dict[bytes, str] = {}
        hexadecimal: dict[bytes, str] = {}
        for name, secret in secrets:
            for piece, whole in _pieces(secret.reveal()):
                for form in _written(piece, every_way=whole):
                    plain.setdefault(form, name)
                for encoding in ("utf-8", "utf-16-le"):  # utf-16-be is this with other zeros around it
                    hexadecimal.setdefault(piece.encode(encoding).hex().removesuffix("00").encode(), name)
        self._lenses: tuple[_Lens, ...] = (
            _Lens(plain, _BREAKS),
            _Lens(plain, _BREAKS + b"\\", escaped_breaks=True),
            _Lens(hexadecimal, _BREAKS + _HEX_SEPARATORS),
            _ReferenceLens(plain, _BREAKS),
        )
        self.reach = max(lens.reach for lens in self._lenses)
        """How far apart the first and the last byte of one occurrence can be, in bytes."""

    def redact(self, data: bytes) -> bytes:
        """The same data with ``[secret NAME]`` for every occurrence.

        No more character references are looked at than in a stream, and what is beyond is as there (row 346).
        """
        return Redactor(self).whole(data)

    def redact_all(self, data: bytes, *, references: bool = True) -> bytes:
        """:meth:`redact` however many references there are; see :meth:`redact_start` for ``references``."""
        return _replaced(data, self._spans(data, references=references), len(data))

    def redact_start(self, data: bytes, *, references: bool = True) -> tuple[bytes, bytes]:
        """Redact data that goes on: what is finished, and the rest that may be the beginning of an occurrence.

        Without ``references`` forms in HTML's character references are not looked for, which takes the most time.
        """
        spans = self._spans(data, references=references)
        cut = min(lens.open_from(data) for lens in self._used(references=references))
        # A whole occurrence may be the beginning of a longer one, or hold such a beginning: then it waits, too.
        cut = next((start for start, end, _ in spans if start < cut < end), cut)
        if cut < len(data) - self.reach:
            cut = len(data) - self.reach
            cut = next((end for start, end, _ in spans if start < cut < end), cut)
        return _replaced(data, spans, cut), data[cut:]

    def text(self, text: str) -> str:
        """:meth:`redact` for text."""
        data = text.encode("utf-8", "surrogatepass")
        clean = self.redact(data)
        return text if clean == data else _decoded(clean)

    def beginning(self, text: str, most: int) -> tuple[str, bool]:
        """The first so many characters of :meth:`text`, and whether there are more.

        What is far behind them is not looked at (row 347). Of a secret that the end cuts in two nothing shows.
        """
        end = most + self.reach
        if len(text) <= end:
            clean = self.text(text)
            return clean[:most], len(clean) > most
        return _decoded(Redactor(self).feed(text[:end].encode("utf-8", "surrogatepass")))[:most], True

    def host_name(self, name: str) -> str:
        """:meth:`text` for the name of a host, whose labels may cut a form into pieces: then nothing of it is left."""
        clean = self.text(name)
        found = self.found_in(clean.replace(".", "").encode("utf-8", "surrogatepass"))
        return clean if found is None else f"[secret {found}]"

    def found_in(self, data: bytes) -> str | None:
        """The name of a secret that occurs in the data, or None."""
        return next((name for lens in self._lenses if (name := lens.found_in(data)) is not None), None)

    def _used(self, *, references: bool) -> tuple[_Lens, ...]:
        return self._lenses if references else self._lenses[:-1]

    def _spans(self, data: bytes, *, references: bool = True) -> list[_Span]:
        found = [span for lens in self._used(references=references) for span in lens.spans(data)]
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


def _decoded(clean: bytes) -> str:
    try:
        return clean.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return clean.decode("utf-8", "replace")


@functools.lru_cache(maxsize=64)
def forms_of(secrets: tuple[tuple[str, Secret], ...]) -> SecretForms | None:
    """The forms of some secrets, made once for all runs that have the same; None when there are none."""
    return SecretForms(secrets) if secrets else None


class _Lens:
    """One way to look at data for forms, without some bytes and perhaps line breaks written with a backslash."""

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

    def found_in(self, data: bytes) -> str | None:
        """Whose form occurs in the data, or None. Occurrences are not counted: a file may consist of nothing else."""
        if self._escaped and b"\\" not in data:
            return None
        seen = self._look(data)
        return next((name for form, name in self._forms if form in seen), None)

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


# HTML's character references as browsers read them: padded with zeros, without the semicolon, escaped again.
_NAMES = {
    name[:-1].encode(): character.encode()
    for name, character in html.entities.html5.items()
    if name[-1] == ";" and character.isascii() and len(character) == 1
}
_NAMES |= {name + b";": character for name, character in _NAMES.items()}
_REFERENCE = re.compile(
    rb"(&(?=#[0-9]|#x[0-9a-f]|[a-z]{2,16}+;|lt|gt|amp|quot)((?:amp;)*+)"
    rb"(?:#(?:0*+([0-9]{1,7})(?![0-9])|[xX]0*+([0-9a-fA-F]{1,6})(?![0-9a-fA-F]));?|([A-Za-z]{2,16}+;|lt|gt|amp|quot))?)",
    re.IGNORECASE,
)
_GROUPS = 1 + _REFERENCE.groups
_BEGUN = re.compile(rb"&(?:amp;)*+(?:#(?:[xX][0-9a-fA-F]*+|[0-9]*+)|[A-Za-z]{0,16}+)")
_WINDOW_BYTES = 1 << 16
_PIECE_OF_WHOLE = 1 << 16  # of data with too many references: up to the piece with the last one they are looked at
_MOST_IN_SENTENCE = 1 << 16
_LARGE_RESULT = 1 << 18  # bytes that take a few milliseconds
_MOST_IN_OUTPUT = 1 << 17  # references that are looked at in one stream
_MOST_IN_FILES = 1 << 20  # and in the files of one run
_TOO_MANY_IN_OUTPUT = (
    f"[more than {_MOST_IN_OUTPUT:,} HTML character references, which may hide a secret: from here on '&' is '?']"
).encode()
_HELD_PER_REFERENCE = 12  # "&#x0000041;" and one more


class _ReferenceLens(_Lens):
    """Looks at data whose HTML character references (``&#65;``, ``&#x41;``, ``&plus;``) are what they mean."""

    def __init__(self, forms: dict[bytes, str], left_out: bytes) -> None:
        super().__init__(forms, left_out)
        longest = len(self._forms[0][0]) if self._forms else 0
        self.reach = longest * _HELD_PER_REFERENCE + _HELD_BESIDES

    def spans(self, data: bytes) -> Iterator[_Span]:
        """Every occurrence: where it begins and ends, and whose it is."""
        for begin, window in self._windows(data):
            for start, end, name in self._spans_in_window(window):
                yield begin + start, begin + end, name

    def found_in(self, data: bytes) -> str | None:
        """Whose form occurs in the data, or None."""
        for _, window in self._windows(data):
            parts = _dereferenced(window)
            if parts is not None and (name := super().found_in(b"".join(parts[1]))) is not None:
                return name
        return None

    def _windows(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The data in windows that overlap: one of nothing but references must not become as many objects at once."""
        size = max(_WINDOW_BYTES, 2 * self.reach)
        for begin in range(0, max(1, len(data) - self.reach), size - self.reach):
            yield begin, data[begin : begin + size] if len(data) > size else data

    def _spans_in_window(self, data: bytes) -> Iterator[_Span]:
        parts = _dereferenced(data)
        if parts is None:
            return
        written, meant = parts
        found = list(super().spans(b"".join(meant)))
        if not found:
            return
        starts = [0, *itertools.accumulate(map(len, written))]
        starts_meant = [0, *itertools.accumulate(map(len, meant))]
        for start, end, name in found:
            first, last = bisect_right(starts_meant, start) - 1, bisect_left(starts_meant, end) - 1
            # Odd parts are references: they go as a whole.
            begin = starts[first] + (0 if first % 2 else start - starts_meant[first])
            yield begin, (starts[last + 1] if last % 2 else starts[last] + end - starts_meant[last]), name

    def open_from(self, data: bytes) -> int:
        """Where the longest unfinished form at the end of the data begins; its length when there is none."""
        begin = max(0, len(data) - self.reach)
        end = data[begin:]
        begun = end.rfind(b"&")
        if begun >= 0 and not _BEGUN.fullmatch(end, begun):
            begun = -1
        parts = _dereferenced(end if begun < 0 else end[:begun])
        if parts is None:  # the lens without references sees the same
            if begun < 0:
                return len(data)
            parts = [end[:begun]], [end[:begun]]
        written, meant = parts
        whole = b"".join(meant)
        opened = super().open_from(whole)
        if opened == len(whole):
            return len(data) if begun < 0 else begin + begun
        starts_meant = [0, *itertools.accumulate(map(len, meant))]
        part = bisect_right(starts_meant, opened) - 1
        inside = 0 if part % 2 else opened - starts_meant[part]
        return begin + sum(map(len, written[:part])) + inside


def _most_references(data: bytes) -> int:
    """How many references there are at most, without reading each; eight ampersands that begin none are as much work as
    one (row 354).
    """
    marks = data.count(b"&")
    if marks == 0:
        return 0
    low = data.lower()
    found = min(marks, low.count(b";") + sum(map(low.count, (b"&#", b"&lt", b"&gt", b"&amp", b"&quot"))))
    return found + (marks - found) // 8


def _dereferenced(data: bytes) -> tuple[list[bytes], list[bytes]] | None:
    """The data in parts, every other one a reference: as written, and as meant. None when there is no reference."""
    if b"&" not in data:
        return None
    parts = _REFERENCE.split(data)
    if len(parts) == 1:
        return None
    references = parts[1::_GROUPS]
    characters = map(_character, *(parts[2 + group :: _GROUPS] for group in range(_GROUPS - 2)))
    written: list[bytes] = parts[:1] * (2 * len(references) + 1)
    written[1::2], written[2::2] = references, parts[_GROUPS::_GROUPS]
    meant = written.copy()
    meant[1::2] = [
        reference if character is None else character
        for reference, character in zip(references, characters, strict=True)
    ]
    return written, meant


@functools.lru_cache(maxsize=4096)
def _character(again: bytes, decimal: bytes | None, hexadecimal: bytes | None, name: bytes | None) -> bytes | None:
    """What a reference means; None when it means nothing."""
    if name is not None:
        meant = _NAMES.get(name) or _NAMES.get(name.lower())
        return meant if meant is not None or not again else b"&" + name
    number = int(decimal) if decimal else int(hexadecimal, 16) if hexadecimal else -1
    if number < 0:
        return b"&" if again else None
    try:
        return chr(number).encode()
    except (ValueError, OverflowError):  # beyond Unicode, or a surrogate
        return None


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
        value[::-1],
        value.replace("'", "'\"'\"'"),  # as shlex.quote() does it
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
            value.replace("/", "%2F"),
            value.replace("+", "%2B"),
            quote(quote(value, safe=""), safe=""),
            quote(quote(value)),
            repr(value)[1:-1],
            repr(raw)[2:-1],
            html.escape(value),
            html.escape(value).replace("&#x27;", "&#39;").replace("&quot;", "&#34;"),
            "".join(f"%{byte:02x}" for byte in raw),
            "".join(f"\\x{byte:02x}" for byte in raw),
            "".join(f"\\{byte:03o}" for byte in raw),
            "".join(f"\\u{ord(character):04x}" for character in value if ord(character) <= 0xFFFF),
            ",".join(f"0x{byte:02x}" for byte in raw),
            ", ".join(f"0x{byte:02x}" for byte in raw),
            ", ".join(str(byte) for byte in raw),
            " ".join(str(byte) for byte in raw),
            " ".join(f"{byte:03o}" for byte in raw),
            ", ".join(f"'0x{byte:02x}'" for byte in raw),
            "".join(f"={byte:02x}" for byte in raw),
            "".join(f"%u{ord(character):04x}" for character in value if ord(character) <= 0xFFFF),
            repr(list(value))[1:-1],
            json.dumps(list(value))[1:-1],
            " ".join(value),
        }
        if not value.isascii():
            texts |= {value.upper(), value.lower(), value.swapcase()}  # of ASCII the lenses know the cases
            yield from (value.encode(encoding, "ignore") for encoding in ("latin-1", "utf-16-le", "utf-16-be"))
    yield from (text.encode("utf-8") for text in texts)
    for bits, alphabet in _ALPHABETS:
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


def redacted(result: ExecutionResult, secrets: SecretForms | None) -> ExecutionResult:
    """The result of somebody else's sandbox without secrets: ``[secret NAME]`` in texts, files with one left out.

    Sandboxes of this package filter while the run goes on, and build results that have none
    (:func:`~adk_skills_agent.sandbox.output.build_result`).

    A file is not redacted but left out, because a changed byte would break most formats. Spill files are the backend's
    to redact while it writes them.
    """
    if secrets is None:
        return result
    stdout, stdout_cut_at = _stream(result.stdout, result.stdout_cut_at, secrets)
    stderr, stderr_cut_at = _stream(result.stderr, result.stderr_cut_at, secrets)
    search = FileSearch(secrets)
    files, skipped = [], [(secrets.text(name), secrets.text(reason)) for name, reason in result.skipped_files]
    for file in result.files:
        reason = search.withheld(file.path.encode("utf-8", "replace"), file.content)
        if reason is None:
            files.append(file)
        else:
            skipped.append((secrets.text(file.path), reason))
    return replace(
        result,
        stdout=stdout,
        stderr=stderr,
        stdout_cut_at=stdout_cut_at,
        stderr_cut_at=stderr_cut_at,
        files=tuple(files),
        skipped_files=tuple(skipped),
        notes=tuple(secrets.text(note) for note in result.notes),
        network=tuple(
            replace(decision, host=secrets.host_name(decision.host), reason=secrets.text(decision.reason))
            for decision in result.network
        ),
    )


async def redacted_aside(result: ExecutionResult, secrets: SecretForms | None) -> ExecutionResult:
    """:func:`redacted`; a large result is gone through in a worker thread, while the event loop goes on."""
    size = len(result.stdout) + len(result.stderr) + sum(file.size for file in result.files)
    if secrets is None or size <= _LARGE_RESULT:
        return redacted(result, secrets)
    from adk_skills_agent.sandbox.threads import in_worker  # with it comes asyncio, which a plan does without

    return await in_worker(functools.partial(redacted, result, secrets))


class FileSearch:
    """Looks for secrets in the files of one run, which may be made to take long: then they are withheld (row 336)."""

    def __init__(self, secrets: SecretForms) -> None:
        self._secrets = secrets
        self._references = _MOST_IN_FILES

    @property
    def reach(self) -> int:
        """See :attr:`SecretForms.reach`."""
        return self._secrets.reach

    def withheld(self, *parts: bytes) -> str | None:
        """Why a file with these parts (its name, its content) is neither collected nor kept; None when it may be."""
        count = sum(map(_most_references, parts))
        self._references -= count
        if count and self._references < 0:
            return f"the files have more than {_MOST_IN_FILES:,} HTML character references, which may hide a secret"
        name = next(filter(None, map(self._secrets.found_in, parts)), None)
        return None if name is None else f"it contains the secret {name!r}, which stays in the run"


def redact_error(error: SkillsError, secrets: SecretForms | None) -> None:
    """Take secrets out of an error's sentence and notes, in place. Of a very long one the beginning is left."""
    if secrets is None:
        return
    error.message = _sentence(error.message, secrets)
    error.args = (error.message, *error.args[1:])
    if getattr(error, "__notes__", None):
        error.__notes__ = [_sentence(note, secrets) for note in error.__notes__]


def _sentence(text: str, secrets: SecretForms) -> str:
    clean, is_cut = secrets.beginning(text, _MOST_IN_SENTENCE)
    return f"{clean}..." if is_cut else clean


def log_exception(logger: logging.Logger, secrets: SecretForms | None, message: str, *args: object) -> None:
    """``logger.exception`` without secrets: what others raise may quote the command or the environment they had."""
    if secrets is None:
        logger.exception(message, *args)
    else:
        logger.error("%s\n%s", secrets.text(message % args), secrets.text(traceback.format_exc().rstrip()))


def _stream(data: bytes, cut_at: int | None, secrets: SecretForms) -> tuple[bytes, int | None]:
    redactor = Redactor(secrets)
    if cut_at is None:
        return redactor.whole(data), None
    head = redactor.whole(data[:cut_at])
    return head + redactor.whole(data[cut_at:]), len(head)
