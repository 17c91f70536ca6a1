"""InProcessPython on its own; the executor's tests have the rest of its life cycle (S0-76)."""

from __future__ import annotations

import sys
import threading

import pytest

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.in_process import InProcessPython


def test_the_streams_are_back_after_a_run_also_after_a_failing_one() -> None:
    before = (sys.stdout, sys.stderr)
    python = InProcessPython()
    assert python.run("print(1)", timeout_seconds=5).stdout == "1\n"
    assert python.run("1/0", timeout_seconds=None).exit_code == 1
    assert (sys.stdout, sys.stderr) == before


def test_a_stream_somebody_else_put_in_place_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import io

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
