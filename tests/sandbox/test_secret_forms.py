"""In which forms and pieces a secret is recognised in output."""

from __future__ import annotations

import base64
import binascii
import html
import json
import os
import random
import shlex
import time
import tracemalloc
import urllib.parse
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adk_skills_agent.sandbox.contract import (
    SandboxPolicy,
)
from adk_skills_agent.sandbox.secrets import Redactor, Secret, SecretForms

VALUE = "sk-live/4f+9aZ=hunter2_Q"
SECRET = Secret(VALUE)
FORMS = SecretForms([("KEY", SECRET)])
PROCESS = SandboxPolicy(min_isolation="process", wall_seconds=20.0)


def gone(data: bytes, value: str = VALUE) -> bytes:
    clean = FORMS.redact(data)
    assert value.encode() not in clean
    assert b"[secret KEY]" in clean
    return clean


def in_pieces(data: bytes, sizes: list[int], forms: SecretForms = FORMS) -> bytes:
    redactor = Redactor(forms)
    out, position, turn = [], 0, 0
    while position < len(data):
        size = sizes[turn % len(sizes)]
        out.append(redactor.feed(data[position : position + size]))
        position, turn = position + size, turn + 1
    return b"".join([*out, redactor.close()])


FORMS_OF_VALUE = {
    "raw": VALUE,
    "upper case": VALUE.upper(),
    "lower case": VALUE.lower(),
    "reversed": VALUE[::-1],
    "percent": urllib.parse.quote(VALUE, safe=""),
    "percent, lower case digits": urllib.parse.quote(VALUE, safe="").lower(),
    "percent, path": urllib.parse.quote(VALUE),
    "plus": urllib.parse.quote_plus(VALUE),
    "percent twice": urllib.parse.quote(urllib.parse.quote(VALUE, safe=""), safe=""),
    "percent twice, path": urllib.parse.quote(urllib.parse.quote(VALUE)),
    "percent, all": "".join(f"%{byte:02X}" for byte in VALUE.encode()),
    "form": urllib.parse.urlencode({"a": "1", "key": VALUE, "b": "2"}),
    "json": json.dumps({"k": VALUE}),
    "quoted-printable": "".join(f"={byte:02X}" for byte in VALUE.encode()),
    "percent u": "".join(f"%u{ord(c):04x}" for c in VALUE),
    "characters": str(list(VALUE)),
    "characters, json": json.dumps(list(VALUE)),
    "spaced": " ".join(VALUE),
    "octal": " ".join(f"{byte:03o}" for byte in VALUE.encode()),
    "hexadecimal, each": str([hex(byte) for byte in VALUE.encode()]),
    "utf-16 in hexadecimal": VALUE.encode("utf-16-be").hex(),
    "json, slashes": json.dumps(VALUE).replace("/", "\\/"),
    "unicode escapes": "".join(f"\\u{ord(c):04x}" for c in VALUE),
    "c escapes": "".join(f"\\x{ord(c):02x}" for c in VALUE),
    "octal escapes": "".join(f"\\{ord(c):03o}" for c in VALUE),
    "html": html.escape(f"<a href='{VALUE}'>"),
    "html, decimal": "".join(f"&#{ord(c)};" for c in VALUE),
    "html, hexadecimal": "".join(f"&#x{ord(c):x};" for c in VALUE),
    "html, HEXADECIMAL": "".join(f"&#X{ord(c):X};" for c in VALUE),
    "html, padded": "".join(f"&#{ord(c):07d};" for c in VALUE),
    "html, padded hexadecimal": "".join(f"&#x{ord(c):08x};" for c in VALUE),
    "html, without semicolons": "".join(f"&#{ord(c)}" for c in VALUE),
    "html, hexadecimal without semicolons": "".join(f"&#x{ord(c):X}" for c in VALUE),
    "html, every other character": "".join(f"&#{ord(c)};" if n % 2 else c for n, c in enumerate(VALUE)),
    "html, punctuation by number": "".join(c if c.isalnum() else f"&#x{ord(c):02X};" for c in VALUE),
    "html, punctuation by name": VALUE.replace("/", "&sol;").replace("+", "&plus;").replace("=", "&equals;"),
    "html, escaped again": html.escape("".join(f"&#{ord(c)};" for c in VALUE)),
    "html, one reference a line": "\n".join(f"&#{ord(c)};" for c in VALUE),
    "html, base64 by number": "".join(f"&#{c};" for c in base64.b64encode(VALUE.encode())),
    "shell": shlex.quote(VALUE),
    "shell, backslashes": "".join(c if c.isalnum() else f"\\{c}" for c in VALUE),
    "hex": VALUE.encode().hex(),
    "HEX": VALUE.encode().hex().upper(),
    "hex, colons": VALUE.encode().hex(":"),
    "hex, spaces": VALUE.encode().hex(" ", 2),
    "hex, c array": ", ".join(f"0x{byte:02x}" for byte in VALUE.encode()),
    "list of numbers": str(list(VALUE.encode())),
    "base64": base64.b64encode(VALUE.encode()).decode(),
    "base64 url": base64.urlsafe_b64encode(VALUE.encode()).decode(),
    "base64 in a url": urllib.parse.quote(base64.b64encode(VALUE.encode()).decode().rstrip("="), safe="+/"),
    "base64 mime": base64.encodebytes(VALUE.encode() * 5).decode(),
    "base64 mime in json": json.dumps(base64.encodebytes(b"x" * 50 + VALUE.encode()).decode()),
    "base32": base64.b32encode(VALUE.encode()).decode(),
    "one character a line": "\n".join(VALUE),
    "wrapped": "\r\n".join(VALUE[i : i + 5] for i in range(0, len(VALUE), 5)),
    "wrapped, in json": json.dumps("\n".join(VALUE[i : i + 5] for i in range(0, len(VALUE), 5))),
    "hex dump": binascii.hexlify(VALUE.encode(), "-", 4).decode(),
}


