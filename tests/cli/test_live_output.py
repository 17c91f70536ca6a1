"""``adk-skills run`` on a terminal: output as it comes, and a line about the run that is gone at the end."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import preloaded

PROGRAM = preloaded.program("adk-skills")
SECONDS = 60.0
STATUS = re.compile(rb"running \d+\.\d s, \d+ MiB, \d+ process(es)?")


class Terminal:
    """A program whose stdout and stderr are a terminal; ``shown`` is everything it was sent."""

    def __init__(self, *command: object, cwd: Path, stdout: int | None = None, term: str = "xterm") -> None:
        self.shown = b""
        self._master, slave = pty.openpty()
        self.program = subprocess.Popen(
            [PROGRAM, *map(str, command)],
            stdin=subprocess.DEVNULL,
            stdout=slave if stdout is None else stdout,
            stderr=slave,
            cwd=cwd,
            env={**os.environ, "TERM": term, "COLUMNS": "80"},
            start_new_session=True,
        )
        os.close(slave)

    def until(self, done: Callable[[bytes], object]) -> bytes:
        deadline = time.monotonic() + SECONDS
        while not done(self.shown):
            ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, self.shown
            try:
                data = os.read(self._master, 65536)
            except OSError:  # how Linux says that the other side is closed
                data = b""
            if not data:
                break
            self.shown += data
        return self.shown

    def end(self) -> bytes:
        self.until(lambda _: False)
        self.program.wait(SECONDS)
        os.close(self._master)
        return self.shown


def screen(sent: bytes) -> list[str]:
    """The lines a person sees in the end."""
    lines = [""]
    column = 0
    for piece in re.findall(rb"\x1b\[K|\r|\n|[^\x1b\r\n]+", sent):
        if piece == b"\r":
            column = 0
        elif piece == b"\n":
            lines.append("")
            column = 0
        elif piece == b"\x1b[K":
            lines[-1] = lines[-1][:column]
        else:
            text = piece.decode()
            lines[-1] = lines[-1][:column] + text + lines[-1][column + len(text) :]
            column += len(text)
    return lines


@pytest.fixture
def skill(make_skill: Callable[..., Path]) -> Path:
    return make_skill(
        "talks",
        files={
            "scripts/talk.sh": "echo one; sleep 0.7; echo two >&2; sleep 0.7; echo three\n",
            "scripts/half.sh": "printf half; sleep 0.7; echo ' line'\n",
            "scripts/sleep.sh": "echo started; sleep 60\n",
        },
    )


def test_output_comes_as_it_is_written_and_the_line_is_gone_at_the_end(skill: Path, tmp_path: Path) -> None:
    terminal = Terminal("run", skill, "talk.sh", "--min-isolation", "process", cwd=tmp_path)
    shown = terminal.until(lambda sent: STATUS.search(sent))
    assert b"one" in shown
    assert b"three" not in shown
    assert terminal.program.poll() is None
    lines = screen(terminal.end())
    assert lines[:3] == ["one", "two", "three"]
    assert not any("running" in line for line in lines)
    assert lines[-2].startswith("warning: return code 0")


def test_the_line_is_never_drawn_over_an_unfinished_line_of_the_script(skill: Path, tmp_path: Path) -> None:
    sent = Terminal("run", skill, "half.sh", "--min-isolation", "process", cwd=tmp_path).end()
    assert b"half line" in sent
    assert screen(sent)[0] == "half line"


def test_the_line_is_also_there_when_only_stderr_is_a_terminal(skill: Path, tmp_path: Path) -> None:
    with (tmp_path / "out.txt").open("wb") as out:
        sent = Terminal("run", skill, "talk.sh", "--min-isolation", "process", cwd=tmp_path, stdout=out.fileno()).end()
    assert STATUS.search(sent)
    assert screen(sent)[0] == "two"
    assert (tmp_path / "out.txt").read_bytes() == b"one\nthree\n"


@pytest.mark.parametrize(
    ("option", "term"),
    [
        ("--quiet", "xterm"),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in (("--json", "xterm"), (None, "dumb"))),
    ],
)
def test_there_is_no_line_when_nobody_wants_it(skill: Path, tmp_path: Path, option: str | None, term: str) -> None:
    options = ["--min-isolation", "process", *([option] if option else [])]
    sent = Terminal("run", skill, "talk.sh", *options, cwd=tmp_path, term=term).end()
    assert b"running" not in sent
    assert b"\x1b" not in sent
    if option == "--json":
        assert json.loads(sent)["stdout"] == "one\nthree\n"
    if option == "--quiet":
        assert sent.replace(b"\r", b"") == b"one\ntwo\nthree\n"


def test_without_a_terminal_nothing_is_added_to_the_output(skill: Path, tmp_path: Path) -> None:
    command = [PROGRAM, "run", skill, "talk.sh", "--min-isolation", "process"]
    run = subprocess.run(command, capture_output=True, check=True, cwd=tmp_path, timeout=SECONDS)
    assert run.stdout == b"one\nthree\n"
    assert b"running" not in run.stderr
    assert b"\x1b" not in run.stderr


def test_serve_says_on_a_terminal_that_a_client_starts_it(skill: Path) -> None:
    pytest.importorskip("mcp")
    terminal, slave = pty.openpty()
    line = [PROGRAM, "serve", "--dir", skill.parent]
    try:
        with subprocess.Popen(
            line, stdin=slave, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as server:
            assert server.stderr is not None
            assert "note: an MCP client starts this" in server.stderr.readline()
            server.send_signal(signal.SIGINT)
            assert server.wait(20) == 130
    finally:
        os.close(terminal)
        os.close(slave)


def test_an_interrupted_run_leaves_a_clean_line(skill: Path, tmp_path: Path) -> None:
    terminal = Terminal("run", skill, "sleep.sh", "--min-isolation", "process", cwd=tmp_path)
    terminal.until(lambda sent: STATUS.search(sent))
    terminal.program.send_signal(signal.SIGTERM)
    lines = screen(terminal.end())
    assert terminal.program.returncode == 128 + signal.SIGTERM
    assert [line for line in lines if line] == ["started", "adk-skills: ended by SIGTERM"]


def test_quiet_still_says_what_went_wrong(make_skill: Callable[..., Path], tmp_path: Path) -> None:
    skill = make_skill("fails", files={"scripts/fail.sh": "echo broken >&2; exit 4\n"})
    command = [PROGRAM, "run", skill, "fail.sh", "--quiet", "--min-isolation", "process"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=SECONDS)
    assert run.returncode == 1
    assert run.stderr.startswith("broken\n")
    assert "adk-skills: " in run.stderr
