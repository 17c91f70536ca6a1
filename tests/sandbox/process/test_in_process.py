"""InProcessPython on its own; the executor's tests have the rest of its life cycle (S0-76)."""

from __future__ import annotations

import io
import sys
import threading

import pytest

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.in_process import InProcessPython


@pytest.fixture(autouse=True)
def nothing_of_other_tests() -> None:
    """While a run of another test that hangs is captured, its stand-in stays in place."""
    for thread in threading.enumerate():
        if thread.name == "adk-skills-in-process":
            thread.join(30)


def test_the_streams_are_back_after_a_run_also_after_a_failing_one() -> None:
    before = (sys.stdout, sys.stderr)
    python = InProcessPython()
    assert python.run("print(1)", timeout_seconds=5).stdout == "1\n"
    assert python.run("1/0", timeout_seconds=None).exit_code == 1
    assert (sys.stdout, sys.stderr) == before


def test_a_stream_somebody_else_put_in_place_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    python = InProcessPython()
    theirs = io.StringIO()
    sys.modules["their_stream"] = theirs  # type: ignore[assignment]
    kept = sys.stdout
    try:
        python.run("import sys; sys.stdout = sys.modules['their_stream']", timeout_seconds=5)
        assert sys.stdout is theirs
    finally:
        sys.stdout = kept
        del sys.modules["their_stream"]


def test_late_output_of_a_run_that_timed_out_never_reaches_the_host(capsys: pytest.CaptureFixture[str]) -> None:
    python = InProcessPython()
    release = threading.Event()
    sys.modules["release_late"] = release  # type: ignore[assignment]
    code = "import sys; sys.modules['release_late'].wait(30); print('late')"
    assert python.run(code, timeout_seconds=0.1).timed_out
    with pytest.raises(SandboxError):
        python.run("print(1)", timeout_seconds=1)
    release.set()
    (worker,) = [thread for thread in threading.enumerate() if thread.name == "adk-skills-in-process"]
    worker.join(10)
    python.reinitialize()
    assert python.healthy
    assert "late" not in capsys.readouterr().out
    del sys.modules["release_late"]


@pytest.mark.parametrize(
    "code",
    [
        "import sys; print(1); sys.stdout.close(); assert sys.stdout.closed",
        "import sys; print(1); sys.stdout = None",
        "import io, sys; sys.stdout = io.TextIOWrapper(sys.stdout.detach()); print(1, flush=True)",
        "import sys; sys.stdout.buffer.write(b'1\\n')",
    ],
)
def test_a_stream_that_code_closes_is_closed_for_the_code_only(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stdout", theirs)
    python = InProcessPython()
    assert python.run(code, timeout_seconds=5).stdout == "1\n"
    assert python.run("print(2)", timeout_seconds=5).stdout == "2\n"
    assert sys.stdout is theirs
    print("mine", flush=True)
    assert theirs.buffer.getvalue() == b"mine\n"  # type: ignore[attr-defined]


def test_a_run_is_captured_also_when_somebody_replaced_the_stream_of_one_that_never_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hung, other = InProcessPython(), InProcessPython()
    release = threading.Event()
    sys.modules["release_hung"] = release  # type: ignore[assignment]
    assert hung.run("import sys; sys.modules['release_hung'].wait(30)", timeout_seconds=0.1).timed_out
    theirs = io.StringIO()
    monkeypatch.setattr(sys, "stdout", theirs)
    assert other.run("print('kept')", timeout_seconds=5).stdout == "kept\n"
    assert theirs.getvalue() == ""
    release.set()
    del sys.modules["release_hung"]