@pytest.mark.parametrize("form", FORMS_OF_VALUE.values(), ids=FORMS_OF_VALUE)
@pytest.mark.parametrize("pieces", [[1 << 20], [1], [3, 1, 7]], ids=["whole", "bytes", "pieces"])
def test_every_usual_form_is_taken_out_however_it_is_cut(form: str, pieces: list[int]) -> None:
    data = f"before {form} after\n".encode()
    clean = in_pieces(data, pieces)
    assert clean.startswith(b"before ")
    assert clean.endswith(b" after\n")
    assert b"[secret KEY]" in clean
    assert b"hunter2" not in clean.lower()
    letters = bytes(c for c in clean if c not in b"\r\n")
    unescaped = html.unescape(html.unescape(letters.decode())).encode()
    for part in (VALUE[:8], VALUE[-8:], VALUE[8:16]):
        assert part.encode() not in letters
        assert part.encode() not in unescaped


@pytest.mark.parametrize("before", range(6))
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode, base64.b32encode, base64.b16encode])
def test_every_alignment_inside_longer_encoded_data_is_found(before: int, encode: object) -> None:
    prefix, suffix = os.urandom(before), os.urandom(7)
    encoded = encode(prefix + VALUE.encode() + suffix)  # type: ignore[operator]
    clean = gone(b"Authorization: Basic " + encoded)
    for start in range(0, len(VALUE) - 8, 3):
        for shift in range(3):
            assert base64.b64encode(b"x" * shift + VALUE[start : start + 8].encode())[4:-4] not in clean


@pytest.mark.parametrize("other", [str.upper, str.lower, str.swapcase])
def test_row_180_letters_that_are_not_ascii_have_another_case_too(other: Callable[[str], str]) -> None:
    value = "Pässwörd-éΩ12"
    assert SecretForms([("KEY", Secret(value))]).redact(other(value).encode()) == b"[secret KEY]"


def test_utf16_is_found() -> None:
    gone(b"x" + VALUE.encode("utf-16-le") + b"y")
    gone(b"x" + VALUE.encode("utf-16-be") + b"y")


def test_a_value_with_every_kind_of_character() -> None:
    value = "pä$$ w\"örd'<&>/\\ %41\t€𝄞end"
    forms = SecretForms([("P", Secret(value))])
    raw = value.encode()
    for shown in (
        raw,
        value.encode("utf-16-le"),
        json.dumps(value).encode(),
        json.dumps(value, ensure_ascii=False).encode(),
        repr(value).encode(),
        repr(raw).encode(),
        urllib.parse.quote(value).encode(),
        urllib.parse.quote_plus(value).encode(),
        html.escape(value).encode(),
        base64.b64encode(raw),
        raw.hex().encode(),
    ):
        assert b"[secret P]" in forms.redact(b"<<" + shown + b">>"), shown


def test_a_private_key_is_found_whole_by_line_and_in_json() -> None:
    body = base64.encodebytes(random.Random(1).randbytes(1600)).decode()
    key = f"-----BEGIN PRIVATE KEY-----\n{body}-----END PRIVATE KEY-----\n"
    forms = SecretForms([("PEM", Secret(key))])
    lines = body.splitlines()
    for shown in (
        key,
        json.dumps({"private_key": key}),
        lines[7],
        f"x{lines[3]}\n{lines[4]}",
        key.replace("\n", "\r\n"),
    ):
        clean = forms.redact(shown.encode()).decode()
        assert not [line for line in lines if line in clean]
        assert "[secret PEM]" in clean
    assert forms.redact(base64.b64encode(key.encode())).count(b"[secret PEM]") >= 1
    assert forms.redact(b"-----BEGIN PRIVATE KEY-----") == b"-----BEGIN PRIVATE KEY-----"


