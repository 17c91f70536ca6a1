from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from adk_skills_agent.scripts.error_text import condense_tracebacks, error_line, shorten
from adk_skills_agent.scripts.outcome import hide_interpreter


def stderr_of(source: str, tmp_path: Path) -> str:
    script = tmp_path / "run.py"
    script.write_text(source)
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    return run.stderr.replace(str(tmp_path), "/skill/scripts")


@pytest.mark.requirement("S0-59")
def test_a_traceback_becomes_the_exception_and_its_line(tmp_path: Path) -> None:
    """S0-59."""
    text, exception = condense_tracebacks(
        stderr_of("import sys\nprint('before', file=sys.stderr)\ndef f():\n    return int('x')\nf()\n", tmp_path)
    )
    assert exception is not None
    assert exception.text == "ValueError: invalid literal for int() with base 10: 'x'"
    assert exception.place == "scripts/run.py, line 4, in f"
    assert exception.source == "return int('x')"
    assert text.startswith("before\nValueError: ")
    assert "Traceback" not in text
    assert "  File" not in text


def test_the_innermost_line_of_the_skill_is_named_not_one_of_a_library(tmp_path: Path) -> None:
    _, exception = condense_tracebacks(stderr_of("import json\njson.loads('{')\n", tmp_path))
    assert exception is not None
    assert exception.place == "scripts/run.py, line 2"
    assert "JSONDecodeError" in exception.text


def test_of_a_chain_every_exception_stays_and_the_last_is_the_error(tmp_path: Path) -> None:
    source = "try:\n    1/0\nexcept ZeroDivisionError as e:\n    raise RuntimeError('bad\\n  input') from e\n"
    text, exception = condense_tracebacks(stderr_of(source, tmp_path))
    assert exception is not None
    assert exception.text == "RuntimeError: bad\n  input"
    assert "ZeroDivisionError: division by zero" in text


def test_a_syntax_error_of_the_script_is_condensed_too(tmp_path: Path) -> None:
    text, exception = condense_tracebacks(stderr_of("def f(:\n    pass\n", tmp_path))
    assert exception is not None
    assert exception.text.startswith("SyntaxError")
    assert exception.place == "scripts/run.py, line 1"
    assert "File" not in text


@pytest.mark.parametrize(
    "text",
    ["", "plain\ntext", "Traceback (most recent call last):", "Traceback (most recent call last):\n  File", "\n\n"],
)
def test_text_that_is_no_traceback_survives(text: str) -> None:
    condensed, _ = condense_tracebacks(text)
    assert len(condensed) >= len(text.strip()) or "Traceback" in text


@pytest.mark.requirement("S0-20", "S0-21")
def test_a_long_text_is_cut_and_marked() -> None:
    """S0-20, S0-21."""
    assert shorten("x" * 300, 200) == "x" * 200 + "..."
    assert shorten("x" * 300, None) == "x" * 300


def test_a_group_of_exceptions_is_named_and_kept_whole(tmp_path: Path) -> None:
    raw = stderr_of("raise ExceptionGroup('both failed', [ValueError('a'), KeyError('b')])\n", tmp_path)
    text, exception = condense_tracebacks(raw)
    assert str(exception) == "ExceptionGroup: both failed (2 sub-exceptions)"
    assert text == raw


def test_a_quoted_header_loses_no_line() -> None:
    quoted = "Traceback (most recent call last):\n  data 1\n  data 2\nthe end"
    assert condense_tracebacks(quoted) == (quoted, None)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            '  File "/root/.pyenv/versions/3.11.7/lib/python3.11/socket.py", line 9',
            '  File "<python>/socket.py", line 9',
        ),
        ("/usr/lib/python3/dist-packages/x.py:3: Warning", "<python>/dist-packages/x.py:3: Warning"),
        ("(at /opt/v/lib64/python3.14t/a.py, line 1)", "(at <python>/a.py, line 1)"),
        (f"/home/you/.cache/adk-skills/environments/{'a1' * 32}/bin/ruff: no", "<packages>/bin/ruff: no"),
        ("/skill/lib/python3/own.py, line 2", "/skill/lib/python3/own.py, line 2"),
        ("see https://example.com/lib/python3/x", "see https://example.com/lib/python3/x"),
    ],
)
def test_where_the_host_keeps_an_interpreter_is_not_shown(text: str, shown: str) -> None:
    assert hide_interpreter(text) == shown


def test_a_long_text_of_half_paths_is_read_once() -> None:
    text = "=/a" * 200_000 + "/lib/python3"
    assert hide_interpreter(text) == text


@pytest.mark.parametrize(
    ("program", "command", "code", "line"),
    [
        ("ruby", ["ruby", "-e"], 'def f = raise(ArgumentError, "bad")\nf', "-e:1:in `f': bad (ArgumentError)"),
        ("Rscript", ["Rscript", "-e"], 'f <- function(x) stop("bad"); f(1)', "Error in f(1) : bad"),
        ("node", ["node", "-e"], "throw new TypeError('bad')", "TypeError: bad"),
        (
            "node",
            ["node", "--max-old-space-size=20", "-e"],
            "const a = []; for (;;) a.push(new Array(1000).fill({}))",
            "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory",
        ),
    ],
)
def test_the_error_of_other_languages_is_above_what_they_say_last(
    program: str, command: list[str], code: str, line: str
) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed here")
    run = subprocess.run([*command, code], capture_output=True, text=True, check=False)
    assert error_line(run.stderr).replace("'f'", "`f'") == line, run.stderr


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (
            'x\nException in thread "main" java.lang.IllegalStateException: bad\n\tat A.f(A.java:1)\n'
            "Caused by: java.lang.RuntimeException: inner\n\t... 32 more\n",
            'Exception in thread "main" java.lang.IllegalStateException: bad',
        ),
        ("Error in x() : \n  no package\nCalls: f\nExecution halted\n", "Error in x() : no package"),
        ("Error: plain\nExecution halted", "Error: plain"),
        ("only this\nExecution halted", "Execution halted"),
        ("Error in a : b\nlast", "last"),
        ("", ""),
    ],
)
def test_a_line_above_is_taken_only_where_it_is_the_error(said: str, line: str) -> None:
    assert error_line(said) == line


@pytest.mark.parametrize(
    "said",
    [
        "at " + "(" * 250_000,
        "x:1:in " + " (A" * 80_000 + "\nfrom x:1:in y",
        "Error in " + ":x" * 100_000 + "\nExecution halted",
        "a" + ":1" * 100_000 + "\nfrom x:1:in y",
    ],
)
def test_the_error_is_looked_for_in_linear_time(said: str) -> None:
    began = time.process_time()
    assert error_line(said)
    assert time.process_time() - began < 1
