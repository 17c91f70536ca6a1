"""Row 87: what scripts and skills print cannot command the owner's terminal."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_live_output import PROGRAM, SECONDS, Terminal

from adk_skills_agent.cli.terminal import TerminalStream, VisibleBytes, visible

SEQUENCES = {
    "OSC 52, the clipboard": (b"\x1b]52;c;cm0gLXJmIH4K\x07", rb"\x1b]52;c;cm0gLXJmIH4K\x07"),
    "OSC 8, a link": (
        b"\x1b]8;;http://evil\x1b\\\\bank.example\x1b]8;;\x1b\\\\",
        rb"\x1b]8;;http://evil\x1b\\bank.example",
    ),
    "cursor movement": (b"\x1b[2A\x1b[2K\x1b[1;1Hover", rb"\x1b[2A\x1b[2K\x1b[1;1Hover"),
    "a bell": (b"ding\x07", rb"ding\x07"),
    "the title": (b"\x1b]0;root@host\x07", rb"\x1b]0;root@host\x07"),
    "a question the terminal answers": (b"\x1b[6n\x1bP$q q\x1b\\\\", rb"\x1b[6n\x1bP$q q\x1b"),
    "backspaces": (b"no\x08\x08yes", rb"no\x08\x08yes"),
    "C1 as UTF-8": ("\x9b2J\x9d52;c;eA==\x9c".encode(), rb"\x9b2J\x9d52;c;eA==\x9c"),
    "C1 as raw bytes": (b"\x9b2J\x9d52;c;eA==\x9c", rb"\x9b2J\x9d52;c;eA==\x9c"),
    "text turned round": ("user\u202egpj.exe".encode(), rb"user\u202egpj.exe"),
    "delete": (b"a\x7fb", rb"a\x7fb"),
}
OBEYED = bytes({*range(32), 127} - {*b"\n\t\r"})


@pytest.mark.parametrize(("sent", "shown"), SEQUENCES.values(), ids=SEQUENCES)
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_row_87_a_sequence_is_shown_as_text_wherever_it_is_cut(sent: bytes, shown: bytes, size: int) -> None:
    stream = VisibleBytes("utf-8")
    pieces = [stream.feed(sent[at : at + size]) for at in range(0, len(sent), size)]
    assert shown in b"".join([*pieces, stream.feed(b"", final=True)])


@given(st.lists(st.binary(max_size=12), max_size=8), st.sampled_from(["utf-8", "latin-1", "ascii"]))
def test_row_87_no_byte_that_a_terminal_obeys_passes(pieces: list[bytes], encoding: str) -> None:
    stream = VisibleBytes(encoding)
    out = b"".join([*map(stream.feed, pieces), stream.feed(b"", final=True)])
    assert not set(OBEYED) & set(out)
    assert not [character for character in out.decode(encoding) if "\x80" <= character <= "\x9f"]
    whole = VisibleBytes(encoding)
    assert out == whole.feed(b"".join(pieces), final=True)


def test_ordinary_text_and_progress_bars_stay_as_they_are() -> None:
    text = "Grüße, 日本語, 👩\u200d👩\u200d👧, a\u00a0b\tcolumn\n10 %\r20 %\r\n"
    assert VisibleBytes("utf-8").feed(text.encode()) == text.encode()
    assert VisibleBytes("latin-1").feed("ü€".encode()) == b"\xfc\\u20ac"
    stream = VisibleBytes("utf-8")
    assert [stream.feed(b"\xe2\x82"), stream.feed(b"\xac!"), stream.feed(b"\xe2", final=True)] == [
        b"",
        "€!".encode(),
        b"\\xe2",
    ]


def test_what_this_program_prints_itself_keeps_on_its_line() -> None:
    raw = io.BytesIO()
    stream = TerminalStream(raw, "utf-8", line_buffering=True)
    print("adk-skills: \x1b]52;c;eA==\x07 \rok: \x9b", file=stream)
    assert raw.getvalue() == b"adk-skills: \\x1b]52;c;eA==\\x07 \\rok: \\x9b\n"
    assert visible("a\udc9bb") == "a\\udc9bb"


@pytest.fixture
def skill(make_skill: Callable[..., Path]) -> Path:
    script = (
        "import os, sys, time\n"
        f"for sequence in {[sent for sent, _ in SEQUENCES.values()]!r}:\n"
        "    for stream in map(int, sys.argv[1:]):\n"
        "        os.write(stream, sequence[:3]); time.sleep(0.01)\n"
        "        os.write(stream, sequence[3:] + b'\\n')\n"
        "sys.exit(chr(27) + ']52;c;eA==' + chr(7))\n"
    )
    return make_skill("escapes", files={"scripts/print.py": script})


@pytest.mark.parametrize("level", ["process", "landlock"])
@pytest.mark.parametrize("stream", [1, 2])
def test_row_87_a_script_on_a_terminal_commands_nothing(skill: Path, tmp_path: Path, level: str, stream: int) -> None:
    command = ["run", skill, "print.py", "--min-isolation", level, "--", stream]
    sent = Terminal(*command, cwd=tmp_path, term="dumb").end()
    assert not set(OBEYED) & set(sent)
    assert not [character for character in sent.decode() if "\x80" <= character <= "\x9f" or character == "\u202e"]
    for _, shown in SEQUENCES.values():
        assert shown in sent, shown


def test_row_87_raw_and_pipes_leave_the_bytes_alone(skill: Path, tmp_path: Path) -> None:
    whole = b"".join(sequence + b"\n" for sequence, _ in SEQUENCES.values())
    options = ["--min-isolation", "process", "--quiet"]
    raw = Terminal("run", skill, "print.py", "--raw", *options, "--", 1, cwd=tmp_path).end()
    for sequence, _ in SEQUENCES.values():
        assert sequence in raw
    command = [PROGRAM, "run", skill, "print.py", *options, "--", "1", "2"]
    piped = subprocess.run(command, capture_output=True, check=False, cwd=tmp_path, timeout=SECONDS)
    assert piped.stdout == whole
    assert piped.stderr.startswith(whole)


def test_row_87_no_command_passes_a_skills_text_on_as_it_is(make_skill: Callable[..., Path], tmp_path: Path) -> None:
    osc = "\\e]52;c;eA==\\a"
    body = "Read this.\n\x1b]52;c;eA==\x07\x9b2J"
    front = f'---\nname: names-it\ndescription: "{osc} shows a \\x9b thing"\nlicense: "{osc}"\n---\n{body}\n'
    folder = make_skill("names-it", files={"scripts/a.py": ""})
    (folder / "SKILL.md").write_text(front)
    for command in (
        ["list", "-d", folder.parent],
        ["list", "-d", folder.parent, "--diagnostics"],
        ["info", "names-it", "-d", folder.parent, "--body"],
        ["validate", folder],
        ["search", "thing", "-d", folder.parent],
        ["run", folder, "\x1b]52;c;eA==\x07.py"],
        ["info", "\x1b]52;c;eA==\x07", "-d", folder.parent],
    ):
        sent = Terminal(*command, cwd=tmp_path, term="dumb").end()
        assert sent, command
        assert not set(OBEYED) & set(sent), (command, sent)
        assert not [character for character in sent.decode() if "\x80" <= character <= "\x9f"], command