def test_row_132_a_long_secret_is_found_in_every_form_that_is_promised() -> None:
    """Tokens of identity providers have more than 256 bytes: they are looked for in pieces."""
    letters = random.Random(5)
    value = "".join(letters.choice("ABCxyz019+/=._-'&<\"") for _ in range(700))
    forms = SecretForms([("P", Secret(value))])
    raw = value.encode()
    written = {
        "reversed": value[::-1],
        "other case": value.swapcase(),
        "percent": urllib.parse.quote(value, safe=""),
        "json": json.dumps(value),
        "shell": shlex.quote(value),
        "html": html.escape(value),
        "html, decimal": "".join(f"&#{ord(c)};" for c in value),
        "html, again": html.escape(html.escape(value)),
        "hexadecimal": raw.hex(":"),
        "wrapped": "\n".join(value[at : at + 60] for at in range(0, len(value), 60)),
        **{f"base64 at {n}": base64.b64encode(b"x" * n + raw + b"yz").decode() for n in range(3)},
        **{f"base32 at {n}": base64.b32encode(b"x" * n + raw + b"yz").decode() for n in range(5)},
    }
    for name, text in written.items():
        left = forms.redact(text.encode()).replace(b"[secret P]", b"")
        assert len(left) < len(text) // 20, (name, left)


def test_of_two_secrets_that_overlap_or_begin_alike_nothing_is_left() -> None:
    forms = SecretForms([("SHORT", Secret("abcdef")), ("LONG", Secret("abcdefghijkl")), ("NEXT", Secret("jklmnop"))])
    assert forms.redact(b"<abcdefghijkl>") == b"<[secret LONG]>"
    assert forms.redact(b"<abcdefghijklmnop>") == b"<[secret LONG]>"
    assert forms.redact(b"<abcdef>") == b"<[secret SHORT]>"
    assert in_pieces(b"<abcdefghijklmnop> abcdef", [1], forms) == b"<[secret LONG]> [secret SHORT]"
    assert in_pieces(b"abcdefghi", [4], forms) == b"[secret SHORT]ghi"


def test_a_value_that_repeats_itself_does_not_slip_through_a_cut() -> None:
    forms = SecretForms([("K", Secret("xyxyxyxy"))])
    for size in range(1, 12):
        assert b"xyxyxyxy" not in in_pieces(b"a xyxyxyxyxyxyxyxy b xyxyxyxy", [size], forms)


@given(
    st.lists(st.sampled_from([VALUE, "sk-live", "\n", "a", VALUE[:9], base64.b64encode(VALUE.encode()).decode(), "%"])),
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
)
def test_pieces_give_the_same_as_the_whole(parts: list[str], sizes: list[int]) -> None:
    data = "".join(parts).encode()
    whole = FORMS.redact(data)
    assert in_pieces(data, sizes) == whole
    assert VALUE.encode() not in whole


@given(st.binary(max_size=300), st.lists(st.integers(1, 50), min_size=1, max_size=4))
def test_other_data_passes_unchanged(data: bytes, sizes: list[int]) -> None:
    assert in_pieces(data, sizes) == data


def test_ordinary_output_is_passed_on_at_once_but_for_what_may_be_a_beginning() -> None:
    redactor = Redactor(FORMS)
    assert redactor.feed(b"progress: done.\n") == b"progress: done.\n"
    assert redactor.feed(b"token sk-li") == b"token "
    assert redactor.feed(b"ne is busy.\n") == b"sk-line is busy.\n"
    assert redactor.close() == b""


def test_a_script_cannot_make_the_agent_hold_its_output_back_for_ever() -> None:
    redactor = Redactor(FORMS)
    passed = sum(len(redactor.feed(b"s" + b"\n" * 9_999)) for _ in range(50))
    assert passed > 50 * 10_000 - FORMS.reach - 1


