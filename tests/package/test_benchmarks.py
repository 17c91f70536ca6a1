"""``benchmarks/run.py`` as a newcomer calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).resolve().parents[2] / "benchmarks" / "run.py"


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, RUN, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_what_can_be_measured_has_names_and_a_pattern_without_any_is_told_them() -> None:
    listed = bench("--list")
    assert listed.returncode == 0
    assert "script-cold" in listed.stdout.splitlines()
    wrong = bench("--only", "nothing-of-this-name")
    assert (wrong.returncode, wrong.stdout) == (2, listed.stdout)


@pytest.mark.slow
def test_a_measurement_names_the_machine_both_sides_the_bar_and_whether_it_holds() -> None:
    done = bench("--only", "script-cold|script-flood", "--runs", "2", "--json")
    said = json.loads(done.stdout)
    assert {"google-adk", "pydantic-ai-skills", "python", "kernel", "cores"} <= set(said["machine"])
    rows = {(row["what"], row["against"]): row for row in said["rows"]}
    for row in rows.values():
        assert row["note"] or row["against"] != "-", "what is not measured has a reason"
        assert (row["held"] is None) == (not row["bar"])
    assert rows["1 GB on stdout, how the run ends", "google-adk"]["held"] is True
    assert rows["1 GB on stdout, memory of the agent", "google-adk"]["held"] is True
    assert ("trivial .py cold, at process", "plain `python -I`") in rows
    assert done.returncode == int(any(row["held"] is False for row in rows.values()))