def test_a_flood_is_filtered_at_a_useful_speed() -> None:
    """Relative, not absolute: eight MiB through the filter cost less than a few hundred times copying them."""
    chunk = b"the quick brown fox jumps over the lazy dog 0123456789\n" * 1191
    redactor = Redactor(FORMS)
    began = time.thread_time()
    for _ in range(128):
        redactor.feed(chunk)
    took = time.thread_time() - began
    began = time.thread_time()
    for _ in range(128):
        chunk.translate(None, b"\r\n\0")
    once = time.thread_time() - began
    assert took < max(once, 0.001) * 300


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "begin", "filler"),
    [
        ("hf_abcdefgnxyz12", "hf_abcdefg", "\\n"),
        ("sk-proj-4nRt8xQz", "sk-proj-4", "\\n"),
        ("sk-proj-4nRt8xQz", "sk-proj-4", "\\"),
        ("sk-proj-4nRt8xQz", "", "s\n"),
        ("nnnnnnnnnnnn", "", "n\\n"),
        ("rnrnrnrnrnrn", "", "\\r\\n\\rn"),
        ("rnrnrnrnrnrn", "", "rn"),
    ],
)
def test_whatever_a_script_prints_it_costs_time_in_proportion_to_its_length(value, begin, filler):
    """A pattern that goes back would freeze the agent; here each doubling costs about twice as much."""
    forms = SecretForms([("K", Secret(value))])
    earlier, size = 0.05, 1024
    while size <= 1 << 19:
        data = f"{value} {begin}{filler * (size // len(filler))} {value}".encode()
        began = time.process_time()
        assert forms.found_in(data) == "K"
        assert value.encode() not in forms.redact(data)
        forms.redact_start(data)
        took = time.process_time() - began
        assert took < earlier * 6, f"{size:,} bytes took {took:.2f} s"
        earlier, size = max(took, 0.05), size * 2


FILLERS = ["&a", "&&", "&amp;", "&#" + "0" * 500, "&#x", "&" + "a" * 20, "&sol;"]


@pytest.mark.parametrize("filler", ["&#115;", *(pytest.param(filler, marks=pytest.mark.slow) for filler in FILLERS)])
def test_html_references_cost_time_in_proportion_and_a_bounded_memory(filler: str) -> None:
    forms = SecretForms([("K", Secret("ssssssss/x"))])
    took = []
    for size in (1 << 15, 1 << 18):  # beyond that they are not looked at any more
        data = f"&#115;ssssss&#115;&sol;x {filler * (size // len(filler))} sssssss&#x73;/x".encode()
        tracemalloc.start()
        began = time.process_time()
        assert forms.found_in(data) == "K"
        took.append(time.process_time() - began)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4 * len(data) + (40 << 20)
        assert forms.redact(data).count(b"[secret K]") >= 2
        redactor = Redactor(forms)
        passed = 0
        for at in range(4096, len(data), 4096):
            passed += len(redactor.feed(data[at - 4096 : at]))
            assert at - passed < forms.reach + 4096
    assert took[1] < max(took[0], 0.05) * 24


def test_html_references_of_something_else_pass_unchanged() -> None:
    for text in ("AT&T R&amp;D &lt;b&gt; &#8364; &#xFFFFFFF; &#99999999; &unknown; &", "a & b &#", "&#115;k-live"):
        for size in (1, 3, 1000):
            assert in_pieces(text.encode(), [size]) == text.encode()
    redactor = Redactor(FORMS)
    assert redactor.feed(b"AT&T and R&D\n") == b"AT&T and R&D\n"
    assert redactor.feed(b"! &#3") == b"! "
    assert redactor.feed(b"3;\n") == b"&#33;\n"


def test_html_references_around_a_secret_stay() -> None:
    written = "".join(f"&#{ord(c)};" for c in VALUE)
    assert FORMS.redact(f"a&lt;{written}&gt;b".encode()) == b"a&lt;[secret KEY]&gt;b"
    assert FORMS.redact(b"&#228;" + VALUE.encode() + b"&amp;") == b"&#228;[secret KEY]&amp;"
    forms = SecretForms([("P", Secret("pässwört€"))])
    for shown in ("p&#228;ssw&#xF6;rt&#8364;", "pä&#115;swört€", html.escape("p&#228;sswört&#x20ac;")):
        assert forms.text(f"<{shown}>") == "<[secret P]>"


@given(
    st.lists(
        st.sampled_from([*(f"&#{ord(c)};" for c in VALUE[:5]), VALUE[5:], "&#115", "&", "k", VALUE, "&amp;", "x"])
    ),
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
)
def test_pieces_of_html_references_give_the_same_as_the_whole(parts: list[str], sizes: list[int]) -> None:
    data = "".join(parts).encode()
    whole = FORMS.redact(data)
    assert in_pieces(data, sizes) == whole
    assert VALUE not in html.unescape(whole.decode())


def test_an_escaped_line_break_beside_another_one_hides_nothing() -> None:
    forms = SecretForms([("K", Secret("abcrnefgh"))])
    for shown in ("abc\\nrnefgh", "abc\\\\nrnefgh", "abc\\rr\\nnefgh", "abcr\\\\\nnefgh"):
        assert forms.redact(f"<{shown}>".encode()) == b"<[secret K]>", shown


def test_text_keeps_what_is_no_secret() -> None:
    assert FORMS.text("plain €") == "plain €"
    assert FORMS.text(f"€ {VALUE} \udc80 ü") == "€ [secret KEY] \udc80 ü"
    assert FORMS.found_in(VALUE.encode()) == "KEY"
    assert FORMS.found_in(b"nothing") is None
